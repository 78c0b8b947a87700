// Send a request of the page about REST with the rights of this visitor, and show its response.
//
//   form[data-verb data-path] > fields with data-in: path, query, header or body
//       GET ──► sent      others ──► the dialog with address and body ──► sent
//       with data-danger ──► the dialog asks for the name in the path, too
//
// A response may be large, or endless as that of changes: its first part is shown.
import { sendChange } from "./change.js";
import { Lost, requestOnce } from "./connection.js";

const BYTES_MAX = 100_000;
const READ_MS = 5_000;
const WAIT_MS = 75_000; // longer than a route waits for data
const TEXT = /json|text|yaml|csv/;

const dialog = document.getElementById("ask");
let asking = null; // the form that waits for the answer of the dialog

document.addEventListener("submit", (event) => {
  const form = event.target;
  const answered = form.parentElement === dialog;
  if (!answered && form.dataset.verb === undefined) return;
  event.preventDefault();
  if (answered) dialog.close();
  if (answered || form.dataset.verb === "GET") send(answered ? asking : form);
  else ask(form);
});

function ask(form) {
  asking = form;
  const danger = form.dataset.danger !== undefined;
  const [[, body] = [null, ""]] = fieldsOf(form, "body");
  const [, name] = (danger && fieldsOf(form, "path").find(([each]) => each === "name")) || [];
  document.getElementById("asked").textContent = `${form.dataset.verb} ${addressOf(form)}`;
  show("asked-body", body);
  show("asked-name", name);
  const typed = document.getElementById("typed");
  typed.closest("div").hidden = typed.disabled = name === undefined;
  typed.value = "";
  typed.pattern = [...name ?? ""].map((each) => `\\u{${each.codePointAt(0).toString(16)}}`).join("");
  dialog.querySelector("[type=submit]").className = danger ? "danger" : "main";
  dialog.showModal();
}

function show(id, text = "") {
  const element = document.getElementById(id);
  element.textContent = text;
  element.hidden = text === "";
}

function fieldsOf(form, location) {
  const fields = [...form.elements].filter((each) => each.dataset.in === location && each.value !== "");
  return fields.flatMap(({ name, value, rows }) => (rows && location !== "body" ? value.split("\n").filter(Boolean) : [value]).map((each) => [name, each]));
}

function addressOf(form) {
  const values = new Map(fieldsOf(form, "path"));
  const path = form.dataset.path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values.get(name)));
  const query = new URLSearchParams(fieldsOf(form, "query")).toString();
  return query === "" ? path : `${path}?${query}`;
}

async function send(form) {
  const button = form.querySelector("[type=submit]");
  const [verdict, refusal, answer] = [form.querySelector("[role=status]"), form.querySelector(".refusal"), form.querySelector(".answer")];
  const { verb, media } = form.dataset;
  const headers = Object.fromEntries(fieldsOf(form, "header"));
  const [[, body] = []] = fieldsOf(form, "body");
  answer.hidden = refusal.hidden = button.disabled = true;
  verdict.textContent = "";
  try {
    new Headers(headers); // fetch would refuse it like a service that is gone
  } catch (error) {
    refusal.textContent = error.message;
    refusal.hidden = button.disabled = false;
    return;
  }
  verdict.textContent = "Sent …";
  try {
    const began = performance.now();
    const response = await (verb === "GET" ? requestOnce(addressOf(form), { headers, timeout: WAIT_MS })
      : sendChange(verb, addressOf(form), body, body === undefined ? headers : { "Content-Type": media, ...headers }));
    const took = Math.round(performance.now() - began);
    const type = response.headers.get("content-type");
    const parts = [`${response.status} ${response.statusText}`.trim(), `${took} ms`, type].filter(Boolean);
    verdict.textContent = parts.join(" · ");
    const { bytes, extent } = await read(response);
    verdict.textContent = [...parts, `${extent}${bytes.length.toLocaleString("en")} bytes`].join(" · ");
    answer.querySelector("pre").textContent = TEXT.test(type) ? lay(new TextDecoder().decode(bytes)) : "";
    answer.hidden = bytes.length === 0 || !TEXT.test(type);
  } catch (error) {
    if (!(error instanceof Lost)) throw error;
    verdict.textContent = "";
    refusal.textContent = verb === "GET" ? "The service does not respond." : "The service does not respond. The change may or may not have been applied.";
    refusal.hidden = false;
  } finally {
    button.disabled = false;
  }
}

async function read(response) {
  const parts = [];
  const reader = response.body?.getReader();
  const late = new Promise((resolve) => { setTimeout(resolve, READ_MS, null); });
  let size = 0;
  let extent = "";
  try {
    let part = reader === undefined ? { done: true } : await Promise.race([reader.read(), late]);
    while (part !== null && !part.done && size < BYTES_MAX) {
      parts.push(part.value);
      size += part.value.length;
      part = await Promise.race([reader.read(), late]);
    }
    if (part?.done !== true || size > BYTES_MAX) extent = "the first ";
  } catch {
    extent = "the response broke off after ";
  }
  if (extent !== "") reader.cancel().catch(() => {});
  return { bytes: new Uint8Array(await new Blob(parts).slice(0, BYTES_MAX).arrayBuffer()), extent };
}

// JSON on several lines, if that keeps each number as it is.
function lay(text) {
  try {
    const value = JSON.parse(text);
    return JSON.stringify(value) === text ? JSON.stringify(value, null, 2) : text;
  } catch {
    return text;
  }
}
