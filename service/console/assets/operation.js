// Refresh the page of an operation until the operation ends.
const REFRESH_MS = "1500";

const part = document.querySelector("[data-running]");

document.addEventListener("refreshed", () => {
  document.body.dataset.refresh = part.dataset.running === "true" ? REFRESH_MS : "0";
});
