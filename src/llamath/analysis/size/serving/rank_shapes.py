"""`matrix_facts`: the shapes of a model's matrices on one rank, in the units that engines check:
blocks, groups and packed words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import Any, NamedTuple

from ....checkpoint.quantization.matrix_formats import MatrixFormat
from ....core.blocks import Attention, Linear
from ....core.tree import TOWER_GROUPS, Folded, fold, fold_blocks
from ...storage.weight_bytes import StoredWeight, WeightStorage
from ..memory.inference_memory import MemoryCalculator

Facts = Mapping[str, Any]
_UNITS = ("heads", "kv_heads", "key_heads", "value_heads", "state_groups")


class EngineLayout(NamedTuple):
    """The ranks of one model: tensor, pipeline, data (copies, or copies of the attention alone),
    and whether experts stay whole.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    whole_experts: bool = False  # expert parallelism over all ranks of tp × dp
    copies: int = 1  # of the whole, each on its own GPUs

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return self.tp * self.pp * self.dp * self.copies

    @property
    def label(self) -> str:
        """The layout in words."""
        parts = [
            f"{name} {n}"
            for name, n in (("TP", self.tp), ("PP", self.pp), ("DP", self.dp))
            if n > 1
        ]
        return (
            " × ".join(parts or ["one GPU"])
            + (" with expert parallelism" if self.whole_experts else "")
            + (f", {self.copies:,} copies" if self.copies > 1 else "")
        )


class FormatUnits(NamedTuple):
    """The kind of a matrix format as engines tell them apart, and the outputs and inputs that
    share a scale; 0: one scale for all.
    """

    kind: str
    block_out: int
    block_in: int
    pack: int  # outputs in one packed word


def format_units(to: MatrixFormat | None) -> FormatUnits:
    """Return the units of a format, from the axes of its tensors; a plain dtype has none."""
    if to is None:
        return FormatUnits("plain", 0, 0, 1)
    block_out = block_in = 0
    for part in to.parts[1:]:
        if "scale" in part.suffix and part.axes:
            block_out = max(
                [
                    block_out,
                    *(x.per // x.times for x in part.axes if x.letter == "out" and x.per > x.times),
                ]
            )
            block_in = max(
                [
                    block_in,
                    *(x.per // x.times for x in part.axes if x.letter == "in" and x.per > x.times),
                ]
            )
    values = to.parts[0]
    pack = next((x.per // x.times for x in values.axes if x.letter == "out" and x.per > x.times), 1)
    head = to.name.partition("-")[0]
    if values.suffix == ".weight_packed" and values.dtype == "I32":
        kind = "wna16"
    elif values.dtype == "F8_E4M3" and block_out and head != "mxfp8":
        kind = "fp8-block"
    else:
        kind = head
    return FormatUnits(kind, block_out, block_in, pack)


def model_facts(calculator: MemoryCalculator, layout: EngineLayout) -> Facts:
    """Return the values of the whole model that engines check."""
    tree = calculator.tree
    units = dict.fromkeys(_UNITS, 0)
    latent, head_size = False, 0
    for x in fold(tree):
        if x.split is not None and x.split.unit in units and x.group not in TOWER_GROUPS:
            n = x.split.parts
            units[x.split.unit] = gcd(units[x.split.unit], n)
    for block in (x.block for x in fold_blocks(tree)):
        if isinstance(block, Attention):
            latent, head_size = latent or block.k is None, gcd(head_size, int(block.head_dim))
        elif type(block).__name__.startswith("Latent"):
            latent = True
    from ....checkpoint.formats.dtypes import parse_dtype

    experts = max((x.num_experts for x in fold(tree)), default=0)
    is_latent = latent or not units["kv_heads"]
    return {
        "of": "model",
        "tp": layout.tp,
        "pp": layout.pp,
        "dp": layout.dp,
        "ep": layout.tp * layout.dp if layout.whole_experts else 1,
        "attention_tp": layout.tp,
        "attention_dp": layout.dp,
        "heads": units["heads"],
        "kv_heads": units["kv_heads"] or units["heads"],
        "key_heads": units["key_heads"],
        "state_heads": units["value_heads"],
        "latent": is_latent,
        "head_size": head_size,
        "layers": int(tree.layers.n),
        "vocabulary": int(tree.vocab),
        "experts": experts,
        "is_gguf": int(quantization_method(calculator) == "gguf"),
        "method": quantization_method(calculator),
        "cache_block": parse_dtype(calculator.kv_dtype).block,
        "activations": calculator.packer.compute_dtype,
    }


def quantization_method(calculator: MemoryCalculator) -> str:
    """Return the method of the weights as `quant_method` names it; empty for plain weights."""
    packer = calculator.packer
    if packer.recipe is not None:
        return packer.recipe.method
    if packer.gguf_file_type or calculator.model.from_gguf:
        return "gguf"
    return (
        "bitsandbytes" if packer.name.startswith("bnb") else packer.name if packer.is_packed else ""
    )


def stored_weights_of(calculator: MemoryCalculator) -> Sequence[StoredWeight]:
    """Return the weights in the format that is asked for, or that the config declares."""
    return _storage(calculator).weights


def _formats(calculator: MemoryCalculator) -> Mapping[str, MatrixFormat]:
    storage = _storage(calculator)
    formats = {
        x.choice.format.name: x.choice.format
        for x in storage.matrices
        if x.choice.format is not None
    }
    if storage.packer.matrix is not None:
        formats[storage.packer.packing] = storage.packer.matrix
    return formats


def _storage(calculator: MemoryCalculator) -> WeightStorage:
    """Return the storage that is asked for, or that the config declares where the bytes are
    counted from files.
    """
    storage = calculator.storage or MemoryCalculator(calculator.model, calculator.request).storage
    assert storage is not None
    return storage


def matrix_facts(calculator: MemoryCalculator, layout: EngineLayout) -> Iterator[Facts]:
    """Yield the values of each distinct matrix on one rank: `of` is `matrix`, or `experts` for
    the experts of a layer.
    """
    tree, formats = calculator.tree, _formats(calculator)
    storage = _storage(calculator)
    linear = {f"{x.pattern}.weight" for x in fold_blocks(tree) if isinstance(x.block, Linear)}
    names, seen = calculator.model.family.schemes.get("hf"), set()
    weights = [
        x for x in storage.weights if x.leaf.pattern in linear and x.leaf.group not in TOWER_GROUPS
    ]
    common = {"tp": layout.tp, "activations": calculator.packer.compute_dtype}
    for name, group in _by_matrix(weights, names):
        first = group[0]
        units = format_units(formats.get(first.codec))
        has_rest = int(first.leaf.weight.shape[0]) % (units.block_out or 1)
        if has_rest and storage.packer.recipe is None and not first.leaf.num_experts:
            # the quantizer's default: publishers keep what has no whole blocks in a plain dtype
            units = format_units(None)
        facts = {**common, **_one_matrix(group, layout, units), "name": name, "bits": 0}
        if first.leaf.num_experts:
            if not first.leaf.pattern.endswith((".gate.weight", ".up.weight")):
                continue
            facts |= _one_expert(first.leaf, layout, units)
        key = tuple(sorted((k, v) for k, v in facts.items() if k != "name"))
        if key not in seen:
            seen.add(key)
            yield facts


def _by_matrix(
    weights: Sequence[StoredWeight], names: Any
) -> Iterator[tuple[str, list[StoredWeight]]]:
    """Yield the leaves that engines hold in one matrix and check as one: the key and value part
    of latent attention is one.
    """
    groups: dict[tuple[str, str, tuple[int, ...]], list[StoredWeight]] = {}
    for x in weights:
        pattern = x.leaf.pattern
        joined = pattern.replace(".k_up.", ".kv_up.").replace(".v_up.", ".kv_up.")
        groups.setdefault(
            (
                joined,
                x.codec,
                tuple(int(n) for n in x.leaf.weight.shape) if joined == pattern else (),
            ),
            [],
        ).append(x)
    for (joined, _, _), found in groups.items():
        stored = (
            names.stored_name(found[0].leaf.pattern).removesuffix(".weight")
            if names is not None
            else joined.removesuffix(".weight")
        )
        yield stored, found


def _one_matrix(
    group: Sequence[StoredWeight], layout: EngineLayout, units: FormatUnits
) -> dict[str, Any]:
    first, tp = group[0].leaf, layout.tp
    outputs, inputs = sum(int(x.leaf.weight.shape[0]) for x in group), int(first.weight.shape[1])
    whole = bool(first.num_experts) and layout.whole_experts
    split, parts, unit = "no", 0, ""
    if first.split is not None and tp > 1 and not whole:
        split, parts = ("outputs", "inputs")[first.split.axis], first.split.parts
        unit = (
            first.split.unit
            if first.split.unit in _UNITS
            else "padded"
            if first.split.on_indivisible == "pad"
            else "columns"
        )
    ranks = (
        min(tp, parts)
        if parts and first.split is not None and first.split.on_indivisible == "copy"
        else tp
    )
    return {
        "of": "experts" if first.num_experts else "matrix",
        "split": split,
        "unit": unit,
        "divided": parts,
        "outputs": outputs,
        "inputs": inputs,
        "outputs_of_rank": -(-outputs // ranks) if split == "outputs" else outputs,
        "inputs_of_rank": -(-inputs // ranks) if split == "inputs" else inputs,
        "format": units.kind,
        "block_out": units.block_out,
        "block_in": units.block_in,
        "pack": units.pack,
        "merged": _place_in_merged(first.pattern),
    }


def _place_in_merged(pattern: str) -> str:
    """Return the place of a matrix in the one that engines merge it into: q, k and v; gate and
    up.
    """
    if pattern.endswith((".q.weight", ".k.weight", ".gate.weight")):
        return "before-last"
    return "last" if pattern.endswith((".v.weight", ".up.weight")) else "no"


def _one_expert(leaf: Folded, layout: EngineLayout, units: FormatUnits) -> dict[str, Any]:
    intermediate, hidden = (int(n) for n in leaf.weight.shape)
    divided = not layout.whole_experts and layout.tp * layout.dp > 1
    of_rank = -(-intermediate // (layout.tp * layout.dp)) if divided else intermediate
    block_out, block_in = units.block_out or 1, units.block_in or 1
    return {
        "intermediate": intermediate,
        "hidden": hidden,
        "divided": divided,
        "intermediate_of_rank": of_rank,
        "aligned": of_rank % block_out == 0 and (not divided or of_rank % block_in == 0),
        "refined_block": gcd(block_out, block_in, of_rank, hidden),
        "shared_group": _halved_group(units.block_in, of_rank, hidden),
        "tp": layout.tp * layout.dp if divided else layout.tp,
    }


def _halved_group(group: int, of_rank: int, hidden: int) -> int:
    """Return the group size after it was halved until it divides an expert's sides on a rank; a
    format without groups has no limit.
    """
    if not group:
        return of_rank
    while group > 1 and (of_rank % group or hidden % group):
        group //= 2
    return group
