// Builds the page into the Python package. Names are fixed and nothing depends on the clock, so that the same sources
// give the same bytes; build.json records checksums of the sources and of the built files, which the Python tests
// compare without Node.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { defineConfig } from "vite";

const HERE = import.meta.dirname;
const OUT = resolve(HERE, process.env["SPLITVEIL_WEB_OUT"] ?? "../src/splitveil/web/static");
const SOURCES = ["index.html", "package-lock.json", "package.json", "public", "src", "tsconfig.json", "vite.config.ts"];

function files(path: string): string[] {
  if (!statSync(join(HERE, path)).isDirectory()) return [path];
  return readdirSync(join(HERE, path)).flatMap((name) => files(`${path}/${name}`));
}

/** SHA-256 over the names and contents of all sources, in order of name. */
function checksum(): string {
  const digest = createHash("sha256");
  for (const path of SOURCES.flatMap(files).sort()) {
    digest.update(path).update("\0").update(readFileSync(join(HERE, path))).update("\0");
  }
  return digest.digest("hex");
}

/** SHA-256 of every built file, by name. */
function built(): Record<string, string> {
  const names = readdirSync(OUT, { recursive: true, encoding: "utf8" }).map((name) => name.replaceAll("\\", "/"));
  const found = names.filter((name) => name !== "build.json" && statSync(join(OUT, name)).isFile()).sort();
  return Object.fromEntries(found.map((name) => [name, createHash("sha256").update(readFileSync(join(OUT, name))).digest("hex")]));
}

export default defineConfig({
  root: HERE,
  build: {
    outDir: OUT,
    emptyOutDir: true,
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: {
      output: { entryFileNames: "assets/app.js", assetFileNames: "assets/app[extname]", codeSplitting: false },
    },
  },
  plugins: [
    {
      name: "record-sources",
      apply: (_, { command }) => command === "build" && !process.env["VITEST"], // the unit tests must not touch the record
      closeBundle() {
        writeFileSync(join(OUT, "build.json"), `${JSON.stringify({ sources: checksum(), files: built() }, null, 2)}\n`);
      },
    },
  ],
});
