// Questions to the server. An error is one sentence that can be shown as it is.

import type { Field, Tree } from "./tree";

export interface Row {
  id: string;
  name: string;
  folder: string;
  status: string;
  method: string;
  method_zh: string;
  surrogate: string | null;
  data: string | null;
  model: string | null;
  sigma: number | null;
  weight: number | null;
  seed: string | null;
  epoch: number | null;
  epochs: number | null;
  accuracy: number | null;
  auditors_accuracy: number;
  mse: number | null;
  ssim: number | null;
  tier: string | null;
  started: string | null;
  seconds: number | null;
  has_model: number;
  notes: number;
}

export interface Page {
  total: number;
  rows: Row[];
  facets: Record<"status" | "surrogate" | "data", string[]>;
  indexing: { busy: boolean; done: number; total: number };
}

export interface Job {
  running: boolean;
  code: number | null;
  stopped: boolean;
  pid: number;
  command: string;
}

export interface Details {
  row?: Row;
  notes?: { en: string; zh: string }[];
  alarms?: { en: string; zh: string }[]; // what stands above the numbers: damaged or changed files, a model of no use
  config?: [string, string][];
  attacks?: { name: string; mse: number | null; ssim: number | null; psnr: number | null; seconds: number | null; threat_model: string[] }[];
  floor?: { mse: number | null; ssim: number | null } | null;
  facts?: [string, string][];
  cell?: boolean;
  job: Job | null;
}

export interface Curves {
  same?: boolean;
  version: string;
  epoch: number;
  curves: Record<string, [number, number][]>;
}

export interface LiveAnswer {
  busy: boolean;
  error: string;
  version: string;
  epoch: number | null;
  mse: number | null;
  floor: number | null;
  sigma: number;
  own: number;
  pairs: { original: string; picture: string; mse: number; label: string }[];
  history: [number, number][];
}

export interface ComparedRow extends Row {
  letter: string;
  colour: string;
  mse_ci: [number, number] | null;
  ssim_ci: [number, number] | null;
}

export interface Comparison {
  runs: ComparedRow[];
  differing: [string, ...(string | null)[]][];
  same: number;
  floor: { mse: number | null; ssim: number | null } | null;
}

export interface Part {
  summary: string;
  fields: Field[];
}

export interface Form {
  sections: Record<string, Field[]>;
  surrogates: Record<string, Part & { modes: Record<string, Tree> }>;
  defences: Record<string, Part>;
}

export interface FieldError {
  key: string;
  message: string;
}

export interface Subject {
  state: "loading" | "ready" | "failed";
  error?: string;
  epoch?: number | null;
  image_shape: number[];
  feature_shape: number[];
  sigma: number;
  highest: number;
  own_noise: boolean;
  others: string[];
  floor: number;
  errors: [number, number][];
  accuracy: [number, number][];
  decoder: { state: string; progress: number };
  pictures: number;
}

export interface Look {
  original: string;
  feature: string;
  answers: { attacker: string; picture: string; mse: number; ssim: number }[];
  classes: [string, number][];
  milliseconds: number;
}

export class ServerError extends Error {}

async function ask<T>(path: string, options: RequestInit = {}): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(path, { ...options, headers: { "X-Splitveil": "1", ...options.headers } });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ServerError("offline");
  }
  const content: unknown = await answer.json().catch(() => null);
  if (!answer.ok) {
    const { error = `${answer.status}`, hint = "" } = (content ?? {}) as { error?: string; hint?: string };
    throw new ServerError(`${error} ${hint}`.trim());
  }
  return content as T;
}

type Args = Record<string, string | number | boolean | readonly string[]>;

function get<T>(path: string, args: Args = {}): Promise<T> {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(args)) {
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  return ask<T>(`/api/${path}?${query}`);
}

function post<T>(path: string, body: unknown): Promise<T> {
  return ask<T>(`/api/${path}`, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json" },
  });
}

export const api = {
  session: () => get<{ version: string; folder: string; writable: boolean }>("session"),
  runs: (args: Args) => get<Page>("runs", args),
  run: (id: string) => get<Details>("run", { id }),
  curves: (ids: readonly string[], seen: readonly string[] = []) => get<Curves[]>("curves", { id: ids, seen }),
  live: (id: string) => get<LiveAnswer>("live", { id }),
  log: (id: string) => get<{ text: string }>("log", { id }),
  compare: (ids: readonly string[]) => get<Comparison>("compare", { id: ids }),
  report: (ids: readonly string[], lang: string) => post<{ url: string; file: string }>("report", { ids, lang }),
  recipes: () => get<{ recipes: { name: string; summary: string }[]; form: Form }>("recipes"),
  recipe: (name: string) => get<Tree>("recipe", { name }),
  check: (tree: Tree) => post<{ errors: FieldError[] }>("check", { tree }),
  start: (name: string, tree: Tree, device: string) =>
    post<{ id?: string; errors: FieldError[] }>("start", { name, tree, device }),
  stop: (id: string) => post<{ job: Job | null }>("stop", { id }),
  subject: (id: string) => get<Subject>("leak/subject", { id }),
  choices: (id: string) => get<{ index: number; label: string; picture: string }[]>("leak/choices", { id }),
  upload: (file: Blob) =>
    ask<{ picture: string; shown: string }>("/api/leak/picture", {
      method: "POST",
      body: file,
      headers: { "Content-Type": "application/octet-stream" },
    }),
  look: (body: { id: string; sigma: number; draw: number; upload?: string; test?: number }) => post<Look>("leak/look", body),
};
