// Bring an element to what another is, and leave alone what is the same: so the focus, a selection
// and what is scrolled or opened stay while figures change.
//
// Children are matched by id where they have one, else in their order.

// What a person has done to the page, and not the service.
const THEIRS = new Map([["DETAILS", "open"], ["DIALOG", "open"]]);

export function morph(old, fresh) {
  if (old.isEqualNode(fresh) || inUse(old)) return;
  attributes(old, fresh);
  const byId = new Map();
  for (const child of old.children) if (child.id) byId.set(child.id, child);
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const named = wanted.id ? byId.get(wanted.id) : undefined;
    if (named !== undefined && named !== place) {
      old.insertBefore(named, place);
      place = named;
    }
    if (place !== null && alike(place, wanted)) {
      if (place.nodeType === Node.ELEMENT_NODE) morph(place, wanted);
      else if (place.data !== wanted.data) place.data = wanted.data;
      place = place.nextSibling;
    } else {
      old.insertBefore(document.importNode(wanted, true), place);
    }
  }
  while (place !== null) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

// An open dialog, a change on its way, and what was said of the last one.
function inUse(element) {
  return (element.nodeName === "DIALOG" && element.open) || element.ariaBusy === "true"
    || element.classList.contains("refusal");
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName
    && (one.id ?? "") === (other.id ?? "");
}

function attributes(old, fresh) {
  const theirs = THEIRS.get(old.nodeName);
  for (const { name, value } of fresh.attributes) {
    if (name !== theirs && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (name !== theirs && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
}
