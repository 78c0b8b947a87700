// SQL over results: an editor that completes names, the answer as a table and a chart.
//
//   Ctrl-Enter ──► POST /v1/sql ──► rows, their epochs and the time, or the reason and its position
//                            └────► the statement into the history, and into the page's address
//
// The history is this browser's: the service keeps no statement.
import { showChart } from "./answer_chart.js";
import { describeRefusal, goToLogin, Lost, requestOnce } from "./connection.js";
import { attachEditor, options, SQL } from "./editor.js";

const ANSWER_MS = 90_000; // longer than the service lets a statement run
const HISTORY = "retally-sql";
const HISTORY_MAX = 50;
const ADDRESS_MAX = 2_000; // characters; the address of a longer statement is the page's
const KEYWORDS = [
  "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN", "USING", "AT EPOCH",
  "AT TIME", "COUNT(*)", "SUM(", "DISTINCT", "HAVING", "BETWEEN", "IS NOT NULL", "DESC",
];
const NUMERIC = /^((tiny|small|big|huge)?int\b|u?int\d|decimal|float|double)/i;

const form = document.getElementById("ask");
if (form !== null) install();

function install() {
  const tables = JSON.parse(form.dataset.tables);
  const rowsMax = Number(form.dataset.rowsMax);
  const statement = document.getElementById("statement");
  const answer = document.getElementById("answer");
  const table = document.getElementById("rows");
  const verdict = document.getElementById("verdict");
  const refusal = form.querySelector(".refusal");
  const runButton = document.getElementById("run");
  const stopButton = document.getElementById("stop");
  const keys = [{ key: "Mod-Enter", run: () => Boolean(run("json")) }];
  const editor = attachEditor(statement, { label: "Statement", language: SQL, complete, keys });
  let running = null;
  let answered = "";

  // Tables where a table stands; columns of the tables that the statement names elsewhere.
  function complete(context) {
    const word = context.matchBefore(/[\w-]*/);
    const wantsTable = /\b(from|join)\s+$/i.test(context.state.sliceDoc(0, word.from));
    if (word.from === word.to && !wantsTable && !context.explicit) return null;
    const names = tables.map(({ name }) => ({ label: name, type: "class", apply: quote(name) }));
    if (wantsTable) return options(word, names);
    const named = tables.filter((each) => new RegExp(`(?<![\\w-])${each.name}(?![\\w-])`, "i").test(statement.value));
    const columns = Object.assign({}, ...(named.length === 0 ? tables : named).map((each) => each.columns));
    const found = Object.entries(columns).map(([label, detail]) => ({ label, detail, type: "property", apply: quote(label), boost: 2 }));
    return options(word, [...found, ...KEYWORDS.map((label) => ({ label, type: "keyword" })), ...names]);
  }

  async function ask(format) {
    const body = JSON.stringify({ sql: statement.value, format });
    const headers = { "Content-Type": "application/json" };
    const signal = AbortSignal.any([running.signal, AbortSignal.timeout(ANSWER_MS)]);
    const response = await requestOnce("/v1/sql", { method: "POST", headers, body, signal });
    if (response.status === 401) goToLogin();
    return response;
  }

  async function run(format) {
    if (running !== null) return;
    running = new AbortController();
    const began = performance.now();
    setRunning(true);
    showError("");
    answer.classList.add("outdated");
    try {
      const response = await ask(format);
      if (!response.ok) showError(await describeRefusal(response));
      else if (format === "json") show(await response.json(), (performance.now() - began) / 1_000);
      else download(await response.blob(), format);
    } catch (error) {
      if (error.name === "AbortError") showError("Stopped.");
      else if (error.name === "TimeoutError" || error instanceof Lost) showError("The service does not respond.");
      else throw error;
    } finally {
      running = null;
      setRunning(false);
    }
  }

  function setRunning(is) {
    form.ariaBusy = String(is);
    runButton.disabled = is;
    stopButton.hidden = !is;
    if (is) verdict.textContent = "Running.";
  }

  function showError(text) {
    refusal.textContent = text;
    refusal.hidden = text === "";
    editor.mark(text === "" ? [] : [{ ...positionOf(text), text }]);
    if (text !== "") verdict.textContent = "";
  }

  function show(found, seconds) {
    const numeric = new Set(found.columns.filter(({ type }) => NUMERIC.test(type)).map(({ name }) => name));
    const head = document.createElement("tr");
    for (const { name, type } of found.columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      if (numeric.has(name)) cell.className = "num";
      const kind = document.createElement("small");
      kind.textContent = type;
      cell.append(name, kind);
      head.append(cell);
    }
    const rows = found.rows.slice(0, rowsMax).map((row) => rowOf(found.columns, numeric, row));
    table.tHead.replaceChildren(head);
    table.tBodies[0].replaceChildren(...rows);
    const epochs = Object.entries(found.epochs).map(([name, epoch]) => `${name}: epoch ${epoch}`);
    const total = `${found.rows.length} ${found.rows.length === 1 ? "row" : "rows"}`;
    const shown = found.rows.length > rowsMax ? `, the first ${rowsMax} are shown` : "";
    verdict.textContent = `${total} in ${seconds.toFixed(seconds < 1 ? 2 : 1)} s${shown}. ${epochs.join(", ")}`;
    showChart(found.rows.slice(0, rowsMax), found.columns.map(({ name }) => name), [...numeric]);
    answer.hidden = false;
    answer.classList.remove("outdated");
    answered = statement.value;
    const address = `/sql?q=${encodeURIComponent(answered)}`;
    history.replaceState(null, "", address.length > ADDRESS_MAX ? "/sql" : address);
    remember(answered);
  }

  function rowOf(columns, numeric, row) {
    const element = document.createElement("tr");
    for (const { name } of columns) {
      const cell = document.createElement("td");
      const value = row[name];
      cell.className = `${value === null ? "null" : "value"}${numeric.has(name) ? " num" : ""}`;
      cell.textContent = value === null ? "NULL" : typeof value === "object" ? JSON.stringify(value) : String(value);
      element.append(cell);
    }
    return element;
  }

  function download(blob, format) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `answer.${format === "csv" ? "csv" : "arrows"}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), ANSWER_MS);
    verdict.textContent = `Downloaded ${link.download}.`;
    answer.classList.toggle("outdated", statement.value !== answered);
  }

  // --- history --------------------------------------------------------------------------------

  function readHistory() {
    try {
      const found = JSON.parse(localStorage.getItem(HISTORY) ?? "[]");
      return Array.isArray(found) ? found.filter((each) => typeof each === "string") : [];
    } catch {
      return []; // storage is switched off, or has something else
    }
  }

  function remember(text) {
    const kept = [text, ...readHistory().filter((each) => each !== text)].slice(0, HISTORY_MAX);
    try {
      localStorage.setItem(HISTORY, JSON.stringify(kept));
    } catch {
      // Without storage there is no history.
    }
    showHistory();
  }

  function showHistory() {
    const asked = readHistory();
    const items = asked.map((text) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.addEventListener("click", () => editor.write(text));
      item.append(button);
      return item;
    });
    document.getElementById("history").replaceChildren(...items);
    document.getElementById("no-history").hidden = asked.length > 0;
    document.getElementById("forget").hidden = asked.length === 0;
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run("json");
  });
  stopButton.addEventListener("click", () => running?.abort());
  answer.addEventListener("click", (event) => {
    if (event.target.dataset.format !== undefined) run(event.target.dataset.format);
  });
  document.getElementById("forget").addEventListener("click", () => {
    localStorage.removeItem(HISTORY);
    showHistory();
  });
  showHistory();
}

// As quote_name of jobs.querying.statement.
function quote(name) {
  return name.split(".").map((part) => (/^[a-z_]\w*$/i.test(part) ? part : `"${part}"`)).join(".");
}

// The position in a reason, which has the line of the mistake with a caret below it.
function positionOf(reason) {
  const found = /\nLINE (\d+): (?!\.\.\.).*\n( *)\^/.exec(reason);
  if (found === null) return { line: 1, column: 1 };
  return { line: Number(found[1]), column: found[2].length - `LINE ${found[1]}: `.length + 1 };
}
