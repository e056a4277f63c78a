/*
 * The page's own script: draws the charts when they come near the screen, moves all of them on one
 * time axis (buttons, keyboard, drag, wheel, touch, links), and keeps the range in the address.
 *
 * A chart's specification and data stand as JSON in the element whose id is the chart's and `-data`.
 * Charts on the time axis have the signals from_s and to_s; times here are seconds, as in them.
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
  view: null, // Vega's, once it is drawn
  near: false, // near the screen
  stale: false, // drawn for another range than the page's
  values: {}, // what its picks say, by parameter
  options: {}, // and may say
  selects: {}, // and the elements that show it
}));
const chartOf = new Map(charts.map((chart) => [chart.figure.id, chart]));
const lanes = charts.filter((chart) => chart.time);

/** Returns rows as objects; they are embedded as one list of names and one of values a row. */
function rowsOf({ columns, rows }) {
  return rows.map((row) => Object.fromEntries(columns.map((name, index) => [name, row[index]])));
}

/** Draws a chart once. Returns a promise of its being on the screen, or of its having failed. */
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

const MANY = 20; // options from which on they can be filtered
const followers = new Map(); // by section, parameter and options: what follows one pick

/** Calls `follow` with what is picked in any chart of the section with the same choice. */
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

// ---------------------------------------------------------------- the time axis

const time = given("time-data"); // {end, faults: [{label, from, to}]}
const range = { from: 0, to: time.end };
const SHORTEST = 0.002; // seconds: below it there is nothing to see
let mark = null; // a span that a link pointed at: {from, to}
let refreshing = null;
let again = false;

/** Shows from..to in every lane; `how` is what becomes of the address: push, replace or keep. */
function setRange(from, to, how = "replace") {
  const span = clamp(to - from, SHORTEST, time.end);
  range.from = clamp(from, 0, time.end - span);
  range.to = range.from + span;
  if (how !== "keep") remember(how);
  showTimebar();
  return refresh();
}

/** Draws the lanes near the screen for the range that holds now; one drawing at a time. */
function refresh(all = false) {
  for (const chart of lanes) chart.stale = true;
  if (refreshing) {
    again = true;
    return refreshing;
  }
  refreshing = new Promise((done) => requestAnimationFrame(done))
    .then(async () => {
      do {
        again = false;
        const seen = lanes.filter((chart) => chart.view && chart.stale && (chart.near || all));
        for (const chart of seen) {
          chart.stale = false;
          await chart.view.signal("from_s", range.from).signal("to_s", range.to).runAsync();
          place(chart);
        }
      } while (again);
    })
    .finally(() => (refreshing = null));
  return refreshing;
}

function zoom(factor, around = (range.from + range.to) / 2) {
  setRange(around - (around - range.from) * factor, around + (range.to - around) * factor);
}

function pan(part) {
  const by = (range.to - range.from) * part;
  setRange(range.from + by, range.to + by);
}

const whole = () => ((mark = null), setRange(0, time.end, "push"));

function showFault(fault) {
  const to = fault.to ?? fault.from;
  const pad = Math.max(1, (to - fault.from) * 0.15);
  mark = { from: fault.from, to };
  setRange(fault.from - pad, Math.max(to + 2 * pad, fault.from + 10), "push");
}

/** Goes to the next fault after the range's middle (or the one before it: -1). */
function nextFault(step) {
  const now = mark?.from ?? (step > 0 ? -1 : time.end + 1);
  const ahead = time.faults.filter((fault) => (fault.from - now) * step > 0);
  const found = step > 0 ? ahead[0] : ahead.at(-1);
  if (found) showFault(found);
}

// ---------------------------------------------------------------- geometry and overlays

/** Returns where a lane's axis lies in its plot, in pixels. */
function axisOf(chart) {
  const [, width] = chart.view.scale("x").range();
  return { left: chart.view.origin()[0] + chart.view.padding().left, width };
}

function secondsAt(chart, clientX) {
  const { left, width } = axisOf(chart);
  const x = clientX - chart.plot.getBoundingClientRect().left - left;
  return range.from + (clamp(x, 0, width) / width) * (range.to - range.from);
}

/** Places the marked span over a lane. */
function place(chart) {
  if (chart.figure.dataset.state !== "drawn") return;
  span(chart, ".mark", mark);
}

function span(chart, which, shown) {
  const element = chart.plot.querySelector(which);
  const seen = shown && shown.to >= range.from && shown.from <= range.to;
  element.hidden = !seen;
  if (!seen) return;
  const { left, width } = axisOf(chart);
  const at = (seconds) => left + ((clamp(seconds, range.from, range.to) - range.from) / (range.to - range.from)) * width;
  element.style.left = `${at(shown.from)}px`;
  element.style.width = `${Math.max(at(shown.to) - at(shown.from), 1)}px`;
}

function hairline(at) {
  for (const chart of lanes) if (chart.near && chart.figure.dataset.state === "drawn") span(chart, ".hair", at === null ? null : { from: at, to: at });
  bar.at.textContent = at === null ? "" : `at ${text(at)} s`;
}

// ---------------------------------------------------------------- the time bar

const bar = {};
/** Prints seconds with as many decimals as the range needs. */
const text = (seconds) => seconds.toFixed(clamp(Math.ceil(-Math.log10((range.to - range.from) / 1000)), 0, 6));

function makeTimebar() {
  const button = (label, title, onclick, key) => make("button", { type: "button", title: key ? `${title} (key ${key})` : title, "aria-label": title, onclick }, label);
  // An edge that was moved past the other takes it along: the span keeps its length.
  const onchange = (event) => {
    let [from, to] = [+bar.from.value, +bar.to.value];
    if (from >= to && event.target === bar.from) to = from + (range.to - range.from);
    else if (from >= to) from = to - (range.to - range.from);
    setRange(from, to, "push");
  };
  const edge = (name) => make("input", { type: "number", step: "any", min: 0, max: time.end, "aria-label": `${name}, seconds`, onchange });
  const percent = (seconds) => `${(100 * seconds) / time.end}%`;
  bar.from = edge("from");
  bar.to = edge("to");
  bar.at = make("output", { class: "at" });
  bar.window = make("div", { class: "window" });
  bar.select = make("div", { class: "select", hidden: "" });
  bar.overview = make("div", { class: "overview" }, bar.window, bar.select);
  time.faults.forEach((fault) => {
    const title = `${fault.label}, ${fault.from} s${fault.to === null ? "" : ` to ${fault.to} s`}`;
    const flag = make("button", { type: "button", class: "fault", title, "aria-label": `Show fault ${title}`, onclick: () => showFault(fault) });
    flag.style.left = percent(fault.from);
    flag.style.width = percent((fault.to ?? fault.from) - fault.from);
    bar.overview.append(flag);
  });
  const many = time.faults.length > 1;
  byId("time").append(
    bar.overview,
    make("div", { class: "controls" },
      button("−", "Zoom out", () => zoom(2), "-"),
      button("+", "Zoom in", () => zoom(0.5), "+"),
      button("◂", "Earlier", () => pan(-0.5), "arrow left"),
      button("▸", "Later", () => pan(0.5), "arrow right"),
      button("Whole run", "Whole run", whole, "0"),
      ...(time.faults.length ? [button(many ? "‹ Fault" : "Fault", many ? "Previous fault" : "The fault", () => (many ? nextFault(-1) : showFault(time.faults[0])), "[")] : []),
      ...(many ? [button("Fault ›", "Next fault", () => nextFault(1), "]")] : []),
      make("span", { class: "edges" }, bar.at, bar.from, make("span", {}, "to"), bar.to, make("span", {}, "s"))),
  );
  gestures(bar.overview, (clientX) => {
    const { left, width } = bar.overview.getBoundingClientRect();
    return clamp((clientX - left) / width, 0, 1) * time.end;
  }, (shown) => {
    bar.select.hidden = !shown;
    if (!shown) return;
    bar.select.style.left = percent(shown.from);
    bar.select.style.width = percent(shown.to - shown.from);
  });
}

function showTimebar() {
  if (!bar.from) return;
  bar.from.value = text(range.from);
  bar.to.value = text(range.to);
  bar.window.style.left = `${(100 * range.from) / time.end}%`;
  bar.window.style.width = `${(100 * (range.to - range.from)) / time.end}%`;
}

// ---------------------------------------------------------------- pointer, wheel, touch

const SLOP = 5; // pixels that a click may move

/** Drag selects a span to zoom to; two fingers zoom and pan; ctrl or shift and the wheel zoom. */
function gestures(element, secondsOf, showSelection) {
  const fingers = new Map();
  let start = null;
  const selected = (event) => {
    const [a, b] = [secondsOf(start), secondsOf(event.clientX)];
    return { from: Math.min(a, b), to: Math.max(a, b) };
  };
  const stop = () => ((start = null), showSelection(null));
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button, a")) return;
    fingers.set(event.pointerId, event.clientX);
    start = fingers.size === 1 ? event.clientX : null;
    if (fingers.size === 2) {
      showSelection(null);
      pinch(null);
    }
  });
  element.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    const before = [...fingers.values()];
    fingers.set(event.pointerId, event.clientX);
    if (fingers.size === 2) pinch(before);
    else if (start !== null && Math.abs(event.clientX - start) > SLOP) {
      element.setPointerCapture(event.pointerId);
      showSelection(selected(event));
    }
  });
  element.addEventListener("pointerup", (event) => {
    const moved = start !== null && fingers.size === 1 && Math.abs(event.clientX - start) > SLOP;
    if (moved) {
      const { from, to } = selected(event);
      setRange(from, to, "push");
    }
    fingers.delete(event.pointerId);
    stop();
  });
  element.addEventListener("pointercancel", (event) => {
    fingers.delete(event.pointerId);
    stop();
  });
  element.addEventListener("dblclick", () => whole());
  element.addEventListener("keydown", (event) => event.key === "Escape" && stop());
  element.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return; // the wheel alone scrolls the page
    event.preventDefault();
    zoom(1.0015 ** (event.deltaY || event.deltaX), secondsOf(event.clientX));
  }, { passive: false });
  function pinch(before) {
    if (!before) return;
    const [a, b] = before.map(secondsOf);
    const [c, d] = [...fingers.values()].map(secondsOf);
    if (Math.abs(d - c) < 1e-9 || Math.abs(b - a) < 1e-9) return;
    const factor = Math.abs(b - a) / Math.abs(d - c);
    const from = (a + b) / 2 - ((c + d) / 2 - range.from) * factor;
    setRange(from, from + (range.to - range.from) * factor);
  }
}

function prepareLane(chart) {
  chart.plot.append(...["mark", "select", "hair"].map((name) => make("div", { class: name, hidden: "" })));
  gestures(chart.plot, (clientX) => (chart.view ? secondsAt(chart, clientX) : 0), (shown) => chart.view && span(chart, ".select", shown));
  chart.plot.addEventListener("pointermove", (event) => chart.view && event.pointerType === "mouse" && hairline(secondsAt(chart, event.clientX)));
  chart.plot.addEventListener("pointerleave", () => hairline(null));
}

// ---------------------------------------------------------------- links and the address

/** Writes range and mark behind the lane's name: #lane-faults?t=10-20&m=12-13. */
function remember(how, lane = addressed().lane) {
  const short = (seconds) => String(+seconds.toFixed(6));
  const parts = [`t=${short(range.from)}-${short(range.to)}`];
  if (mark) parts.push(`m=${short(mark.from)}-${short(mark.to)}`);
  const all = range.from === 0 && range.to === time.end && !mark;
  const hash = all ? `#${lane}` : `#${lane}?${parts.join("&")}`;
  if (hash === location.hash) return;
  history[how === "push" ? "pushState" : "replaceState"](null, "", hash === "#" ? location.pathname + location.search : hash);
}

function addressed() {
  const [lane, query] = decodeURIComponent(location.hash.slice(1)).split("?");
  const spanOf = (name) => {
    const numbers = new URLSearchParams(query ?? "").get(name)?.split("-").map(Number);
    return numbers?.length === 2 && numbers.every(Number.isFinite) ? { from: numbers[0], to: numbers[1] } : null;
  };
  return { lane, range: spanOf("t"), mark: spanOf("m") };
}

function followAddress() {
  const found = addressed();
  mark = found.mark;
  const shown = found.range ?? { from: 0, to: time.end };
  setRange(shown.from, shown.to, "keep");
  if (found.range && found.lane) goTo(found.lane);
}

/** Scrolls to a lane and gives it the keyboard; what stands above it is drawn first, to stay put. */
async function goTo(id) {
  const target = byId(id);
  if (!target) return;
  const above = charts.filter((chart) => chart.figure.compareDocumentPosition(target) & Node.DOCUMENT_POSITION_FOLLOWING);
  await Promise.all([...above, chartOf.get(id)].filter(Boolean).map(draw));
  target.scrollIntoView({ block: "start" });
  (chartOf.get(id)?.plot ?? target).focus({ preventScroll: true });
}

function followLink(event) {
  const link = event.target.closest?.("a[data-from]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const [from, to] = [+link.dataset.from, +link.dataset.to];
  const pad = Math.max((to - from) * 0.4, to > from ? 0.2 : 1.5);
  mark = { from, to };
  const lane = link.hash.slice(1);
  setRange(from - pad, to + pad, "keep");
  remember("push", lane === "time" ? addressed().lane : lane);
  if (lane !== "time") goTo(lane);
}

// ---------------------------------------------------------------- keyboard and theme

const KEYS = [
  [["ArrowLeft"], "arrow left", "earlier", () => pan(-0.2)],
  [["ArrowRight"], "arrow right", "later", () => pan(0.2)],
  [["+", "="], "+", "zoom in", () => zoom(0.5)],
  [["-", "_"], "−", "zoom out", () => zoom(2)],
  [["0"], "0", "whole run", whole],
  [["[", "p"], "[ or p", "previous fault", () => nextFault(-1)],
  [["]", "n"], "] or n", "next fault", () => nextFault(1)],
  [["Escape"], "Escape", "clear the marked span", () => ((mark = null), remember("replace"), refresh())],
  [["t"], "t", "light or dark", () => toggleTheme()],
  [["?"], "?", "this list", () => byId("keys").showModal()],
];
const OTHERS = [
  ["drag in a lane", "zoom to what is selected"],
  ["Ctrl or Shift and the wheel, two fingers", "zoom"],
  ["double click", "whole run"],
];

function onKey(event) {
  const writes = event.target.closest?.("input, select, textarea, dialog, .scroll");
  const shortcut = (event.ctrlKey || event.metaKey || event.altKey) && !event.getModifierState("AltGraph");
  if (writes || shortcut) return;
  const found = KEYS.find(([keys]) => keys.includes(event.key));
  if (!found) return;
  event.preventDefault();
  found[3]();
}

function makeKeysDialog() {
  const rows = [...KEYS.map(([, name, does]) => [name, does]), ...OTHERS];
  const list = make("dl", {}, ...rows.flatMap(([name, does]) => [make("dt", {}, make("kbd", {}, name)), make("dd", {}, does)]));
  const close = make("button", { type: "button", onclick: () => byId("keys").close() }, "Close");
  document.body.append(make("dialog", { id: "keys", "aria-label": "Keys" }, make("h2", {}, "Keys"), list, close), tip);
  byId("keys-button").addEventListener("click", () => byId("keys").showModal());
}

function toggleTheme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  nameTheme();
  try {
    localStorage.setItem("coordlab-theme", root.dataset.theme);
  } catch {
    /* this file has no storage: the choice holds until the page is closed */
  }
}

function nameTheme() {
  byId("theme").textContent = document.documentElement.dataset.theme === "dark" ? "Light" : "Dark";
}

// ---------------------------------------------------------------- start

makeKeysDialog();
nameTheme();
byId("theme").addEventListener("click", toggleTheme);
charts.forEach(addPicks);
lanes.forEach(prepareLane);
if (byId("time")) makeTimebar();
document.addEventListener("click", followLink);
document.addEventListener("keydown", onKey);
window.addEventListener("popstate", followAddress);
window.addEventListener("beforeprint", drawAll);
followAddress();
charts.forEach((chart) => nearby.observe(chart.figure));
const ready = new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))).then(() => {
  performance.mark("coordlab-interactive");
  document.documentElement.dataset.state = "ready";
});
window.coordlab = { ready, drawAll, setRange: (from, to) => setRange(from, to), range: () => [range.from, range.to] };
