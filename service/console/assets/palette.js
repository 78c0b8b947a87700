// Keyboard shortcuts, and the list of pages and jobs that they open.
//
//   /  the search of the page      g j  a page by its letter      ?  Ctrl-K  the list
import { requestOnce } from "./connection.js";

const GO_MS = 1_500; // between `g` and the letter
const dialog = document.getElementById("palette");
let went = -Infinity; // when `g` was pressed

export function installPalette() {
  if (dialog === null) return;
  document.addEventListener("keydown", onKey);
  document.getElementById("go").addEventListener("click", open);
  const input = dialog.querySelector("input");
  input.addEventListener("focus", () => addJobs().finally(filter));
  input.addEventListener("input", filter);
  dialog.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    links().find((each) => !each.parentElement.hidden)?.click();
  });
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const stops = [input, ...links().filter((each) => !each.parentElement.hidden)];
    const at = stops.indexOf(document.activeElement) + step;
    stops[(at + stops.length) % stops.length].focus();
  });

  function filter() {
    const text = input.value.trim().toLowerCase();
    for (const each of links()) each.parentElement.hidden = !each.textContent.toLowerCase().includes(text);
  }
}

function links() {
  return [...dialog.querySelectorAll("li a")];
}

async function addJobs() {
  const response = await requestOnce("/v1/jobs?limit=1000").catch(() => null);
  if (response === null || !response.ok) return;
  const known = new Set(links().map((each) => each.getAttribute("href")));
  for (const { name } of (await response.json()).jobs.filter((job) => !known.has(`/jobs/${job.name}`))) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `/jobs/${name}`;
    link.textContent = name;
    item.append(link);
    dialog.querySelector("ul").append(item);
  }
}

function onKey(event) {
  const within = event.composedPath()[0];
  const writes = within.matches?.("input, textarea, select, [contenteditable=true]");
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !writes) return act(event, open);
  const off = document.documentElement.dataset.keys === "off";
  if (off || writes || event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]") !== null) return undefined;
  if (event.key === "?") return act(event, open);
  if (event.key === "/") return act(event, () => (document.querySelector("main input[type=search]") ?? { focus: open }).focus());
  const link = dialog.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (link !== null && event.timeStamp - went < GO_MS) return act(event, () => link.click());
  went = event.key === "g" ? event.timeStamp : -Infinity;
  return undefined;
}

function act(event, action) {
  event.preventDefault();
  action();
}

function open() {
  if (!dialog.open) dialog.showModal();
  dialog.querySelector("input").select();
}
