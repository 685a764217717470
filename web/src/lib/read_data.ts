// The data in the page: JSON, compressed by deflate, in base64.
import { strFromU8, unzlibSync } from "fflate";

export const unpack = (text: string): unknown => JSON.parse(strFromU8(unzlibSync(Uint8Array.from(atob(text), (x) => x.charCodeAt(0)))));

export const readData = (): unknown => unpack(document.getElementById("data")!.textContent!);
