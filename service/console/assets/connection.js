// The connection to the service: one banner for all requests that a page repeats.
//
//   request(part, address) ──► the response; the banner appears if the service is unreachable
//   requestOnce(address)   ──► the response of a request of the user, without the banner
//   backOff(tries)         ──► milliseconds to wait before the next try, with jitter
//
// Requests that are not GET have the session's CSRF token. Another login in this browser makes the
// token of an open page stale, so a refused token is replaced once.

const TIMEOUT_MS = 15_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const UNREACHABLE = new Set([502, 503, 504]);

const banner = document.getElementById("connection");
const csrf = document.querySelector("meta[name=csrf]");
const missing = new Set();

// `part` names the part of the page, so that a working part does not hide the failure of another.
export function markLost(part, text = "Connection lost, retrying. The data shown may be outdated.") {
  missing.add(part);
  if (banner.textContent !== text) {
    banner.textContent = text;
    banner.hidden = false;
    document.body.classList.add("stale");
  }
}

export function markFound(part) {
  missing.delete(part);
  if (missing.size === 0 && !banner.hidden) {
    banner.hidden = true;
    banner.textContent = "";
    document.body.classList.remove("stale");
  }
}

export class Lost extends Error {}

// Send a request that the caller repeats until it succeeds, as the banner promises.
export async function request(part, address, options = {}) {
  try {
    const response = await requestOnce(address, options);
    markFound(part);
    return response;
  } catch (error) {
    if (error instanceof Lost) markLost(part);
    throw error;
  }
}

// Send a request that nothing repeats: its form shows the error, and the banner would never go.
export async function requestOnce(address, options = {}) {
  const response = await send(address, options);
  if (!(await refusesToken(response)) || !(await renewToken())) return response;
  return send(address, options);
}

async function send(address, { timeout = TIMEOUT_MS, ...options }) {
  const headers = { ...options.headers };
  if (options.method !== undefined) headers["X-CSRF-Token"] = csrf.content;
  let response;
  try {
    response = await fetch(address, { signal: AbortSignal.timeout(timeout), ...options, headers });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Lost(`the service does not respond (${error.name})`);
  }
  // A proxy answers 502 to 504 for a service that is gone.
  const ours = response.headers.get("content-type")?.includes("problem+json");
  if (UNREACHABLE.has(response.status) && !ours) {
    throw new Lost(`the service does not respond (${response.status})`);
  }
  return response;
}

export function backOff(tries) {
  const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** tries);
  return pause * (0.75 + Math.random() / 2);
}

// A route answers with JSON and a page with HTML; both have the code.
async function refusesToken(response) {
  return response.status === 403 && (await response.clone().text()).includes("csrf-refused");
}

async function renewToken() {
  const response = await send("/v1/session", {});
  if (response.ok) csrf.content = (await response.json()).csrf ?? "";
  return response.ok;
}

// The detail of a problem, and a line for each error that says more.
export async function describeRefusal(response) {
  try {
    const problem = await response.json();
    if (problem.code === "revision-mismatch") {
      return "The spec was changed meanwhile. Reload the page to see the change.";
    }
    const errors = (problem.errors ?? [])
      .filter((each) => !problem.detail.includes(each.message))
      .map((each) => `${each.path.replace(/^body\./, "")}: ${each.message}`);
    return [problem.detail, ...errors].join("\n");
  } catch {
    return `the service answered with status ${response.status}`;
  }
}

export function goToLogin() {
  const path = location.pathname + location.search;
  location.assign(path === "/" ? "/login" : `/login?next=${encodeURIComponent(path)}`);
}
