// Line charts in the manner of the report: a line per curve, values under the pointer or at the arrow keys.

import { useRef, useState } from "preact/hooks";
import * as write from "./format";
import { fit, nearest, tickLabel, type Point, type Scale } from "./scale";
import { say, sayOr } from "./texts";
import { tip } from "./tip";

export interface Series {
  name: string;
  colour: string;
  points: readonly Point[];
}

export interface Mark {
  value: number;
  name: string;
}

interface Props {
  title: string;
  series: readonly Series[];
  percent?: boolean;
  xLabel?: string;
  wholeX?: boolean;
  floor?: Mark | null | undefined; // a horizontal line
  at?: number | undefined; // a vertical line
  zero?: boolean;
}

const BOX = { width: 300, height: 200, left: 50, right: 14, top: 14, bottom: 44 };
const X0 = BOX.left;
const X1 = BOX.width - BOX.right;
const Y0 = BOX.height - BOX.bottom;
const Y1 = BOX.top;

export function Axes({ x, y, percent, whole, label }: { x: Scale; y: Scale; percent: boolean; whole: boolean; label: string }) {
  const yTicks = y.ticks(5);
  const yStep = yTicks.length > 1 ? yTicks[1]! - yTicks[0]! : 1;
  const xTicks = x.ticks(5, whole);
  const xStep = xTicks.length > 1 ? xTicks[1]! - xTicks[0]! : 1;
  return (
    <>
      {yTicks.map((tick) => (
        <g key={tick}>
          <line class="grid" x1={X0} x2={X1} y1={y.at(tick)} y2={y.at(tick)} />
          <text class="tick end" x={X0 - 7} y={y.at(tick)} dy=".34em">
            {percent ? `${tickLabel(tick * 100, yStep * 100)} %` : tickLabel(tick, yStep)}
          </text>
        </g>
      ))}
      {xTicks.map((tick) => (
        <g key={tick}>
          <line class="grid" x1={x.at(tick)} x2={x.at(tick)} y1={Y0} y2={Y0 + 4} />
          <text class="tick mid" x={x.at(tick)} y={Y0 + 17}>
            {tickLabel(tick, xStep)}
          </text>
        </g>
      ))}
      <line class="axis" x1={X0} x2={X1} y1={Y0} y2={Y0} />
      <text class="name mid" x={(X0 + X1) / 2} y={BOX.height - 8}>
        {label}
      </text>
    </>
  );
}

export function LineChart({ title, series, percent = false, xLabel, wholeX = true, floor, at, zero = false }: Props) {
  const element = useRef<SVGSVGElement>(null);
  const [cross, setCross] = useState<number | null>(null);
  const drawn = series.filter((one) => one.points.length > 0);
  const xs = drawn.flatMap((one) => one.points.map((point) => point[0]));
  const ys = drawn.flatMap((one) => one.points.map((point) => point[1]));
  const x = fit(xs, X0, X1, xs.length > 1 ? 0 : 0.06);
  const y = fit(floor ? [...ys, floor.value] : ys, Y0, Y1, 0.06, zero);
  const value = (number: number) => (percent ? write.percent(number) : write.plain(number));

  const show = (where: number, clientX: number, clientY: number) => {
    const found = drawn.map((one) => ({ one, point: nearest(one.points, where) })).filter(({ point }) => point);
    if (found.length === 0) return;
    const chosen = found.reduce((best, now) =>
      Math.abs(now.point![0] - where) < Math.abs(best.point![0] - where) ? now : best,
    ).point![0];
    setCross(chosen);
    const lines = found.slice(0, 12).map(({ one, point }) => `${drawn.length > 1 ? `${one.name}: ` : ""}${value(point![1])}`);
    tip.set({ text: [write.plain(chosen), ...lines].join("\n"), x: clientX, y: clientY });
  };
  const hide = () => {
    setCross(null);
    tip.set(null);
  };
  const move = (event: PointerEvent) => {
    const box = element.current!.getBoundingClientRect();
    const where = x.low + ((((event.clientX - box.left) * BOX.width) / box.width - X0) / (X1 - X0)) * (x.high - x.low);
    if (where < x.low || where > x.high) hide();
    else show(where, event.clientX, event.clientY);
  };
  const key = (event: KeyboardEvent) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    const places = [...new Set(xs)].sort((a, b) => a - b);
    const now = cross === null ? places.length - 1 : places.indexOf(cross) + (event.key === "ArrowRight" ? 1 : -1);
    const place = places[Math.max(0, Math.min(places.length - 1, now))];
    const box = element.current!.getBoundingClientRect();
    if (place !== undefined) show(place, box.left + (x.at(place) / BOX.width) * box.width, box.top + box.height / 3);
  };

  return (
    <figure class="plot">
      <figcaption>{title}</figcaption>
      <svg
        ref={element}
        class="chart lines"
        viewBox={`0 0 ${BOX.width} ${BOX.height}`}
        role="img"
        aria-label={`${say("chart.of", { name: title })}: ${drawn.map((one) => `${one.name} ${value(one.points.at(-1)![1])}`).join(", ")}`}
        tabIndex={0}
        onPointerMove={move}
        onPointerLeave={hide}
        onKeyDown={key}
        onBlur={hide}
      >
        <Axes x={x} y={y} percent={percent} whole={wholeX} label={xLabel ?? say("word.epoch")} />
        {floor && (
          <>
            <line class="floor" x1={X0} x2={X1} y1={y.at(floor.value)} y2={y.at(floor.value)} />
            <text class="floor-name end" x={X1} y={y.at(floor.value) + 13}>
              {floor.name}
            </text>
          </>
        )}
        {at !== undefined && at >= x.low && at <= x.high && (
          <line class="here" x1={x.at(at)} x2={x.at(at)} y1={Y0} y2={Y1} />
        )}
        {drawn.map((one, place) => (
          <g key={place} class={`curve ${one.colour}`}>
            {one.points.length > 1 ? (
              <polyline points={one.points.map(([a, b]) => `${x.at(a).toFixed(1)},${y.at(b).toFixed(1)}`).join(" ")} />
            ) : (
              <circle cx={x.at(one.points[0]![0])} cy={y.at(one.points[0]![1])} r="3" />
            )}
          </g>
        ))}
        {cross !== null && <line class="cross on" x1={x.at(cross)} x2={x.at(cross)} y1={Y0} y2={Y1} />}
      </svg>
    </figure>
  );
}

const PERCENT = /accuracy$/;
const MAIN = ["accuracy", "task_loss", "rob_loss", "intra_mse"];

/** Whether a curve is shown at once; "surrogate" ends like a gate and is none. */
export const isMain = (name: string) => MAIN.includes(name) || /(^|_)gate/.test(name);

/** All curves of some runs: the main ones and every gate first, the others behind a fold. */
export function CurveGrid({ runs }: { runs: readonly { name: string; colour: string; curves: Record<string, Point[]> }[] }) {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))];
  const first = names.filter(isMain);
  const rest = names.filter((name) => !first.includes(name));
  const draw = (name: string) => (
    <LineChart
      key={name}
      title={sayMetric(name)}
      percent={PERCENT.test(name)}
      series={runs.map((run) => ({ name: run.name, colour: run.colour, points: run.curves[name] ?? [] }))}
    />
  );
  if (names.length === 0) return <p class="empty">{say("run.no_curves")}</p>;
  return (
    <>
      <div class="grid-charts">{first.map(draw)}</div>
      {rest.length > 0 && (
        <details class="more">
          <summary>{say("run.more_curves")}</summary>
          <div class="grid-charts">{rest.map(draw)}</div>
        </details>
      )}
    </>
  );
}

function sayMetric(name: string): string {
  return sayOr(`metric.${name}`, name);
}
