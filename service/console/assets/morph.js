// Change an element into another one and keep equal parts, so that focus, selection, scrolling and
// opened details stay while figures change.
//
// Children with an id are matched by it, all others by their order.

// Attributes that the user changes, not the service.
const OF_USER = new Map([["DETAILS", "open"], ["DIALOG", "open"]]);

export function morph(old, fresh) {
  if (old.isEqualNode(fresh) || inUse(old)) return;
  copyAttributes(old, fresh);
  const kept = new Set([...fresh.children].map(({ id }) => id));
  const byId = new Map();
  for (const child of old.children) if (child.id) byId.set(child.id, child);
  let next = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const named = byId.get(wanted.id);
    byId.delete(wanted.id);
    if (named !== undefined) {
      // To move it would close its dialog and lose its focus, so what is before it and not kept goes.
      while (next !== named && !(next.id && kept.has(next.id))) next = removeFrom(next);
      if (next !== named) old.insertBefore(named, next);
      next = named;
    }
    if (next !== null && alike(next, wanted)) {
      if (next.nodeType === Node.ELEMENT_NODE) morph(next, wanted);
      else if (next.data !== wanted.data) next.data = wanted.data;
      next = next.nextSibling;
    } else {
      old.insertBefore(document.importNode(wanted, true), next);
    }
  }
  while (next !== null) next = removeFrom(next);
}

function removeFrom(node) {
  const following = node.nextSibling;
  node.remove();
  return following;
}

// An open dialog, a form that waits for its response, and the error of the last one.
function inUse(element) {
  return (element.nodeName === "DIALOG" && element.open) || element.ariaBusy === "true"
    || element.classList.contains("refusal");
}

function alike(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName
    && (one.id ?? "") === (other.id ?? "");
}

function copyAttributes(old, fresh) {
  const ofUser = OF_USER.get(old.nodeName);
  for (const { name, value } of fresh.attributes) {
    if (name !== ofUser && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (name !== ofUser && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
}
