// Buttons that copy a text: data-copy has it, or it is that of the element before the button, or of
// the element with the id in data-copies.
const SHOWN_MS = 2_000;

export function installCopying(root) {
  root.addEventListener("click", async (event) => {
    const button = event.target.closest?.("button.copy");
    if (!button) return;
    const { copy, copies } = button.dataset;
    const of = copies === undefined ? button.previousElementSibling : document.getElementById(copies);
    await write(copy ?? of.value ?? of.textContent, button);
    button.firstChild.data = "Copied";
    setTimeout(() => { button.firstChild.data = "Copy"; }, SHOWN_MS);
  });
}

async function write(text, button) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // Without TLS, a page of another host has no clipboard, but the browser copies what is selected.
  const area = document.createElement("textarea");
  area.value = text;
  button.after(area); // inside an open dialog, the rest of the page cannot be selected
  area.select();
  document.execCommand("copy");
  area.remove();
  button.focus();
  return undefined;
}
