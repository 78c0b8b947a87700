// Live parts: the elements with data-live and an id, taken anew from the page's own address.
//
//   every body[data-refresh] ms ──► the page again ──► each live part brought to what it is there
//
// One request at a time; a page that nobody looks at asks for nothing. `refresh()` does it at once.
import { ask, backOff, Lost, lost, toLogin } from "./connection.js";
import { morph } from "./morph.js";

let timer = 0;
let tries = 0;
let running = null;

export function live() {
  if (every() === 0) return;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else refresh();
  });
  later(every());
}

export function refresh() {
  clearTimeout(timer);
  running ??= takeAnew().finally(() => {
    running = null;
    if (every() > 0 && !document.hidden) later(tries > 0 ? backOff(tries) : every());
  });
  return running;
}

function every() {
  return Number(document.body.dataset.refresh);
}

function later(milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(refresh, milliseconds);
}

async function takeAnew() {
  try {
    const response = await ask("live", location.pathname + location.search);
    if (new URL(response.url).pathname === "/login") return toLogin();
    if (response.status >= 500) {
      lost("live");
      throw new Lost(`the page cannot be had (${response.status})`);
    }
    const text = await response.text();
    if (!response.headers.get("content-type")?.includes("text/html")) return undefined;
    const page = new DOMParser().parseFromString(text, "text/html");
    if (response.status === 404 || digest(page) !== digest(document)) return location.reload();
    tries = 0;
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      if (fresh !== null) morph(part, fresh);
    }
    document.dispatchEvent(new Event("refreshed"));
  } catch (error) {
    if (!(error instanceof Lost) && error.name !== "TimeoutError" && error.name !== "TypeError") {
      throw error;
    }
    tries += 1;
  }
  return undefined;
}

// A page of another version of the service does not fit the scripts of this one.
function digest(page) {
  return page.querySelector("meta[name=digest]")?.content;
}
