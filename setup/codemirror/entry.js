// The parts of CodeMirror 6 that the console's spec editor uses; build.sh makes one file of them.
export { autocompletion, closeBrackets, completionKeymap } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export { sql, SQLDialect } from "@codemirror/lang-sql";
export { yamlLanguage } from "@codemirror/lang-yaml";
export { bracketMatching, HighlightStyle, indentUnit, LanguageSupport, syntaxHighlighting, syntaxTree } from "@codemirror/language";
export { lintGutter, setDiagnostics } from "@codemirror/lint";
export { EditorState } from "@codemirror/state";
export { EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
export { parseMixed } from "@lezer/common";
export { tags } from "@lezer/highlight";
