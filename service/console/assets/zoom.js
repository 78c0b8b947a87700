// Zoom of a job's charts: drag over a span, and all charts show it. The address has its ends, so the
// browser's Back returns. The form beside the usual spans does the same from the keyboard.
//
//   .plot[data-since data-until]  over a time      .plot[data-slots]  bars, each with data-at
import { refresh } from "./live.js";

const DRAGGED_MIN = 0.02; // of the width; less is a click

let drag = null; // plot, canvas, where it began, when that was, and the part that is marked

export function installZoom(root) {
  if (root.getElementById("range") === null) return;
  root.addEventListener("pointerdown", (event) => {
    const canvas = event.target.closest?.(":is(.plot[data-since], .plot[data-slots]) > .canvas") ?? null;
    if (canvas === null || event.button !== 0) return;
    const [plot, from] = [canvas.parentElement, shareOf(canvas, event)];
    drag = { plot, canvas, from, moment: momentAt(plot, from), marked: document.createElement("div") };
    drag.marked.className = "marked";
  });
  root.addEventListener("pointermove", (event) => {
    if (drag === null) return;
    const to = shareOf(drag.canvas, event);
    drag.marked.style.left = `${100 * Math.min(drag.from, to)}%`;
    drag.marked.style.width = `${100 * Math.abs(to - drag.from)}%`;
    drag.canvas.append(drag.marked); // again, as a refresh has removed it
  });
  root.addEventListener("pointerup", (event) => {
    if (drag === null) return;
    const { plot, canvas, from, moment } = drag;
    const to = shareOf(canvas, event);
    end();
    if (Math.abs(to - from) >= DRAGGED_MIN) show([moment, momentAt(plot, to)].sort((a, b) => a - b));
  });
  root.addEventListener("pointercancel", end);
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") end();
  });
  addEventListener("popstate", update);
}

function end() {
  drag?.marked.remove();
  drag = null;
}

function shareOf(canvas, event) {
  const box = canvas.getBoundingClientRect();
  return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
}

function momentAt(plot, share) {
  const { since, until, slots } = plot.dataset;
  if (since !== undefined) return Number(since) + (until - since) * share;
  const bars = [...plot.querySelectorAll("g[data-at]")]; // at the right, one in a slot
  const at = Math.floor(share * slots) - (slots - bars.length);
  return Number(bars[Math.min(bars.length - 1, Math.max(0, at))].dataset.at);
}

async function show(ends) {
  const address = new URL(location.href);
  address.searchParams.delete("span");
  // Whole seconds around both ends, so that a bar at an end stays.
  const seconds = { from: Math.floor(ends[0] / 1_000), to: Math.ceil(ends[1] / 1_000) };
  for (const [name, value] of Object.entries(seconds)) {
    address.searchParams.set(name, `${new Date(value * 1_000).toISOString().slice(0, 19)}Z`);
  }
  history.pushState(null, "", address);
  await update();
}

async function update() {
  await refresh();
  document.querySelector("#range form").reset(); // also what was typed into it
}
