// Resend many messages of the quarantine.
//
//   selected rows ──► POST .../quarantine/check: would the job process them now?
//                └──► confirmed ──► POST /v1/.../quarantine/replay: the accepted ones, one operation
import { sendChange } from "./change.js";
import { describeRefusal, Lost } from "./connection.js";
import { refresh } from "./live.js";

const list = document.getElementById("quarantine");
const button = document.getElementById("resend");
const count = document.getElementById("selected");
const dialog = document.getElementById("resend-dialog");
const form = dialog.querySelector("form");
const checked = document.getElementById("checked");
const refused = document.getElementById("refused");
const error = form.querySelector(".refusal");
const send = form.querySelector("[type=submit]");
const { base } = dialog.dataset;

let accepted = [];

function boxes() {
  return [...list.querySelectorAll("input[name=message]:enabled")];
}

function selected() {
  return boxes().filter((box) => box.checked).map((box) => box.value);
}

function countSelected() {
  if (button === null) return;
  const number = selected().length;
  count.textContent = number === 0 ? "none selected" : `${number} selected`;
  button.disabled = number === 0;
}

list.addEventListener("change", (event) => {
  if (event.target.id === "all") for (const box of boxes()) box.checked = event.target.checked;
  countSelected();
});
document.addEventListener("refreshed", countSelected);

button?.addEventListener("click", async () => {
  accepted = [];
  show("Checking them with the current spec …", []);
  showError("");
  dialog.showModal();
  await orError(async () => {
    const response = await sendChange("POST", `${base}/quarantine/check`, JSON.stringify(selected()));
    if (!response.ok) return showError(await describeRefusal(response));
    const found = await response.json();
    accepted = found.filter((each) => each.refused === null).map((each) => each.id);
    const others = found.filter((each) => each.refused !== null);
    const rest = others.length === 0 ? "" : `, and would refuse ${others.length} again:`;
    return show(`The job can process ${accepted.length} of ${found.length} messages now${rest}`, others);
  });
});

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  send.disabled = true;
  form.ariaBusy = "true";
  await orError(async () => {
    const body = JSON.stringify({ ids: accepted });
    const response = await sendChange("POST", `/v1${base}/quarantine/replay`, body);
    if (!response.ok) return showError(await describeRefusal(response));
    return location.assign(`${base}/activity`);
  });
  form.ariaBusy = "false";
  await refresh();
});

async function orError(work) {
  try {
    await work();
  } catch (failure) {
    if (!(failure instanceof Lost)) throw failure;
    showError("The service does not respond. Some messages may have been resent; see Activity.");
  }
}

function show(text, others) {
  checked.textContent = text;
  refused.hidden = others.length === 0;
  // One line for each reason: a page of messages often has a few reasons.
  const reasons = new Map();
  for (const each of others) reasons.set(each.refused, [...(reasons.get(each.refused) ?? []), each.id]);
  refused.replaceChildren(...[...reasons].map(([reason, ids]) => {
    const item = document.createElement("li");
    const more = ids.length === 1 ? "" : ` and ${ids.length - 1} more`;
    item.textContent = `${ids[0]}${more}: ${reason}`;
    return item;
  }));
  send.disabled = accepted.length === 0;
  send.textContent = accepted.length === 0 ? "Resend" : `Resend ${accepted.length}`;
}

function showError(text) {
  error.textContent = text;
  error.hidden = text === "";
}
