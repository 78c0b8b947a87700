// The values of a chart's lines at the pointer.
//
//   .plot[data-top data-unit data-since data-until] > svg > path.line[data-name]
//
// The values are computed from the picture, so they are as exact as the picture.
import { formatTime } from "./preferences.js";

const WIDTH = 600;
const HEIGHT = 120;
const NEAR = 12; // units of the picture, a fiftieth of its width

export function installReadings(root) {
  root.addEventListener("pointermove", (event) => {
    const plot = event.target.closest?.(".plot[data-unit]") ?? null;
    if (plot !== over.plot) hide();
    over = { plot, pointer: event.clientX };
    if (plot !== null) show(plot, event.clientX);
  });
  // A refreshed plot has lost its reading.
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
  const found = lines.filter(([, point]) => point !== null);
  if (found.length === 0) return hide();
  const at = found[0][1].x;
  const { since, until, top, unit } = plot.dataset;
  const moment = new Date(Number(since) + ((until - since) * at) / WIDTH);
  const values = found.map(([path, { y }]) => {
    const value = (1 - y / HEIGHT) * top;
    return `${lines.length > 1 ? `${path.dataset.name} ` : ""}${format(value, unit)}`;
  });
  if (shown === null) {
    shown = document.createElement("div");
    shown.className = "reading";
    shown.setAttribute("aria-hidden", "true");
    shown.append(document.createElement("span"));
    plot.querySelector(".canvas").append(shown);
  }
  shown.firstChild.textContent = `${formatTime(moment).slice(11, 19)} · ${values.join(" · ")}`;
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

// As service/console/formatting.py.
function format(value, unit) {
  if (unit === "duration") return value < 1 ? `${Math.round(value * 1_000)} ms` : `${value.toFixed(1)} s`;
  const short = new Intl.NumberFormat("en", { notation: value < 10_000 ? "standard" : "compact", maximumFractionDigits: 1 });
  return short.format(value) + (unit === "rate" ? "/s" : "");
}
