// Where a config is opened: on the page of a server in a page of its own, on the page of a model of
// its structure as an edit of that, else in Design.
import { data } from "../data";
import { decodeSizes, designedModel, encodeSizes, evaluateDesign } from "../design";
import { canEdit } from "../editing";
import { focusNext } from "../focus_next";
import { grouped } from "../format";
import type { View } from "../settings";
import { pageUrl } from "../../components/header";
import { announce } from "../../components/status_line";
import { change, state } from "../state";
import {
	encodeKeys,
	forgetKeptKeys,
	keptKeys,
	matchConfig,
	neutralKeys,
	openedAs,
	parseConfig,
	parseConfigText,
	readConfig,
	withCommands,
} from "./config";
import type { FormatData } from "./headers";
import { loadForms } from "./known_forms";
import { keepConfig, takeConfig } from "./kept_config";
import { MAX_CONFIG_BYTES, sendConfig } from "./send_file";
import { FileError, fileError, refuse } from "./strict_json";

/** Opens a config; returns what happened, where the page does not show it, for the status line. */
export type OpenConfig = (file: File) => Promise<string>;

/** Sends a config to the server, and goes to the address that `to` has for its id. */
export async function openOnServer(
	file: File,
	up: string,
	to: (id: string) => string,
): Promise<string> {
	const { total, id } = await sendConfig(file, up);
	if (id === null) return refuse("no page", grouped(total));
	location.assign(to(id));
	return `${file.name}: ${grouped(total)} parameters`;
}

/** The page of a site that counts with the library itself, and what it loads for that. */
export interface Library {
	page: string;
	megabytes: string;
}

/**
 * Offers the library for a config that no form counts, where the site has it and a server; else the
 * commands.
 */
function withOffer(error: unknown, file: File, library?: Library): unknown {
	const isServed = location.protocol.startsWith("http");
	if (!(error instanceof FileError && library && isServed && file.size <= MAX_CONFIG_BYTES))
		return withCommands(error, file);
	const open = async () => {
		if (!keepConfig({ name: file.name, text: await file.text() }))
			return announce(fileError("kept").message);
		location.assign(library.page);
	};
	error.offer = {
		text: `Count it with the library itself (loads ${library.megabytes} MB)`,
		act: () => void open(),
	};
	return error;
}

/**
 * Goes to the page of the model in a static gallery whose closed forms count a config, in Design,
 * at the config's dimensions.
 */
export async function openInSite(file: File, site: Forms): Promise<string> {
	const { forms, link, library } = site;
	const files = data.files as FormatData;
	const config = await parseConfig(file, files);
	const known = await loadForms(forms);
	try {
		const { index, dimensions } = matchConfig(config, known, files);
		const { id, name, like } = known[index]!;
		const sizes = encodeSizes(dimensions);
		const { design } = known[index]!;
		const keys = encodeKeys(neutralKeys(config, design, files.nothing), design);
		const at: Record<string, string> = like
			? { view: "design", like, sizes, ...(keys && { keys }) }
			: { edit: "text", sizes, ...(keys && { keys }) };
		// without its other keys, its dimensions are those of the model of the page all the same
		keepConfig({ name: file.name, text: await file.text() });
		location.assign(
			`${link.replace("{id}", encodeURIComponent(id))}#${new URLSearchParams(at)}`,
		);
		return `${file.name}: its dimensions, counted like ${name}`;
	} catch (error) {
		throw withOffer(error, file, library);
	}
}

/** On the page of a model in a site: the other keys of a config that was opened elsewhere in it. */
export function takeKeptKeys(): void {
	const isOpened = state.edit === "text" || state.view === "design";
	const kept = data.gallery && isOpened ? takeConfig() : null;
	if (!kept) return;
	try {
		const config = parseConfigText(kept.text, data.files as FormatData);
		const { like, sizes } = openedAs(config, kept.name, data);
		const shown = state.view === "design" ? state.like : "a";
		if (sizes !== state.sizes || like !== shown) forgetKeptKeys();
	} catch {
		// a config of another page
	}
}

interface Forms {
	forms: string;
	link: string;
	library?: Library;
}

export interface SiteLinks extends Forms {
	all: string;
	/** Missing where the model is none of the site. */
	with?: string;
}

/** The view of the second model, on the smallest hardware that runs it until other is chosen. */
const BESIDE = "#view=b&gpus=&card=";

/** On the page of a model: beside the model that is shown, which stays. */
export const openOnPage: OpenConfig = async (file) => {
	if (data.served) {
		const { up, ids } = data.served;
		const kept = ids[state.view === "b" ? 1 : 0]!;
		return openOnServer(file, up, (id) =>
			id === kept ? pageUrl(up, [id]) : `${pageUrl(up, [kept, id])}${BESIDE}`,
		);
	}
	const site = data.gallery as SiteLinks | undefined;
	let problem: unknown;
	try {
		const { like, sizes } = await readConfig(file, data);
		const place = ["a", "b"].indexOf(like);
		const { design } = designedModel(data, like);
		const keys = encodeKeys(keptKeys.entries, design);
		const opened = { sizes, keys, section: "", zoom: "" };
		// a model of the page's own structure has its whole page
		change(
			place >= 0 && canEdit(place)
				? { ...opened, view: like as View, edit: "text", like: "a" }
				: { ...opened, view: "design", edit: "", like },
		);
		scrollTo(0, 0);
		focusNext("h1");
		const { broken } = evaluateDesign(design, decodeSizes(design, sizes));
		if (broken.length) return `${file.name} is not a valid model: ${broken.join(", and ")}`;
		return "";
	} catch (error) {
		problem = error;
	}
	if (!site?.forms || !(problem instanceof FileError)) throw problem;
	forgetKeptKeys();
	return openInSite(file, site);
};
