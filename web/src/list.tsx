// The run list: searched, filtered, sorted and paged by the server, so that ten thousand runs cost no more than ten.

import { useEffect, useState } from "preact/hooks";
import { api, type Page, type Row } from "./api";
import * as write from "./format";
import { Accuracy, methodOf, Progress, ReportButton, Section, Status, words } from "./parts";
import { link } from "./route";
import { ticked, usePolling } from "./state";
import { say, sayOr, type Key } from "./texts";

const LIMIT = 50;
const COLUMNS: [string, Key | null, string, boolean][] = [
  // key of the sort, text, or the words themselves, and whether a phone shows it
  ["name", "word.run", "", true],
  ["status", "word.status", "", false],
  ["data", "word.data", "", false],
  ["accuracy", "word.accuracy", "", true],
  ["mse", null, "MSE ↑", true],
  ["ssim", null, "SSIM ↓", false],
  ["epoch", "word.epochs", "", false],
  ["started", "word.started", "", false],
];

export interface Filter {
  q: string;
  status: string;
  surrogate: string;
  data: string;
  sort: string;
  descending: boolean;
  offset: number;
}

const START: Filter = { q: "", status: "", surrogate: "", data: "", sort: "started", descending: true, offset: 0 };
let remembered = START; // going back to the list finds it as it was left

export function toggle(list: readonly string[], id: string): readonly string[] {
  return list.includes(id) ? list.filter((one) => one !== id) : [...list, id];
}

export function RunList() {
  const [filter, setFilter] = useState(remembered);
  const [page, setPage] = useState<Page | null>(null);
  const [error, setError] = useState("");
  const chosen = ticked.use();
  remembered = filter;
  const change = (part: Partial<Filter>) => setFilter((before) => ({ ...before, offset: 0, ...part }));

  usePolling(async (alive) => {
    try {
      const found = await api.runs({ ...filter, limit: LIMIT });
      if (alive()) {
        setPage(found);
        setError("");
      }
      const moving = found.indexing.busy || found.rows.some((row) => row.status === "running");
      return found.indexing.busy ? 700 : moving ? 2500 : 6000;
    } catch (problem) {
      if (alive()) setError(words(problem));
      throw problem;
    }
  }, JSON.stringify(filter));

  const sort = (key: string) =>
    change({ sort: key, descending: filter.sort === key ? !filter.descending : !["name", "status", "data"].includes(key) });
  const ids = page?.rows.map((row) => row.id) ?? [];
  const allTicked = ids.length > 0 && ids.every((id) => chosen.includes(id));
  const filtered = Boolean(filter.q || filter.status || filter.surrogate || filter.data);

  return (
    <Section id="runs" title={say("list.title")} lead={say("list.lead")}>
      <div class="controls filters">
        <Search value={filter.q} onChange={(q) => change({ q })} />
        <Choice name="status" value={filter.status} any={say("list.any_status")} choices={page?.facets.status} show={(v) => sayOr(`status.${v}`, v)} onChange={(status) => change({ status })} />
        <Choice name="surrogate" value={filter.surrogate} any={say("list.any_surrogate")} choices={page?.facets.surrogate} show={(v) => (v === "none" ? say("list.none") : v)} onChange={(surrogate) => change({ surrogate })} />
        <Choice name="data" value={filter.data} any={say("list.any_data")} choices={page?.facets.data} show={(v) => v} onChange={(data) => change({ data })} />
        <output id="run-count">{page ? say(page.total === 1 ? "list.count_one" : "list.count", { total: write.whole(page.total) }) : ""}</output>
      </div>
      <div class="controls actions">
        <a class={`button primary${chosen.length < 2 ? " disabled" : ""}`} aria-disabled={chosen.length < 2} href={chosen.length < 2 ? undefined : link("compare", { id: chosen })} id="compare">
          {chosen.length < 2 ? say("nav.compare") : say("list.compare", { count: chosen.length })}
        </a>
        <ReportButton ids={chosen} />
        {chosen.length > 0 && (
          <button type="button" class="bare" onClick={() => ticked.set([])}>
            {say("list.clear")}
          </button>
        )}
      </div>
      {error && <p class="alarm">{error}</p>}
      {page?.indexing.busy && page.indexing.total > 0 && (
        <p class="indexing" role="status">
          <Progress share={page.indexing.done / page.indexing.total} label={say("list.indexing", page.indexing as never)} />
          {say("list.indexing", { done: page.indexing.done, total: page.indexing.total })}
        </p>
      )}
      {!page && !error && <p class="empty">{say("page.loading")}</p>}
      {page && page.rows.length === 0 && !page.indexing.busy && (
        <p class="empty">
          {filtered ? say("list.no_match") : say("list.empty")} {!filtered && <a href={link("start")}>{say("list.first")}</a>}
        </p>
      )}
      {page && page.rows.length > 0 && (
        <>
          <div class="scroll">
            <table class="runs">
              <thead>
                <tr>
                  <th class="tick-cell">
                    <input type="checkbox" checked={allTicked} aria-label={say("list.tick_all")} onChange={() => ticked.set(allTicked ? chosen.filter((id) => !ids.includes(id)) : [...new Set([...chosen, ...ids])])} />
                  </th>
                  {COLUMNS.map(([key, text, title, phone]) => {
                    const name = text ? say(text) : title;
                    const active = filter.sort === key;
                    return (
                      <th key={key} class={phone ? "" : "wide"} aria-sort={active ? (filter.descending ? "descending" : "ascending") : "none"}>
                        <button type="button" class="sort" title={say("list.sort", { name })} onClick={() => sort(key)}>
                          {name}
                          <span aria-hidden="true">{active ? (filter.descending ? " ▾" : " ▴") : ""}</span>
                        </button>
                      </th>
                    );
                  })}
                </tr>
              </thead>
              <tbody>
                {page.rows.map((row) => (
                  <RunRow key={row.id} row={row} ticked={chosen.includes(row.id)} onTick={() => ticked.set(toggle(chosen, row.id))} />
                ))}
              </tbody>
            </table>
          </div>
          {page.total > LIMIT && (
            <nav class="controls pager" aria-label={say("list.title")}>
              <button type="button" disabled={filter.offset === 0} onClick={() => change({ offset: Math.max(0, filter.offset - LIMIT) })}>
                {say("list.previous")}
              </button>
              <span>
                {say("list.range", { from: filter.offset + 1, to: Math.min(page.total, filter.offset + page.rows.length), total: page.total })}
              </span>
              <button type="button" disabled={filter.offset + LIMIT >= page.total} onClick={() => change({ offset: filter.offset + LIMIT })}>
                {say("list.next")}
              </button>
            </nav>
          )}
        </>
      )}
    </Section>
  );
}

function RunRow({ row, ticked, onTick }: { row: Row; ticked: boolean; onTick: () => void }) {
  const progress = row.epoch !== null && row.epochs ? row.epoch / row.epochs : 0;
  return (
    <tr class={ticked ? "ticked" : ""}>
      <td class="tick-cell">
        <input type="checkbox" checked={ticked} aria-label={say("list.tick", { name: row.name })} onChange={onTick} />
      </td>
      <th scope="row">
        <a href={link("run", { id: row.id })}>{row.name}</a>
        <span class="narrow-only">
          <Status status={row.status} />
        </span>
        <span class="about">
          {row.folder && (
            <>
              <span class="where">{row.folder}/</span>
              {" · "}
            </>
          )}
          {methodOf(row)}
          {row.seed && ` · ${say("word.seed")} ${row.seed}`}
        </span>
      </th>
      <td class="wide">
        <Status status={row.status} />
        {row.notes > 0 && row.status !== "running" && (
          <span class="flag" title={say("list.notes", { count: row.notes })} aria-label={say("list.notes", { count: row.notes })}>
            {row.notes}
          </span>
        )}
        {row.status === "running" && <Progress share={progress} label={say("word.epoch")} />}
      </td>
      <td class="wide">{row.data ?? write.DASH}</td>
      <td class="number">
        <Accuracy row={row} />
      </td>
      <td class="number">{write.mse(row.mse)}</td>
      <td class="number wide">{write.ssim(row.ssim)}</td>
      <td class="number wide">
        {row.status === "audit" ? write.DASH : (row.epoch ?? 0)}
        {row.status !== "audit" && row.epochs ? <span class="quiet"> / {row.epochs}</span> : ""}
      </td>
      <td class="wide when">{write.moment(row.started)}</td>
    </tr>
  );
}

function Search({ value, onChange }: { value: string; onChange: (text: string) => void }) {
  const [text, setText] = useState(value);
  useEffect(() => {
    if (text === value) return;
    const timer = window.setTimeout(() => onChange(text), 200); // not for every letter
    return () => window.clearTimeout(timer);
  }, [text]);
  return <input id="search" type="search" value={text} placeholder={say("list.search")} aria-label={say("list.search")} onInput={(event) => setText(event.currentTarget.value)} />;
}

interface ChoiceProps {
  name: string;
  value: string;
  any: string;
  choices: string[] | undefined;
  show: (value: string) => string;
  onChange: (value: string) => void;
}

function Choice({ name, value, any, choices = [], show, onChange }: ChoiceProps) {
  return (
    <select id={`filter-${name}`} aria-label={any} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
      <option value="">{any}</option>
      {choices.map((choice) => (
        <option key={choice} value={choice}>
          {show(choice)}
        </option>
      ))}
    </select>
  );
}
