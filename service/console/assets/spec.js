// The editor of a spec: what it would be is asked for while one writes, and it is sent when one says.
//
//   input ──► a short rest ──► POST /preview (the newest text only) ──► mistakes, or plan and trial
//   submit ──► PUT /v1/jobs/NAME ──► the job's page
import { change } from "./change.js";
import { ask, backOff, csrf, Lost, refusalOf, toLogin } from "./connection.js";

const REST_MS = 350;

const form = document.getElementById("editor");
const text = document.getElementById("spec");
const verdict = document.getElementById("verdict");
const preview = document.getElementById("preview");
const refusal = form.querySelector(".refusal");
const name = form.dataset.name;

let timer = 0;
let asking = null;
let tries = 0;
let sampled = false;
let saved = text.value;

function soon(milliseconds = REST_MS) {
  clearTimeout(timer);
  timer = setTimeout(check, milliseconds);
}

async function check() {
  asking?.abort();
  const mine = (asking = new AbortController());
  const asked = new URLSearchParams(name === "" ? {} : { name });
  if (sampled) asked.set("sample", "true");
  const headers = { "X-CSRF-Token": csrf(), "Content-Type": "application/yaml" };
  const options = { method: "POST", body: text.value, headers, signal: mine.signal };
  try {
    const response = await ask("preview", `/preview?${asked}`, options);
    const piece = new DOMParser().parseFromString(await response.text(), "text/html");
    if (mine !== asking) return;
    tries = 0;
    if (response.redirected) toLogin();
    else if (response.ok) show(piece);
    else tell(piece.querySelector("main p:not(.faint)")?.textContent ?? "It could not be checked.");
  } catch (error) {
    if (mine !== asking || error.name === "AbortError") return;
    if (!(error instanceof Lost)) throw error;
    tries += 1;
    soon(backOff(tries));
  }
}

function show(piece) {
  const opened = new Set([...preview.querySelectorAll("details[open]")].map(summaryOf));
  preview.replaceChildren(...piece.body.childNodes);
  for (const each of preview.querySelectorAll("details")) each.open = opened.has(summaryOf(each));
  const told = preview.querySelector("[data-verdict]");
  verdict.textContent = told.dataset.verdict;
  verdict.dataset.valid = told.dataset.valid;
  text.setAttribute("aria-invalid", String(told.dataset.valid === "false"));
  preview.classList.remove("old");
}

function summaryOf(details) {
  return details.querySelector("summary").textContent;
}

function tell(words) {
  refusal.textContent = words;
  refusal.hidden = words === "";
}

function goTo(line, column) {
  const lines = text.value.split("\n");
  const place = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + column - 1;
  text.focus();
  text.setSelectionRange(place, place);
  text.scrollTop = (line - 4) * parseFloat(getComputedStyle(text).lineHeight);
}

async function save(replace) {
  const job = name || preview.querySelector("[data-job]")?.dataset.job;
  if (job === undefined) return tell("Correct the spec first; its mistakes are listed.");
  tell("");
  const query = replace ? "?replace=true" : "";
  const options = name === "" ? { "If-None-Match": "*" } : {};
  const response = await put(`/v1/jobs/${job}${query}`, options);
  if (!response.ok) {
    const problem = await response.clone().json().catch(() => ({}));
    const place = document.getElementById("replace-place");
    if (place !== null) place.hidden = problem.code !== "query-fixed" || replace;
    return tell(await refusalOf(response));
  }
  saved = text.value;
  if (document.getElementById("start")?.checked) {
    const started = await change("POST", `/v1/jobs/${job}/start`);
    if (!started.ok) return tell(`The job is there, and could not be started: ${await refusalOf(started)}`);
  }
  return location.assign(`/jobs/${job}`);
}

async function put(address, more) {
  const headers = { "X-CSRF-Token": csrf(), "Content-Type": "application/yaml", ...more };
  return ask("change", address, { method: "PUT", headers, body: text.value });
}

async function saving(replace) {
  for (const each of form.querySelectorAll("button")) each.disabled = true;
  try {
    await save(replace);
  } catch (error) {
    if (!(error instanceof Lost)) throw error;
    tell("The service does not answer; nothing is known of this change. Look again later.");
  } finally {
    for (const each of form.querySelectorAll("button")) each.disabled = false;
  }
}

text.addEventListener("input", () => {
  preview.classList.add("old");
  soon();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  saving(false);
});
form.addEventListener("click", (event) => {
  const { id, dataset } = event.target;
  if (dataset.line !== undefined) goTo(Number(dataset.line), Number(dataset.column));
  if (id === "replace") saving(true);
  if (id === "sample") {
    sampled = true;
    event.target.disabled = true;
    soon(0);
  }
});
// A browser asks before it leaves what was written and not saved.
window.addEventListener("beforeunload", (event) => {
  if (text.value !== saved) event.preventDefault();
});
soon(0);
