// Editors of the console: CodeMirror over a form's text area, which stays the value of the form.
//
//   text area ──► editor in a shadow root, whose style sheets the content security policy allows
//       ▲            │ with the extensions of its language, and completions
//       └── every change, as an input event      diagnostics ◄── errors
import {
  autocompletion, bracketMatching, closeBrackets, completionKeymap, defaultKeymap, EditorState,
  EditorView, highlightActiveLine, HighlightStyle, history, historyKeymap, indentUnit,
  indentWithTab, keymap, lineNumbers, lintGutter, setDiagnostics, sql, syntaxHighlighting, tags,
} from "./codemirror.js";

export const SQL = sql({ upperCaseKeywords: true });

const THEME = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--card)", border: "1px solid var(--strong-line)", borderRadius: "7px", minHeight: "var(--editor-height)", maxHeight: "42rem" },
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
  { tag: tags.keyword, color: "light-dark(#6b3fb3, var(--hue-4))", fontWeight: "600" },
  { tag: [tags.string, tags.attributeValue], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--warn)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.standard(tags.name)], color: "light-dark(#a0365c, var(--hue-5))" },
]);

// Return the editor; `complete` is the source of its completions, `keys` are its own key bindings.
export function attachEditor(area, { label, language, complete, keys = [] }) {
  const host = document.createElement("div");
  host.className = "code";
  area.before(host);
  area.hidden = true;
  const root = host.attachShadow({ mode: "open" });
  const own = [language, autocompletion({ override: [complete] }), keymap.of(keys)];
  const view = new EditorView({ root, parent: root, state: makeState(area, label, own) });
  return {
    focus: () => view.focus(),
    write(text) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } });
      view.focus();
    },
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
      view.contentDOM.setAttribute("aria-invalid", String(errors.length > 0));
    },
  };
}

function makeState(area, label, extensions) {
  return EditorState.create({
    doc: area.value,
    extensions: [
      lineNumbers(), history(), bracketMatching(), closeBrackets(), highlightActiveLine(), lintGutter(),
      indentUnit.of("  "), EditorView.lineWrapping, THEME, syntaxHighlighting(COLORS),
      ...extensions,
      keymap.of([...completionKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
      EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0", spellcheck: "false", autocapitalize: "off" }),
      EditorView.updateListener.of((update) => {
        if (!update.docChanged) return;
        area.value = update.state.doc.toString();
        area.dispatchEvent(new Event("input", { bubbles: true }));
      }),
    ],
  });
}

// Completions of the word before the caret.
export function options(word, found) {
  return { from: word.from, options: found, validFor: /^[\w-]*$/ };
}

function positionOf(doc, line, column) {
  const found = doc.line(Math.min(Math.max(line, 1), doc.lines));
  return Math.min(found.from + column - 1, found.to);
}
