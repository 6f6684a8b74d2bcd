import { expect, test } from "vitest";
import { fit, make, nearest, roundStep, tickLabel } from "../src/scale";

test("steps are round numbers that are large enough", () => {
  expect(roundStep(0.013)).toBeCloseTo(0.02);
  expect(roundStep(3)).toBe(5);
  expect(roundStep(1)).toBe(1);
  expect(roundStep(0.21)).toBeCloseTo(0.25);
});

test("a scale maps its ends to the pixels and shows all values", () => {
  const scale = make(0, 10, 50, 250);
  expect([scale.at(0), scale.at(5), scale.at(10)]).toEqual([50, 150, 250]);
  const values = [3, 7, 4];
  const fitted = fit(values, 0, 100);
  for (const value of values) {
    expect(fitted.at(value)).toBeGreaterThan(0);
    expect(fitted.at(value)).toBeLessThan(100);
  }
});

test("flat, single and empty curves still have a range", () => {
  for (const values of [[0.5, 0.5], [2], [0], []]) {
    const scale = fit(values, 0, 100);
    expect(scale.high).toBeGreaterThan(scale.low);
    expect(Number.isFinite(scale.at(values[0] ?? 0))).toBe(true);
    expect(scale.ticks(5).length).toBeGreaterThan(0);
  }
});

test("a scale from zero begins at zero unless something is negative", () => {
  expect(fit([3, 7], 0, 100, 0.06, true).low).toBe(0);
  expect(fit([-3, 7], 0, 100, 0.06, true).low).toBeLessThan(-3);
});

test("whole ticks for epochs", () => {
  expect(make(1, 3, 0, 100).ticks(5, true)).toEqual([1, 2, 3]);
});

test("labels tell neighbouring ticks apart", () => {
  expect([0.25, 0.5].map((tick) => tickLabel(tick, 0.25))).toEqual(["0.25", "0.50"]);
  expect(tickLabel(20, 10)).toBe("20");
  expect(tickLabel(-0.1, 0.1)).toBe("−0.1");
  expect(tickLabel(0.30000000000000004, 0.1)).toBe("0.3");
});

test("the nearest point of a curve", () => {
  const curve = [[1, 10], [2, 20], [5, 50]] as const;
  expect(nearest(curve, 3.4)).toEqual([2, 20]);
  expect(nearest(curve, 99)).toEqual([5, 50]);
  expect(nearest([], 1)).toBeUndefined();
});
