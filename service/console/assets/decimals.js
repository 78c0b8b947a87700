// Numbers as rows have them: JSON numbers, and text where a double would not hold them.

// Negative, zero or positive, as the first is less than, equal to or greater than the second;
// null where one of them is no number.
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
