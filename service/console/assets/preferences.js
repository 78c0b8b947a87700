// Theme, time zone and shortcuts of this browser, in cookies, so that the service renders them.
const YEAR_S = 365 * 24 * 3_600;
const { dataset } = document.documentElement;

export function installPreferences() {
  const zone = document.querySelector("[data-preference=zone]");
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (![...zone.options].some(({ value }) => value === own)) zone.add(new Option(own));
  document.getElementById("preferences").addEventListener("change", ({ target }) => {
    document.cookie = `retally-${target.dataset.preference}=${target.value}; path=/; max-age=${YEAR_S}; samesite=strict`;
    location.reload();
  });
}

// As render_time of service/console/formatting.py: 2026-01-31 12:00:00 and the name of the zone.
export function formatTime(moment) {
  const format = new Intl.DateTimeFormat("sv-SE", { timeZone: dataset.zone, dateStyle: "short", timeStyle: "medium" });
  const name = nameZone(moment); // in summer another than in winter
  return `${format.format(moment)} ${name === nameZone(new Date()) ? dataset.zoneName : name}`;
}

function nameZone(moment) {
  const format = new Intl.DateTimeFormat(undefined, { timeZone: dataset.zone, timeZoneName: "short" });
  return format.formatToParts(moment).find(({ type }) => type === "timeZoneName").value;
}
