// Something that is asked for and takes a while: it is followed as long as it goes on, and no longer.
const FOLLOW_MS = "1500";

const part = document.querySelector("[data-going]");

document.addEventListener("refreshed", () => {
  document.body.dataset.refresh = part.dataset.going === "true" ? FOLLOW_MS : "0";
});
