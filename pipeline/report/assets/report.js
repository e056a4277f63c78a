/*
 * The first of the page's own scripts: draws the charts when they come near the screen. `time_axis`
 * and `navigation` follow it in the same module, so that the three share their names.
 *
 * A chart has its specification (for Vega, the library that draws it) and its data as JSON in another
 * element, whose id is the chart's id followed by `-data`. Charts on the time axis, the lanes, have
 * the signals (variables of Vega) from_s and to_s: the ends of the visible range, in seconds.
 */
const byId = (id) => document.getElementById(id);
const given = (id) => JSON.parse(byId(id).textContent);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** Makes an element: attributes, text and listeners (on...) by name, then its children. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// ---------------------------------------------------------------- charts

const charts = [...document.querySelectorAll("figure.chart")].map((figure) => ({
  figure,
  plot: figure.querySelector(".plot"),
  time: figure.classList.contains("lane"),
  view: null, // Vega's object for the chart, after it is drawn
  near: false, // near the screen
  stale: false, // whether it was drawn for another range than the present one
  // A pick is a choice above a chart. By the pick's parameter:
  values: {}, // the chosen value
  options: {}, // all values
  selects: {}, // the element with which the reader chooses
}));
const chartOf = new Map(charts.map((chart) => [chart.figure.id, chart]));
const lanes = charts.filter((chart) => chart.time);

/** Returns rows as objects; the page has one list of names, and a list of values for each row. */
function rowsOf({ columns, rows }) {
  return rows.map((row) => Object.fromEntries(columns.map((name, index) => [name, row[index]])));
}

/** Draws a chart once. The promise is fulfilled when the chart is drawn, or has failed. */
function draw(chart) {
  chart.drawing ??= drawNow(chart).catch((error) => failed(chart, error));
  return chart.drawing;
}

async function drawNow(chart) {
  const { spec, data } = given(`${chart.figure.id}-data`);
  for (const source of spec.data) if (data[source.name]) source.values = rowsOf(data[source.name]);
  const set = { ...chart.values, ...(chart.time ? { from_s: range.from, to_s: range.to } : {}) };
  for (const signal of spec.signals) if (signal.name in set) signal.value = set[signal.name];
  const { view } = await vegaEmbed(chart.plot.querySelector(".picture"), spec, {
    mode: "vega",
    renderer: "svg",
    actions: false,
    defaultStyle: false,
    tooltip: (handler, event, item, value) => showTip(event, value),
    logger: loggerOf(chart),
  });
  chart.view = view;
  if (chart.figure.dataset.state === "failed") return;
  const svg = chart.plot.querySelector("svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", byId(`${chart.figure.id}-title`).textContent);
  svg.setAttribute("aria-describedby", `${chart.figure.id}-about`);
  chart.figure.dataset.state = "drawn";
  if (chart.time) {
    view.addResizeListener(() => requestAnimationFrame(() => place(chart)));
    place(chart);
  }
}

function loggerOf(chart) {
  const logger = {
    level: () => logger,
    error: (...what) => (failed(chart, what[0]), logger),
    warn: (...what) => (console.warn(chart.figure.id, ...what), logger),
    info: () => logger,
    debug: () => logger,
  };
  return logger;
}

function failed(chart, error) {
  chart.figure.dataset.state = "failed";
  console.error(`${chart.figure.id} could not be drawn`, error);
  chart.plot.querySelector(".picture").textContent = "This chart could not be drawn; its table, if any, stands below.";
}

function drawAll() {
  return Promise.all(charts.map(draw)).then(() => refresh(true));
}

const nearby = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const chart = chartOf.get(entry.target.id);
      chart.near = entry.isIntersecting;
      if (chart.near && !chart.view) draw(chart);
      else if (chart.near && chart.stale) refresh();
    }
  },
  { rootMargin: "400px 0px" },
);

// ---------------------------------------------------------------- picks

const MANY = 20; // with more options than this, there is a field to filter them
const followers = new Map(); // by section, parameter and options: what follows one pick

/** Calls `follow` with the value that is picked in any chart of the section with this pick. */
function together(chart, pick, follow) {
  const key = JSON.stringify([chart.figure.closest("section")?.id, pick.param, pick.options]);
  followers.set(key, [...(followers.get(key) ?? []), follow]);
  return (value) => followers.get(key).forEach((each) => each(value));
}

/** Sets a choice of a chart, in its picture and in the element that shows it. */
function pickIn(chart, param, value) {
  chart.values[param] = value;
  if (chart.selects[param]) chart.selects[param].value = value;
  return chart.view?.signal(param, value).runAsync();
}

/** Sets a choice in every chart of the section that offers the same one. */
function pickInSection(chart, param, value) {
  const section = chart.figure.closest("section");
  const same = charts.filter((other) => other.options[param]?.includes(value) && section?.contains(other.figure));
  same.forEach((other) => pickIn(other, param, value));
}

function addPicks(chart) {
  const box = chart.figure.querySelector(".picks");
  if (!box) return;
  for (const { param, label, options } of JSON.parse(box.dataset.picks)) {
    chart.options[param] = options;
    chart.values[param] = options[0];
    const select = make("select", { onchange: () => pickInSection(chart, param, select.value) });
    chart.selects[param] = select;
    const offer = (text) => {
      const found = options.filter((option) => option.toLowerCase().includes(text.toLowerCase()));
      select.replaceChildren(...found.map((option) => new Option(option, option)));
      if (found.includes(chart.values[param])) select.value = chart.values[param];
      else if (found.length) pickInSection(chart, param, found[0]);
    };
    offer("");
    box.append(make("label", {}, `${label} `, select));
    if (options.length > MANY) {
      const hint = { type: "search", placeholder: `filter ${options.length}`, "aria-label": `Filter: ${label}` };
      const filter = make("input", { ...hint, oninput: () => offer(filter.value) });
      box.append(filter);
    }
  }
}

// ---------------------------------------------------------------- tooltips

const tip = make("div", { class: "tip", role: "tooltip", hidden: "" });

function showTip(event, value) {
  tip.hidden = value === null || value === undefined || value === "";
  if (tip.hidden) return;
  const entries = typeof value === "object" ? Object.entries(value) : [["", String(value)]];
  tip.replaceChildren(
    ...entries.filter(([, text]) => text !== "").map(([name, text]) => make("div", {}, make("b", {}, name), make("span", {}, String(text)))),
  );
  const { innerWidth: width, innerHeight: height } = window;
  const left = event.clientX + 14 + tip.offsetWidth > width ? event.clientX - 14 - tip.offsetWidth : event.clientX + 14;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${clamp(event.clientY + 14, 4, Math.max(4, height - tip.offsetHeight - 4))}px`;
}
