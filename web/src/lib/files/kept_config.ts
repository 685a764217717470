// A config that is kept for this tab, from the page that read it to the page of its model, or to the
// one on which the library itself counts it.
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

/** The config that was kept, which is kept no longer. */
export function takeConfig(): KeptConfig | null {
	const found = keptConfig();
	try {
		sessionStorage.removeItem(KEY);
	} catch {
		// nothing was kept
	}
	return found;
}

export function keptConfig(): KeptConfig | null {
	try {
		return JSON.parse(sessionStorage.getItem(KEY) ?? "null") as KeptConfig | null;
	} catch {
		return null;
	}
}
