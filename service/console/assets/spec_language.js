// The language of specs for the editor: YAML with SQL inside `query`, and completions.
//
// The vocabulary has keys and values by the path of their section, types, words and functions.
import { LanguageSupport, parseMixed, yamlLanguage } from "./codemirror.js";
import { attachEditor, options, SQL } from "./editor.js";

export function attachSpecEditor(area, vocabulary) {
  const yaml = yamlLanguage.configure({ wrap: parseMixed(nestSql) });
  return attachEditor(area, {
    label: "Spec",
    language: new LanguageSupport(yaml, SQL.support),
    complete: (context) => complete(context, vocabulary),
  });
}

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
