"""Faults that `tools/mutants.py` plants, one at a time, all over the product."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """A slip in one file of the product."""

    name: str  # what is wrong, in a few words
    path: str  # below the repository root
    before: str  # occurs exactly once in the file
    after: str


FAULTS = (
    # Families: shapes, config keys, names of tensors
    Fault(
        "norm of the keys has the shape of the queries",
        "src/llamath/families/olmoe.py",
        "rms(H * h, eps), rms(K * h, eps)",
        "rms(H * h, eps), rms(H * h, eps)",
    ),
    Fault(
        "rotary pairs are halves, not neighbors",
        "src/llamath/families/cohere.py",
        "read_rope(c, h, theta=5e5, interleaved=True)",
        "read_rope(c, h, theta=5e5)",
    ),
    Fault(
        "stored names of gate and up swapped",
        "src/llamath/families/mixtral.py",
        '        "mlp.experts.{e}.gate": "block_sparse_moe.experts.{e}.w1",\n'
        '        "mlp.experts.{e}.down": "block_sparse_moe.experts.{e}.w2",\n'
        '        "mlp.experts.{e}.up": "block_sparse_moe.experts.{e}.w3",\n',
        '        "mlp.experts.{e}.gate": "block_sparse_moe.experts.{e}.w3",\n'
        '        "mlp.experts.{e}.down": "block_sparse_moe.experts.{e}.w2",\n'
        '        "mlp.experts.{e}.up": "block_sparse_moe.experts.{e}.w1",\n',
    ),
    Fault(
        "width of the shared expert read from the key of the others",
        "src/llamath/families/qwen_shared.py",
        'c.dim("Fs", "shared_expert_intermediate_size")',
        'c.dim("Fs", "moe_intermediate_size")',
    ),
    Fault(
        "norms of heads multiply by w, not by 1 + w",
        "src/llamath/families/qwen_shared.py",
        "rms(h, eps, offset=1.0)",
        "rms(h, eps)",
    ),
    Fault(
        "YaRN's factor of the softmax scale is not squared",
        "src/llamath/families/deepseek_shared.py",
        "rope.growth(rope.mscale_all_dim) ** 2",
        "rope.growth(rope.mscale_all_dim)",
    ),
    Fault(
        "a preset has half of the experts per token",
        "src/llamath/catalog/presets.json",
        '"norm_topk_prob": false, "num_experts": 64, "num_experts_per_tok": 8',
        '"norm_topk_prob": false, "num_experts": 64, "num_experts_per_tok": 4',
    ),
    # Counting and sizing
    Fault(
        "embedding split by columns over tensor-parallel ranks",
        "src/llamath/core/blocks.py",
        '        "embed": Cut(0, on_indivisible="pad"),\n',
        '        "embed": Cut(1, on_indivisible="pad"),\n',
    ),
    Fault(
        "FLOPs of an indexer lack the sum over its heads",
        "src/llamath/analysis/graph/operations/attention_operations.py",
        "q.shape[3] + len(weights), pairs)",
        "q.shape[3], pairs)",
    ),
    Fault(
        "kept inputs of checkpointed layers split over ranks without sequence parallelism",
        "src/llamath/analysis/size/training/saved_activations.py",
        '"inputs of layers", Expr.const(self.tree.width), self.kernels.width, "sequence"',
        '"inputs of layers", Expr.const(self.tree.width), self.kernels.width',
    ),
    Fault(
        "8-bit AdamW has scales for one moment only",
        "src/llamath/analysis/size/training/optimizers.py",
        "2 * (n + FP32 * -(-n // BLOCK_SIZE))",
        "2 * n + FP32 * -(-n // BLOCK_SIZE)",
    ),
    Fault(
        "interleaved pipeline holds too few microbatches",
        "src/llamath/analysis/size/training/pipeline_schedule.py",
        "min(2 * left + (v - 1) * p + 1, layout.count * v)",
        "min(left + (v - 1) * p + 1, layout.count * v)",
    ),
    Fault(
        "vocabulary is cut, not padded, for tensor parallelism",
        "src/llamath/analysis/storage/parallel_layout.py",
        "            -(-shape[axis] // n)\n",
        "            shape[axis] // n\n",
    ),
    Fault(
        "every tensor-parallel rank caches all KV heads",
        "src/llamath/analysis/size/memory/cache_bytes.py",
        "rows=tuple(x.on_rank(tp) for x in same),",
        "rows=tuple(x.size for x in same),",
    ),
    Fault(
        "decode does not read a tied head",
        "src/llamath/analysis/size/memory/gpu_shards.py",
        "                *self._tied_head(i),\n",
        "",
    ),
    Fault(
        "row of layers for multi-token prediction is lost",
        "src/llamath/analysis/size/memory/inference_memory.py",
        "            not_loaded=self.not_loaded,\n",
        "            not_loaded=(),\n",
    ),
    Fault(
        "headroom of `fit` is the fixed part alone",
        "src/llamath/analysis/storage/memory_line.py",
        "return total((OVERHEAD_FIXED, floor_div(dynamic, OVERHEAD_DIVISOR)))",
        "return Expr.const(OVERHEAD_FIXED)",
    ),
    Fault(
        "`plan` ranks layouts by their slowest variant",
        "src/llamath/analysis/size/plan/plan_ranking.py",
        "queue.append((timed[-1][0], i, timed))",
        "queue.append((timed[0][0], i, timed))",
    ),
    Fault(
        "causes from the larger model to the smaller keep their sign",
        "src/llamath/analysis/understand/diff/causes.py",
        "parts = tuple(x.replace(delta=-x.delta) for x in cause.parts)",
        "parts = tuple(x.replace(delta=x.delta) for x in cause.parts)",
    ),
    Fault(
        "`explain` of a rounded number accepts only its own value, and exits with 1",
        "src/llamath/analysis/understand/explain/explanation.py",
        "return any(low <= x.value < high for x in self.candidates)",
        "return any(low <= x.value < high and x.exact for x in self.candidates)",
    ),
    Fault(
        "numbers of the formula are its letters in `count --json`",
        "src/llamath/analysis/understand/count/count_report.py",
        '"formula_numbers=formula.numbers",',
        '"formula_numbers=formula.symbols",',
    ),
    # Files: formats, layouts, checks
    Fault(
        "MXFP8 has a scale for 16 values",
        "src/llamath/checkpoint/quantization/shared/scaled_bytes.py",
        'f".{scale} U8 out in/32"',
        'f".{scale} U8 out in/16"',
    ),
    Fault(
        "rows of q and k permuted to pairs instead of back to halves",
        "src/llamath/checkpoint/naming/stored_layouts.py",
        "x = reorder_rows(x, half_split_order(params.head_dim))",
        "x = reorder_rows(x, interleaved_order(params.head_dim))",
    ),
    Fault(
        "YaRN's slow ramp read from the key of the fast one",
        "src/llamath/checkpoint/gguf_metadata/gguf_keys.py",
        '_real("beta_slow", "rope.scaling.yarn_beta_slow"),',
        '_real("beta_slow", "rope.scaling.yarn_beta_fast"),',
    ),
    Fault(
        "offsets of a tensor may span more bytes than it has",
        "src/llamath/checkpoint/formats/safetensors.py",
        "        if end - start != kind.bytes:\n",
        "        if end - start < kind.bytes:\n",
    ),
    Fault(
        "a pickle opcode that torch does not write is allowed",
        "src/llamath/checkpoint/formats/torch_files/pickle_reader.py",
        'b"N": _push(None), ',
        'b"N": _push(None), b"\\x8f": _push_new(set), ',
    ),
    Fault(
        "an index may name files in other folders",
        "src/llamath/checkpoint/formats/folder.py",
        r'any(x in name for x in "/\\:")',
        r'any(x in name for x in "\\:")',
    ),
    Fault(
        "sums that a download left are not compared",
        "src/llamath/analysis/check/verify/full_check.py",
        "    sums += local_sums(folder, [*weights, *others])\n",
        "",
    ),
    Fault(
        "a conversion goes on with the files of another one",
        "src/llamath/conversion/write/staging.py",
        "if plan is not None and plan.fingerprint == self.fingerprint\n",
        "if plan is not None\n",
    ),
    Fault(
        "scale of an adapter ignores the module's own rank",
        "src/llamath/checkpoint/adapters.py",
        "            self.rank_of(module),\n        )\n",
        "            self.rank,\n        )\n",
    ),
    # Running: torch and tokenizers
    Fault(
        "weights of the chosen experts always sum to 1",
        "src/llamath/torch/torch_machine.py",
        'if moe.norm_topk_prob and moe.routing != "input":',
        'if moe.routing != "input":',
    ),
    Fault(
        "a cut sequence keeps slots that later tokens have overwritten",
        "src/llamath/torch/kv_cache.py",
        "not isinstance(x, KVCache) or self.length > x.capacity",
        "not isinstance(x, KVCache) or length > x.capacity",
    ),
    Fault(
        "top-p keeps one token more when the sum is exactly p",
        "src/llamath/torch/sampling.py",
        "kept = (best.cumsum(-1) - best < p)",
        "kept = (best.cumsum(-1) - best <= p)",
    ),
    Fault(
        "seed is ignored in all rows but the first",
        "src/llamath/generation/random_numbers.py",
        'Random(f"{seed}/{row}" if row else seed)',
        'Random(f"0/{row}" if row else seed)',
    ),
    Fault(
        "special token in a user's text becomes a control token",
        "src/llamath/tokenizers/chat_prompt.py",
        "for start, end in () if part.is_message else tokens.find(part.text):",
        "for start, end in tokens.find(part.text):",
    ),
    # The native engine
    Fault(
        "window is one key too long",
        "native/kernels/attention.h",
        "low = max_of(low, query - a.window + 1);",
        "low = max_of(low, query - a.window);",
    ),
    Fault(
        "ALiBi's slopes between powers of two are those of the power below",
        "native/operations.cpp",
        "std::exp2(-max_bias * i / (2 * power))",
        "std::exp2(-max_bias * i / power)",
    ),
    Fault(
        "biases of experts are dropped",
        "native/interpreter.cpp",
        "experts[j].biases = biases.empty() ? nullptr : biases.data();",
        "experts[j].biases = nullptr;",
    ),
    Fault(
        "positions are checked without the offset of their rows",
        "native/validation.cpp",
        "limit = std::min(limit, p.weights[op->table.number].rows - op->offset);",
        "limit = std::min(limit, p.weights[op->table.number].rows);",
    ),
    # Commands, servers and the page
    Fault(
        "control characters reach cells of CSV and Markdown",
        "src/llamath/render/csv_rows.py",
        'return safe(" ".join(text.split()), _MAX_TEXT)',
        'return " ".join(text.split())[:_MAX_TEXT]',
    ),
    Fault(
        "`serve` listens on all addresses by default",
        "src/llamath/cli/serve.py",
        'HOST = "127.0.0.1"\n',
        'HOST = "0.0.0.0"\n',
    ),
    Fault(
        "any host name with the port is known",
        "src/llamath/web/server/application.py",
        "port == str(self.port) and _is_ip_address(name)",
        "port == str(self.port)",
    ),
    Fault(
        "a posted config may have any length",
        "src/llamath/web/server/application.py",
        "return 413 if len(length) > 12 or int(length) > body.max_bytes else 0",
        "return 413 if len(length) > 12 else 0",
    ),
    Fault(
        "a folder whose name begins like the root's may be read",
        "src/llamath/utils/access.py",
        "os.path.commonpath((x, real)) == x",
        "real.startswith(x)",
    ),
    Fault(
        "the page states GB as GiB",
        "web/src/views/facts/runs_on.tsx",
        "(Number(x) / 2 ** 30).toFixed(1)",
        "(Number(x) / 1e9).toFixed(1)",
    ),
    Fault(
        "sequences of a replica are rounded down",
        "web/src/lib/sizing/gpu_memory.ts",
        "-(-a / b) + (a % b ? 1n : 0n);",
        "-(-a / b);",
    ),
    Fault(
        "quotes in a field of CSV are not doubled",
        "web/src/components/export/table_text.ts",
        '`"${text.replaceAll(\'"\', \'""\')}"`',
        '`"${text}"`',
    ),
    Fault(
        "causes are sorted from the smallest",
        "web/src/views/compare/difference.ts",
        "(magnitude(a.delta) < magnitude(b.delta) ? 1 : -1)",
        "(magnitude(a.delta) < magnitude(b.delta) ? -1 : 1)",
    ),
    # What moved into one place each: rows of operations, facts of families, positions, opening
    Fault(
        "a multiply-add of a projection is one FLOP",
        "src/llamath/analysis/graph/operations/projection_operations.py",
        "return product((2, *node.shape, node.inputs[0].shape[-1]))",
        "return product((*node.shape, node.inputs[0].shape[-1]))",
    ),
    Fault(
        "an indexer chooses more keys than there are",
        "src/llamath/analysis/graph/operations/attention_operations.py",
        "shape=lambda indexer, q, k: (*q.shape[:2], minimum(k.shape[1], indexer.top_k)),",
        "shape=lambda indexer, q, k: (*q.shape[:2], indexer.top_k),",
    ),
    Fault(
        "a convolution keeps an input too few",
        "src/llamath/analysis/graph/operations/recurrent_operations.py",
        "product((channels, taps if dilation == 1 else",
        "product((channels, taps - 1 if dilation == 1 else",
    ),
    Fault(
        "the derivative of ReLU needs its input",
        "src/llamath/core/config.py",
        '"ReLU", "ReGLU", needs_output_only=True)',
        '"ReLU", "ReGLU")',
    ),
    Fault(
        "angles of LongRoPE change one token too late",
        "src/llamath/core/positions.py",
        "        return self.original_context\n",
        "        return self.original_context + 1\n",
    ),
    Fault(
        "the base of Qwen's angles grows while an answer is written",
        "src/llamath/core/positions.py",
        "        return prompt\n",
        "        return length\n",
    ),
    Fault(
        "a family names the architecture of its GGUF files like its own type",
        "src/llamath/families/gpt_oss.py",
        'gguf_arch="gpt-oss"',
        'gguf_arch="gpt_oss"',
    ),
    Fault(
        "attention with one KV head is called grouped",
        "src/llamath/core/attention_facts.py",
        '"MQA" if num_kv_heads == 1 else "GQA"',
        '"MQA" if num_kv_heads == 0 else "GQA"',
    ),
    Fault(
        "what Meta's tensors show goes before what is asked for",
        "src/llamath/analysis/check/verify/verified_checkpoint.py",
        "load({**{key: x.value for key, x in inferred.items()}, **changes})",
        "load({**changes, **{key: x.value for key, x in inferred.items()}})",
    ),
    Fault(
        "the hint of an error is lost when it gets the name of its file",
        "src/llamath/utils/errors.py",
        "hint=self.hint or hint, file=",
        "hint=hint, file=",
    ),
)
