// The data in the page: JSON, compressed and in base64, as src/llamath/web/server/page_html.py
// writes it.

export const bytesOfBase64 = (text: string): Uint8Array<ArrayBuffer> =>
	Uint8Array.from(atob(text), (x) => x.charCodeAt(0));

const inflate = (text: string): Response =>
	new Response(
		new Blob([bytesOfBase64(text)]).stream().pipeThrough(new DecompressionStream("deflate")),
	);

/** The bytes of compressed base64. */
export const decompressBytes = async (text: string): Promise<Uint8Array<ArrayBuffer>> =>
	new Uint8Array(await inflate(text).arrayBuffer());

/** The value of compressed JSON. */
export const decompress = (text: string): Promise<unknown> => inflate(text).json();

export const readData = (): Promise<unknown> =>
	decompress(document.getElementById("data")!.textContent!);
