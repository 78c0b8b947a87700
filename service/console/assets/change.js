// Changes: forms that ask the REST API for one, and the dialogs that ask before it.
//
//   <button data-opens="ID">                      opens the dialog ID
//   <form data-method data-url [data-then]>       sends its named fields as JSON, or in the query
//                                                 those with data-in="query", and as what its
//                                                 text is one with data-as="json"; a refusal is told in
//                                                 its .refusal, success goes to data-then or takes
//                                                 the live parts anew
//   <textarea data-refused>                       is marked while its form is refused
//   <button data-closes>                          closes the dialog that it is in
//
// Everything is caught at the document, so that parts that were taken anew work too. A form that
// wants to see to its answer itself listens for `changed` (detail: the Response).
import { ask, csrf, Lost, refusalOf, toLogin } from "./connection.js";
import { refresh } from "./live.js";

export function changes(root) {
  root.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-opens]");
    if (opener !== null) open(document.getElementById(opener.dataset.opens));
    event.target.closest("[data-closes]")?.closest("dialog").close();
    // A click beside an open dialog is on the dialog itself, and on nothing in it.
    if (event.target instanceof HTMLDialogElement) event.target.close();
  });
  root.addEventListener("submit", (event) => {
    if (event.target.dataset.method === undefined) return;
    event.preventDefault();
    send(event.target);
  });
}

export function open(dialog) {
  for (const form of dialog.querySelectorAll("form")) {
    form.reset();
    tell(form, "");
  }
  dialog.showModal();
}

// One change by the REST API; the answer, whatever its status.
export async function change(method, url, body) {
  const headers = { "X-CSRF-Token": csrf() };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await ask("change", url, { method, headers, body });
  if (response.status === 401) toLogin();
  return response;
}

async function send(form) {
  if (form.ariaBusy === "true") return;
  busy(form, true);
  try {
    const { method, then } = form.dataset;
    const response = await change(method, addressOf(form), fieldsOf(form));
    if (!response.ok) {
      tell(form, await refusalOf(response));
      return;
    }
    const seen = new CustomEvent("changed", { bubbles: true, cancelable: true, detail: response });
    if (!form.dispatchEvent(seen)) return;
    form.closest("dialog")?.close();
    if (then !== undefined) location.assign(then);
    else await refresh();
  } catch (error) {
    if (!(error instanceof Lost)) throw error;
    tell(form, "The service does not answer. Nothing is known of this change; look again later.");
  } finally {
    busy(form, false);
  }
}

function addressOf(form) {
  const asked = new URLSearchParams(named(form, true));
  return asked.toString() === "" ? form.dataset.url : `${form.dataset.url}?${asked}`;
}

function fieldsOf(form) {
  const fields = named(form, false);
  if (fields.length === 0) return undefined;
  const values = fields.map(([name, value]) => {
    return [name, form.elements[name].dataset?.as === "json" ? JSON.parse(value) : value];
  });
  return JSON.stringify(Object.fromEntries(values));
}

// What has a name and is not left empty: in the query where data-in says so, else in the body.
function named(form, query) {
  return [...new FormData(form)].filter(([name, value]) => {
    const [field] = [form.elements[name]].flatMap((each) => (each instanceof RadioNodeList ? [...each] : [each]));
    return value !== "" && (field.dataset.in === "query") === query;
  });
}

function busy(form, now) {
  form.ariaBusy = String(now);
  for (const button of form.querySelectorAll("button[type=submit]")) button.disabled = now;
}

function tell(form, text) {
  const place = form.querySelector(".refusal");
  place.textContent = text;
  place.hidden = text === "";
  for (const field of form.querySelectorAll("[data-refused]")) {
    field.setAttribute("aria-invalid", String(text !== ""));
  }
}
