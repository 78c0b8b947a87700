// The live changelog of a job.
//
//   event stream ──► changes (a -U with its +U) ──► the newest are kept ──► filtered ──► rows
//        └ lost: resume by Last-Event-ID, then by `since`   └ paused: set aside   └ the newest
//
// The page counts what it does not show. It has one connection at most, and none while it is
// hidden.
import { backOff, goToLogin, Lost, markFound, markLost, request } from "./connection.js";
import { compare } from "./decimals.js";
import { formatTime } from "./preferences.js";

const KEPT_MAX = 2_000; // changes that a filter can bring back
const SHOWN_MAX = 300; // changes in the table
const DRAW_MS = 150;
const HIDDEN_MS = 10_000; // a page that is visible again soon keeps its connection
const NATIVE_TRIES = 2; // by the browser itself, before longer and longer pauses

const table = document.getElementById("changes");
const befores = document.getElementById("befores");
const tally = document.getElementById("tally");
const waitingText = document.getElementById("waiting");
const nothing = waitingText.textContent;
const goneNotice = document.getElementById("gone");
const pauseButton = document.getElementById("pause");
const text = document.getElementById("text");
const only = document.getElementById("only");
const { base, key } = table.dataset;
const frame = JSON.parse(table.dataset.frame);
const numeric = new Set(frame.numeric);

let position = table.dataset.since; // EPOCH:SEQ:TABLE
let epoch = parseInt(position);
let source = null;
let tries = 0;
let timer = 0;
let half = null; // a -U whose +U has not come yet

let kept = [];
let fresh = []; // kept but not drawn yet
let aside = []; // received while paused
let received = 0;
let dropped = 0; // received but no longer kept
let paused = false;
let drawing = 0;
const bodies = new Map(); // by epoch, the newest first in the table
const commits = new Map(); // of each epoch whose end was received: when, and how many changes

// --- the stream ---------------------------------------------------------------------------------

function address(extra = {}) {
  const query = new URLSearchParams({ since: position, ...(key === "" ? {} : { key }), ...extra });
  return `/v1${base}/changes?${query}`;
}

function connect() {
  clearTimeout(timer);
  if (source !== null || document.hidden) return;
  const mine = (source = new EventSource(address()));
  mine.addEventListener("open", () => {
    tries = 0;
    markFound("changes");
  });
  mine.addEventListener("change", (event) => {
    // The id of a change names no table; the position before, as of the last progress, does.
    const [inEpoch, seq, name = position.split(":")[2]] = event.lastEventId.split(":");
    if (inEpoch !== "") position = `${inEpoch}:${seq}:${name}`;
    receive(JSON.parse(event.data));
  });
  mine.addEventListener("progress", (event) => {
    position = event.lastEventId;
    const progress = JSON.parse(event.data);
    epoch = progress.epoch;
    if (progress.changes > 0) commits.set(epoch, progress);
    labelEpoch(epoch);
    drawSoon();
  });
  mine.addEventListener("columns", (event) => {
    // Rows of a newer epoch than the page's have other columns.
    if (JSON.parse(event.data).epoch > Number(table.dataset.newest)) location.reload();
  });
  mine.addEventListener("gone", (event) => {
    disconnect();
    skipMissingHistory(JSON.parse(event.data));
  });
  mine.addEventListener("error", () => {
    markLost("changes");
    tries += 1;
    if (mine.readyState === EventSource.CONNECTING && tries <= NATIVE_TRIES) return;
    disconnect();
    timer = setTimeout(findReason, backOff(tries));
  });
}

function disconnect() {
  clearTimeout(timer);
  source?.close();
  source = null;
}

// An EventSource does not report the reason of a refusal, so request the same without it.
async function findReason() {
  if (document.hidden) return;
  try {
    const headers = { Accept: "application/json" };
    const response = await request("changes", address({ limit: "1" }), { headers });
    if (response.status === 401) goToLogin();
    else if (response.status === 404) location.reload();
    else if (response.status === 410) skipMissingHistory(await response.json());
    else if (response.ok) connect();
    else retry();
  } catch (error) {
    if (!(error instanceof Lost)) throw error;
    retry();
  }
}

function retry() {
  markLost("changes");
  tries += 1;
  timer = setTimeout(findReason, backOff(tries));
}

function skipMissingHistory(problem) {
  const from = problem.oldest;
  goneNotice.textContent = from === undefined
    ? problem.detail
    : `Retention has removed changes after epoch ${parseInt(position)} before `
      + `this page received them. The list continues after epoch ${from}.`;
  goneNotice.hidden = false;
  half = null;
  if (problem.oldest_id === undefined) return;
  position = problem.oldest_id;
  connect();
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (document.hidden) timer = setTimeout(disconnect, HIDDEN_MS);
  else connect();
});

// --- changes ------------------------------------------------------------------------------------

function receive({ op, epoch: number, row }) {
  if (op === "-U") {
    half = { epoch: number, row };
    return;
  }
  const before = op === "+U" && half?.epoch === number ? half.row : null;
  half = null;
  const change = { op, epoch: number, row, before, steps: compareRows(before, row), rows: null };
  change.text = JSON.stringify([Object.values(row), before && Object.values(before)]).toLowerCase();
  received += 1;
  if (paused) pushBounded(aside, change);
  else {
    fresh.push(change);
    keep(change);
  }
  drawSoon();
}

function keep(change) {
  const removed = pushBounded(kept, change);
  if (removed === undefined) return;
  hide(removed);
  if (removed.epoch < kept[0].epoch) commits.delete(removed.epoch);
}

function pushBounded(list, change) {
  list.push(change);
  if (list.length <= KEPT_MAX) return undefined;
  dropped += 1;
  return list.shift();
}

// The direction of each changed column, and whether it is an extreme change: a MAX that decreased or
// a MIN that increased.
function compareRows(before, row) {
  const found = new Map();
  if (before === null) return found;
  for (const name of frame.columns) {
    const [old, now] = [before[name], row[name]];
    if (JSON.stringify(old) === JSON.stringify(now)) continue;
    const sign = numeric.has(name) ? compare(now, old) : null;
    const direction = sign === null ? "other" : sign < 0 ? "down" : "up";
    const inward = { MAX: "down", MIN: "up" }[frame.extremes[name]];
    const emptied = now === null && inward !== undefined;
    found.set(name, { direction, extreme: emptied || (inward !== undefined && direction === inward) });
  }
  return found;
}

function matches(change) {
  const wanted = text.value.toLowerCase();
  if (wanted !== "" && !change.text.includes(wanted)) return false;
  const steps = [...change.steps.values()];
  if (only.value === "down") return steps.some((each) => each.direction === "down");
  if (only.value === "extreme") return steps.some((each) => each.extreme);
  return true;
}

// --- the table ----------------------------------------------------------------------------------

function drawSoon() {
  drawing ||= setTimeout(draw, DRAW_MS);
}

function draw() {
  drawing = 0;
  for (const change of fresh.slice(-SHOWN_MAX)) if (matches(change)) show(change);
  fresh = [];
  trim();
  updateTally();
}

function redraw() {
  fresh = [];
  for (const body of bodies.values()) body.remove();
  bodies.clear();
  for (const change of kept) change.rows = null;
  for (const change of kept.filter(matches).slice(-SHOWN_MAX)) show(change);
  updateTally();
}

function show(change) {
  change.rows = makeRows(change);
  bodyOf(change.epoch).firstElementChild.after(...change.rows);
}

function hide(change) {
  change.rows?.forEach((row) => row.remove());
  change.rows = null;
  const body = bodies.get(change.epoch);
  if (body === undefined || body.childElementCount > 1) return;
  body.remove();
  bodies.delete(change.epoch);
}

// The part of the table that has the changes of an epoch, under a heading.
function bodyOf(number) {
  const known = bodies.get(number);
  if (known !== undefined) return known;
  const body = document.createElement("tbody");
  const row = document.createElement("tr");
  row.className = "epoch";
  const heading = makeCell("th", "", "");
  heading.scope = "rowgroup";
  heading.colSpan = frame.columns.length + 1;
  row.append(heading);
  body.append(row);
  table.tHead.after(body);
  bodies.set(number, body);
  labelEpoch(number);
  return body;
}

function labelEpoch(number) {
  const heading = bodies.get(number)?.querySelector("th");
  if (heading === undefined) return;
  const name = document.createElement("strong");
  name.textContent = `Epoch ${number}`;
  heading.replaceChildren(name);
  const commit = commits.get(number);
  if (commit === undefined) return;
  const time = document.createElement("time");
  time.dateTime = commit.committed_at;
  time.textContent = formatTime(new Date(time.dateTime));
  heading.append(" committed ", time);
}

function trim() {
  let left = kept.filter((change) => change.rows !== null).length - SHOWN_MAX;
  for (const change of kept) {
    if (left <= 0) return;
    if (change.rows === null) continue;
    hide(change);
    left -= 1;
  }
}

function updateTally() {
  const shown = kept.filter((change) => change.rows !== null).length;
  const matching = kept.filter(matches).length;
  const parts = [`Epoch ${epoch}.`, `${countOf(shown)} shown`];
  if (matching > shown) parts[1] += ` of ${formatNumber(matching)} that match`;
  parts[1] += `, ${formatNumber(received)} received.`;
  if (dropped > 0) parts.push(`This page no longer keeps ${formatNumber(dropped)} older ones; the table has them.`);
  tally.textContent = parts.join(" ");
  waitingText.hidden = shown > 0;
  waitingText.textContent = kept.length > 0 ? "No matching changes." : nothing;
  pauseButton.textContent = !paused ? "Pause stream" : aside.length === 0 ? "Resume stream" : `Resume stream (${formatNumber(aside.length)} new)`;
  pauseButton.setAttribute("aria-pressed", String(paused));
}

function countOf(number) {
  return `${formatNumber(number)} ${number === 1 ? "change" : "changes"}`;
}

function formatNumber(number) {
  return number.toLocaleString("en");
}

function makeRows(change) {
  const kinds = { "+I": "insert", "+U": "after", "-D": "delete" };
  const rows = [makeRow(change, change.op, kinds[change.op], change.row)];
  if (change.before !== null) rows.unshift(makeRow(change, "-U", "before", change.before));
  return rows;
}

function makeRow(change, op, kind, row) {
  const element = document.createElement("tr");
  element.className = kind;
  const mark = document.createElement("span");
  mark.className = `op op-${kind}`;
  mark.textContent = op;
  const opCell = makeCell("td", "", "");
  opCell.append(mark);
  element.append(opCell);
  for (const name of frame.columns) element.append(makeValueCell(change, kind, row, name));
  return element;
}

function makeValueCell(change, kind, row, name) {
  const step = kind === "after" ? change.steps.get(name) : undefined;
  const element = makeCell("td", numeric.has(name) ? "num" : "", "");
  element.dataset.label = name;
  const value = makeValue(row[name]);
  if (frame.group !== null && name === frame.group[0]) {
    element.classList.add("key");
    const link = document.createElement("a");
    link.href = `${base}/results/${encodeKey(row)}?epoch=${change.epoch}`;
    link.append(value);
    element.append(link);
  } else if (step !== undefined) {
    element.classList.add(step.direction);
    if (step.extreme) element.classList.add("extreme");
    const from = document.createElement("span");
    from.className = "from";
    from.append(makeValue(change.before[name]), " → ");
    const strong = document.createElement("strong");
    strong.append(value);
    element.append(from, strong);
    if (step.direction !== "other") element.append(" ", makeArrow(step.direction));
  } else {
    element.append(value);
  }
  return element;
}

function makeArrow(direction) {
  const element = document.createElement("span");
  element.className = "direction";
  element.title = direction === "down" ? "decreased" : "increased";
  const sign = document.createElement("span");
  sign.ariaHidden = "true";
  sign.textContent = direction === "down" ? "▼" : "▲";
  const label = document.createElement("span");
  label.className = "unseen";
  label.textContent = element.title;
  element.append(sign, label);
  return element;
}

function makeCell(kind, name, content) {
  const element = document.createElement(kind);
  if (name !== "") element.className = name;
  element.textContent = content;
  return element;
}

function makeValue(value) {
  const element = document.createElement("span");
  const empty = value === null || value === "";
  element.className = empty ? "shown null" : "shown";
  element.textContent = value === null ? "NULL" : value === "" ? "(empty)" : formatValue(value);
  return element;
}

function formatValue(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

// As encode_key of service.console.rows.
function encodeKey(row) {
  if (frame.group.length === 1) {
    const value = row[frame.group[0]];
    const plain = value !== null && formatValue(value) !== "" && !formatValue(value).startsWith("{");
    if (plain && formatValue(value) !== "." && formatValue(value) !== "..") return encodeURIComponent(formatValue(value));
  }
  const named = Object.fromEntries(frame.group.map((name) => [name, row[name]]));
  return encodeURIComponent(JSON.stringify(named));
}

// --- controls -----------------------------------------------------------------------------------

pauseButton.addEventListener("click", () => {
  paused = !paused;
  if (!paused) {
    const resumed = aside;
    aside = [];
    for (const change of resumed) {
      fresh.push(change);
      keep(change);
    }
    draw();
  }
  updateTally();
});
// The filters are in the address, so that it leads to the same list.
function filter() {
  const shown = new URL(location.href);
  for (const each of [text, only, befores]) {
    const value = each === befores && !befores.checked ? "" : each.value;
    if (value === "") shown.searchParams.delete(each.name);
    else shown.searchParams.set(each.name, value);
  }
  history.replaceState(null, "", shown);
  table.classList.toggle("compact", !befores.checked);
  redraw();
}

const asked = new URLSearchParams(location.search);
text.value = asked.get("text") ?? "";
if ([...only.options].some(({ value }) => value === asked.get("only"))) only.value = asked.get("only");
befores.checked = asked.has("before");
for (const each of [text, only, befores]) each.addEventListener("input", filter);
table.classList.toggle("compact", !befores.checked);
updateTally();
connect();
