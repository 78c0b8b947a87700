// A small chart of two columns of an answer: bars for few rows, a line for many.
const WIDTH = 600;
const HEIGHT = 120;
const BARS_MAX = 60;
const SVG = "http://www.w3.org/2000/svg";

const chart = document.getElementById("chart");
const [values, labels] = chart?.querySelectorAll("select") ?? [];
const svg = chart?.querySelector("svg");
let shown = [];

for (const each of [labels, values]) each?.addEventListener("change", draw);

// Offer the columns of an answer; without numbers, or with one row, there is no chart.
export function showChart(rows, names, numeric) {
  shown = rows;
  chart.hidden = rows.length < 2 || numeric.length === 0;
  offer(values, numeric);
  offer(labels, names, names.find((name) => name !== values.value));
  if (!chart.hidden) draw();
}

function offer(select, names, first) {
  const before = select.value;
  select.replaceChildren(...names.map((name) => new Option(name)));
  select.value = names.includes(before) ? before : first ?? names[0];
}

function draw() {
  const points = shown.map((row) => ({ label: String(row[labels.value] ?? "NULL"), text: row[values.value] }))
    .filter(({ text }) => text !== null && Number.isFinite(Number(text)))
    .map((point) => ({ ...point, value: Number(point.text) }));
  const top = points.reduce((most, { value }) => Math.max(most, value), 0);
  const bottom = points.reduce((least, { value }) => Math.min(least, value), 0);
  const yOf = (value) => HEIGHT * (1 - (value - bottom) / (top - bottom || 1));
  const step = WIDTH / Math.max(points.length, 1);
  const ends = [points.at(0), points.at(-1)].map((each) => each?.label ?? "");
  svg.setAttribute("aria-label", `${values.value} by ${labels.value}: ${points.length} rows from ${ends.join(" to ")}, between ${bottom} and ${top}`);
  svg.replaceChildren(make("path", { class: "grid", d: `M0 0.5H${WIDTH}M0 ${yOf(0)}H${WIDTH}` }));
  if (points.length > BARS_MAX) {
    const d = points.map(({ value }, at) => `${at === 0 ? "M" : "L"}${(at + 0.5) * step} ${yOf(value)}`).join("");
    svg.append(make("path", { class: "line hue-1", d }));
  } else svg.append(...points.map(drawBar));
  const [scales, span] = [".scales", ".span"].map((name) => chart.querySelector(name).children);
  for (const [at, text] of [top, bottom].entries()) scales[at].textContent = text.toLocaleString("en");
  for (const [at, text] of ends.entries()) span[at].textContent = text;

  function drawBar({ label, text, value }, at) {
    const [y, zero] = [yOf(value), yOf(0)];
    const place = { x: (at + 0.1) * step, width: 0.8 * step, y: Math.min(y, zero), height: Math.abs(zero - y) };
    const bar = make("g", {});
    bar.append(make("title", {}), make("rect", { class: "hue-1", ...place }));
    bar.firstChild.textContent = `${label}: ${text}`;
    return bar;
  }
}

function make(kind, attributes) {
  const element = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
