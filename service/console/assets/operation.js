// An operation: once it has ended there is nothing more to follow.
const part = document.getElementById("operation");

document.addEventListener("refreshed", () => {
  if (part.dataset.state === "DONE" || part.dataset.state === "FAILED") document.body.dataset.refresh = "0";
});
