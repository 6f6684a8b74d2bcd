// Privacy against accuracy: one marker per run, with its interval; the staircase joins runs that nobody beats.

import { useState } from "preact/hooks";
import type { ComparedRow, Comparison } from "./api";
import * as write from "./format";
import { fit, make, tickLabel } from "./scale";
import { say } from "./texts";
import { tip } from "./tip";

const BOX = { width: 460, height: 330, left: 66, right: 18, top: 22, bottom: 46 };
const X0 = BOX.left;
const X1 = BOX.width - BOX.right;
const Y0 = BOX.height - BOX.bottom;
const Y1 = BOX.top;

type Metric = "mse" | "ssim";

/** Runs that no other beats in both directions, from most accurate to most private. */
export function best<T extends { x: number; y: number }>(spots: readonly T[], flip: boolean): T[] {
  const chosen: T[] = [];
  for (const spot of [...spots].sort((a, b) => b.y - a.y || (flip ? a.x - b.x : b.x - a.x))) {
    const last = chosen.at(-1);
    if (!last || (flip ? spot.x < last.x : spot.x > last.x)) chosen.push(spot);
  }
  return chosen;
}

export function Frontier({ comparison, hidden }: { comparison: Comparison; hidden: ReadonlySet<string> }) {
  const [metric, choose] = useState<Metric>("mse");
  const flip = metric === "ssim";
  const spots = comparison.runs
    .filter((run) => !hidden.has(run.id) && run.accuracy !== null && run[metric] !== null)
    .map((run) => ({ run, x: run[metric]!, y: run.accuracy!, range: run[`${metric}_ci`] }));
  if (spots.length === 0) return <p class="empty">{say("compare.not_attacked")}</p>;
  const floor = comparison.floor?.[metric] ?? null;
  const xs = [...spots.flatMap((spot) => [spot.x, ...(spot.range ?? [])]), ...(floor === null ? [] : [floor])];
  const ys = spots.map((spot) => spot.y);
  const top = Math.max(...ys);
  let x = fit(xs, X0, X1, 0.06, true);
  if (flip) x = make(Math.min(0, x.low), Math.max(x.high, 1), X1, X0);
  const y = fit([...ys, top - 0.04, top + 0.005], Y0, Y1);
  const xTicks = x.ticks(5);
  const yTicks = y.ticks(6);
  const stairs = best(spots, flip);
  const path = stairs.map((s, n) => (n ? `V${y.at(s.y)}H${x.at(s.x)}` : `M${x.at(s.x)} ${y.at(s.y)}`)).join("");
  const number = (run: ComparedRow) => (flip ? write.ssim(run.ssim) : write.mse(run.mse));
  const words = (run: ComparedRow) =>
    `${run.letter} ${run.name}\n${say("word.accuracy")} ${write.percent(run.accuracy)}${run.auditors_accuracy ? ` (${say("word.auditors")})` : ""}\n${metric.toUpperCase()} ${number(run)}`;
  return (
    <>
      <div class="switch" role="group" aria-label={say("compare.frontier")}>
        {(["mse", "ssim"] as const).map((name) => (
          <button key={name} type="button" aria-pressed={metric === name} onClick={() => choose(name)}>
            {name.toUpperCase()}
          </button>
        ))}
      </div>
      <svg class="chart frontier" viewBox={`0 0 ${BOX.width} ${BOX.height}`} role="group" aria-label={say("compare.frontier")}>
        {yTicks.map((tick) => (
          <g key={tick}>
            <line class="grid" x1={X0} x2={X1} y1={y.at(tick)} y2={y.at(tick)} />
            <text class="tick end" x={X0 - 7} y={y.at(tick)} dy=".34em">
              {tickLabel(tick * 100, (yTicks.length > 1 ? yTicks[1]! - yTicks[0]! : 1) * 100)} %
            </text>
          </g>
        ))}
        {xTicks.map((tick) => (
          <text key={tick} class="tick mid" x={x.at(tick)} y={Y0 + 17}>
            {tickLabel(tick, xTicks.length > 1 ? xTicks[1]! - xTicks[0]! : 1)}
          </text>
        ))}
        <line class="axis" x1={X0} x2={X1} y1={Y0} y2={Y0} />
        <text class="name mid" x={(X0 + X1) / 2} y={BOX.height - 8}>
          {say("compare.x", { metric: metric.toUpperCase() })}
        </text>
        <text class="name mid" transform={`translate(11 ${(Y0 + Y1) / 2}) rotate(-90)`}>
          {say("word.accuracy")}
        </text>
        <text class="name end" x={X1} y={12}>
          {say("compare.better")}
        </text>
        {floor !== null && (
          <>
            <line class="floor" x1={x.at(floor)} x2={x.at(floor)} y1={Y1} y2={Y0} />
            <text class="floor-name end" x={x.at(floor) - 5} y={Y0 - 8}>
              {say("compare.mean_picture")}
            </text>
          </>
        )}
        {stairs.length > 1 && <path class="stairs" d={path} />}
        {spots.map(({ run, x: a, y: b, range }) => (
          <g
            key={run.id}
            class={`spot ${run.colour}`}
            tabIndex={0}
            role="img"
            aria-label={words(run)}
            onPointerMove={(event) => tip.set({ text: words(run), x: event.clientX, y: event.clientY })}
            onPointerLeave={() => tip.set(null)}
            onFocus={(event) => {
              const box = event.currentTarget.getBoundingClientRect();
              tip.set({ text: words(run), x: box.right, y: box.top + box.height / 2 });
            }}
            onBlur={() => tip.set(null)}
          >
            {range && <path class="bar" d={`M${x.at(range[0])} ${y.at(b) - 4}v8m0-4H${x.at(range[1])}m0-4v8`} />}
            <circle cx={x.at(a)} cy={y.at(b)} r="5.5" />
            <text class="letter mid" x={x.at(a) + (x.at(a) > X1 - 20 ? -14 : 14)} y={y.at(b) - 10} dy=".35em">
              {run.letter}
            </text>
            <circle class="hit" cx={x.at(a)} cy={y.at(b)} r="11" />
          </g>
        ))}
      </svg>
    </>
  );
}
