// Bundles the page's script and style into src/llamath/web/static. With --check, fails if the files there differ.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { build } from "esbuild";
import { minify } from "terser";

const here = import.meta.dirname;
const target = join(here, "../src/llamath/web/static");
/** Pages share all but what they register: a chunk, which each has before its own script. */
const PAGES = {
	page: "src/page.tsx",
	page_live: "src/page_live.tsx",
	page_pair: "src/page_pair.tsx",
};
const OTHERS = {
	gallery: "src/gallery.tsx",
	live: "src/live/live.ts",
	embed: "src/embed.ts",
	count: "src/count.ts",
};
// the modules wait for the page's data, and scripts of a site, which pages on a disk load, cannot be modules
const BEGIN = "(async()=>{";
const END = "})();";

/** The sha256 of every file that determines the bundle, by path; tests compare it without node. */
function sourceDigest() {
	const files = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
		.filter((x) => x.isFile())
		.map((x) => join(x.parentPath, x.name));
	const paths = [
		...files,
		...["build.mjs", "package.json", "package-lock.json", "tsconfig.json"].map((x) =>
			join(here, x),
		),
	]
		.map((x) => relative(here, x).replaceAll("\\", "/"))
		.sort();
	const digest = createHash("sha256");
	for (const path of paths)
		digest
			.update(`${path}\0`)
			.update(readFileSync(join(here, path)))
			.update("\0");
	return digest.digest("hex");
}

/** The packages whose code is in a bundle: of the files that esbuild put into it, and of those that such a file was bundled from. */
function packagesIn(output) {
	const used = Object.entries(output.inputs)
		.filter(([, x]) => x.bytesInOutput > 0)
		.map(([path]) => path)
		.filter((x) => x.startsWith("node_modules/"));
	const maps = used.map((x) => join(here, `${x}.map`)).filter((x) => existsSync(x));
	const files = [...used, ...maps.flatMap((x) => JSON.parse(readFileSync(x, "utf8")).sources)];
	return [
		...new Set(
			files
				.map((x) => /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(x)?.[1])
				.filter(Boolean),
		),
	].sort();
}

/** A comment with the notices that the licenses of these packages require: each text once, below the packages that have it. */
function notices(names) {
	const groups = new Map();
	for (const name of names) {
		const folder = join(here, "node_modules", name);
		const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
		const text = readFileSync(join(folder, "LICENSE"), "utf8").replaceAll("\r", "");
		const copyright = text
			.split("\n")
			.filter((x) => /^\s*copyright\b/i.test(x))
			.map((x) => x.trim())
			.join("; ");
		const terms = text
			.split("\n")
			.filter((x) => !/^\s*(copyright\b|the mit license|isc license)/i.test(x))
			.join("\n")
			.trim();
		if (!license || !copyright || terms.length < 500)
			throw new Error(
				`${name} has no license text that can be told apart: look at ${folder}/LICENSE`,
			);
		const key = terms.replace(/\s+/g, " ");
		groups.set(key, [
			...(groups.get(key) ?? []),
			`${name} ${version} (${license}): ${copyright}`,
		]);
	}
	const parts = [...groups].map(([terms, rows]) => `${rows.join("\n")}\n\n${terms}`);
	const comment = `/*!\nThis file contains code of these packages.\n\n${parts.join("\n\n")}\n*/\n`;
	if (/\*\/.|<\/script|[^\n\x20-\x7e]/s.test(comment.replace(/\*\/\n$/, "")))
		throw new Error("a license text does not fit into a comment");
	return comment;
}

const bundled = (entries, options) =>
	build({
		absWorkingDir: here,
		entryPoints: Object.entries(entries).map(([out, path]) => ({ in: path, out })),
		bundle: true,
		minify: true,
		format: "esm",
		target: "es2022",
		charset: "ascii",
		legalComments: "none",
		jsx: "automatic",
		jsxImportSource: "preact",
		outdir: target,
		write: false,
		metafile: true,
		...options,
	});

/** The bundles by file name, each with the packages in it. */
function* outputs({ outputFiles, metafile }) {
	const packages = new Map(
		Object.entries(metafile.outputs).map(([path, x]) => [
			relative(target, join(here, path)),
			packagesIn(x),
		]),
	);
	for (const { path, text } of outputFiles) {
		const name = relative(target, path);
		yield [name, text.trimEnd(), packages.get(name)];
	}
}

const names = (list, separator) =>
	list
		.split(",")
		.map((x) => x.split(" as ").map((y) => y.trim()))
		.map(([from, to = from]) => separator(from, to));

/** The chunk that pages share, as a promise of its exports. */
function sharedScript(text) {
	const exported = /export\{([^{}]*)\};$/.exec(text);
	if (!exported) throw new Error("the shared chunk exports nothing");
	const fields = names(exported[1], (name, as) => `${as}:${name}`);
	return `"use strict";const LLAMATH_PAGE=${BEGIN}${text.slice(0, exported.index)}return{${fields}}${END}\n`;
}

/** A page's own script: the shared chunk's exports instead of its import. */
function ownScript(text) {
	const imported = /^(?:import"[^"]*";)*import\{([^{}]*)\}from"[^"]*";/.exec(text);
	if (!imported) throw new Error("a page imports nothing of the shared chunk");
	const fields = names(imported[1], (name, as) => `${name}:${as}`);
	const rest = text.slice(imported[0].length);
	if (/\bimport[{"]|\bexport\{/.test(rest)) throw new Error("a page imports more than one chunk");
	return `${BEGIN}const{${fields}}=await LLAMATH_PAGE;${rest}${END}\n`;
}

/**
 * A script with names that compress: the same ones in all functions, which esbuild does not choose;
 * and shorter by what esbuild does not fold.
 */
async function renamed(text) {
	const format = { ascii_only: true, comments: false };
	return `${(await minify(text, { compress: { passes: 2 }, ecma: 2020, format })).code}\n`;
}

const files = new Map();
async function add(name, text, packages) {
	const short = name.endsWith(".js") ? await renamed(text) : text;
	files.set(name, packages.length ? notices(packages) + short : short);
}

const pages = [...outputs(await bundled(PAGES, { splitting: true, chunkNames: "page_shared" }))];
const shared = pages.filter(([name]) => name.startsWith("page_shared"));
if (shared.length !== 1) throw new Error(`pages share ${shared.length} chunks instead of one`);
const style = pages.find(([name]) => name === "page.css")[1];
for (const [name, text, packages] of pages) {
	if (name.startsWith("page_shared")) await add(name, sharedScript(text), packages);
	else if (name.endsWith(".js")) await add(name, ownScript(text), packages);
	else {
		if (!text.startsWith(style)) throw new Error(`${name} does not begin with page.css`);
		await add(
			name,
			`${name === "page.css" ? text : text.slice(style.length).trimStart()}\n`,
			[],
		);
	}
}
const others = await bundled(OTHERS, {
	banner: { js: `"use strict";${BEGIN}` },
	footer: { js: END },
});
for (const [name, text, packages] of outputs(others)) await add(name, `${text}\n`, packages);
files.set("sources.sha256", `${sourceDigest()}\n`);

if (process.argv.includes("--check")) {
	const read = (name) => {
		try {
			return readFileSync(join(target, name), "utf8");
		} catch {
			return null;
		}
	};
	const stale = [...files].filter(([name, text]) => read(name) !== text).map((x) => x[0]);
	if (stale.length) {
		console.error(
			`These files differ from what web/ builds: ${stale.join(", ")}. Run \`make web\`.`,
		);
		process.exit(1);
	}
} else {
	mkdirSync(target, { recursive: true });
	for (const [name, text] of files) writeFileSync(join(target, name), text);
	for (const [name, text] of files) console.log(name, text.length);
}
