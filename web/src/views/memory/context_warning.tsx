// The warning of the command line where the context is longer than the model's own.
import type { ModelData } from "../../lib/data";
import { grouped } from "../../lib/format";
import { useAppState } from "../../lib/state";
import { sizesOf } from "../../lib/sizing/data";

/** The warnings and notes about a context, in the words of the command line. */
export function contextWarning(model: ModelData, context: bigint): string {
	const { own, stated } = sizesOf(model);
	if (!stated) return `no context length is known; using ${grouped(context)} tokens`;
	return context > BigInt(own)
		? `${grouped(context)} tokens are more than the model's own context, ${grouped(own)}`
		: "";
}

/** How far a context is beyond the model's own; empty where it is not. */
export function beyondContext(model: ModelData, context: bigint): string {
	const { own, stated } = sizesOf(model);
	if (!stated || context <= BigInt(own)) return "";
	const times = Number(context) / Number(own);
	return times < 1.05
		? "more than its own context"
		: `${Number(times.toPrecision(2)).toLocaleString("en-US")} times its own context`;
}

/** Where a page says it twice, one of them is quiet to a screen reader. */
export function ContextWarning({ model, isQuiet }: { model: ModelData; isQuiet?: boolean }) {
	const { context } = useAppState("context");
	const text = contextWarning(model, context);
	return (
		<p class="context-warning" role={isQuiet ? undefined : "status"}>
			{text && (
				<>
					<b>Warning:</b> {text}.
				</>
			)}
		</p>
	);
}
