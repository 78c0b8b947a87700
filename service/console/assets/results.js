// The results: what changed is marked for a moment, and the slider goes through the epochs.
//
//   live parts taken anew ──► cells that say something else than before ──► marked, with what was
//   slider ──► a short rest ──► the same page as of that epoch, in place; at its end, now
import { refresh } from "./live.js";

const MARKED_MS = 4_000;
const REST_MS = 250;
const LIVE_MS = "2000";

const table = document.getElementById("results");
const line = document.getElementById("state-line");
const slider = document.getElementById("epoch");
const number = document.getElementById("epoch-number");

let said = read();
let epoch = line.dataset.epoch;
let dragging = 0;

function read() {
  const found = new Map();
  for (const row of table.querySelectorAll("tbody tr")) {
    for (const cell of row.querySelectorAll("td")) {
      found.set(`${row.id} ${cell.dataset.column}`, cell.querySelector(".shown").textContent);
    }
  }
  return found;
}

function mark() {
  for (const row of table.querySelectorAll("tbody tr")) {
    for (const cell of row.querySelectorAll("td")) {
      const before = said.get(`${row.id} ${cell.dataset.column}`);
      if (before === undefined || before === cell.querySelector(".shown").textContent) continue;
      const was = document.createElement("span");
      was.className = "was";
      was.textContent = `was ${before}`;
      cell.append(was);
      cell.classList.add("fresh");
      setTimeout(() => {
        was.remove();
        cell.classList.remove("fresh");
      }, MARKED_MS);
    }
  }
}

document.addEventListener("refreshed", () => {
  const live = document.body.dataset.refresh !== "0";
  // What a jump in time shows is another epoch, and nothing that has just changed.
  if (live && dragging === 0 && Number(line.dataset.epoch) > Number(epoch)) mark();
  said = read();
  epoch = line.dataset.epoch;
  if (dragging !== 0) return;
  slider.min = line.dataset.oldest;
  slider.max = line.dataset.newest;
  slider.value = epoch;
  if (document.activeElement !== number) number.value = epoch;
});

slider.addEventListener("input", () => {
  number.value = slider.value;
  clearTimeout(dragging);
  dragging = setTimeout(go, REST_MS);
});

async function go() {
  const now = slider.value === slider.max;
  const place = new URL(location.href);
  place.searchParams.delete("cursor");
  if (now) place.searchParams.delete("as_of");
  else place.searchParams.set("as_of", `epoch:${slider.value}`);
  history.replaceState(null, "", place);
  document.body.dataset.refresh = now ? LIVE_MS : "0";
  const mine = dragging;
  await refresh(); // one that was under way had the old address
  await refresh();
  if (dragging === mine) dragging = 0;
}
