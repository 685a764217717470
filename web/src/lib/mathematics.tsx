// A formula of a stop, such as `score = q·k / √128`, set as mathematics: subscripts after _,
// superscripts after ^, fractions of what stands without a space around /, roots after √.
import type { ComponentChildren, VNode } from "preact";

const TOKEN = /\s*(?:(\d[\d,]*(?:\.\d+)?)|([A-Za-zα-ω]+(?:_[A-Za-z]+)*)|(\S))/uy;
const CLOSING: Record<string, string> = { "(": ")", "[": "]", "⌊": "⌋" };
const RAISED: Record<string, string> = { "²": "2", ᵀ: "T" };
/** Of more than this, a formula is set as it is written. */
const MAX_DEPTH = 8;

/** What stands side by side; of one in brackets, what is inside them. */
interface Atom {
	node: VNode;
	inside?: VNode;
	isWord?: boolean;
}

const Row = ({ children }: { children: ComponentChildren }) => <mrow>{children}</mrow>;
const space = (em: number) => <mspace width={`${em}em`} />;

/** A word; of a letter, or with one letter after it, what follows _ is a subscript. */
function wordOf(text: string): Atom {
	const [base, ...rest] = text.split("_") as [string, ...string[]];
	const sub = rest.join("_");
	if (!sub || (base.length > 1 && sub.length > 1))
		return { node: <mi>{text}</mi>, isWord: text.length > 1 };
	return {
		node: (
			<msub>
				<mi>{base}</mi>
				<mi>{sub}</mi>
			</msub>
		),
		isWord: base.length > 1,
	};
}

class Parser {
	private at = 0;
	private depth = 0;
	private fractions = 0;
	/** In a script, a fraction would be too small to be read. */
	private isScript = false;

	constructor(private readonly text: string) {}

	/** The next token, and whether a space is before it. */
	private peek(): { text: string; kind: "number" | "word" | "sign" | "end"; spaced: boolean } {
		TOKEN.lastIndex = this.at;
		const match = TOKEN.exec(this.text);
		if (!match) return { text: "", kind: "end", spaced: false };
		const kind = match[1] ? "number" : match[2] ? "word" : "sign";
		return { text: match[1] ?? match[2] ?? match[3]!, kind, spaced: /^\s/.test(match[0]) };
	}

	private take() {
		const found = this.peek();
		this.at = found.kind === "end" ? this.text.length : TOKEN.lastIndex;
		return found;
	}

	/** Up to a closing bracket or the end. */
	row(until = ""): VNode {
		if (++this.depth > MAX_DEPTH) throw new RangeError(this.text);
		const row: ComponentChildren[] = [];
		let run: Atom[] = [];
		let numerator: VNode | null = null;
		const operand = () =>
			run.length === 1 && run[0]!.inside ? (
				run[0]!.inside
			) : (
				<Row>{run.map((x) => x.node)}</Row>
			);
		const flush = () => {
			if (numerator) this.fractions++;
			row.push(numerator ? fraction(numerator, operand()) : run.map((x) => x.node));
			[run, numerator] = [[], null];
		};
		for (;;) {
			const { text, kind, spaced } = this.peek();
			if (kind === "end" || text === until) break;
			const isTight = text === "·" && !spaced;
			if (kind === "sign" && text === "/" && !this.isScript) {
				this.take();
				numerator = numerator ? fraction(numerator, operand()) : operand();
				run = [];
			} else if (isTight || (kind === "sign" && text === "Σ" && !run.length)) {
				this.take();
				run.push({ node: isTight ? <mo>·</mo> : <mo rspace="0.1em">∑</mo> });
			} else if (kind === "sign" && !(text in CLOSING) && text !== "√") {
				this.take();
				flush();
				row.push(<mo>{text}</mo>);
			} else {
				const before = run.at(-1);
				const atom = this.atom();
				if (spaced && before)
					run.push({ node: space(before.isWord || atom.isWord ? 0.3 : 0.15) });
				run.push(atom);
			}
		}
		flush();
		this.take();
		this.depth--;
		return <Row>{row}</Row>;
	}

	private atom(): Atom {
		const found = this.bare();
		const { text } = this.peek();
		if (text in RAISED) {
			this.take();
			return { node: raised(found.node, <mn>{RAISED[text]}</mn>) };
		}
		if (text !== "^" && text !== "_") return found;
		this.take();
		this.isScript = true;
		const next = this.bare();
		this.isScript = false;
		const script = next.inside ?? next.node;
		return { node: text === "^" ? raised(found.node, script) : lowered(found.node, script) };
	}

	private bare(): Atom {
		const { text, kind } = this.take();
		if (kind === "number") return { node: <mn>{text}</mn> };
		if (kind === "word") return wordOf(text);
		if (text === "√") {
			const { node, inside } = this.bare();
			return { node: <msqrt>{inside ?? node}</msqrt> };
		}
		const closing = CLOSING[text];
		if (!closing) return { node: <mo>{text}</mo> };
		const before = this.fractions;
		const inside = this.row(closing);
		// without a font for mathematics, a browser stretches too far
		const stretchy = { stretchy: `${this.fractions > before}` } as object;
		return {
			node: (
				<mrow>
					<mo {...stretchy}>{text}</mo>
					{inside}
					<mo {...stretchy}>{closing}</mo>
				</mrow>
			),
			inside: text === "(" ? inside : undefined,
		};
	}
}

const fraction = (above: VNode, below: VNode) => (
	<mfrac>
		{above}
		{below}
	</mfrac>
);
const raised = (base: VNode, script: VNode) => (
	<msup>
		{base}
		{script}
	</msup>
);
const lowered = (base: VNode, script: VNode) => (
	<msub>
		{base}
		{script}
	</msub>
);

/** Formulas with two spaces between them may stand below each other. */
export function Mathematics({ text }: { text: string }) {
	return (
		<p class="mathematics" data-formula={text}>
			{text.split(/ {2,}/).map((x) => (
				<>
					<math key={x} displaystyle>
						{new Parser(x).row()}
					</math>{" "}
				</>
			))}
		</p>
	);
}
