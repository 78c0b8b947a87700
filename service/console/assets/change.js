// Forms that send a change to the REST API, and the dialogs that confirm it.
//
//   <button data-opens="ID">                  opens the dialog ID
//   <form data-method data-url [data-then]>   sends its named fields as JSON; fields with
//                                             data-in="query" go into the query, fields with
//                                             data-as="json" are parsed first; data-etag is sent
//                                             as If-Match. An error is shown in its .refusal;
//                                             success goes to data-then or refreshes the live parts
//   <textarea data-refused>                   is marked invalid while its form has an error
//   <button data-closes>                      closes its dialog
//
// All listeners are on the document, so that refreshed parts work too. A form that handles the
// response itself listens for `changed` (detail: the Response).
import { describeRefusal, goToLogin, Lost, requestOnce } from "./connection.js";
import { refresh } from "./live.js";

// Longer than SHORT_COMMAND_SECONDS_MAX, for which the service may take to create a savepoint.
const CHANGE_MS = 150_000;

export function installForms(root) {
  let pressed = null;
  root.addEventListener("pointerdown", (event) => {
    pressed = event.target;
  });
  root.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-opens]");
    if (opener !== null) openDialog(document.getElementById(opener.dataset.opens));
    event.target.closest("[data-closes]")?.closest("dialog").close();
    // A click outside an open dialog has the dialog itself as its target. So has a click that began
    // inside it, with a text that is selected beyond its edge: that one must not lose the input.
    const outside = event.target instanceof HTMLDialogElement && event.target === pressed;
    if (outside) event.target.close();
  });
  root.addEventListener("submit", (event) => {
    if (event.target.dataset.method === undefined) return;
    event.preventDefault();
    submitForm(event.target);
  });
}

function openDialog(dialog) {
  for (const form of dialog.querySelectorAll("form")) {
    form.reset();
    showError(form, "");
  }
  dialog.showModal();
}

// Send one change to the REST API; return the response, whatever its status.
export async function sendChange(method, url, body, extra = {}) {
  const headers = body === undefined ? extra : { "Content-Type": "application/json", ...extra };
  const response = await requestOnce(url, { method, headers, body, timeout: CHANGE_MS });
  if (response.status === 401) goToLogin();
  return response;
}

async function submitForm(form) {
  if (form.ariaBusy === "true") return;
  setBusy(form, true);
  try {
    const { method, then, etag } = form.dataset;
    const headers = etag === undefined ? {} : { "If-Match": etag };
    const response = await sendChange(method, addressOf(form), bodyOf(form), headers);
    if (!response.ok) {
      showError(form, await describeRefusal(response));
      return;
    }
    const changed = new CustomEvent("changed", { bubbles: true, cancelable: true, detail: response });
    if (!form.dispatchEvent(changed)) return;
    form.closest("dialog")?.close();
    if (then !== undefined) location.assign(then);
    else await refresh();
  } catch (error) {
    if (!(error instanceof Lost)) throw error;
    showError(form, "The service does not respond. The change may or may not have been applied; check again later.");
  } finally {
    setBusy(form, false);
  }
}

function addressOf(form) {
  const query = new URLSearchParams(fieldsOf(form, true));
  return query.toString() === "" ? form.dataset.url : `${form.dataset.url}?${query}`;
}

function bodyOf(form) {
  const fields = fieldsOf(form, false);
  if (fields.length === 0) return undefined;
  const values = fields.map(([name, value]) => {
    return [name, form.elements[name].dataset?.as === "json" ? JSON.parse(value) : value];
  });
  return JSON.stringify(Object.fromEntries(values));
}

// Named fields that are not empty, either of the query (data-in) or of the body.
function fieldsOf(form, query) {
  return [...new FormData(form)].filter(([name, value]) => {
    const [field] = [form.elements[name]].flatMap((each) => (each instanceof RadioNodeList ? [...each] : [each]));
    return value !== "" && (field.dataset.in === "query") === query;
  });
}

function setBusy(form, busy) {
  form.ariaBusy = String(busy);
  for (const button of form.querySelectorAll("button[type=submit]")) button.disabled = busy;
}

function showError(form, text) {
  const element = form.querySelector(".refusal");
  element.textContent = text;
  element.hidden = text === "";
  for (const field of form.querySelectorAll("[data-refused]")) {
    field.setAttribute("aria-invalid", String(text !== ""));
  }
}
