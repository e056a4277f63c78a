/*
 * One time axis for all lanes (the charts on the time axis): the range that they show, the bar that
 * sets it, the span of time that a link has marked, and the pointer, wheel and fingers that change
 * the range. All times are seconds.
 */

// ---------------------------------------------------------------- the time axis

const time = given("time-data"); // {end, faults: [{label, from, to, accident?}]}
const range = { from: 0, to: time.end };
const SHORTEST = 0.002; // the shortest range: a shorter one would show nothing
let mark = null; // a span that a link pointed at: {from, to}
let refreshing = null; // the promise of the drawing that goes on
let again = false; // whether the range changed during that drawing

/** Shows from..to in every lane. `how`: the page's address is pushed as a new one, replaced or kept. */
function setRange(from, to, how = "replace") {
  const span = clamp(to - from, SHORTEST, time.end);
  range.from = clamp(from, 0, time.end - span);
  range.to = range.from + span;
  if (how !== "keep") remember(how);
  showTimebar();
  return refresh();
}

/** Draws the lanes near the screen (or all) for the present range; one drawing at a time. */
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

/** Multiplies the length of the range; the moment `around` keeps its place on the screen. */
function zoom(factor, around = (range.from + range.to) / 2) {
  setRange(around - (around - range.from) * factor, around + (range.to - around) * factor);
}

/** Moves the range by a part of its length; a negative part moves it to earlier times. */
function pan(part) {
  const by = (range.to - range.from) * part;
  setRange(range.from + by, range.to + by);
}

const whole = () => ((mark = null), setRange(0, time.end, "push"));

/** Marks a fault's span, and shows it with some time before and after it. */
function showFault(fault) {
  const to = fault.to ?? fault.from;
  const pad = Math.max(1, (to - fault.from) * 0.15);
  mark = { from: fault.from, to };
  setRange(fault.from - pad, Math.max(to + 2 * pad, fault.from + 10), "push");
}

/** Goes to the next fault after the marked one (`step` 1), or to the one before it (-1). */
function nextFault(step) {
  const now = mark?.from ?? (step > 0 ? -1 : time.end + 1);
  const ahead = time.faults.filter((fault) => (fault.from - now) * step > 0);
  const found = step > 0 ? ahead[0] : ahead.at(-1);
  if (found) showFault(found);
}

// ---------------------------------------------------------------- geometry and overlays

/** Returns the place of a lane's axis in its plot, in pixels: left edge, top edge, width. */
function axisOf(chart) {
  const [, width] = chart.view.scale("x").range();
  const [left, top] = chart.view.origin();
  const padding = chart.view.padding();
  return { left: left + padding.left, top: top + padding.top, width };
}

/** Returns the time at a horizontal position of the pointer. */
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

/** Places the element `which` over the span `shown` of a lane; hides it without a visible span. */
function span(chart, which, shown) {
  const element = chart.plot.querySelector(which);
  const seen = shown && shown.to >= range.from && shown.from <= range.to;
  element.hidden = !seen;
  if (!seen) return;
  const { left, width, top } = axisOf(chart);
  element.style.top = `${top}px`; // under the legend and the axis
  const at = (seconds) => left + ((clamp(seconds, range.from, range.to) - range.from) / (range.to - range.from)) * width;
  element.style.left = `${at(shown.from)}px`;
  element.style.width = `${Math.max(at(shown.to) - at(shown.from), 1)}px`;
}

/** Draws a line at one time in all lanes near the screen, or removes it (null). */
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
  // If one edge is moved past the other, the other moves with it: the range keeps its length.
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
    const what = fault.accident ? "accident" : "fault";
    const flag = make("button", { type: "button", class: fault.accident ? "fault accident" : "fault", title: fault.accident ? `by accident: ${title}` : title, "aria-label": `Show ${what} ${title}`, onclick: () => showFault(fault) });
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
      button(make("span", { "data-short": "All" }, "Whole run"), "Whole run", whole, "0"),
      ...(time.faults.length ? [button(many ? "‹ Fault" : "Fault", many ? "Previous fault" : "The fault", () => (many ? nextFault(-1) : showFault(time.faults[0])), "[")] : []),
      ...(many ? [button("Fault ›", "Next fault", () => nextFault(1), "]")] : []),
      make("span", { class: "edges" }, bar.at, bar.from, make("span", {}, "to"), bar.to, make("span", {}, "s"))),
    ...overviewLegend(),
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

/** Returns the legend of the overview; none is needed if no machine was away by accident. */
function overviewLegend() {
  const accidents = time.faults.filter((fault) => fault.accident).length;
  if (!accidents) return [];
  const entry = (kind, says) => make("span", {}, make("i", { class: kind }), says);
  const planned = accidents < time.faults.length ? [entry("fault", "fault of the plan")] : [];
  return [make("p", { class: "overview-legend" }, ...planned, entry("fault accident", "machine away by accident"))];
}

function showTimebar() {
  if (!bar.from) return;
  bar.from.value = text(range.from);
  bar.to.value = text(range.to);
  bar.window.style.left = `${(100 * range.from) / time.end}%`;
  bar.window.style.width = `${(100 * (range.to - range.from)) / time.end}%`;
}

// ---------------------------------------------------------------- pointer, wheel, touch

const SLOP = 5; // pixels: a pointer that moves no further has clicked, and selects nothing

/**
 * Lets a reader change the range: a drag selects a span to zoom to; two fingers zoom and pan; the
 * wheel zooms while Ctrl or Shift is pressed. `secondsOf` returns the time at a horizontal position.
 */
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
  // Zooms and pans so that the times under the two fingers stay under them.
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
