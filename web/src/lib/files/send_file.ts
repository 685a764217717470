// Sending a file to the page's own server, in whose words the answer is: a config, which it counts
// and makes a page of, or the first bytes of a file of weights, in which its header is.
import type { Header } from "./headers";
import { refuse, refuseIf } from "./strict_json";

export const MAX_CONFIG_BYTES = 4 * 2 ** 20;
const FIRST_BYTES = 2 ** 20;

interface Refusal {
	error?: { message: string; hint: string };
}

/** Sends bytes of a file. */
async function send(file: File, body: Blob, address: string, type: string): Promise<Response> {
	const headers = {
		"Content-Type": type,
		"Llamath-Name": encodeURIComponent([...file.name.toWellFormed()].slice(0, 80).join("")),
	};
	const bytes = await body.arrayBuffer();
	const answer = await fetch(address, { method: "POST", body: bytes, headers }).catch(() =>
		refuse("no server"),
	);
	if (answer.ok) return answer;
	if (!answer.headers.get("Content-Type")?.startsWith("application/json"))
		return refuse("server", answer.status);
	const { error } = (await answer.json()) as Refusal;
	return refuse("says", error!.message, error!.hint && ` (${error!.hint})`);
}

/**
 * What the server answers: the exact total, and the id of the model's page; null for a model that
 * has none.
 */
export interface SentConfig {
	total: string;
	id: string | null;
}

export async function sendConfig(file: File, up: string): Promise<SentConfig> {
	refuseIf(file.size > MAX_CONFIG_BYTES, "config");
	const answer = await send(file, file, `${up}api/count`, "application/json");
	return {
		total: /"total": (\d+)/.exec(await answer.text())?.[1] ?? "",
		id: answer.headers.get("Llamath-Model"),
	};
}

/** What the server says of a header, or of how many first bytes it has to know more. */
interface HeaderAnswer {
	needs?: number;
	format: string;
	data_start?: number;
	tensors: [name: string, dtype: string, shape: string[], bytes: string, start: string][];
	metadata: [string, unknown][];
}

/** The header of a file, as the server reads it. */
export async function sendHeader(file: File, up: string): Promise<Header> {
	const address = `${up}header?size=${file.size}`;
	for (let n = Math.min(FIRST_BYTES, file.size); ;) {
		const answer = await send(file, file.slice(0, n), address, "application/octet-stream");
		const found = (await answer.json()) as HeaderAnswer;
		if (found.needs) {
			refuseIf(found.needs <= n, "server", answer.status);
			n = found.needs;
			continue;
		}
		return {
			format: found.format,
			dataStart: found.data_start,
			tensors: found.tensors.map(([name, dtype, sides, bytes, start]) => {
				const shape = sides.map(BigInt);
				return {
					name,
					dtype,
					shape,
					elements: shape.reduce((a, b) => a * b, 1n),
					bytes: BigInt(bytes),
					start: BigInt(start),
				};
			}),
			metadata: found.metadata,
		};
	}
}
