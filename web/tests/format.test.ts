import { expect, test } from "vitest";
import { DASH, duration, moment, mse, noise, percent, plain, ssim, whole } from "../src/format";

test("numbers are written as in the report", () => {
  expect(percent(0.889)).toBe("88.9\u00a0%");
  expect(mse(0.0248)).toBe("0.0248");
  expect(mse(0.00012)).toBe("1.2e−4");
  expect(mse(0)).toBe("0.0000");
  expect(ssim(-0.014)).toBe("−0.01");
  expect(plain(1234.5678)).toBe("1235");
  expect(plain(0.0000123)).toBe("1.23e−5");
  expect(whole(12345678)).toBe("12\u202f345\u202f678");
});

test("what is not known is a dash", () => {
  for (const write of [percent, mse, ssim, plain, noise, duration]) {
    for (const value of [null, undefined, NaN, Infinity]) expect(write(value)).toBe(DASH);
  }
  expect(moment(null)).toBe(DASH);
});

test("noise levels are short", () => {
  expect([0, 0.1, 0.1234, 0.00061607].map(noise)).toEqual(["0", "0.1", "0.12", "0.0006"]);
});

test("times", () => {
  expect(duration(5)).toBe("5.0\u00a0s");
  expect(duration(59)).toBe("59\u00a0s");
  expect(duration(3600 + 120)).toBe("1\u00a0h\u00a002\u00a0min");
  expect(moment("no time at all")).toBe("no time at all");
  expect(moment("2026-01-02T03:04:05")).toBe("2026-01-02 03:04");
});
