// The result of verifying a checkpoint; each check opens its findings.
import { NumberButton } from "../../components/number";
import type { ModelData } from "../../lib/data";
import { data } from "../../lib/data";
import { formula } from "../../lib/derivation";

interface Finding {
	says: string;
	hint: string;
	tensors: string;
}

interface Check {
	what: string;
	says: string;
	ok: boolean;
	of: string[][];
	findings: Finding[];
	table: string[][] | null;
}

interface Checkpoint {
	ok: boolean;
	says: string;
	of: string[][];
	verdicts: Check[];
}

function FindingText({ finding }: { finding: Finding }) {
	return (
		<div>
			<p>{finding.says}</p>
			{finding.hint && <p class="caption">{finding.hint}</p>}
			{finding.tensors && (
				<pre tabIndex={0} aria-label="tensors">
					{finding.tensors}
				</pre>
			)}
		</div>
	);
}

function CheckTable({ rows: [head, ...rows] }: { rows: string[][] }) {
	return (
		<div class="scroll" tabIndex={0} role="region" aria-label={head!.join(", ")}>
			<table>
				<thead>
					<tr>
						{head!.map((x, i) => (
							<th key={x} scope="col" class={i ? "n" : ""}>
								{x}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{rows.map(([name, ...rest]) => (
						<tr key={name}>
							<th scope="row">
								<code>{name}</code>
							</th>
							{rest.map((x, i) => (
								<td key={i} class="n">
									{x}
								</td>
							))}
						</tr>
					))}
				</tbody>
			</table>
		</div>
	);
}

function CheckItem({ check }: { check: Check }) {
	const derive = () => ({
		title: `${check.what}: ${check.ok ? "ok" : "findings"}`,
		lines: [
			...check.of.map((x) => formula(...x)),
			...(check.findings.length
				? check.findings.map((x) => <FindingText finding={x} />)
				: [String(data.words.nothing)]),
			check.table && <CheckTable rows={check.table} />,
		],
	});
	return (
		<li>
			<span aria-hidden="true">{check.ok ? "✓" : "✗"}</span>
			<span>
				<NumberButton
					derive={derive}
					label={`check, ${check.ok ? "ok" : "findings"}`}
					data-verdict={check.what}
				>
					{check.what}
				</NumberButton>
				{` ${check.says}`}
			</span>
		</li>
	);
}

export function CheckpointStatus({ model }: { model: ModelData }) {
	const checkpoint = model.checkpoint as Checkpoint | null;
	if (!checkpoint) return null;
	const verdict = (data.words.checkpoint as string[])[Number(checkpoint.ok)];
	const derive = () => ({
		title: "contents of its files",
		lines: checkpoint.of.map((x) => formula(...x)),
	});
	return (
		<div class="checkpoint">
			<p>
				<strong>{verdict}</strong>{" "}
				<NumberButton derive={derive} label="contents of its files">
					{checkpoint.says}
				</NumberButton>
			</p>
			<ul aria-label="verdicts">
				{checkpoint.verdicts.map((x) => (
					<CheckItem key={x.what} check={x} />
				))}
			</ul>
		</div>
	);
}
