// Specs from a file of Flink SQL, into the editor of a new job.
//
//   text or file ──► POST /from-flink ──► the first spec into the editor; a button for each spec
import { goToLogin, Lost, requestOnce } from "./connection.js";
import { editor } from "./spec.js";

const area = document.getElementById("flink-sql");
const form = area.form;
const specs = document.getElementById("flink-specs");
const refusal = form.querySelector(".refusal");
const editorText = document.getElementById("spec");
let written = editorText.value; // by a template, a suggestion or this script
const button = form.querySelector("[type=submit]");

document.getElementById("flink-file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (file !== undefined) area.value = await file.text();
});
specs.addEventListener("click", (event) => {
  const { spec } = event.target.dataset;
  if (spec === undefined) return;
  const typed = editorText.value !== written;
  if (typed && !confirm("Replace the text in the editor? Your changes to it are lost.")) return;
  editor.write(spec);
  written = editorText.value;
});
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  button.disabled = true;
  try {
    const response = await requestOnce("/from-flink", { method: "POST", body: area.value });
    if (response.redirected) return goToLogin(); // the session has ended
    const found = new DOMParser().parseFromString(await response.text(), "text/html");
    if (response.ok) specs.replaceChildren(...found.body.childNodes);
    showError(response.ok ? "" : found.querySelector("[data-detail]")?.textContent ?? "The file could not be read.");
    if (response.ok) specs.querySelector("[data-spec]")?.click();
  } catch (error) {
    if (!(error instanceof Lost)) throw error;
    showError("The service does not respond.");
  } finally {
    button.disabled = false;
  }
});

function showError(text) {
  refusal.textContent = text;
  refusal.hidden = text === "";
}
