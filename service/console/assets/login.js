// Browsers do not send a SameSite cookie with a link from another site. So check for a session again,
// and continue to the wanted page.
const next = document.querySelector("input[name=next]").value;
try {
  const known = await fetch(`/login?next=${encodeURIComponent(next)}`);
  if (new URL(known.url).pathname !== "/login") location.replace(next);
} catch {
  // The service is unreachable; submitting the form shows that.
}
