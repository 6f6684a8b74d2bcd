// Ticked runs side by side: frontier, curves over each other, numbers, settings that differ.

import { useState } from "preact/hooks";
import { api, type Comparison, type Curves } from "./api";
import { CurveGrid } from "./chart";
import * as write from "./format";
import { Frontier } from "./frontier";
import { Accuracy, methodOf, ReportButton, Section, Status, words } from "./parts";
import { link } from "./route";
import { usePolling } from "./state";
import { say } from "./texts";

export function ComparePage({ ids }: { ids: readonly string[] }) {
  const [comparison, setComparison] = useState<Comparison | null>(null);
  const [curves, setCurves] = useState<Curves[]>([]);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [error, setError] = useState("");

  usePolling(async (alive) => {
    if (ids.length < 1) return 1e6;
    try {
      const [found, drawn] = await Promise.all([api.compare(ids), api.curves(ids)]);
      if (alive()) {
        setComparison(found);
        setCurves(drawn);
        setError("");
      }
      return found.runs.some((run) => run.status === "running") ? 3000 : 30000;
    } catch (problem) {
      if (alive()) setError(words(problem));
      throw problem;
    }
  }, ids.join(" "));

  if (ids.length < 1) {
    return (
      <Section id="compare-none" title={say("compare.title")}>
        <p class="empty">
          {say("compare.few")} <a href={link("")}>{say("compare.to_list")}</a>
        </p>
      </Section>
    );
  }
  if (!comparison) return error ? <p class="alarm">{error}</p> : <p class="empty">{say("page.loading")}</p>;
  const flip = (id: string) => {
    const next = new Set(hidden);
    if (!next.delete(id)) next.add(id);
    setHidden(next);
  };
  const shown = comparison.runs.map((run) => ({ run, curves: curves[ids.indexOf(run.id)]?.curves ?? {} })).filter(({ run }) => !hidden.has(run.id));
  // a whole table of options that only some runs have (a surrogate's) would bury what was chosen on purpose
  const partial = comparison.differing.filter(([key, ...values]) => new Set(values.filter((v) => v !== null)).size === 1 && !/\b(name|mode|preset|sigma|weight)$/.test(key));
  const main = comparison.differing.filter((row) => !partial.includes(row));
  return (
    <>
      <div class="legend" role="group" aria-label={say("compare.legend")}>
        {comparison.runs.map((run) => (
          <button key={run.id} type="button" class={run.colour} aria-pressed={!hidden.has(run.id)} onClick={() => flip(run.id)}>
            <span class={`badge ${run.colour}`}>{run.letter}</span>
            <span>{run.name}</span>
          </button>
        ))}
      </div>
      {error && <p class="alarm">{error}</p>}
      <div class="two-sections">
        <Section id="frontier-box" title={say("compare.frontier")} lead={say("compare.frontier_lead")}>
          <Frontier comparison={comparison} hidden={hidden} />
        </Section>
        <Section id="numbers" title={say("compare.numbers")}>
          <div class="scroll">
            <table class="numbers">
              <thead>
                <tr>
                  <th>{say("word.run")}</th>
                  <th>{say("word.accuracy")}</th>
                  <th>MSE ↑</th>
                  <th>SSIM ↓</th>
                </tr>
              </thead>
              <tbody>
                {comparison.runs.map((run) => (
                  <tr key={run.id}>
                    <th scope="row">
                      <span class="named">
                        <span class={`badge ${run.colour}`}>{run.letter}</span>
                        <a href={link("run", { id: run.id })}>{run.name}</a>
                      </span>
                      <span class="folder">
                        {methodOf(run)}
                        {run.status !== "finished" && (
                          <>
                            {" "}
                            <Status status={run.status} />
                          </>
                        )}
                      </span>
                    </th>
                    <td>
                      <Accuracy row={run} />
                    </td>
                    <td>{write.mse(run.mse)}</td>
                    <td>{write.ssim(run.ssim)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          <div class="controls actions">
            <ReportButton ids={ids} />
          </div>
        </Section>
      </div>
      <Section id="curves" title={say("compare.curves")} lead={say("run.curves_lead")}>
        <CurveGrid runs={shown.map(({ run, curves: drawn }) => ({ name: run.name, colour: run.colour, curves: drawn }))} />
      </Section>
      <Section id="settings" title={say("compare.settings")}>
        {comparison.differing.length === 0 ? (
          <p class="empty">{say("compare.equal")}</p>
        ) : (
          <>
            <Differences comparison={comparison} rows={main} />
            {partial.length > 0 && (
              <details class="more">
                <summary>{say("compare.partial", { count: partial.length })}</summary>
                <Differences comparison={comparison} rows={partial} />
              </details>
            )}
          </>
        )}
        <p class="quiet">{say("compare.same", { count: comparison.same })}</p>
      </Section>
    </>
  );
}

function Differences({ comparison, rows }: { comparison: Comparison; rows: Comparison["differing"] }) {
  if (rows.length === 0) return null;
  return (
    <div class="scroll">
      <table class="diff">
        <thead>
          <tr>
            <th>{say("word.key")}</th>
            {comparison.runs.map((run) => (
              <th key={run.id}>
                <span class="named">
                  <span class={`badge ${run.colour}`}>{run.letter}</span>
                  {run.name}
                </span>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([key, ...values]) => (
            <tr key={key}>
              <th scope="row">
                <code>{key}</code>
              </th>
              {values.map((value, place) => (
                <td key={place}>{value ?? write.DASH}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
