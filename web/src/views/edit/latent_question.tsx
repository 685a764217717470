// What a model with latent attention would cache with plain multi-head attention, which the forms of
// its family do not have: its cache alone.
import type { Edited } from "../../lib/editing";
import { value, type Expression } from "../../lib/expressions";
import { grouped } from "../../lib/format";
import { kvVariables } from "../../lib/kv_variables";
import { useAppState } from "../../lib/state";

interface Attention {
	alternatives: { kind: string; own: boolean; heads: string; cached: Expression }[];
}

const alternatives = ({ model }: Edited) => (model.attention as Attention).alternatives;

export const hasLatent = (edited: Edited): boolean =>
	alternatives(edited).some((x) => x.own && x.kind === "MLA");

export function LatentNote({ edited }: { edited: Edited }) {
	const state = useAppState("kv");
	const own = alternatives(edited).find((x) => x.own)!;
	const plain = alternatives(edited).find((x) => x.kind === "MHA")!;
	const kv = kvVariables(edited.model, state);
	const [kept, all] = [value(own.cached, kv), value(plain.cached, kv)];
	return (
		<p class="edit-note" data-part="latent">
			With multi-head attention, the same {grouped(plain.heads)} heads would cache{" "}
			{grouped(all)} bytes for a token in each layer,{" "}
			{(Number(all) / Number(kept)).toFixed(1)} times the {grouped(kept)} bytes of their
			latent. What follows is with the latent: see <a href="#attention">Attention</a>.
		</p>
	);
}
