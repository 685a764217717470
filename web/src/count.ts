// Counts the kept config with the library itself, by Pyodide: the script of a site's page
// `count.html`, and of the worker in which it runs. The page of the model follows, by the script
// after it.
import { keptConfig, type KeptConfig } from "./lib/files/kept_config";
import { decompress } from "./lib/read_data";
import "./styles/counting.css";

/** What src/llamath/web/gallery/library_site.py says of the site. */
interface Settings {
	pyodide: string;
	library: string;
	megabytes: string;
	links: Record<string, unknown>;
}

/** What src/llamath/web/gallery/opened_config.py answers. */
interface Answer {
	title?: string;
	/** The data of the model's page. */
	page?: string;
	/** Text of the count, of a model without a page. */
	count?: string;
	wrong?: string;
}

interface Question extends KeptConfig {
	pyodide: string;
	library: string;
	links: string;
}

interface Python {
	unpackArchive: (archive: ArrayBuffer, format: string, how: { extractDir: string }) => void;
	runPython: (code: string) => unknown;
	pyimport: (name: string) => { answer: (name: string, text: string, links: string) => string };
}

const FOLDER = "/library";
/** Loading takes as long as the network does; computing ends here. */
const MAX_COUNTING_MS = 120_000;
const MESSAGES = {
	loading: (megabytes: string) => `Loading Python and the library: ${megabytes} MB…`,
	counting: () => "Counting, in this browser…",
};

type Stage = keyof typeof MESSAGES;
type Message = { stage: Stage } | { failed: string } | Answer;

function runWorker(): void {
	const post = (message: Message) => postMessage(message);
	const count = async ({ pyodide, library, name, text, links }: Question) => {
		const { loadPyodide } = (await import(`${pyodide}pyodide.mjs`)) as {
			loadPyodide: (how: { indexURL: string }) => Promise<Python>;
		};
		const [python, archive] = await Promise.all([
			loadPyodide({ indexURL: pyodide }),
			fetch(library).then((x) => {
				if (!x.ok) throw new Error(`${x.status} for ${library}`);
				return x.arrayBuffer();
			}),
		]);
		python.unpackArchive(archive, "zip", { extractDir: FOLDER });
		python.runPython(`import sys; sys.path.insert(0, "${FOLDER}")`);
		post({ stage: "counting" });
		const { answer } = python.pyimport("llamath.web.gallery.opened_config");
		post(JSON.parse(answer(name, text, links)) as Answer);
	};
	addEventListener("message", ({ data }) => {
		count(data as Question).catch((error: Error) => {
			// the last line of a traceback says what happened
			const lines = String(error.message).trim().split("\n");
			post({ failed: lines.at(-1)!.slice(0, 300) });
		});
	});
}

/** The address of a worker with this script; its policy is that of the page, as of all blobs. */
async function workerAddress(): Promise<string> {
	const text = await (await fetch(script)).text();
	const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
	const { trustedTypes } = globalThis as {
		trustedTypes?: {
			createPolicy: (
				name: string,
				rules: { createScriptURL: () => string },
			) => { createScriptURL: (x: string) => string };
		};
	};
	return trustedTypes
		? trustedTypes
				.createPolicy("llamath-library", { createScriptURL: () => address })
				.createScriptURL(address)
		: address;
}

const script = (globalThis.document?.currentScript as HTMLScriptElement | null)?.src ?? "";

function element<K extends keyof HTMLElementTagNameMap>(
	name: K,
	properties: Partial<HTMLElementTagNameMap[K]>,
	...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
	const made = Object.assign(document.createElement(name), properties);
	made.append(...children);
	return made;
}

function showPage(): Promise<string> {
	const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
	document.documentElement.dataset.theme =
		/[#&]theme=(light|dark)(?:&|$)/.exec(location.hash)?.[1] ?? (isDark ? "dark" : "light");
	const page = document.getElementById("page")!;
	const config = keptConfig();
	const status = element("p", { className: "lead", tabIndex: -1 });
	status.setAttribute("role", "status");
	const actions = element("p", { className: "actions" });
	const progress = element("progress", { ariaLabel: "counting" });
	const main = element(
		"main",
		{ className: "wrap counting" },
		element("h1", {}, config?.name ?? "A config of yours"),
		status,
		progress,
		actions,
	);
	const mark = element("a", { className: "mark", href: "index.html" }, "llamath");
	const header = element("header", {}, element("div", { className: "wrap" }, mark));
	page.replaceChildren(header, main);
	const all = element("a", { className: "button", href: "index.html" }, "All models");
	const button = (text: string, onclick: () => void) =>
		element("button", { type: "button", className: "button", onclick }, text);
	const end = (text: string, ...more: Node[]) => {
		status.replaceChildren(text);
		actions.replaceChildren(...more, all);
		progress.remove();
		page.removeAttribute("data-busy");
		status.focus();
	};
	const again = () => button("Count it again", () => location.reload());

	const count = async (kept: KeptConfig): Promise<string> => {
		const settings = (await decompress(
			document.getElementById("data")!.textContent!,
		)) as Settings;
		const worker = new Worker(await workerAddress(), { type: "module" });
		return new Promise((done) => {
			let limit = 0;
			const stop = () => {
				clearTimeout(limit);
				worker.terminate();
			};
			const show = (stage: Stage) =>
				status.replaceChildren(MESSAGES[stage](settings.megabytes));
			const refuse = (text: string) => {
				stop();
				end(text, again());
			};
			actions.replaceChildren(
				button("Stop", () => refuse("Stopped.")),
				all,
			);
			show("loading");
			worker.onerror = (event) => {
				event.preventDefault();
				refuse(`Python does not start here. ${event.message ?? ""}`);
			};
			worker.onmessage = ({ data }: MessageEvent<Message>) => {
				if ("stage" in data) {
					show(data.stage);
					limit = setTimeout(
						() => refuse("It was not counted within two minutes."),
						MAX_COUNTING_MS,
					);
					return;
				}
				if ("failed" in data)
					return refuse(`The library does not run here: ${data.failed}`);
				stop();
				const { title, page: found, count, wrong } = data;
				if (wrong !== undefined) return end(wrong);
				document.title = `${title} · llamath`;
				if (found !== undefined) return done(found);
				end("Its family is counted only: it has no page of its own.");
				const text = element("pre", { tabIndex: 0 }, count!);
				text.setAttribute("aria-label", "what llamath counts");
				main.append(text);
			};
			const at = (path: string) => new URL(path, location.href).href;
			const { pyodide, library, links } = settings;
			const question: Question = {
				...kept,
				pyodide: at(pyodide),
				library: at(library),
				links: JSON.stringify(links),
			};
			worker.postMessage(question);
		});
	};
	const never = new Promise<string>(() => {});
	if (!config) {
		end("Open a config in the gallery; what its page cannot count is counted here.");
		return never;
	}
	return count(config).catch((error: Error) => {
		end(`It cannot be opened: ${error.message}`, again());
		return never;
	});
}

// the script of the page waits for its data
if (globalThis.document)
	(globalThis as { llamathOpened?: Promise<string> }).llamathOpened = showPage();
else runWorker();
