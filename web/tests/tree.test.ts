import { expect, test } from "vitest";
import { parse, read, show, write, type Field, type Tree } from "../src/tree";

const field = (kind: Field["kind"]): Field => ({ key: "a.b", kind, optional: false, default: null, description: "", plain: true });

test("reading and writing by dotted key", () => {
  const tree: Tree = { train: { epochs: 3 }, seed: 1 };
  expect(read(tree, "train.epochs")).toBe(3);
  expect(read(tree, "train.lr")).toBeUndefined();
  expect(read(tree, "seed.deeper")).toBeUndefined();
  expect(read(tree, "toString")).toBeUndefined();
  const changed = write(tree, "defence.noise.sigma", 0.1);
  expect(read(changed, "defence.noise.sigma")).toBe(0.1);
  expect(tree).toEqual({ train: { epochs: 3 }, seed: 1 });
});

test("taking a key out", () => {
  expect(write({ train: { epochs: 3, lr: 1 } }, "train.lr", undefined)).toEqual({ train: { epochs: 3 } });
  expect(write({ surrogate: { name: "gmm" } }, "surrogate", undefined)).toEqual({});
});

test("defences keep the order in which they were ticked", () => {
  let tree: Tree = { defence: { noise: {} } };
  tree = write(tree, "defence.bottleneck", {});
  expect(Object.keys(read(tree, "defence") as Tree)).toEqual(["noise", "bottleneck"]);
});

test("what is typed becomes the field's kind of value, or stays for the server to refuse", () => {
  expect(parse(field("whole"), " 20 ")).toBe(20);
  expect(parse(field("number"), "5e-4")).toBe(0.0005);
  expect(parse(field("number"), "fast")).toBe("fast");
  expect(parse(field("number"), "")).toBeUndefined();
  expect(parse(field("list"), "60, 120 160")).toEqual([60, 120, 160]);
  expect(parse(field("text"), "cifar10")).toBe("cifar10");
  expect(show([60, 120])).toBe("60, 120");
  expect(show(null)).toBe("");
});
