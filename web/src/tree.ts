// The settings of a run as a tree, and the form's way to read and write it by dotted key.

export type Value = string | number | boolean | null | Value[] | Tree;
export interface Tree {
  [key: string]: Value;
}

export interface Field {
  key: string;
  kind: "whole" | "number" | "switch" | "list" | "choice" | "text";
  optional: boolean;
  default: Value;
  description: string;
  plain: boolean;
  choices?: string[];
  suggestions?: string[];
  low?: number;
  high?: number;
}

const isTree = (value: Value | undefined): value is Tree =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export function read(tree: Tree, key: string): Value | undefined {
  let found: Value | undefined = tree;
  for (const part of key.split(".")) {
    if (!isTree(found) || !Object.hasOwn(found, part)) return undefined;
    found = found[part];
  }
  return found;
}

/** A copy of the tree with one key set, or taken out when the value is undefined. */
export function write(tree: Tree, key: string, value: Value | undefined): Tree {
  const [first = "", ...rest] = key.split(".");
  const copy: Tree = { ...tree };
  if (rest.length === 0) {
    if (value === undefined) delete copy[first];
    else copy[first] = value;
    return copy;
  }
  const below = copy[first];
  copy[first] = write(isTree(below) ? below : {}, rest.join("."), value);
  return copy;
}

/** What a person typed, as the kind of value the field takes. What does not fit stays text: the server says why. */
export function parse(field: Field, text: string): Value | undefined {
  const words = text.trim();
  if (words === "") return undefined;
  if (field.kind === "whole" || field.kind === "number") return numeric(words);
  if (field.kind === "list") return words.split(/[\s,;]+/).filter(Boolean).map(numeric);
  return words;
}

function numeric(text: string): number | string {
  const value = Number(text);
  return Number.isFinite(value) ? value : text;
}

export function show(value: Value | undefined): string {
  if (value === undefined || value === null) return "";
  return Array.isArray(value) ? value.map(show).join(", ") : String(value);
}
