// Start a run: a recipe, and a form made from the server's typed configuration. Errors appear at their fields.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api, type FieldError, type Form } from "./api";
import { Section, words } from "./parts";
import { link } from "./route";
import { say, sayOr } from "./texts";
import { parse, read, show, write, type Field, type Tree, type Value } from "./tree";

const SECTIONS = ["data", "model", "train", "audit"];

export function StartPage({ writable }: { writable: boolean }) {
  const [known, setKnown] = useState<{ recipes: { name: string; summary: string }[]; form: Form } | null>(null);
  const [recipe, setRecipe] = useState("");
  const [tree, setTree] = useState<Tree>({});
  const [name, setName] = useState("");
  const [device, setDevice] = useState("auto");
  const [errors, setErrors] = useState<FieldError[]>([]);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);

  useEffect(() => {
    api.recipes().then(
      (found) => {
        setKnown(found);
        const first = found.recipes.find((one) => one.name === "demo-fashion-mini") ?? found.recipes[0];
        if (first) void choose(first.name);
      },
      (error: unknown) => setProblem(words(error)),
    );
  }, []);

  // the server checks while one types, a moment after the last key
  useEffect(() => {
    if (!known) return;
    const timer = window.setTimeout(() => {
      api.check(tree).then(({ errors: found }) => setErrors((before) => [...found, ...before.filter((e) => e.key === "name")]), () => {});
    }, 350);
    return () => window.clearTimeout(timer);
  }, [JSON.stringify(tree), known]);

  const choose = async (chosen: string) => {
    try {
      setTree(await api.recipe(chosen));
      setRecipe(chosen);
      setErrors([]);
      setName(suggestion(chosen));
    } catch (error) {
      setProblem(words(error));
    }
  };
  const start = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      const answer = await api.start(name.trim(), tree, device);
      setErrors(answer.errors);
      if (answer.id) location.hash = link("run", { id: answer.id });
      else document.querySelector<HTMLElement>(".field .wrong")?.closest(".field")?.scrollIntoView({ block: "center" });
    } catch (error) {
      setProblem(words(error));
    }
    setBusy(false);
  };
  const set = (key: string, value: Value | undefined) => setTree((before) => write(before, key, value));

  if (!known) return problem ? <p class="alarm">{problem}</p> : <p class="empty">{say("page.loading")}</p>;
  const { form } = known;
  const surrogate = show(read(tree, "surrogate.name")) || "none";
  const defences = Object.keys((read(tree, "defence") as Tree | undefined) ?? {});
  const stray = errors.filter((error) => error.key === "");
  const field = (one: Field, given?: Value) => (
    <FieldInput key={one.key} field={one} value={read(tree, one.key)} inherited={given} error={errors.find((e) => e.key === one.key)?.message} onChange={(value) => set(one.key, value)} />
  );
  const group = (fields: Field[], given: Tree = {}) => {
    const chosen = (one: Field) => one.plain || read(tree, one.key) !== undefined || errors.some((e) => e.key === one.key);
    const inherited = (one: Field) => given[one.key.split(".").at(-1) ?? ""];
    const rest = fields.filter((one) => !chosen(one));
    return (
      <>
        <div class="fields">{fields.filter(chosen).map((one) => field(one, inherited(one)))}</div>
        {rest.length > 0 && (
          <details class="more">
            <summary>{say("start.more", { count: rest.length })}</summary>
            <div class="fields">{rest.map((one) => field(one, inherited(one)))}</div>
          </details>
        )}
      </>
    );
  };

  return (
    <form onSubmit={(event) => void start(event)} noValidate>
      <Section id="start" title={say("start.title")} lead={say("start.lead")}>
        {!writable && <p class="alarm">{say("start.readonly")}</p>}
        <fieldset class="recipes">
          <legend>{say("start.recipe")}</legend>
          {known.recipes.map((one) => (
            <label key={one.name} class={`recipe${recipe === one.name ? " chosen" : ""}`}>
              <input type="radio" name="recipe" checked={recipe === one.name} onChange={() => void choose(one.name)} />
              <span>
                <b>{one.name}</b>
                <span class="about">{one.summary}</span>
              </span>
            </label>
          ))}
        </fieldset>
        <div class="fields">
          <Labelled id="name" label={say("start.name")} help={say("start.name_help")} error={errors.find((e) => e.key === "name")?.message}>
            <input id="name" value={name} required maxLength={80} onInput={(event) => setName(event.currentTarget.value)} />
          </Labelled>
          <Labelled id="seed" label={say("start.seed")} help={say("start.seed_help")} error={errors.find((e) => e.key === "seed")?.message}>
            <input id="seed" inputMode="numeric" value={show(read(tree, "seed"))} onInput={(event) => set("seed", parse(SEED, event.currentTarget.value))} />
          </Labelled>
          <Labelled id="device" label={say("start.device")} help={say("start.device_help")}>
            <select id="device" value={device} onChange={(event) => setDevice(event.currentTarget.value)}>
              {["auto", "cpu", "cuda"].map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </Labelled>
        </div>
      </Section>
      {SECTIONS.slice(0, 2).map((section) => (
        <section key={section}>
          <h2>{sayOr(`start.section.${section}`, section)}</h2>
          {group(form.sections[section] ?? [])}
        </section>
      ))}
      <section>
        <h2>{say("start.surrogate")}</h2>
        <div class="fields">
          <Labelled id="surrogate.name" label="name" help={form.surrogates[surrogate]?.summary ?? ""} error={errors.find((e) => e.key === "surrogate.name")?.message}>
            <select
              id="surrogate.name"
              value={surrogate}
              onChange={(event) => setTree(write(tree, "surrogate", event.currentTarget.value === "none" ? undefined : { name: event.currentTarget.value }))}
            >
              <option value="none">{say("start.no_surrogate")}</option>
              {Object.keys(form.surrogates).map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </Labelled>
        </div>
        {form.surrogates[surrogate] && group(form.surrogates[surrogate].fields, form.surrogates[surrogate].modes[show(read(tree, "surrogate.mode")) || "corrected"])}
      </section>
      <section>
        <h2>{say("start.defences")}</h2>
        <p class="lead">{say("start.defences_lead")}</p>
        {[...defences.filter((one) => one in form.defences), ...Object.keys(form.defences).filter((one) => !defences.includes(one))].map((one) => (
          <div key={one} class="defence">
            <label>
              <input type="checkbox" checked={defences.includes(one)} onChange={() => set(`defence.${one}`, defences.includes(one) ? undefined : {})} />
              <b>{one}</b> <span class="about">{form.defences[one]!.summary}</span>
            </label>
            {errors.filter((e) => e.key === `defence.${one}`).map((e) => (
              <p key={e.message} class="wrong">
                {e.message}
              </p>
            ))}
            {defences.includes(one) && group(form.defences[one]!.fields)}
          </div>
        ))}
      </section>
      {SECTIONS.slice(2).map((section) => (
        <section key={section}>
          <h2>{sayOr(`start.section.${section}`, section)}</h2>
          {group(form.sections[section] ?? [])}
        </section>
      ))}
      <div class="start-bar">
        <button type="submit" class="primary" id="start-button" disabled={busy || !writable}>
          {busy ? say("start.starting") : say("start.start")}
        </button>
        <span role="status">
          {errors.length > stray.length && <span class="wrong">{say("start.errors", { count: errors.length - stray.length })}</span>}
          {stray.map((error) => (
            <span key={error.message} class="wrong">
              {error.message}
            </span>
          ))}
          {problem && <span class="wrong">{problem}</span>}
        </span>
      </div>
    </form>
  );
}

const SEED: Field = { key: "seed", kind: "whole", optional: false, default: 125, description: "", plain: true };

function suggestion(recipe: string): string {
  const now = new Date();
  const two = (part: number) => String(part).padStart(2, "0");
  const base = recipe.split("/").at(-1) ?? recipe;
  return `${base}-${two(now.getMonth() + 1)}${two(now.getDate())}-${two(now.getHours())}${two(now.getMinutes())}${two(now.getSeconds())}`;
}

interface LabelledProps {
  id: string;
  label: string;
  help: string;
  error?: string | undefined;
  children: ComponentChildren;
}

function Labelled({ id, label, help, error, children }: LabelledProps) {
  return (
    <div class={`field${error ? " has-error" : ""}`}>
      <label for={id}>{label}</label>
      {children}
      {error ? <span class="wrong" id={`${id}-error`}>{error}</span> : <span class="help">{help}</span>}
    </div>
  );
}

interface FieldProps {
  field: Field;
  value: Value | undefined;
  inherited?: Value | undefined;
  error?: string | undefined;
  onChange: (value: Value | undefined) => void;
}

function FieldInput({ field, value, inherited, error, onChange }: FieldProps) {
  const label = field.key.split(".").at(-1) ?? field.key;
  const standard = inherited === undefined ? field.default : inherited;
  const written = show(standard) || say("start.automatic");
  const shared = { id: field.key, "aria-invalid": Boolean(error), "aria-describedby": error ? `${field.key}-error` : undefined };
  let input;
  if (field.kind === "choice" || field.kind === "switch") {
    const choices = field.kind === "switch" ? ["true", "false"] : (field.choices ?? []);
    const naming = (one: string) => (field.kind === "switch" ? say(one === "true" ? "start.on" : "start.off") : one);
    input = (
      <select
        {...shared}
        value={value === undefined ? "" : String(value)}
        onChange={(event) => {
          const chosen = event.currentTarget.value;
          onChange(chosen === "" ? undefined : field.kind === "switch" ? chosen === "true" : chosen);
        }}
      >
        <option value="">{say("start.default", { value: field.kind === "switch" ? naming(String(standard)) : written })}</option>
        {choices.map((one) => (
          <option key={one} value={one}>
            {naming(one)}
          </option>
        ))}
      </select>
    );
  } else {
    const list = field.suggestions ? `${field.key}-list` : undefined;
    input = (
      <>
        <TextInput {...shared} list={list} inputMode={field.kind === "whole" ? "numeric" : field.kind === "number" ? "decimal" : "text"} placeholder={written} field={field} value={value} onValue={onChange} />
        {list && (
          <datalist id={list}>
            {field.suggestions!.map((one) => (
              <option key={one} value={one} />
            ))}
          </datalist>
        )}
      </>
    );
  }
  return (
    <Labelled id={field.key} label={label} help={field.description} error={error}>
      {input}
    </Labelled>
  );
}

interface TextProps {
  id: string;
  list: string | undefined;
  inputMode: "numeric" | "decimal" | "text";
  placeholder: string;
  "aria-invalid": boolean;
  "aria-describedby": string | undefined;
  field: Field;
  value: Value | undefined;
  onValue: (value: Value | undefined) => void;
}

/** Keeps what is being typed: "0." is on its way to 0.05, and must not turn into 0. */
function TextInput({ field, value, onValue, ...rest }: TextProps) {
  const [text, setText] = useState(show(value));
  useEffect(() => {
    if (show(parse(field, text)) !== show(value)) setText(show(value));
  }, [show(value)]);
  return (
    <input
      {...rest}
      value={text}
      onInput={(event) => {
        setText(event.currentTarget.value);
        onValue(parse(field, event.currentTarget.value));
      }}
    />
  );
}
