// Objects whose fields are made when they are first read: a frame of an edit has no time for those of
// sections that are not on the screen.

export type Makers = Record<string, () => unknown>;

export function lazily(makers: Makers): Record<string, unknown> {
	const made: Record<string, unknown> = {};
	for (const [name, make] of Object.entries(makers))
		Object.defineProperty(made, name, {
			configurable: true,
			enumerable: true,
			get() {
				const value = make();
				Object.defineProperty(made, name, { enumerable: true, value });
				return value;
			},
		});
	return made;
}

/** The same fields, but for those that are made otherwise. */
export const lazilyWith = (x: object, makers: Makers, leftOut: readonly string[] = []) =>
	lazily({
		...Object.fromEntries(
			Object.keys(x)
				.filter((name) => !leftOut.includes(name))
				.map((name) => [name, () => (x as Record<string, unknown>)[name]]),
		),
		...makers,
	});
