// The closed forms of the models of a static gallery: a script of its own, loaded when a config is
// opened. Pages from disk can load nothing else.
import { unpackForms, type PackedForms } from "../design";
import { learnKeys, type Known } from "./config";
import { decompress } from "../read_data";

export interface GalleryForm extends Known {
	/** The file name of the model's page, without its ending. */
	id: string;
	/** The family, where the model is not of the gallery. */
	like?: string;
}

interface ScriptPolicy {
	createScriptURL: (address: string) => string;
}

let loading: Promise<GalleryForm[]> | null = null;

function loadScript(address: string): Promise<GalleryForm[]> {
	const { trustedTypes } = globalThis as {
		trustedTypes?: { createPolicy: (name: string, rules: ScriptPolicy) => ScriptPolicy };
	};
	const script = document.createElement("script");
	script.src = trustedTypes
		? trustedTypes
				.createPolicy("llamath-forms", { createScriptURL: () => address })
				.createScriptURL(address)
		: address;
	return new Promise((done, fail) => {
		script.onload = () =>
			done(
				decompress((globalThis as unknown as { llamathForms: string }).llamathForms).then(
					(x) => {
						const { own, known } = x as { own: GalleryForm[]; known: PackedForms };
						if (!own.length) return [];
						// families open on the page of the first model
						const families = unpackForms(known).map((y) => ({ ...y, id: own[0]!.id }));
						learnKeys([...own, ...families], known);
						return [...own, ...families];
					},
				),
			);
		script.onerror = () => fail(new Error("missing"));
		document.head.append(script);
	});
}

export const loadForms = (address: string): Promise<GalleryForm[]> =>
	(loading ??= loadScript(address));
