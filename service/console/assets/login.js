// A cookie for this site alone is not sent when a link elsewhere leads here: whoever has a session
// all the same is led on.
const next = document.querySelector("input[name=next]").value;
try {
  const known = await fetch(`/login?next=${encodeURIComponent(next)}`);
  if (new URL(known.url).pathname !== "/login") location.replace(next);
} catch {
  // The service is away; the form says so when it is sent.
}
