// The spec editor: CodeMirror over the form's text area, which stays the value of the form.
//
//   text area ──► editor in a shadow root, whose style sheets the content security policy allows
//       ▲            │ keys, values, columns and functions as completions; SQL inside `query`
//       └── every change, as an input event      diagnostics ◄── errors of the preview
import {
  autocompletion, bracketMatching, closeBrackets, completionKeymap, defaultKeymap, EditorState,
  EditorView, highlightActiveLine, HighlightStyle, history, historyKeymap, indentUnit,
  indentWithTab, keymap, LanguageSupport, lineNumbers, lintGutter, parseMixed, setDiagnostics, sql,
  syntaxHighlighting, tags, yamlLanguage,
} from "./codemirror.js";

const THEME = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--card)", border: "1px solid var(--strong-line)", borderRadius: "7px", minHeight: "24rem", maxHeight: "42rem" },
  "&.cm-focused": { outline: "2px solid var(--accent)" },
  ".cm-scroller": { fontFamily: "var(--mono)", fontSize: "0.8125rem", lineHeight: "1.6", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--sunk)", color: "var(--faint)", border: "none", borderRadius: "7px 0 0 7px" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--accent-soft) 45%, transparent)" },
  "&.cm-focused .cm-selectionBackground, ::selection": { backgroundColor: "var(--accent-soft)" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--text)", border: "1px solid var(--strong-line)", borderRadius: "7px" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-diagnostic": { fontFamily: "var(--sans)" },
});
const COLORS = HighlightStyle.define([
  { tag: [tags.definition(tags.propertyName), tags.propertyName], color: "var(--accent)" },
  { tag: tags.keyword, color: "var(--hue-4)", fontWeight: "600" },
  { tag: [tags.string, tags.attributeValue], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--warn)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--hue-5)" },
]);

export function attachEditor(area, vocabulary) {
  const host = document.createElement("div");
  host.className = "code";
  area.before(host);
  area.hidden = true;
  const root = host.attachShadow({ mode: "open" });
  const view = new EditorView({ root, parent: root, state: makeState(area, vocabulary) });
  return {
    focus: () => view.focus(),
    select(line, column) {
      const position = positionOf(view.state.doc, line, column);
      view.dispatch({ selection: { anchor: position }, effects: EditorView.scrollIntoView(position, { y: "center" }) });
      view.focus();
    },
    mark(errors) {
      const diagnostics = errors.map(({ line, column, text }) => {
        const from = positionOf(view.state.doc, line, column);
        const word = /^[\w.-]+/.exec(view.state.doc.lineAt(from).text.slice(from - view.state.doc.lineAt(from).from));
        return { from, to: Math.min(from + (word?.[0].length ?? 1), view.state.doc.length), severity: "error", message: text };
      });
      view.dispatch(setDiagnostics(view.state, diagnostics));
    },
  };
}

function makeState(area, vocabulary) {
  const language = yamlLanguage.configure({ wrap: parseMixed(nestSql) });
  return EditorState.create({
    doc: area.value,
    extensions: [
      lineNumbers(), history(), bracketMatching(), closeBrackets(), highlightActiveLine(), lintGutter(),
      indentUnit.of("  "), EditorView.lineWrapping, THEME, syntaxHighlighting(COLORS),
      new LanguageSupport(language, SQL.support),
      autocompletion({ override: [(context) => complete(context, vocabulary)] }),
      keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
      EditorView.contentAttributes.of({ "aria-label": "Spec", tabindex: "0", spellcheck: "false", autocapitalize: "off" }),
      EditorView.updateListener.of((update) => {
        if (!update.docChanged) return;
        area.value = update.state.doc.toString();
        area.dispatchEvent(new Event("input", { bubbles: true }));
      }),
    ],
  });
}

const SQL = sql({ upperCaseKeywords: true });

// The value of `query` is SQL.
function nestSql(node, input) {
  if (node.name !== "BlockLiteralContent" && node.name !== "Literal" && node.name !== "QuotedLiteral") return null;
  for (let up = node.node.parent; up !== null; up = up.parent) {
    if (up.name !== "Pair") continue;
    const key = up.firstChild;
    return key !== null && input.read(key.from, key.to) === "query" && key.to < node.from
      ? { parser: SQL.language.parser } : null;
  }
  return null;
}

// --- completion -----------------------------------------------------------------------------------

function complete(context, vocabulary) {
  const word = context.matchBefore(/[\w-]*/);
  if (word.from === word.to && !context.explicit) return null;
  const line = context.state.doc.lineAt(context.pos);
  const before = line.text.slice(0, word.from - line.from);
  const path = withoutNames(pathOf(context.state.doc, line.number, before));
  if (path.at(-1) === "query") return options(word, sqlWords(context.state.doc, vocabulary));
  const value = /([\w-]+):\s*$/.exec(before);
  if (value !== null) {
    const place = [...path, value[1]].filter((each, at, all) => each !== all[at - 1]).join(".");
    const values = /(^|\.)columns\./.test(place) ? vocabulary.types : vocabulary.values[place];
    return values === undefined ? null : options(word, values.map((label) => ({ label, type: "enum" })));
  }
  const keys = vocabulary.keys[path.join(".")];
  if (keys === undefined || !/^\s*$|[{,]\s*$/.test(before)) return null;
  return options(word, keys.map((label) => ({ label, type: "property", apply: `${label}: ` })));
}

function options(word, found) {
  return { from: word.from, options: found, validFor: /^[\w-]*$/ };
}

function sqlWords(doc, vocabulary) {
  return [
    ...columnsOf(doc).map((label) => ({ label, type: "variable", boost: 2 })),
    ...vocabulary.functions.map((label) => ({ label, type: "function", apply: `${label}(`, boost: 1 })),
    ...vocabulary.words.map((label) => ({ label, type: "keyword" })),
  ];
}

// The names under `columns`, in a block or in braces, of the job or of each of its sources.
function columnsOf(doc) {
  const sections = /(?:^([ \t]*)|[{,]\s*)columns:[ \t]*(\{[^}]*\}|\n(?:\1[ \t]+.*\n?)*)/gm;
  const found = [...doc.toString().matchAll(sections)].map((match) => match[2]).join("\n");
  return [...new Set([...found.matchAll(/([A-Za-z_]\w*)\s*:/g)].map((match) => match[1]))];
}

// The vocabulary has no names of users: `sources.orders.columns` is `sources.columns` in it.
function withoutNames(path) {
  if (path[0] !== "sources" && path[0] !== "views") return path;
  return path.length === 1 ? [`${path[0]} by name`] : [path[0], ...path.slice(2)];
}

// The keys above a position, by indentation and by an open brace in its line.
function pathOf(doc, number, before) {
  const path = [];
  const inline = /^(\s*)([\w-]+):\s*\{[^}]*$/.exec(before);
  const literal = /^(\s*)query:/.exec(before);
  if (literal !== null) return ["query"];
  let indent = inline === null ? before.match(/^\s*/)[0].length : inline[1].length;
  if (inline !== null) path.unshift(inline[2]);
  for (let at = number - 1; at >= 1 && indent > 0; at -= 1) {
    const match = /^(\s*)([\w-]+):/.exec(doc.line(at).text);
    if (match !== null && match[1].length < indent) {
      path.unshift(match[2]);
      indent = match[1].length;
    }
  }
  return path;
}

function positionOf(doc, line, column) {
  const found = doc.line(Math.min(Math.max(line, 1), doc.lines));
  return Math.min(found.from + column - 1, found.to);
}
