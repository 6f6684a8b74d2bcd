// The page of one run: numbers, what an attacker sees now, curves that follow, settings, log.

import { useState } from "preact/hooks";
import { api, type Curves, type Details, type LiveAnswer, type Row } from "./api";
import { CurveGrid, LineChart } from "./chart";
import * as write from "./format";
import { Command, methodOf, Progress, ReportButton, Section, Status, words } from "./parts";
import { link } from "./route";
import { language, usePolling } from "./state";
import { say, sayOr } from "./texts";

export function RunPage({ id }: { id: string }) {
  const [details, setDetails] = useState<Details | null>(null);
  const [curves, setCurves] = useState<Curves | null>(null);
  const [live, setLive] = useState<LiveAnswer | null>(null);
  const [error, setError] = useState("");
  const running = details?.row?.status === "running" || Boolean(details?.job?.running);

  usePolling(async (alive) => {
    try {
      const found = await api.run(id);
      if (!alive()) return 1000;
      setDetails(found);
      setError("");
      if (found.row) {
        const [drawn] = await api.curves([id], [curvesVersion.get(id) ?? ""]);
        if (alive() && drawn && !drawn.same) {
          curvesVersion.set(id, drawn.version);
          setCurves(drawn);
        }
      }
      return found.row?.status === "running" || found.job?.running ? 1500 : 8000;
    } catch (problem) {
      if (alive()) setError(words(problem));
      throw problem;
    }
  }, id);

  usePolling(async (alive) => {
    if (!details?.row) return 500; // its folder is not there yet
    const found = await api.live(id);
    if (alive()) setLive(found);
    return found.busy ? 700 : 3000;
  }, `${id} ${Boolean(details?.row)}`);

  const row = details?.row;
  const name = row?.name ?? decodeURIComponent(id);
  const why = details?.facts?.find(([key]) => key === "error")?.[1];
  return (
    <>
      <section class="run-head" aria-labelledby="run-title">
        <div class="titles">
          <h2 id="run-title">{name}</h2>
          {row && <Status status={row.status} />}
          {row?.folder && <span class="quiet">{row.folder}/</span>}
        </div>
        {row && (
          <p class="lead">
            {[methodOf(row), row.data, row.model, row.seed && `${say("word.seed")} ${row.seed}`].filter(Boolean).join(" · ")}
          </p>
        )}
        {error && <p class="alarm">{error}</p>}
        {row?.status === "failed" && why && <p class="alarm">{why}</p>}
        {!details && !error && <p class="empty">{say("page.loading")}</p>}
        {details?.job && !row && <p class="lead">{jobWords(details)}</p>}
        {details?.alarms?.map((alarm, place) => (
          <p class="alarm" key={place}>
            {language.value === "zh" ? alarm.zh : alarm.en}
          </p>
        ))}
        {row && <Numbers details={details} curves={curves} />}
        <div class="controls actions">
          {row?.has_model === 1 && (
            <a class="button primary" href={link("leak", { id })}>
              {say("run.leak")}
            </a>
          )}
          {row && <ReportButton ids={[id]} />}
          {details?.job?.running && <StopButton id={id} asked={details.job.stopped} />}
        </div>
      </section>
      {row && (row.has_model === 1 || running) && <LiveSection live={live} />}
      {row && row.status !== "audit" && (
        <Section id="curves" title={say("run.curves")} lead={say("run.curves_lead")}>
          {curves && <CurveGrid runs={[{ name, colour: "m0", curves: curves.curves }]} />}
        </Section>
      )}
      {details?.attacks && details.attacks.length > 0 && <Attacks details={details} />}
      {details?.notes && details.notes.length > 0 && (
        <Section id="notes" title={say("run.notes")}>
          <ul class="notes">
            {details.notes.map((note, place) => (
              <li key={place}>{language.value === "zh" ? note.zh : note.en}</li>
            ))}
          </ul>
        </Section>
      )}
      {details?.config && details.config.length > 0 && (
        <Section id="settings" title={say("run.settings")}>
          <Pairs rows={details.config} code />
        </Section>
      )}
      {details?.facts && details.facts.length > 0 && (
        <Section id="origin" title={say("run.origin")}>
          {row && ["interrupted", "stopped", "failed"].includes(row.status) && (
            <>
              <p>{say("run.resume_it")}</p>
              <Command text={goOn(details, row, name)} />
            </>
          )}
          {row?.status === "finished" && row.mse === null && (
            <>
              <p>{say("run.audit_it")}</p>
              <Command text={`splitveil audit ${path(row.folder, name)}`} />
            </>
          )}
          <Pairs rows={details.facts.map(([key, value]) => [sayOr(`fact.${key}`, key), value])} />
        </Section>
      )}
      <Log id={id} running={running} />
    </>
  );
}

const curvesVersion = new Map<string, string>();

/** How to go on with a run that has not finished: a sweep's cell through its sweep. */
function goOn(details: Details, row: Row, name: string): string {
  if (details.job) return `${details.job.command} --resume`;
  if (details.cell) {
    const parts = row.folder.split("/").slice(0, -1); // without "cells"
    return `splitveil sweep RECIPE --out ${parts.length > 0 ? path(parts.slice(0, -1).join("/"), parts.at(-1) ?? "") : "."} --retry-failed`;
  }
  return `splitveil train RECIPE --out ${path(row.folder, name)} --resume`;
}

function path(folder: string, name: string): string {
  const whole = folder ? `${folder}/${name}` : name;
  return /^[\w./+=:-]+$/.test(whole) ? whole : `'${whole.replaceAll("'", "'\\''")}'`;
}

function jobWords(details: Details): string {
  if (details.job?.running) return say("run.waiting");
  return say("run.job_failed", { code: details.job?.code ?? "?" });
}

function Numbers({ details, curves }: { details: Details; curves: Curves | null }) {
  const row = details.row!;
  const epoch = Math.max(row.epoch ?? 0, curves?.epoch ?? 0);
  const share = row.epochs ? epoch / row.epochs : 0;
  const accuracy = row.status === "running" ? curves?.curves["accuracy"]?.at(-1)?.[1] : row.accuracy;
  const floor = details.floor;
  return (
    <>
      {row.status === "running" && (
        <p class="following" role="status">
          <Progress share={share} label={say("word.epoch")} />
          <span>{say("run.epoch_of", { epoch, epochs: row.epochs ?? "?" })}</span>
          <span class="quiet">{say("run.following")}</span>
        </p>
      )}
      <dl class="tiles">
        <div>
          <dt>{say("word.accuracy")}</dt>
          <dd id="tile-accuracy">
            {write.percent(accuracy)}
            {row.auditors_accuracy > 0 && <span class="beside">{say("word.auditors")}</span>}
          </dd>
        </div>
        <div>
          <dt>{say("run.best_ssim")}</dt>
          <dd>
            {write.ssim(row.ssim)}
            <span class="beside">{row.ssim === null ? say("run.not_attacked") : floor ? say("run.floor", { value: write.ssim(floor.ssim) }) : ""}</span>
          </dd>
        </div>
        <div>
          <dt>{say("run.best_mse")}</dt>
          <dd>
            {write.mse(row.mse)}
            <span class="beside">{row.mse === null ? "" : floor ? say("run.floor", { value: write.mse(floor.mse) }) : ""}</span>
          </dd>
        </div>
        <div>
          <dt>{say("word.noise")}</dt>
          <dd>{write.noise(row.sigma)}</dd>
        </div>
        <div>
          <dt>{say("word.epochs")}</dt>
          <dd id="tile-epochs">
            {row.status === "audit" ? write.DASH : epoch}
            {row.status !== "audit" && row.epochs ? <span class="of"> / {row.epochs}</span> : ""}
            <span class="beside">{row.seconds !== null ? write.duration(row.seconds) : ""}</span>
          </dd>
        </div>
      </dl>
    </>
  );
}

function StopButton({ id, asked }: { id: string; asked: boolean }) {
  const [error, setError] = useState("");
  const stop = async () => {
    try {
      await api.stop(id);
      setError("");
    } catch (problem) {
      setError(words(problem));
    }
  };
  return (
    <>
      <button type="button" class="danger" onClick={() => void stop()}>
        {asked ? say("run.stopping") : say("run.stop")}
      </button>
      {error && <span class="wrong">{error}</span>}
    </>
  );
}

function LiveSection({ live }: { live: LiveAnswer | null }) {
  const has = live && live.pairs.length > 0;
  return (
    <Section id="live" title={say("run.live")} lead={has ? say("run.live_lead", { count: write.whole(live.own), sigma: write.noise(live.sigma) }) : undefined}>
      {live?.error && <p class="alarm">{live.error}</p>}
      {!has && !live?.error && <p class="empty">{live?.busy || live?.version ? say("run.live_busy") : say("run.live_wait")}</p>}
      {has && (
        <div class={live.history.length > 1 ? "pair" : ""}>
          <div>
            <p class="live-score" role="status">
              <strong>{live.epoch !== null ? say("run.live_after", { epoch: live.epoch }) : ""}</strong>{" "}
              {say("run.live_score", { mse: write.mse(live.mse), floor: write.mse(live.floor) })}
            </p>
            <div class="pairs">
              {live.pairs.map((pair, place) => (
                <figure key={place}>
                  <div class="two">
                    <img src={pair.original} alt={`${say("word.original")}: ${pair.label}`} />
                    <img src={pair.picture} alt={`${say("word.reconstruction")}: ${pair.label}`} class="live-picture" />
                  </div>
                  <figcaption>
                    <span>{pair.label}</span> <span>MSE {write.mse(pair.mse)}</span>
                  </figcaption>
                </figure>
              ))}
            </div>
          </div>
          {live.history.length > 1 && (
            <LineChart title={say("run.live_curve")} series={[{ name: "MSE", colour: "m1", points: live.history }]} floor={live.floor !== null ? { value: live.floor, name: say("compare.mean_picture") } : null} />
          )}
        </div>
      )}
    </Section>
  );
}

function Attacks({ details }: { details: Details }) {
  return (
    <Section id="attacks" title={say("run.attacks")} lead={say("run.attacks_lead")}>
      <div class="scroll">
        <table class="numbers">
          <thead>
            <tr>
              <th>{say("word.attack")}</th>
              <th>MSE ↑</th>
              <th>SSIM ↓</th>
              <th>PSNR ↓</th>
              <th>{say("word.time")}</th>
            </tr>
          </thead>
          <tbody>
            {details.attacks!.map((attack) => (
              <tr key={attack.name}>
                <th scope="row">
                  {attack.name} <span class="folder">{attack.threat_model.join(", ")}</span>
                </th>
                <td>{write.mse(attack.mse)}</td>
                <td>{write.ssim(attack.ssim)}</td>
                <td>{attack.psnr === null ? write.DASH : `${attack.psnr.toFixed(1)}\u00a0dB`}</td>
                <td>{write.duration(attack.seconds)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  );
}

function Pairs({ rows, code = false }: { rows: [string, string][]; code?: boolean }) {
  return (
    <div class={code ? "settings" : "scroll"}>
      <table class="facts">
        <tbody>
          {rows.map(([key, value]) => (
            <tr key={key}>
              <th scope="row">{code ? <code>{key}</code> : key}</th>
              <td>{value}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Log({ id, running }: { id: string; running: boolean }) {
  const [text, setText] = useState("");
  usePolling(async (alive) => {
    const found = await api.log(id);
    if (alive()) setText(found.text.trimEnd());
    return running ? 2000 : 15000;
  }, `${id} ${running}`);
  if (!text) return null;
  return (
    <Section id="log" title={say("run.log")}>
      <pre class="log" tabIndex={0}>
        {text}
      </pre>
    </Section>
  );
}
