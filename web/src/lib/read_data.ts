// The data in the page: JSON, compressed and in base64, as src/llamath/web/server/page_html.py
// writes it.

export function bytesOfBase64(text: string): Uint8Array<ArrayBuffer> {
	const binary = atob(text);
	const bytes = new Uint8Array(binary.length);
	// an iterator over its characters takes ten times as long
	for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
	return bytes;
}

/** Not from a blob, which another process would keep. */
function inflate(text: string): Response {
	const stream = new DecompressionStream("deflate");
	const writer = stream.writable.getWriter();
	// what is wrong with the bytes is the reader's error
	for (const x of [writer.write(bytesOfBase64(text)), writer.close()]) x.catch(() => {});
	return new Response(stream.readable);
}

/** The bytes of compressed base64. */
export const decompressBytes = async (text: string): Promise<Uint8Array<ArrayBuffer>> =>
	new Uint8Array(await inflate(text).arrayBuffer());

/** The value of compressed JSON. */
export const decompress = (text: string): Promise<unknown> => inflate(text).json();

/** The data of the page: its own, or of a config that a script before this one has opened. */
export const readData = async (): Promise<unknown> =>
	decompress(
		(await (globalThis as { llamathOpened?: Promise<string> }).llamathOpened) ??
			document.getElementById("data")!.textContent!,
	);
