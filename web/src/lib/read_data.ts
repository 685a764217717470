// The data in the page: JSON, compressed by deflate, in base64.
import { strFromU8, unzlibSync } from "fflate";

export function readData(): unknown {
	const packed = atob(document.getElementById("data")!.textContent!);
	return JSON.parse(strFromU8(unzlibSync(Uint8Array.from(packed, (x) => x.charCodeAt(0)))));
}
