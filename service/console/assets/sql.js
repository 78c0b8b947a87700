// SQL over results: complete names while the user types, send the statement, show the answer.
//
//   typing ──► the word before the caret ──► jobs, their columns, keywords ──► buttons
//   submit ──► POST /v1/sql ──► rows and their epochs, or the reason ──► the statement into history
//
// The history is this browser's: the service keeps no statement.
import { describeRefusal, goToLogin, Lost, requestOnce } from "./connection.js";

const ANSWER_MS = 90_000; // longer than the service lets a statement run
const HISTORY = "retally-sql";
const HISTORY_MAX = 50;
const COMPLETIONS_MAX = 8;
const KEYWORDS = [
  "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN", "USING", "AT EPOCH",
  "AT TIME", "COUNT(*)", "SUM(", "DISTINCT", "HAVING", "BETWEEN", "IS NOT NULL", "DESC",
];

const form = document.getElementById("ask");
if (form !== null) install();

function install() {
  const tables = JSON.parse(form.dataset.tables);
  const rowsMax = Number(form.dataset.rowsMax);
  const statement = document.getElementById("statement");
  const completions = document.getElementById("completions");
  const answer = document.getElementById("answer");
  const table = document.getElementById("rows");
  const verdict = document.getElementById("verdict");
  const refusal = form.querySelector(".refusal");
  const runButton = document.getElementById("run");
  const stopButton = document.getElementById("stop");
  let running = null;
  let answered = "";

  // --- completion ---------------------------------------------------------------------------

  function wordBeforeCaret() {
    const before = statement.value.slice(0, statement.selectionStart);
    return /[\w-]*$/.exec(before)[0];
  }

  // Tables first where a table stands; columns of the tables that the statement names elsewhere.
  function suggestions() {
    const word = wordBeforeCaret();
    const before = statement.value.slice(0, statement.selectionStart - word.length);
    const wantsTable = /\b(from|join)\s+$/i.test(before);
    if (word === "" && !wantsTable) return [];
    const named = tables.filter((each) => new RegExp(`(?<![\\w-])${each.name}(?![\\w-])`, "i").test(statement.value));
    const columns = (named.length === 0 ? tables : named).flatMap((each) => Object.keys(each.columns));
    const names = tables.map((each) => each.name);
    const all = wantsTable ? names : [...columns, ...KEYWORDS, ...names];
    const found = all.filter((each) => each.toLowerCase().startsWith(word.toLowerCase()) && each !== word);
    return [...new Set(found)].slice(0, COMPLETIONS_MAX);
  }

  function showCompletions() {
    const buttons = suggestions().map((text) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.addEventListener("click", () => complete(text));
      return button;
    });
    completions.replaceChildren(...buttons);
  }

  function complete(text) {
    const end = statement.selectionStart;
    statement.focus();
    statement.setRangeText(text, end - wordBeforeCaret().length, end, "end");
    showCompletions();
  }

  // --- running --------------------------------------------------------------------------------

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
    setRunning(true);
    showError("");
    answer.classList.add("outdated");
    try {
      const response = await ask(format);
      if (!response.ok) showError(await describeRefusal(response));
      else if (format === "json") show(await response.json());
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
    statement.setAttribute("aria-invalid", String(text !== ""));
    if (text !== "") verdict.textContent = "";
  }

  function show(found) {
    const head = document.createElement("tr");
    for (const { name, type } of found.columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      const kind = document.createElement("small");
      kind.textContent = type;
      cell.append(name, kind);
      head.append(cell);
    }
    const rows = found.rows.slice(0, rowsMax).map((row) => rowOf(found.columns, row));
    table.tHead.replaceChildren(head);
    table.tBodies[0].replaceChildren(...rows);
    const epochs = Object.entries(found.epochs).map(([name, epoch]) => `${name}: epoch ${epoch}`);
    const total = `${found.rows.length} ${found.rows.length === 1 ? "row" : "rows"}`;
    const shown = found.rows.length > rowsMax ? `, the first ${rowsMax} are shown` : "";
    verdict.textContent = `${total}${shown}. ${epochs.join(", ")}`;
    answer.hidden = false;
    answer.classList.remove("outdated");
    answered = statement.value;
    remember(statement.value);
  }

  function rowOf(columns, row) {
    const element = document.createElement("tr");
    for (const { name } of columns) {
      const cell = document.createElement("td");
      const value = row[name];
      if (value === null) cell.className = "null";
      else cell.className = typeof value === "number" ? "value num" : "value";
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
      button.addEventListener("click", () => {
        statement.value = text;
        statement.focus();
        showCompletions();
      });
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
  statement.addEventListener("input", showCompletions);
  statement.addEventListener("click", showCompletions);
  statement.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    if (event.key === "Enter") {
      event.preventDefault();
      run("json");
    } else if (event.code === "Space") {
      event.preventDefault();
      const [first] = suggestions();
      if (first !== undefined) complete(first);
    }
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
