// The results page: mark changed cells for some seconds, and let the slider select an epoch.
//
//   live parts refreshed ──► cells with another value than before ──► marked, with the old value
//   slider ──► a short pause ──► the same page as of that epoch, in place; at its end, live
import { refresh } from "./live.js";

const MARKED_MS = 4_000;
const PAUSE_MS = 250;
const LIVE_MS = "2000";

const table = document.getElementById("results");
const line = document.getElementById("state-line");
const slider = document.getElementById("epoch");
const number = document.getElementById("epoch-number");

let values = readValues();
let epoch = line.dataset.epoch;
let dragging = 0;

function readValues() {
  const found = new Map();
  for (const row of table.querySelectorAll("tbody tr")) {
    for (const cell of row.querySelectorAll("td")) {
      found.set(`${row.id} ${cell.dataset.column}`, cell.querySelector(".shown").textContent);
    }
  }
  return found;
}

function markChanges() {
  for (const row of table.querySelectorAll("tbody tr")) {
    for (const cell of row.querySelectorAll("td")) {
      const before = values.get(`${row.id} ${cell.dataset.column}`);
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
  // Another epoch selected by the user is not a change.
  if (live && dragging === 0 && Number(line.dataset.epoch) > Number(epoch)) markChanges();
  values = readValues();
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
  dragging = setTimeout(showEpoch, PAUSE_MS);
});

async function showEpoch() {
  const now = slider.value === slider.max;
  const address = new URL(location.href);
  address.searchParams.delete("cursor");
  if (now) address.searchParams.delete("as_of");
  else address.searchParams.set("as_of", `epoch:${slider.value}`);
  history.replaceState(null, "", address);
  document.body.dataset.refresh = now ? LIVE_MS : "0";
  const mine = dragging;
  await refresh();
  if (dragging === mine) dragging = 0;
}
