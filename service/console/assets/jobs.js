// The jobs that are selected in the list: start them, or stop them after a question. The buttons are
// there once the list has a job.
import { sendChange } from "./change.js";
import { describeRefusal, Lost } from "./connection.js";
import { refresh } from "./live.js";

const list = document.getElementById("jobs");
const bulk = document.getElementById("bulk");
const names = document.getElementById("stop-names");
const count = document.getElementById("selected");
const start = document.getElementById("start-selected");
const stop = document.getElementById("stop-selected");
const dialog = document.getElementById("bulk-dialog");
const refusal = bulk.querySelector(".refusal");

function boxes() {
  return [...list.querySelectorAll("input[name=job]")];
}

function countSelected() {
  const selected = boxes().filter((box) => box.checked).map((box) => box.value);
  bulk.hidden = boxes().length === 0;
  names.textContent = selected.join(", ");
  count.textContent = selected.length === 0 ? "none selected" : `${selected.length} selected`;
  start.disabled = stop.disabled = selected.length === 0;
}

async function act(action) {
  const refused = [];
  start.disabled = stop.disabled = true;
  for (const { value } of boxes().filter((box) => box.checked)) {
    try {
      const response = await sendChange("POST", `/v1/jobs/${value}/${action}`);
      if (!response.ok) refused.push(`${value}: ${await describeRefusal(response)}`);
    } catch (error) {
      if (!(error instanceof Lost)) throw error;
      refused.push(`${value}: the service does not respond`);
    }
  }
  refusal.textContent = refused.join("\n");
  refusal.hidden = refused.length === 0;
  await refresh();
  countSelected();
}

list.addEventListener("change", ({ target }) => {
  if (target.id === "all") for (const box of boxes()) box.checked = target.checked;
  countSelected();
});
document.addEventListener("refreshed", countSelected);
start.addEventListener("click", () => act("start"));
dialog.addEventListener("submit", (event) => {
  event.preventDefault();
  dialog.close();
  act("stop");
});
