// From data to pixels: a linear scale with round ticks.

export type Point = readonly [number, number];

export interface Scale {
  low: number;
  high: number;
  at: (value: number) => number;
  ticks: (count: number, whole?: boolean) => number[];
}

/** The smallest of 1, 2, 2.5, 5, 10 times a power of ten that is at least `raw`. */
export function roundStep(raw: number): number {
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = [1, 2, 2.5, 5, 10].find((one) => power * one >= raw * (1 - 1e-9)) ?? 10;
  return power * factor;
}

/** A scale that shows all values with a little air. */
export function fit(values: readonly number[], start: number, end: number, pad = 0.06, zero = false): Scale {
  let low = values.reduce((a, b) => Math.min(a, b), Infinity);
  let high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!Number.isFinite(low)) [low, high] = [0, 1];
  const fromZero = zero && low >= 0;
  if (fromZero) low = 0;
  // A curve that is flat to rounding has no range of its own: give it one around its value.
  if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high)) || high - low < 1e-30) {
    const width = Math.abs(high) * 0.2 || 1;
    [low, high] = fromZero ? [low, low + width] : [low - width / 2, high + width / 2];
  }
  const air = pad * (high - low);
  return make(fromZero ? low : low - air, high + air, start, end);
}

export function make(low: number, high: number, start: number, end: number): Scale {
  return {
    low,
    high,
    at: (value) => start + ((value - low) / (high - low)) * (end - start),
    ticks: (count, whole = false) => {
      let step = roundStep((high - low) / count);
      if (whole && step !== Math.floor(step)) step = step < 1 ? 1 : 5;
      const found: number[] = [];
      for (let n = Math.ceil(low / step - 1e-9); n <= Math.floor(high / step + 1e-9); n++) found.push(n * step);
      return found;
    },
  };
}

/** Just enough decimals to tell neighbouring ticks apart. */
export function tickLabel(value: number, step: number): string {
  if (Math.abs(value) < step * 1e-6) return "0";
  if (Math.abs(value) >= 1e5 || step < 1e-5) return Number(value.toPrecision(3)).toExponential().replace("e+", "e").replace("-", "−");
  let digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  if (Number(step.toFixed(digits)) !== Number(step.toFixed(digits + 1))) digits += 1; // steps of 2.5
  return value.toFixed(digits).replace("-", "−");
}

/** The point of a curve whose x is nearest. */
export function nearest(points: readonly Point[], x: number): Point | undefined {
  return points.reduce<Point | undefined>(
    (best, point) => (best === undefined || Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best),
    undefined,
  );
}
