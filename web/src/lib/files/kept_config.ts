// The config that the library itself shall count: kept for this tab, from the page that read it to the
// page that counts it.
const KEY = "llamath-config";

export interface KeptConfig {
	name: string;
	text: string;
}

/** Keeps a config; false where the browser has no room or does not allow it. */
export function keepConfig(config: KeptConfig): boolean {
	try {
		sessionStorage.setItem(KEY, JSON.stringify(config));
		return true;
	} catch {
		return false;
	}
}

export function keptConfig(): KeptConfig | null {
	try {
		return JSON.parse(sessionStorage.getItem(KEY) ?? "null") as KeptConfig | null;
	} catch {
		return null;
	}
}
