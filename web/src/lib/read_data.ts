// The data in the page: JSON, compressed and in base64, as src/llamath/web/server/page_html.py
// writes it.

/** The value of compressed JSON. */
export function decompress(text: string): Promise<unknown> {
	const bytes = Uint8Array.from(atob(text), (x) => x.charCodeAt(0));
	const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
	return new Response(stream).json();
}

export const readData = (): Promise<unknown> =>
	decompress(document.getElementById("data")!.textContent!);
