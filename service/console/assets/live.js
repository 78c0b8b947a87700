// Live parts: elements with data-live and an id, refreshed from the page's own address.
//
//   every body[data-refresh] ms ──► fetch the page ──► morph each live part into the new one
//
// One request at a time; a hidden page sends none. `refresh()` refreshes immediately. A refresh that
// failed is repeated until it succeeds, on a page that is not live too. While a job starts or stops,
// each of its pages is live. A page that is not live by itself may have unsaved text, so it stays if
// its session has ended or the service has another version: the banner says so.
import { backOff, goToLogin, Lost, markLost, request } from "./connection.js";
import { morph } from "./morph.js";

const MOVING_MS = 2_000;

// A job's page leads to its first results at this visit only: its address does not keep that.
const first = takeFirst();
let timer = 0;
let tries = 0;
let ended = false;
let running = null;
let next = null;

export function startRefreshing() {
  // A page may become live later, such as results at the end of their slider.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) clearTimeout(timer);
    else if (isDue()) refresh();
  });
  if (interval() > 0) schedule(interval());
}

export function refresh() {
  clearTimeout(timer);
  if (running === null) {
    running = reload().finally(() => {
      running = null;
      if (isDue() && !document.hidden) schedule(tries > 0 ? backOff(tries) : interval());
    });
    return running;
  }
  // The running one may have been read before what the caller has changed, or from another address.
  next ??= running.then(follow, follow);
  return next;
}

function follow() {
  next = null;
  return refresh();
}

function takeFirst() {
  const address = new URL(location.href);
  if (!address.searchParams.has("first")) return "";
  address.searchParams.delete("first");
  history.replaceState(null, "", address);
  return `${address.search === "" ? "?" : "&"}first=true`;
}

function isDue() {
  return !ended && (interval() > 0 || tries > 0);
}

function interval() {
  return Number(document.body.dataset.refresh) || (document.querySelector("[data-moving]") ? MOVING_MS : 0);
}

function schedule(milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(refresh, milliseconds);
}

async function reload() {
  try {
    const response = await request("live", location.pathname + location.search + first);
    if (new URL(response.url).pathname === "/login") {
      return leave(goToLogin, "The session has ended. Reload the page to log in.");
    }
    if (response.status >= 500) {
      markLost("live");
      throw new Lost(`the page is unavailable (${response.status})`);
    }
    const text = await response.text();
    if (!response.headers.get("content-type")?.includes("text/html")) return undefined;
    const page = new DOMParser().parseFromString(text, "text/html");
    if (response.status === 404 || digestOf(page) !== digestOf(document)) {
      return leave(() => location.reload(), "The page is outdated. Reload it.");
    }
    tries = 0;
    ended = false;
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

function leave(go, text) {
  if (Number(document.body.dataset.refresh) > 0) return go();
  tries = 0;
  ended = true;
  return markLost("live", text);
}

// A page of another version of the service does not fit the scripts of this page.
function digestOf(page) {
  return page.querySelector("meta[name=digest]")?.content;
}
