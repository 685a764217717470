// Sending a config to the page's own server, which counts it and makes its page.
import { refuse, refuseIf } from "./strict_json";

const MAX_BYTES = 4 * 2 ** 20;

/**
 * What the server answers: the exact total, and the id of the model's page; null for a model that
 * has none.
 */
export interface SentConfig {
	total: string;
	id: string | null;
}

interface Answer {
	error?: { message: string; hint: string };
}

export async function sendConfig(file: File, up: string): Promise<SentConfig> {
	refuseIf(file.size > MAX_BYTES, "config");
	const headers = {
		"Content-Type": "application/json",
		"Llamath-Name": encodeURIComponent([...file.name.toWellFormed()].slice(0, 80).join("")),
	};
	const body = await file.arrayBuffer();
	const answer = await fetch(`${up}api/count`, { method: "POST", body, headers }).catch(() =>
		refuse("no server"),
	);
	const text = await answer.text();
	if (answer.ok)
		return {
			total: /"total": (\d+)/.exec(text)?.[1] ?? "",
			id: answer.headers.get("Llamath-Model"),
		};
	if (!answer.headers.get("Content-Type")?.startsWith("application/json"))
		return refuse("server", answer.status);
	const { error } = JSON.parse(text) as Answer;
	return refuse("says", error!.message, error!.hint && ` (${error!.hint})`);
}
