// Numbers of result rows: JSON numbers, or text if a double is too small for them.

// Return a negative number, zero or a positive number for less, equal or greater; null if one is not
// a number.
export function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return Math.sign(one - other);
  const left = parts(one);
  const right = parts(other);
  if (left === null || right === null) {
    const [a, b] = [Number(one), Number(other)];
    if (one === null || other === null || Number.isNaN(a) || Number.isNaN(b)) return null;
    return a === b ? 0 : a < b ? -1 : 1;
  }
  const scale = Math.max(left.scale, right.scale);
  const [a, b] = [left, right].map((each) => each.units * 10n ** BigInt(scale - each.scale));
  return a === b ? 0 : a < b ? -1 : 1;
}

function parts(value) {
  const found = /^(-?)(\d+)(?:\.(\d+))?$/.exec(String(value));
  if (found === null) return null;
  const [, sign, whole, fraction = ""] = found;
  return { units: BigInt(`${sign}${whole}${fraction}`), scale: fraction.length };
}
