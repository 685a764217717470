// Files of the reader, dropped or chosen: headers are read in the page, and a config goes to the
// page's own server if it has one.
import "./files.css";
import { Fragment, type ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { NumberButton } from "../../components/number";
import { Section } from "../../components/section";
import { announce } from "../../components/status_line";
import { data } from "../../lib/data";
import { formula, inBytes, inShort, shareFormula, sumFormula } from "../../lib/derivation";
import { isConfig, isIndex, readIndex, type OpenedIndex } from "../../lib/files/config";
import {
	indexFormats,
	readHeader,
	readHeaders,
	type FileTensor,
	type FormatData,
	type Formats,
	type Header,
} from "../../lib/files/headers";
import { sendHeader } from "../../lib/files/send_file";
import type { OpenConfig } from "../../lib/files/open_config";
import { shellWord } from "../../lib/files/shell_word";
import { FileError, refuse } from "../../lib/files/strict_json";
import {
	gibibytes,
	gigabytes,
	grouped,
	matchWords,
	percent,
	shortBytes,
	shortCount,
	shortFileSize,
	sum,
	times,
} from "../../lib/format";
import { modelPart } from "../../lib/model_parts";
import { IciclePicture } from "../parameters/icicle";
import { bySize, joined, leafCell, type Cell } from "../parameters/measures";

const MAX_ROWS = 500;
const MAX_FACTS = 60;
/** Fewer bytes are written in MB. */
const GIGABYTE = 10n ** 9n;
const formats: Formats = indexFormats(data.files as FormatData);

/** Tensors whose names differ only in layer or expert numbers, and which are alike otherwise. */
interface Row extends FileTensor {
	each: bigint;
	copies: bigint;
}

function foldLayers(tensors: FileTensor[]): Row[] {
	const rows = new Map<string, Row>();
	for (const x of tensors) {
		let numbers = 0;
		const name = x.name.replace(
			/(^|\.)\d+(?=\.|$)/g,
			(_, dot: string) => `${dot}{${"lemn"[numbers++] ?? "n"}}`,
		);
		const key = `${name} ${x.dtype} ${x.shape.join("×")}`;
		const row = rows.get(key) ?? {
			...x,
			name,
			each: x.elements,
			copies: 0n,
			elements: 0n,
			bytes: 0n,
		};
		rows.set(key, {
			...row,
			copies: row.copies + 1n,
			elements: row.elements + x.elements,
			bytes: row.bytes + x.bytes,
		});
	}
	return [...rows.values()];
}

function rowDerivation(x: Row) {
	const [block, size] = formats.types.get(x.dtype)!;
	return {
		title: x.name,
		lines: [
			formula(
				"shape",
				x.shape.map(grouped).join("·") || "1",
				`${grouped(x.each)} elements each`,
			),
			formula(
				"elements · copies",
				`${grouped(x.each)}·${grouped(x.copies)}`,
				`${grouped(x.elements)} elements`,
			),
			formula(
				`${x.dtype}: blocks · bytes per block`,
				`${grouped(x.bytes / BigInt(size))}·${size}`,
				`${grouped(x.bytes)} bytes`,
			),
			`${block} ${block === 1 ? "element" : "elements"} per block`,
		],
	};
}

const groupOf = (name: string) =>
	formats.groups.find(([, words]) => new RegExp(words).test(name))?.[0] ?? "other";
const shortName = (text: string) =>
	text.replace(/^(model\.|transformer\.)?((layers|h|blk)\.\{l\}\.)?|\.weight$/g, "");

function cellsOf(rows: Row[], whole: bigint): Cell[] {
	const leaf = (x: Row) =>
		leafCell(
			`${x.name} ${x.dtype} ${x.shape}`,
			shortName(x.name),
			`${x.shape.join("×")}${times(x.copies)}`,
			modelPart(groupOf(x.name)).color,
			x.elements,
			whole,
			() => rowDerivation(x),
		);
	return [
		...Map.groupBy(
			rows.filter((x) => x.elements > 0n),
			(x) => groupOf(x.name),
		),
	]
		.map(([group, list]) =>
			joined(group, modelPart(group).name, list.map(leaf).sort(bySize), "elements", whole),
		)
		.sort(bySize);
}

function TensorList({ rows }: { rows: Row[] }) {
	const [text, setText] = useState("");
	const matches = matchWords(text);
	const matching = rows.filter((x) => matches(x.name, x.dtype));
	return (
		<>
			<p class="control">
				<label class="control-label" for="find-file">
					Find in the file
				</label>
				<input
					type="search"
					id="find-file"
					maxLength={80}
					value={text}
					onInput={(event) => setText(event.currentTarget.value)}
				/>
				<span class="control-note" role="status">
					{matching.length > MAX_ROWS
						? `the first ${MAX_ROWS} of ${matching.length} rows`
						: text.trim()
							? `${matching.length} of ${rows.length} rows`
							: ""}
				</span>
			</p>
			<div class="scroll" role="region" aria-label="tensors of the file" tabIndex={0}>
				<table>
					<caption class="hidden">tensors of the file</caption>
					<thead>
						<tr>
							<th scope="col">tensor</th>
							<th scope="col">dtype</th>
							<th scope="col">shape</th>
							{["elements", "copies", "total", "bytes"].map((x) => (
								<th key={x} scope="col" class="n">
									{x}
								</th>
							))}
						</tr>
					</thead>
					<tbody>
						{matching.slice(0, MAX_ROWS).map((x) => (
							<tr key={`${x.name} ${x.dtype} ${x.shape}`}>
								<th scope="row" class="path">
									{x.name}
								</th>
								<td>{x.dtype}</td>
								<td>{x.shape.join("×") || "–"}</td>
								<td class="n">{grouped(x.each)}</td>
								<td class="n">{grouped(x.copies)}</td>
								<td class="n">
									<NumberButton derive={() => rowDerivation(x)} label={x.name}>
										{grouped(x.elements)}
									</NumberButton>
								</td>
								<td class="n">{grouped(x.bytes)}</td>
							</tr>
						))}
					</tbody>
				</table>
			</div>
		</>
	);
}

function Contents({
	name,
	size,
	header,
	reader,
}: {
	name: string;
	size: number;
	header: Header;
	reader: string;
}) {
	const { tensors } = header;
	const rows = foldLayers(tensors);
	const [elements, bytes] = [
		sum(tensors.map((x) => x.elements)),
		sum(tensors.map((x) => x.bytes)),
	];
	const isSmall = bytes < GIGABYTE;
	const types = [...Map.groupBy(tensors, (x) => x.dtype)].map(([dtype, list]) => ({
		dtype,
		count: list.length,
		elements: sum(list.map((x) => x.elements)),
		bytes: sum(list.map((x) => x.bytes)),
	}));
	const deriveSum = (key: "copies" | "bytes") => () => ({
		title: key,
		lines: [
			sumFormula(rows.map((x) => [x.name, x[key]])),
			...(key === "bytes" ? inBytes(bytes, isSmall) : []),
		],
	});
	const deriveType = (x: (typeof types)[number]) => () => ({
		title: x.dtype,
		lines: [
			...(["copies", "elements", "bytes"] as const).map((key) =>
				sumFormula(
					rows
						.filter((y) => y.dtype === x.dtype)
						.map((y) => [`${key} of ${y.name}`, y[key]]),
				),
			),
			shareFormula(x.dtype, x.bytes, bytes),
		],
	});
	const derive = () => ({
		title: "elements",
		lines: [
			sumFormula(types.map((x) => [x.dtype, x.elements])),
			...inShort("elements", elements),
		],
	});
	const facts = header.metadata
		.filter(([key]) => !/token|merges|scores|chat_template/.test(key))
		.slice(0, MAX_FACTS);
	return (
		<>
			<p class="file-total">
				<NumberButton derive={derive} label="elements" data-part="values">
					{grouped(elements)}
				</NumberButton>{" "}
				elements in{" "}
				<NumberButton derive={deriveSum("copies")} label="tensors">
					{grouped(tensors.length)}
				</NumberButton>{" "}
				tensors (
				<NumberButton derive={derive} label="elements, rounded">
					{shortCount(elements)}
				</NumberButton>
				)
			</p>
			<p data-part="stored">
				<NumberButton derive={deriveSum("bytes")} label="bytes">
					{grouped(bytes)}
				</NumberButton>{" "}
				bytes of tensors:{" "}
				<NumberButton derive={deriveSum("bytes")} label="bytes">
					{isSmall ? shortFileSize(bytes) : gigabytes(bytes)}
				</NumberButton>
				,{" "}
				<NumberButton derive={deriveSum("bytes")} label="bytes">
					{isSmall ? shortBytes(bytes) : gibibytes(bytes)}
				</NumberButton>
				<span class="caption">
					; {header.format}, {grouped(size)} bytes, of which only the header was read,{" "}
					{reader}
				</span>
			</p>
			{types.some((x) => formats.packed.includes(x.dtype)) && (
				<p class="caption">
					Integers may be packed values: <code>llamath count FILE</code> counts the
					parameters that they stand for.
				</p>
			)}
			{elements > 0n && (
				<IciclePicture
					name={name}
					cells={cellsOf(rows, elements)}
					whole={elements}
					measure="elements"
				/>
			)}
			<div class="scroll" role="region" aria-label="types in the file" tabIndex={0}>
				<table>
					<caption class="hidden">types in the file</caption>
					<thead>
						<tr>
							<th scope="col">dtype</th>
							{["tensors", "elements", "bytes", "share"].map((x) => (
								<th key={x} scope="col" class="n">
									{x}
								</th>
							))}
						</tr>
					</thead>
					<tbody>
						{types.map((x) => (
							<tr key={x.dtype}>
								<th scope="row">{x.dtype}</th>
								<td class="n">{grouped(x.count)}</td>
								<td class="n">
									<NumberButton derive={deriveType(x)} label={x.dtype}>
										{grouped(x.elements)}
									</NumberButton>
								</td>
								<td class="n">{grouped(x.bytes)}</td>
								<td class="n">{percent(x.bytes, bytes)}</td>
							</tr>
						))}
					</tbody>
				</table>
			</div>
			<TensorList rows={rows} />
			{facts.length > 0 && (
				<details>
					<summary>File metadata</summary>
					<ul>
						{facts.map(([key, text]) => (
							<li key={key}>
								{key}: {String(text).slice(0, 200)}
							</li>
						))}
					</ul>
				</details>
			)}
		</>
	);
}

function IndexContents({ index }: { index: OpenedIndex }) {
	return (
		<>
			<p class="file-total">
				<NumberButton
					derive={() => ({
						title: "tensors",
						lines: [sumFormula(index.files.map((x) => [x.name, BigInt(x.tensors)]))],
					})}
					label="tensors"
					data-part="values"
				>
					{grouped(index.tensors)}
				</NumberButton>{" "}
				{index.tensors === 1 ? "tensor" : "tensors"} in{" "}
				<span>{grouped(index.files.length)}</span>{" "}
				{index.files.length === 1 ? "file" : "files"}
				{index.bytes !== null && (
					<>
						, <span>{grouped(index.bytes)}</span> bytes by its total_size
					</>
				)}
			</p>
			<p class="caption">
				An index names files and tensors but no shapes: drop the safetensors files
				themselves to see those.
			</p>
			<table>
				<caption class="hidden">files of the index</caption>
				<thead>
					<tr>
						<th scope="col">file</th>
						<th scope="col" class="n">
							tensors
						</th>
					</tr>
				</thead>
				<tbody>
					{index.files.map((x) => (
						<tr key={x.name}>
							<th scope="row" class="path">
								{x.name}
							</th>
							<td class="n">{grouped(x.tensors)}</td>
						</tr>
					))}
				</tbody>
			</table>
		</>
	);
}

interface Opened {
	name: string;
	size: number;
	/** The one file whose header it is. */
	file?: File;
	header?: Header;
	index?: OpenedIndex;
	wrong?: string;
	offer?: FileError["offer"];
}

/** What was dropped: files, and whether the first of them is a folder. */
interface Dropped {
	files: File[];
	isFolder: boolean;
}

function droppedIn(event: DragEvent): Dropped {
	const items = [...(event.dataTransfer?.items ?? [])].filter((x) => x.kind === "file");
	return {
		files: [...(event.dataTransfer?.files ?? [])],
		isFolder: items.some((x) => x.webkitGetAsEntry?.()?.isDirectory),
	};
}

/** Reads what is no config: one file, or the weight files of one checkpoint. */
async function readFiles(files: File[], server: string | null): Promise<Opened> {
	const read = (file: File) =>
		server === null ? readHeader(file, formats) : sendHeader(file, server);
	const [file] = files as [File];
	const size = files.reduce((sum, x) => sum + x.size, 0);
	if (files.length === 1)
		return {
			name: file.name,
			size,
			...(isIndex(file)
				? { index: await readIndex(file, data) }
				: { file, header: await read(file) }),
		};
	const weights = files.filter((x) => !isIndex(x));
	if (weights.some((x) => !/\.(safetensors|gguf)$/i.test(x.name)))
		return refuse("several", files.length);
	const header = await readHeaders(weights, read);
	return {
		name:
			weights.length === 1
				? weights[0]!.name
				: `${weights[0]!.name} and ${weights.length - 1} more`,
		size: weights.reduce((sum, x) => sum + x.size, 0),
		header,
	};
}

/** Text whose commands stand between back-ticks, as in the messages of the library. */
const withCode = (text: string): ComponentChildren =>
	text.split("`").map((x, i) => (i % 2 ? <code key={i}>{x}</code> : x));

const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;

interface Props {
	openConfig: OpenConfig;
	/** The address of the page's own server, relative to the page, if it has one. */
	server: string | null;
	/** What the page offers for a file of weights. */
	offer?: (file: File, header: Header) => ComponentChildren;
}

export function Files({ openConfig, server, offer }: Props) {
	const [opened, setOpened] = useState<Opened | null>(null);
	const [isDragging, setDragging] = useState(false);
	const input = useRef<HTMLInputElement>(null);
	const button = useRef<HTMLButtonElement>(null);
	const read = async ({ files, isFolder }: Dropped) => {
		const [file] = files;
		if (!file) return;
		const name = files.length > 1 ? `${files.length} files` : file.name;
		try {
			if (isFolder) return refuse("folder", shellWord(file.name));
			if (files.length === 1 && isConfig(file)) {
				announce(`${file.name}: reading`);
				const done = await openConfig(file);
				setOpened(null);
				return announce(done);
			}
			setOpened(await readFiles(files, server));
			announce(`${name}: read`);
		} catch (error) {
			announce("");
			setOpened({
				name,
				size: 0,
				wrong:
					error instanceof FileError
						? error.message
						: `it cannot be read (${(error as Error).name})`,
				offer: error instanceof FileError ? error.offer : null,
			});
		}
	};
	useEffect(() => {
		if (opened) document.getElementById(opened.wrong ? "file-wrong" : "files-title")?.focus();
		if (opened) document.getElementById("files")?.scrollIntoView();
	}, [opened]);
	useEffect(() => {
		const over = (event: DragEvent) => {
			event.preventDefault();
			if (hasFiles(event)) setDragging(true);
		};
		const leave = (event: DragEvent) => !event.relatedTarget && setDragging(false);
		const drop = (event: DragEvent) => {
			event.preventDefault();
			setDragging(false);
			void read(droppedIn(event));
		};
		const listeners: [string, (event: DragEvent) => void][] = [
			["dragover", over],
			["dragleave", leave],
			["drop", drop],
		];
		for (const [name, listener] of listeners) addEventListener(name as "drop", listener);
		return () => {
			for (const [name, listener] of listeners) removeEventListener(name as "drop", listener);
		};
	}, []);
	const close = () => {
		setOpened(null);
		button.current?.focus();
	};
	const isShown = opened && !opened.wrong;
	return (
		<Section
			id="files"
			topic="Your own file"
			title={isShown ? opened.name : "Open a model of your own"}
			lead={
				isShown
					? undefined
					: `${server === null ? "config.json" : "config.json and params.json of any family"}, safetensors (one file or all of a checkpoint), GGUF, or an index of safetensors. ${server === null ? "It is read in this page and sent nowhere." : "The llamath that serves this page reads it: a config, or the header of weights, which is all that is sent."}`
			}
			controls={
				isShown ? (
					<button type="button" class="button" onClick={close}>
						Close the file
					</button>
				) : null
			}
		>
			<div class={`drop-zone ${isDragging ? "dragging" : ""}`}>
				<button
					type="button"
					class="button"
					ref={button}
					onClick={() => input.current!.click()}
				>
					Open a file
				</button>
				<span>
					{isDragging
						? "Drop it anywhere on the page"
						: "or drop one anywhere on the page"}
				</span>
				<input
					ref={input}
					type="file"
					id="file-input"
					accept=".json,.safetensors,.gguf"
					multiple
					hidden
					aria-label="a file to read"
					onChange={(event) => {
						const element = event.currentTarget;
						void read({ files: [...(element.files ?? [])], isFolder: false }).then(
							() => (element.value = ""),
						);
					}}
				/>
			</div>
			{opened?.wrong && (
				<div class="callout wrong" role="alert">
					<p id="file-wrong" tabIndex={-1}>
						{opened.wrong.startsWith(`the file ${opened.name}`)
							? ""
							: `${opened.name}: `}
						{withCode(opened.wrong)}
					</p>
					{opened.offer && (
						<button
							type="button"
							class="button primary"
							data-part="library"
							onClick={opened.offer.act}
						>
							{opened.offer.text}
						</button>
					)}
					<button type="button" class="button" onClick={close}>
						Close the file
					</button>
				</div>
			)}
			{opened && (opened.header || opened.index) && (
				<div class="file" data-file={opened.name}>
					<Fragment key={opened.name}>
						{opened.header && opened.file && offer?.(opened.file, opened.header)}
						{opened.header ? (
							<Contents
								name={opened.name}
								size={opened.size}
								header={opened.header}
								reader={
									server === null
										? "here in the browser"
										: "by the llamath that serves this page"
								}
							/>
						) : (
							<IndexContents index={opened.index!} />
						)}
					</Fragment>
				</div>
			)}
			{isDragging && (
				<div class="drop-overlay" aria-hidden="true">
					Drop a config.json, safetensors, GGUF or index file
				</div>
			)}
		</Section>
	);
}
