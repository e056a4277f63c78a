/*
 * Links into the lanes, the range in the address, the keyboard, the theme; then everything starts.
 */

// ---------------------------------------------------------------- links and the address

/** Writes the range and the marked span into the address: #lane-faults?t=10-20&m=12-13. */
function remember(how, lane = addressed().lane) {
  const short = (seconds) => String(+seconds.toFixed(6));
  const parts = [`t=${short(range.from)}-${short(range.to)}`];
  if (mark) parts.push(`m=${short(mark.from)}-${short(mark.to)}`);
  const all = range.from === 0 && range.to === time.end && !mark;
  const hash = all ? `#${lane}` : `#${lane}?${parts.join("&")}`;
  if (hash === location.hash) return;
  history[how === "push" ? "pushState" : "replaceState"](null, "", hash === "#" ? location.pathname + location.search : hash);
}

/** Returns what the address names: the lane, the range and the marked span. */
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

/**
 * Scrolls to a lane or a section, and gives it the keyboard. It scrolls again when the charts above
 * it are drawn, because only then they have their height.
 */
async function goTo(id) {
  const target = byId(id);
  if (!target) return;
  target.scrollIntoView({ block: "start" });
  const above = charts.filter((chart) => chart.figure.compareDocumentPosition(target) & Node.DOCUMENT_POSITION_FOLLOWING);
  await Promise.all([...above, chartOf.get(id)].filter(Boolean).map(draw));
  target.scrollIntoView({ block: "start" });
  const focused = chartOf.get(id)?.plot ?? target;
  if (!focused.hasAttribute("tabindex")) focused.tabIndex = -1; // a section: the keyboard goes on from it
  focused.focus({ preventScroll: true });
}

function followLink(event) {
  const link = event.target.closest?.('a[href^="#"]:not(.skip)');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (!("from" in link.dataset)) {
    history.pushState(null, "", link.hash); // a link to a section: the lanes keep their range
    goTo(link.hash.slice(1));
    return;
  }
  const [from, to] = [+link.dataset.from, +link.dataset.to];
  const pad = Math.max((to - from) * 0.4, to > from ? 0.2 : 1.5);
  mark = { from, to };
  const lane = link.hash.slice(1);
  setRange(from - pad, to + pad, "keep");
  remember("push", lane === "time" ? addressed().lane : lane);
  if (lane !== "time") goTo(lane);
}

/** Keeps a place that is scrolled to below the time bar, which stays at the top of the screen. */
function keepBelowTimebar() {
  const bar = document.querySelector(".timebar");
  if (!bar) return;
  const keep = () => (document.documentElement.style.scrollPaddingTop = `${bar.offsetHeight + 12}px`);
  new ResizeObserver(keep).observe(bar);
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
    /* Without storage the choice holds until the page is closed. */
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
keepBelowTimebar();
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
