// The spec editor: request a preview while the user types, and save the spec on submit.
//
//   input ──► a short pause ──► POST /preview (the newest text only) ──► errors, or plan and trial
//   submit ──► PUT /v1/jobs/NAME ──► the job's page
import { sendChange } from "./change.js";
import { backOff, describeRefusal, goToLogin, Lost, request } from "./connection.js";
import { attachSpecEditor } from "./spec_language.js";

const PAUSE_MS = 350;

const form = document.getElementById("editor");
const text = document.getElementById("spec");
const verdict = document.getElementById("verdict");
const preview = document.getElementById("preview");
const refusal = form.querySelector(".refusal");
const name = form.dataset.name;
const saveButton = document.getElementById("save");
export const editor = attachSpecEditor(text, JSON.parse(form.dataset.vocabulary));

let timer = 0;
let pending = null;
let tries = 0;
let sampled = false;
let saved = text.value;

function checkSoon(milliseconds = PAUSE_MS) {
  clearTimeout(timer);
  timer = setTimeout(check, milliseconds);
}

async function check() {
  pending?.abort();
  const mine = (pending = new AbortController());
  const query = new URLSearchParams(name === "" ? {} : { name });
  if (sampled) query.set("sample", "true");
  const headers = { "Content-Type": "application/yaml" };
  const options = { method: "POST", body: text.value, headers, signal: mine.signal };
  try {
    const response = await request("preview", `/preview?${query}`, options);
    const fragment = new DOMParser().parseFromString(await response.text(), "text/html");
    if (mine !== pending) return;
    tries = 0;
    if (response.redirected) goToLogin();
    else if (response.ok) showPreview(fragment);
    else showError(fragment.querySelector("[data-detail]")?.textContent ?? "The spec could not be checked.", "check");
  } catch (error) {
    if (mine !== pending || error.name === "AbortError") return;
    if (!(error instanceof Lost)) throw error;
    tries += 1;
    checkSoon(backOff(tries));
  }
}

function showPreview(fragment) {
  // A refusal to save stays until the next try to save.
  if (refusal.dataset.of === "check") showError("");
  const opened = new Set([...preview.querySelectorAll("details[open]")].map(summaryOf));
  preview.replaceChildren(...fragment.body.childNodes);
  for (const each of preview.querySelectorAll("details")) each.open = opened.has(summaryOf(each));
  const result = preview.querySelector("[data-verdict]");
  verdict.textContent = result.dataset.verdict;
  verdict.dataset.valid = result.dataset.valid;
  saveButton.disabled = result.dataset.valid === "false";
  editor.mark([...preview.querySelectorAll("[data-line]")].map((each) => ({
    line: Number(each.dataset.line),
    column: Number(each.dataset.column),
    text: each.parentElement.querySelector(".break").textContent,
  })));
  preview.classList.remove("outdated");
}

function summaryOf(details) {
  return details.querySelector("summary").textContent;
}

function showError(message, of = "save") {
  refusal.dataset.of = of;
  refusal.textContent = message;
  refusal.hidden = message === "";
}

async function save(replace) {
  const job = name || preview.querySelector("[data-job]")?.dataset.job;
  if (job === undefined) return showError("Fix the errors of the spec first.");
  showError("");
  const query = replace ? "?replace=true" : "";
  const headers = { "Content-Type": "application/yaml" };
  if (name === "") headers["If-None-Match"] = "*";
  else headers["If-Match"] = form.dataset.etag;
  const response = await sendChange("PUT", `/v1/jobs/${job}${query}`, text.value, headers);
  if (!response.ok) {
    const problem = await response.clone().json().catch(() => ({}));
    const element = document.getElementById("replace-row");
    if (element !== null) element.hidden = problem.code !== "query-fixed" || replace;
    return showError(await describeRefusal(response));
  }
  saved = text.value;
  const started = document.getElementById("start")?.checked;
  if (started) {
    const answer = await sendChange("POST", `/v1/jobs/${job}/start`);
    if (!answer.ok) return showError(`The job was created but could not be started: ${await describeRefusal(answer)}`);
  }
  return location.assign(`/jobs/${job}${started ? "?first=true" : ""}`);
}

async function submit(replace) {
  for (const each of form.querySelectorAll("button")) each.disabled = true;
  try {
    await save(replace);
  } catch (error) {
    if (!(error instanceof Lost)) throw error;
    showError("The service does not respond. The change may or may not have been applied; check again later.");
  } finally {
    for (const each of form.querySelectorAll("button")) each.disabled = false;
    saveButton.disabled = verdict.dataset.valid === "false";
  }
}

text.addEventListener("input", () => {
  preview.classList.add("outdated");
  checkSoon();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  submit(false);
});
form.addEventListener("click", (event) => {
  const { id, dataset } = event.target;
  if (dataset.line !== undefined) editor.select(Number(dataset.line), Number(dataset.column));
  if (id === "replace") submit(true);
  if (id === "sample") {
    sampled = true;
    event.target.disabled = true;
    checkSoon(0);
  }
});
// Ask before the user leaves unsaved text.
window.addEventListener("beforeunload", (event) => {
  if (text.value !== saved) event.preventDefault();
});
checkSoon(0);
