// Reading a chart: at the pointer, what its lines were at that moment.
//
//   .plot[data-top data-unit data-since data-until] > svg > path.line[data-name]
//
// The values are read off the picture itself, which is as exact as one can see.
const WIDTH = 600;
const HEIGHT = 120;
const NEAR = 12; // units of the picture, a fiftieth of its width

export function readings(root) {
  root.addEventListener("pointermove", (event) => {
    const plot = event.target.closest?.(".plot[data-unit]") ?? null;
    if (plot !== over.plot) hide();
    over = { plot, pointer: event.clientX };
    if (plot !== null) show(plot, event.clientX);
  });
  // What was taken anew has no reading in it.
  root.addEventListener("refreshed", () => {
    hide();
    if (over.plot?.isConnected) show(over.plot, over.pointer);
  });
}

let over = { plot: null, pointer: 0 };
let shown = null;

function hide() {
  shown?.remove();
  shown = null;
}

function show(plot, pointer) {
  const box = plot.querySelector("svg").getBoundingClientRect();
  const x = ((pointer - box.left) / box.width) * WIDTH;
  const lines = [...plot.querySelectorAll("path.line")].map((path) => [path, nearest(path, x)]);
  const told = lines.filter(([, point]) => point !== null);
  if (told.length === 0) return hide();
  const at = told[0][1].x;
  const { since, until, top, unit } = plot.dataset;
  const moment = new Date(Number(since) + ((until - since) * at) / WIDTH);
  const said = told.map(([path, { y }]) => {
    const value = (1 - y / HEIGHT) * top;
    return `${lines.length > 1 ? `${path.dataset.name} ` : ""}${words(value, unit)}`;
  });
  if (shown === null) {
    shown = document.createElement("div");
    shown.className = "reading";
    shown.setAttribute("aria-hidden", "true");
    shown.append(document.createElement("span"));
    plot.append(shown);
  }
  shown.firstChild.textContent = `${moment.toISOString().slice(11, 19)} · ${said.join(" · ")}`;
  shown.style.left = `${(at / WIDTH) * 100}%`;
  shown.classList.toggle("left", at > WIDTH / 2);
  return undefined;
}

function nearest(path, x) {
  let best = null;
  for (const [, px, py] of path.getAttribute("d").matchAll(/(-?[\d.]+) (-?[\d.]+)/g)) {
    const point = { x: Number(px), y: Number(py) };
    if (best === null || Math.abs(point.x - x) < Math.abs(best.x - x)) best = point;
  }
  return best !== null && Math.abs(best.x - x) < NEAR ? best : null;
}

// As service/console/words.py says them.
function words(value, unit) {
  if (unit === "duration") return value < 1 ? `${Math.round(value * 1_000)} ms` : `${value.toFixed(1)} s`;
  const short = new Intl.NumberFormat("en", { notation: value < 10_000 ? "standard" : "compact", maximumFractionDigits: 1 });
  return short.format(value) + (unit === "rate" ? "/s" : "");
}
