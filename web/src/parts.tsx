// Small pieces that several pages use.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { api, ServerError, type Row } from "./api";
import * as write from "./format";
import { language } from "./state";
import { say, sayOr } from "./texts";

export function words(error: unknown): string {
  if (error instanceof ServerError) return error.message === "offline" ? say("page.offline") : error.message;
  return String(error);
}

export const methodOf = (row: Row) => (language.value === "zh" ? row.method_zh : row.method);

/** Of an endpoint the model's accuracy is hidden; then, as in the report, the words beside it say whose it is. */
export function Accuracy({ row }: { row: Row }) {
  return (
    <>
      {write.percent(row.accuracy)}
      {row.auditors_accuracy > 0 && <span class="interval">{say("word.auditors")}</span>}
    </>
  );
}

export function Status({ status }: { status: string }) {
  return <span class={`status ${status}`}>{sayOr(`status.${status}`, status)}</span>;
}

export function Section({ id, title, lead, children }: { id: string; title: string; lead?: ComponentChildren; children: ComponentChildren }) {
  return (
    <section aria-labelledby={`${id}-title`} id={id}>
      <h2 id={`${id}-title`}>{title}</h2>
      {lead && <p class="lead">{lead}</p>}
      {children}
    </section>
  );
}

export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <pre>
        <code>{text}</code>
      </pre>
      <button type="button" class="copy" onClick={() => void navigator.clipboard?.writeText(text)}>
        {say("page.copy")}
      </button>
    </div>
  );
}

export function Progress({ share, label }: { share: number; label: string }) {
  const percent = Math.round(100 * Math.max(0, Math.min(1, share)));
  return (
    <span class="progress" role="progressbar" aria-label={label} aria-valuenow={percent} aria-valuemin={0} aria-valuemax={100}>
      <span style={{ width: `${percent}%` }} />
    </span>
  );
}

/** A button that builds the full report of some runs, and then the link to it. */
export function ReportButton({ ids }: { ids: readonly string[] }) {
  const [state, update] = useState<{ busy: boolean; url: string; file: string; error: string }>({ busy: false, url: "", file: "", error: "" });
  const build = async () => {
    update({ busy: true, url: "", file: "", error: "" });
    try {
      update({ busy: false, error: "", ...(await api.report(ids, language.value)) });
    } catch (error) {
      update({ busy: false, url: "", file: "", error: words(error) });
    }
  };
  return (
    <>
      <button type="button" disabled={state.busy || ids.length === 0} onClick={() => void build()}>
        {state.busy ? say("report.building") : say("list.report")}
      </button>
      <span class="report-ready" role="status">
        {state.url && (
          <>
            {say("report.ready")}{" "}
            <a href={state.url} target="_blank" rel="noopener">
              {say("report.open")}
            </a>
            {state.file && <span class="quiet"> {say("report.kept", { file: state.file })}</span>}
          </>
        )}
        {state.error && <span class="wrong">{state.error}</span>}
      </span>
    </>
  );
}
