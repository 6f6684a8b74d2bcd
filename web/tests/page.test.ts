import { afterEach, expect, test, vi } from "vitest";

vi.stubGlobal("navigator", { language: "en" });
vi.stubGlobal("localStorage", { getItem: () => null, setItem: () => {} });

const { fill, TEXTS } = await import("../src/texts");
const { link, parseRoute } = await import("../src/route");
const { latest, STEPS, toPosition, toSigma } = await import("../src/slider");
const { best } = await import("../src/frontier");
const { toggle } = await import("../src/list");
const { isMain } = await import("../src/chart");

afterEach(() => void vi.useRealTimers());

test("every text is there in both languages, with the same places", () => {
  const places = (text: string) => [...text.matchAll(/\{\w+\}/g)].map(String).sort();
  for (const [key, [english, chinese]] of Object.entries(TEXTS)) {
    expect(english, key).not.toBe("");
    expect(chinese, key).not.toBe("");
    expect(places(chinese), key).toEqual(places(english));
  }
});

test("places are filled, also with words that look like places", () => {
  expect(fill("{a} of {b}", { a: 1, b: "{a}" })).toBe("1 of {a}");
});

test("gates are among the main curves, and counts of the surrogate's steps are not", () => {
  expect(["task_loss", "gate_mean", "class_gate"].every(isMain)).toBe(true);
  expect(["surrogate_steps", "lr"].some(isMain)).toBe(false);
});

test("addresses survive strange names", () => {
  const ids = ["a b", "%3Cimg%20src%3Dx%3E", "x&id=y", "中文"];
  const route = parseRoute(link("compare", { id: ids }));
  expect(route.page).toBe("compare");
  expect(route.args.getAll("id")).toEqual(ids);
  expect(parseRoute("").page).toBe("");
});

test("the slider reaches both ends and comes back to where it was", () => {
  expect(toSigma(0, 2)).toBe(0);
  expect(toSigma(STEPS, 2)).toBe(2);
  for (const sigma of [0, 0.01, 0.3, 2]) expect(toSigma(toPosition(sigma, 2), 2)).toBeCloseTo(sigma, 10);
  expect(toSigma(50, 1)).toBeLessThan(0.2);
});

test("only the newest slider move waits", async () => {
  const done: number[] = [];
  const open: (() => void)[] = [];
  const ask = latest(async (value: number) => {
    await new Promise<void>((resolve) => open.push(resolve));
    done.push(value);
  });
  for (const value of [1, 2, 3, 4]) ask(value);
  while (open.length > 0) {
    open.shift()!();
    await new Promise((resolve) => setTimeout(resolve, 0));
  }
  expect(done).toEqual([1, 4]);
});

test("a failed move does not block the next one", async () => {
  const done: number[] = [];
  const ask = latest(async (value: number) => {
    if (value === 1) throw new Error("refused");
    done.push(value);
  });
  ask(1);
  await new Promise((resolve) => setTimeout(resolve, 0));
  ask(2);
  await new Promise((resolve) => setTimeout(resolve, 0));
  expect(done).toEqual([2]);
});

test("the frontier holds the runs that nobody beats", () => {
  const spots = [
    { name: "open", x: 0.01, y: 0.9 },
    { name: "beaten", x: 0.015, y: 0.8 },
    { name: "middle", x: 0.02, y: 0.88 },
    { name: "private", x: 0.05, y: 0.7 },
  ];
  expect(best(spots, false).map((spot) => spot.name)).toEqual(["open", "middle", "private"]);
  const flipped = spots.map((spot) => ({ ...spot, x: 1 - spot.x }));
  expect(best(flipped, true).map((spot) => spot.name)).toEqual(["open", "middle", "private"]);
});

test("ticking twice unticks", () => {
  expect(toggle(toggle([], "a"), "b")).toEqual(["a", "b"]);
  expect(toggle(["a", "b"], "a")).toEqual(["b"]);
});
