// The live changelog of a job.
//
//   event stream ──► changes (a -U and its +U are one) ──► kept, so many ──► those that fit ──► rows
//        └ lost: again with Last-Event-ID, then by `since`     └ paused: put aside    └ so many
//
// What is not shown is counted and said. There is never more than one connection; a page that
// nobody looks at has none.
import { ask, backOff, found, Lost, lost, toLogin } from "./connection.js";
import { compare } from "./decimals.js";

const KEPT_MAX = 2_000; // changes that a filter can bring back
const SHOWN_MAX = 300; // changes in the table
const DRAW_MS = 150;
const HIDDEN_MS = 10_000; // a page that is looked at again soon keeps its connection
const NATIVE_TRIES = 2; // the browser's own, before longer and longer pauses

const table = document.getElementById("changes");
const body = table.tBodies[0];
const tally = document.getElementById("tally");
const waitingText = document.getElementById("waiting");
const goneNotice = document.getElementById("gone");
const pauseButton = document.getElementById("pause");
const text = document.getElementById("text");
const only = document.getElementById("only");
const { job, key } = table.dataset;
const frame = JSON.parse(table.dataset.frame);
const numeric = new Set(frame.numeric);

let place = table.dataset.since;
let epoch = Number(place);
let source = null;
let tries = 0;
let timer = 0;
let half = null; // a -U whose +U has not come yet

let kept = [];
let fresh = []; // kept, and not drawn yet
let aside = []; // came while paused
let received = 0;
let dropped = 0; // received, and kept no more
let paused = false;
let drawing = 0;

// --- the stream ---------------------------------------------------------------------------------

function address(more = {}) {
  const asked = new URLSearchParams({ since: place, ...(key === "" ? {} : { key }), ...more });
  return `/v1/jobs/${encodeURIComponent(job)}/changes?${asked}`;
}

function connect() {
  clearTimeout(timer);
  if (source !== null || document.hidden) return;
  const mine = (source = new EventSource(address()));
  mine.addEventListener("open", () => {
    tries = 0;
    found("changes");
  });
  mine.addEventListener("change", (event) => {
    if (event.lastEventId !== "") place = event.lastEventId;
    take(JSON.parse(event.data));
  });
  mine.addEventListener("progress", (event) => {
    place = event.lastEventId;
    epoch = JSON.parse(event.data).epoch;
    soon();
  });
  mine.addEventListener("columns", (event) => {
    // Of an epoch after those that the page was made with: its rows have other columns.
    if (JSON.parse(event.data).epoch > Number(table.dataset.newest)) location.reload();
  });
  mine.addEventListener("gone", (event) => {
    disconnect();
    historyIsGone(JSON.parse(event.data));
  });
  mine.addEventListener("error", () => {
    lost("changes");
    tries += 1;
    if (mine.readyState === EventSource.CONNECTING && tries <= NATIVE_TRIES) return;
    disconnect();
    timer = setTimeout(whyNot, backOff(tries));
  });
}

function disconnect() {
  clearTimeout(timer);
  source?.close();
  source = null;
}

// An event source does not say why it was refused.
async function whyNot() {
  if (document.hidden) return;
  try {
    const headers = { Accept: "application/json" };
    const response = await ask("changes", address({ limit: "1" }), { headers });
    if (response.status === 401) toLogin();
    else if (response.status === 404) location.reload();
    else if (response.status === 410) historyIsGone(await response.json());
    else if (response.ok) connect();
    else again();
  } catch (error) {
    if (!(error instanceof Lost)) throw error;
    again();
  }
}

function again() {
  lost("changes");
  tries += 1;
  timer = setTimeout(whyNot, backOff(tries));
}

function historyIsGone(problem) {
  const from = problem.oldest;
  goneNotice.textContent = from === undefined
    ? problem.detail
    : `The changes after epoch ${Math.floor(Number(place.split(":")[0]))} have been cleaned up before `
      + `they were read here; what follows begins after epoch ${from}.`;
  goneNotice.hidden = false;
  half = null;
  if (problem.oldest_id === undefined) return;
  place = problem.oldest_id;
  connect();
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (document.hidden) timer = setTimeout(disconnect, HIDDEN_MS);
  else connect();
});

// --- changes ------------------------------------------------------------------------------------

function take({ op, epoch: number, row }) {
  if (op === "-U") {
    half = { epoch: number, row };
    return;
  }
  const before = op === "+U" && half?.epoch === number ? half.row : null;
  half = null;
  const change = { op, epoch: number, row, before, steps: steps(before, row), rows: null };
  change.text = JSON.stringify([Object.values(row), before && Object.values(before)]).toLowerCase();
  received += 1;
  if (paused) bounded(aside, change);
  else {
    fresh.push(change);
    keep(change);
  }
  soon();
}

function keep(change) {
  const gone = bounded(kept, change);
  gone?.rows?.forEach((row) => row.remove());
}

function bounded(list, change) {
  list.push(change);
  if (list.length <= KEPT_MAX) return undefined;
  dropped += 1;
  return list.shift();
}

// Of each column that changed: up, down or other; and whether a MAX went down, or a MIN up.
function steps(before, row) {
  const found = new Map();
  if (before === null) return found;
  for (const name of frame.columns) {
    const [old, now] = [before[name], row[name]];
    if (JSON.stringify(old) === JSON.stringify(now)) continue;
    const sign = numeric.has(name) ? compare(now, old) : null;
    const way = sign === null ? "other" : sign < 0 ? "down" : "up";
    const retreat = { MAX: "down", MIN: "up" }[frame.extremes[name]];
    const emptied = now === null && retreat !== undefined;
    found.set(name, { way, retreat: emptied || (retreat !== undefined && way === retreat) });
  }
  return found;
}

function fits(change) {
  const wanted = text.value.toLowerCase();
  if (wanted !== "" && !change.text.includes(wanted)) return false;
  const ways = [...change.steps.values()];
  if (only.value === "down") return ways.some((each) => each.way === "down");
  if (only.value === "retreat") return ways.some((each) => each.retreat);
  return true;
}

// --- the table ----------------------------------------------------------------------------------

function soon() {
  drawing ||= setTimeout(draw, DRAW_MS);
}

function draw() {
  drawing = 0;
  for (const change of fresh.slice(-SHOWN_MAX)) if (fits(change)) show(change);
  fresh = [];
  trim();
  count();
}

function drawAnew() {
  fresh = [];
  body.replaceChildren();
  for (const change of kept) change.rows = null;
  for (const change of kept.filter(fits).slice(-SHOWN_MAX)) show(change);
  count();
}

function show(change) {
  change.rows = rowsOf(change);
  body.prepend(...change.rows);
}

function trim() {
  let left = kept.filter((change) => change.rows !== null).length - SHOWN_MAX;
  for (const change of kept) {
    if (left <= 0) return;
    if (change.rows === null) continue;
    change.rows.forEach((row) => row.remove());
    change.rows = null;
    left -= 1;
  }
}

function count() {
  const shown = kept.filter((change) => change.rows !== null).length;
  const fitting = kept.filter(fits).length;
  const parts = [`Epoch ${say(epoch)}.`, `${changes(shown)} shown`];
  if (fitting > shown) parts[1] += ` of ${say(fitting)} that fit`;
  parts[1] += `, ${say(received)} received.`;
  if (dropped > 0) parts.push(`${say(dropped)} older ones are not kept here any more; the table has them.`);
  tally.textContent = parts.join(" ");
  waitingText.hidden = shown > 0;
  waitingText.textContent = kept.length > 0 ? "None of the changes that are kept here fits." : "No change to show yet.";
  pauseButton.textContent = !paused ? "Pause" : aside.length === 0 ? "Continue" : `Continue (${say(aside.length)} new)`;
  pauseButton.setAttribute("aria-pressed", String(paused));
}

function changes(number) {
  return `${say(number)} ${number === 1 ? "change" : "changes"}`;
}

function say(number) {
  return number.toLocaleString("en");
}

function rowsOf(change) {
  const kinds = { "+I": "insert", "+U": "after", "-D": "delete" };
  const rows = [rowOf(change, change.op, kinds[change.op], change.row)];
  if (change.before !== null) rows.unshift(rowOf(change, "-U", "before", change.before));
  return rows;
}

function rowOf(change, op, kind, row) {
  const element = document.createElement("tr");
  element.className = kind;
  element.append(cell("td", "num", say(change.epoch)));
  const mark = document.createElement("span");
  mark.className = `op op-${kind}`;
  mark.textContent = op;
  const place = cell("td", "", "");
  place.append(mark);
  element.append(place);
  for (const name of frame.columns) element.append(valueCell(change, kind, row, name));
  return element;
}

function valueCell(change, kind, row, name) {
  const step = kind === "after" ? change.steps.get(name) : undefined;
  const element = cell("td", numeric.has(name) ? "num" : "", "");
  const value = shown(row[name]);
  if (frame.group !== null && name === frame.group[0]) {
    const link = document.createElement("a");
    link.href = `/jobs/${encodeURIComponent(job)}/results/${keyPart(row)}?epoch=${change.epoch}`;
    link.append(value);
    element.append(link);
  } else if (step !== undefined) {
    element.classList.add(step.way);
    if (step.retreat) element.classList.add("retreat");
    const from = document.createElement("span");
    from.className = "from";
    from.append(shown(change.before[name]), " → ");
    const strong = document.createElement("strong");
    strong.append(value);
    element.append(from, strong);
    if (step.way !== "other") element.append(" ", way(step.way));
  } else {
    element.append(value);
  }
  return element;
}

function way(word) {
  const element = document.createElement("span");
  element.className = "way";
  element.title = `went ${word}`;
  const sign = document.createElement("span");
  sign.ariaHidden = "true";
  sign.textContent = word === "down" ? "▼" : "▲";
  const said = document.createElement("span");
  said.className = "unseen";
  said.textContent = `went ${word}`;
  element.append(sign, said);
  return element;
}

function cell(kind, name, content) {
  const element = document.createElement(kind);
  if (name !== "") element.className = name;
  element.textContent = content;
  return element;
}

function shown(value) {
  const element = document.createElement("span");
  const empty = value === null || value === "";
  element.className = empty ? "shown null" : "shown";
  element.textContent = value === null ? "NULL" : value === "" ? "(empty)" : textOf(value);
  return element;
}

function textOf(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

// As key_part of service.console.rows.
function keyPart(row) {
  if (frame.group.length === 1) {
    const value = row[frame.group[0]];
    const plain = value !== null && textOf(value) !== "" && !textOf(value).startsWith("{");
    if (plain && textOf(value) !== "." && textOf(value) !== "..") return encodeURIComponent(textOf(value));
  }
  const named = Object.fromEntries(frame.group.map((name) => [name, row[name]]));
  return encodeURIComponent(JSON.stringify(named));
}

// --- what people do -----------------------------------------------------------------------------

pauseButton.addEventListener("click", () => {
  paused = !paused;
  if (!paused) {
    const came = aside;
    aside = [];
    for (const change of came) {
      fresh.push(change);
      keep(change);
    }
    draw();
  }
  count();
});
text.addEventListener("input", drawAnew);
only.addEventListener("change", drawAnew);

count();
connect();
