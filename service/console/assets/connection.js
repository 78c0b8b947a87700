// The connection to the service, as the page tells it: one banner for all that is asked.
//
//   ask(address, options) ──► the answer; a failure to reach the service shows the banner
//   backOff(tries)        ──► how long to wait before the next try, so that nobody piles up

const TIMEOUT_MS = 15_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const UNREACHABLE = new Set([502, 503, 504]);

const banner = document.getElementById("connection");
const missing = new Set();

// Named by who asks, so that one part that works does not hide that another does not.
export function lost(who) {
  missing.add(who);
  if (banner.hidden) {
    banner.textContent = "Connection lost, trying again. What you see may be old.";
    banner.hidden = false;
    document.body.classList.add("stale");
  }
}

export function found(who) {
  missing.delete(who);
  if (missing.size === 0 && !banner.hidden) {
    banner.hidden = true;
    banner.textContent = "";
    document.body.classList.remove("stale");
  }
}

export class Lost extends Error {}

// A proxy before a service that is gone answers for it.
export async function ask(who, address, options = {}) {
  let response;
  try {
    response = await fetch(address, { signal: AbortSignal.timeout(TIMEOUT_MS), ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    lost(who);
    throw new Lost(`the service does not answer (${error.name})`);
  }
  const ours = response.headers.get("content-type")?.includes("problem+json");
  if (UNREACHABLE.has(response.status) && !ours) {
    lost(who);
    throw new Lost(`the service does not answer (${response.status})`);
  }
  found(who);
  return response;
}

export function backOff(tries) {
  const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** tries);
  return pause * (0.75 + Math.random() / 2);
}

export function csrf() {
  return document.querySelector("meta[name=csrf]").content;
}

// What a refusal says: its sentence, and the places that it names.
export async function refusalOf(response) {
  try {
    const problem = await response.json();
    const places = (problem.errors ?? []).map((each) => `${each.path}: ${each.message}`);
    return [problem.detail, ...places].join("\n");
  } catch {
    return `the service answered ${response.status}`;
  }
}

export function toLogin() {
  const place = location.pathname + location.search;
  location.assign(place === "/" ? "/login" : `/login?next=${encodeURIComponent(place)}`);
}
