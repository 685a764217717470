// Bundles the page's script and style into src/llamath/web/static. With --check, fails if the files there differ.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { build } from "esbuild";

const here = import.meta.dirname;
const target = join(here, "../src/llamath/web/static");
const ENTRIES = { page: "src/page.tsx", gallery: "src/gallery.tsx" };

/** The sha256 of every file that determines the bundle, by path; tests compare it without node. */
function sourceDigest() {
	const files = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true }).filter((x) => x.isFile()).map((x) => join(x.parentPath, x.name));
	const paths = [...files, ...["build.mjs", "package.json", "package-lock.json", "tsconfig.json"].map((x) => join(here, x))].map((x) => relative(here, x).replaceAll("\\", "/")).sort();
	const digest = createHash("sha256");
	for (const path of paths) digest.update(`${path}\0`).update(readFileSync(join(here, path))).update("\0");
	return digest.digest("hex");
}

const result = await build({
	absWorkingDir: here,
	entryPoints: Object.entries(ENTRIES).map(([out, path]) => ({ in: path, out })),
	bundle: true,
	minify: true,
	format: "iife",
	target: "es2022",
	charset: "ascii",
	legalComments: "none",
	jsx: "automatic",
	jsxImportSource: "preact",
	alias: { "d3-interpolate": "./src/lib/interpolate_numbers.ts" },
	outdir: target,
	write: false,
});
const files = new Map(result.outputFiles.map((x) => [relative(target, x.path), x.text]));
files.set("sources.sha256", `${sourceDigest()}\n`);

if (process.argv.includes("--check")) {
	const read = (name) => { try { return readFileSync(join(target, name), "utf8"); } catch { return null; } };
	const stale = [...files].filter(([name, text]) => read(name) !== text).map((x) => x[0]);
	if (stale.length) {
		console.error(`These files differ from what web/ builds: ${stale.join(", ")}. Run \`make web\`.`);
		process.exit(1);
	}
} else {
	mkdirSync(target, { recursive: true });
	for (const [name, text] of files) writeFileSync(join(target, name), text);
	for (const [name, text] of files) console.log(name, text.length);
}
