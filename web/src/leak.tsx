// What would leak? A picture, a model, a noise level: what is sent, what the model says, what attackers rebuild.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, type Look, type Row, type Subject } from "./api";
import { LineChart } from "./chart";
import * as write from "./format";
import { methodOf, Progress, Section, words } from "./parts";
import { link } from "./route";
import { latest, STEPS, toPosition, toSigma } from "./slider";
import { usePolling } from "./state";
import { say } from "./texts";

type Chosen = { test: number; upload?: undefined } | { upload: string; shown: string; test?: undefined };
const MODELS = 200;

export function LeakPage({ id }: { id: string }) {
  const [models, setModels] = useState<Row[] | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    api.runs({ with_model: true, limit: MODELS, sort: "started" }).then(
      (page) => setModels(page.rows),
      (problem: unknown) => setError(words(problem)),
    );
  }, []);
  const chosen = id || models?.[0]?.id || "";
  return (
    <>
      <Section id="leak" title={say("leak.title")} lead={say("leak.lead")}>
        {error && <p class="alarm">{error}</p>}
        {models && models.length === 0 && !id && (
          <p class="empty">
            {say("leak.no_models")} <a href={link("start")}>{say("nav.start")}</a>
          </p>
        )}
        {models && (models.length > 0 || id) && (
          <label class="model-choice">
            <span>{say("leak.model")}</span>
            <select id="model" value={chosen} onChange={(event) => (location.hash = link("leak", { id: event.currentTarget.value }))}>
              {!models.some((row) => row.id === chosen) && <option value={chosen}>{decodeURIComponent(chosen)}</option>}
              {models.map((row) => (
                <option key={row.id} value={row.id}>
                  {`${row.folder ? `${row.folder}/` : ""}${row.name} · ${methodOf(row)} · ${write.percent(row.accuracy)}`}
                </option>
              ))}
            </select>
          </label>
        )}
      </Section>
      {chosen && <Table key={chosen} id={chosen} />}
    </>
  );
}

/** One model on the table. */
function Table({ id }: { id: string }) {
  const [subject, setSubject] = useState<Subject | null>(null);
  const [choices, setChoices] = useState<{ index: number; label: string; picture: string }[]>([]);
  const [chosen, setChosen] = useState<Chosen | null>(null);
  const [position, setPosition] = useState<number | null>(null);
  const [draw, setDraw] = useState(0);
  const [look, setLook] = useState<Look | null>(null);
  const [took, setTook] = useState<number | null>(null);
  const [error, setError] = useState("");
  const ready = subject?.state === "ready";

  usePolling(async (alive) => {
    try {
      const found = await api.subject(id);
      if (!alive()) return 1000;
      setSubject(found);
      if (found.state === "failed") setError(found.error ?? "");
      const moving = found.state === "loading" || ["waiting", "training"].includes(found.decoder?.state ?? "");
      return found.state === "loading" ? 400 : moving ? 1200 : 10000;
    } catch (problem) {
      if (alive()) setError(words(problem));
      throw problem;
    }
  }, id);

  useEffect(() => {
    if (!ready) return;
    setPosition((before) => before ?? toPosition(subject.sigma, subject.highest));
    api.choices(id).then(
      (found) => {
        setChoices(found);
        setChosen((before) => before ?? (found[0] ? { test: found[0].index } : null));
      },
      (problem: unknown) => setError(words(problem)),
    );
  }, [ready]);

  const ask = useMemo(
    () =>
      latest(async (what: { chosen: Chosen; sigma: number; draw: number }) => {
        const began = performance.now();
        try {
          const picture = what.chosen.upload !== undefined ? { upload: what.chosen.upload } : { test: what.chosen.test };
          setLook(await api.look({ id, sigma: what.sigma, draw: what.draw, ...picture }));
          setTook(performance.now() - began);
          setError("");
        } catch (problem) {
          setError(words(problem));
        }
      }),
    [id],
  );
  const sigma = ready && position !== null ? toSigma(position, subject.highest) : 0;
  useEffect(() => {
    if (ready && chosen && position !== null) ask({ chosen, sigma, draw });
  }, [ready, JSON.stringify(chosen), position, draw, subject?.decoder?.state]);

  const upload = async (file: File | null | undefined) => {
    if (!file) return;
    try {
      const found = await api.upload(file);
      setChosen({ upload: found.picture, shown: found.shown });
      setError("");
    } catch (problem) {
      setError(words(problem));
    }
  };

  if (!subject || subject.state === "loading") {
    return (
      <section>
        {error ? <p class="alarm">{error}</p> : <p class="empty">{say("leak.opening")}</p>}
      </section>
    );
  }
  if (subject.state === "failed") return <section><p class="alarm">{error}</p></section>;
  const label = chosen?.test !== undefined ? choices.find((one) => one.index === chosen.test)?.label : undefined;
  const answer = (name: string) => look?.answers.find((one) => one.attacker === name);
  return (
    <>
      <section class="leak-table" aria-label={say("leak.title")}>
        {error && <p class="alarm">{error}</p>}
        <Noise subject={subject} position={position ?? 0} sigma={sigma} onMove={setPosition} onAgain={() => setDraw((before) => before + 1)} took={took} />
        <div class="panels" aria-live="off">
          <Panel title={say("leak.original")} picture={look?.original} alt={label ?? say("leak.yours")} id="original" note={label ?? (chosen ? say("leak.yours") : "")} />
          <Panel title={say("leak.sent", { shape: subject.feature_shape.join(" × ") })} picture={look?.feature} alt={say("leak.sent", { shape: subject.feature_shape.join(" × ") })} id="feature" />
          <Panel title={say("leak.linear")} picture={answer("linear")?.picture} alt={say("leak.linear")} id="linear" scores={answer("linear")} />
          <Panel title={say("leak.decoder")} picture={answer("decoder")?.picture} alt={say("leak.decoder")} id="decoder" scores={answer("decoder")} missing={<DecoderState subject={subject} />} />
          <div class="panel says">
            <h3>{say("leak.classes")}</h3>
            <ol class="classes">
              {(look?.classes ?? []).map(([name, share]) => (
                <li key={name} class={name === label ? "right" : ""}>
                  <span>{name}</span>
                  <span class="bar">
                    <span style={{ width: `${(100 * share).toFixed(1)}%` }} />
                  </span>
                  <span class="share">{write.percent(share, 0)}</span>
                </li>
              ))}
            </ol>
          </div>
        </div>
        <Pictures choices={choices} chosen={chosen} onChoose={setChosen} onFile={(file) => void upload(file)} />
        <p class="plainly">{say("leak.plain", { count: write.whole(subject.pictures) })}</p>
        {(subject.others.length > 0 || !subject.own_noise) && (
          <p class="quiet">
            {!subject.own_noise && `${say("leak.added")} `}
            {subject.others.length > 0 && say("leak.others", { names: subject.others.join(", ") })}
          </p>
        )}
      </section>
      <div class="two-sections">
        <Section id="leak-curve" title={say("leak.curve")} lead={say("leak.curve_lead")}>
          <LineChart title="MSE" series={[{ name: say("leak.linear"), colour: "m0", points: subject.errors }]} xLabel={say("word.noise")} wholeX={false} zero at={sigma} floor={{ value: subject.floor, name: say("leak.mean_picture") }} />
        </Section>
        <Section id="leak-accuracy" title={say("leak.accuracy")} lead={say("leak.accuracy_lead")}>
          {subject.accuracy.length < 2 ? (
            <p class="empty">{say("leak.measuring")}</p>
          ) : (
            <LineChart title={say("word.accuracy")} series={[{ name: say("word.accuracy"), colour: "m1", points: subject.accuracy }]} xLabel={say("word.noise")} wholeX={false} percent at={sigma} />
          )}
        </Section>
      </div>
    </>
  );
}

interface NoiseProps {
  subject: Subject;
  position: number;
  sigma: number;
  took: number | null;
  onMove: (position: number) => void;
  onAgain: () => void;
}

function Noise({ subject, position, sigma, took, onMove, onAgain }: NoiseProps) {
  const own = toPosition(subject.sigma, subject.highest);
  return (
    <div class="noise">
      <label for="noise">{say("leak.noise")}</label>
      <output for="noise" id="sigma">
        {write.noise(sigma)}
      </output>
      <div class="track-line">
        <input id="noise" type="range" min={0} max={STEPS} step={0.5} value={position} aria-valuetext={write.noise(sigma)} onInput={(event) => onMove(Number(event.currentTarget.value))} />
        {subject.own_noise && <span class="own" style={{ left: `${own}%` }} title={say("leak.own", { sigma: write.noise(subject.sigma) })} />}
      </div>
      <div class="controls">
        {subject.own_noise && (
          <button type="button" onClick={() => onMove(own)}>
            {say("leak.to_own")} ({write.noise(subject.sigma)})
          </button>
        )}
        <button type="button" onClick={onAgain}>
          {say("leak.again")}
        </button>
        {took !== null && <span class="quiet took">{say("leak.answered", { time: `${Math.round(took)}\u00a0ms` })}</span>}
      </div>
    </div>
  );
}

function DecoderState({ subject }: { subject: Subject }) {
  const { state, progress } = subject.decoder;
  if (state === "training") {
    return (
      <>
        <Progress share={progress} label={say("leak.decoder")} />
        <span>{say("leak.training", { percent: write.percent(progress, 0) })}</span>
      </>
    );
  }
  return <span>{say(state === "absent" ? "leak.absent" : state === "failed" ? "leak.failed" : "leak.waiting")}</span>;
}

interface PanelProps {
  id: string;
  title: string;
  picture: string | undefined;
  alt: string;
  note?: string;
  scores?: { mse: number; ssim: number } | undefined;
  missing?: ComponentChildren;
}

function Panel({ id, title, picture, alt, note, scores, missing }: PanelProps) {
  return (
    <figure class="panel">
      <h3>{title}</h3>
      {picture ? <img src={picture} alt={alt} id={`picture-${id}`} /> : <div class="missing">{missing}</div>}
      <figcaption>
        {note}
        {scores && `SSIM ${write.ssim(scores.ssim)} · MSE ${write.mse(scores.mse)}`}
      </figcaption>
    </figure>
  );
}

interface PicturesProps {
  choices: { index: number; label: string; picture: string }[];
  chosen: Chosen | null;
  onChoose: (chosen: Chosen) => void;
  onFile: (file: File | null | undefined) => void;
}

function Pictures({ choices, chosen, onChoose, onFile }: PicturesProps) {
  const [over, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  return (
    <div class="pictures">
      <div
        class={`drop${over ? " over" : ""}`}
        id="drop"
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          onFile(event.dataTransfer?.files[0]);
        }}
      >
        {chosen?.upload !== undefined && <img src={chosen.shown} alt={say("leak.yours")} />}
        <span>
          {say("leak.drop")}{" "}
          <button type="button" class="linklike" onClick={() => input.current?.click()}>
            {say("leak.browse")}
          </button>
          <span class="quiet"> {say("leak.private")}</span>
        </span>
        <input
          ref={input}
          type="file"
          id="file"
          class="unseen"
          tabIndex={-1}
          accept="image/*"
          aria-label={say("leak.browse")}
          onChange={(event) => {
            onFile(event.currentTarget.files?.[0]);
            event.currentTarget.value = "";
          }}
        />
      </div>
      <div class="strip" role="group" aria-label={say("leak.choose")}>
        {choices.map((one) => (
          <button key={one.index} type="button" aria-pressed={chosen?.test === one.index} title={one.label} onClick={() => onChoose({ test: one.index })}>
            <img src={one.picture} alt={one.label} />
          </button>
        ))}
      </div>
    </div>
  );
}
