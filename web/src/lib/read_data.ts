// The data in the page: JSON, or JSON compressed by deflate, in base64.
import { strFromU8, unzlibSync } from "fflate";

export function readData(): unknown {
	const element = document.getElementById("data") as HTMLScriptElement;
	const text = element.textContent!;
	if (element.type === "application/json") return JSON.parse(text);
	return JSON.parse(strFromU8(unzlibSync(Uint8Array.from(atob(text), (x) => x.charCodeAt(0)))));
}
