"""The memory and the speed limits of inference as expressions of context, batch and dtypes, for
each number of GPUs and each layout.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ....analysis.size.default_context import DEFAULT_CONTEXT
from ....analysis.size.fit.fit_rules import (
    MAX_COMBINATIONS,
    MAX_HALVINGS,
    RESCUE_BITS,
    WIDE_KV_DTYPES,
    by_size,
    headroom_of,
    left_of,
    recommended,
    rounded_context,
)
from ....analysis.size.fit.format_support import (
    DEQUANTIZED,
    NO_KERNELS,
    is_supported,
    lacks_rate,
    suggested_bits,
    supported_formats,
    supported_kv_dtypes,
)
from ....analysis.size.fit.gpu_ranking import NODE_COUNTS
from ....analysis.size.fit.serving_layouts import LayoutChooser, serving_layouts
from ....analysis.size.fit.suggestions import total_of_fitting
from ....analysis.size.memory.cache_bytes import CacheSpec, KVFormat, kv_format
from ....analysis.size.memory.gpu_shards import (
    BATCH,
    TOKENS,
    ElementSizes,
    ShardedModel,
    WeightRead,
    activation_bytes,
)
from ....analysis.size.memory.inference_memory import (
    AS_STORED,
    LOGIT_BYTES,
    MemoryCalculator,
    MemoryRequest,
    declared_dtype,
    prefill_chunk,
)
from ....analysis.size.memory.speed_limits import compute_dtypes, decode_work, prefill_work
from ....analysis.storage.memory_line import overhead_bytes
from ....checkpoint.formats.dtypes import DTYPES
from ....core.expr import (
    Expr,
    Json,
    as_number,
    choose_if_less,
    floor_div,
    minimum,
    product,
    round_div,
    total,
)
from ....core.mixers import RecurrentMixer
from ....core.tree import fold, fold_blocks
from ....hardware import DTYPES as RATE_DTYPES
from ....hardware import Device, devices, find_device
from ....model import FamilyModel
from ....questions.layout import Layout
from ....questions.memory_questions import PREFILL_CHUNK
from ....utils.errors import LlamathError, UnknownQuantization
from ....utils.number_marks import Either, Quotient, is_marking, own_data, unmarked
from ...forms.cache_form import GPU_COUNTS
from ..checkpoint_data import CheckpointModel
from ..facts_data import format_name
from .element_bytes import UNIT, ElementBytes, element_texts, element_variables

_WEIGHTS = ("fp32", "bf16", "fp16", "fp8", "mxfp4", "awq", "q8_0", "q4_k_m", "q2_k")
_KEPT = ("fp32", "bf16", "fp16", "fp8", "q8_0", "q4_0")
_MORE_GPUS = (32, 64)
"""The numbers of GPUs, and those of a model that is too large for `_SMALL` bytes on each of 16."""
_SMALL = 16 * 2**30
DEFAULT_GPU = "h100-sxm"
_GROUP = 128
"""The weights of the largest usual group that shares a scale."""
_LEGACY = 32
"""The weights of a block of the formats whose types are not chosen by layer."""
_CARDS = (
    "rtx-4060-ti-16gb",
    "rtx-4090",
    "rtx-5090",
    "l40s",
    "a100-80gb",
    "h100-sxm",
    "h200",
    "b200",
    "mi300x",
)
"""The GPUs that the pictures show."""


_Forms = dict[str, tuple[int, Json | Either]]
"""Distinct expressions with their places."""


def variable(symbol: str) -> Expr:
    """Return a variable to which the page gives a value."""
    return Expr.variable(symbol, 1)


SIZES = ElementSizes(
    KVFormat(variable("kv_block"), variable("kv_bytes"), variable("conv_bytes")),
    variable("act_bytes"),
)
"""The settings of the dtypes."""


def _roof() -> Mapping[str, Json]:
    """Return tokens per 10⁹ seconds, FLOP/s, FLOPs per 10⁹ bytes, and whether memory bounds them
    (1) or arithmetic (0).
    """
    tokens, read, work, peak, bandwidth = map(
        variable, ("tokens", "bytes", "FLOPs", "peak", "bandwidth")
    )
    by_bytes, by_flops = (
        floor_div(10**9 * tokens * bandwidth, read),
        floor_div(10**9 * tokens * peak, work),
    )
    found = {
        "rate": minimum(by_bytes, by_flops),
        "reached": minimum(floor_div(work * bandwidth, read), peak),
        "intensity": floor_div(10**9 * work, read),
        "bound": minimum(floor_div(read * peak, work * bandwidth), 1),
    }
    return {name: x.to_expression_json() for name, x in found.items()}


ROOF = _roof()


def _known_gpus() -> list[Device]:
    """Return every device of the catalog with a FLOP/s figure and a bandwidth."""
    return [x for x in devices() if {"bf16", "fp16", "fp32"} & set(x.flops) and x.bandwidth]


def gpu_data() -> list[dict[str, Any]]:
    """Return the GPUs that the page knows."""
    return [
        {
            "name": x.name,
            "title": x.title,
            "memory": str(x.memory),
            "nominal": str(x.nominal),
            "bandwidth": str(x.bandwidth),
            "node": x.node,
            "source": x.source,
            "flops": {dtype: str(x.flops[dtype]) for dtype in RATE_DTYPES if dtype in x.flops},
            "formats": list(supported_formats(x)),
            "kvs": list(supported_kv_dtypes(x)),
            "common": x.common,
            "shown": x.name in _CARDS,
        }
        for x in _known_gpus()
    ]


def fit_rules() -> dict[str, Any]:
    """Return the rules of `fit`: expressions, the order of hardware as places in `gpu_data`, and
    limits.
    """
    known, every = _known_gpus(), (*GPU_COUNTS, *_MORE_GPUS)
    places = {x.name: i for i, x in enumerate(known)}
    memory, needed = variable("memory"), variable("total")
    return {
        "left": Expr.const(left_of(memory, needed)).to_expression_json(),
        "headroom": Expr.const(headroom_of(memory, needed)).to_expression_json(),
        "rounded": Expr.const(rounded_context(TOKENS)).to_expression_json(),
        **_rules_of_a_stage(),
        "smallest": [
            [str(count), [[places[x.name] for x in group] for group in groups]]
            for counts in (NODE_COUNTS, [x for x in every if x not in NODE_COUNTS])
            for count, groups in by_size(known, counts)
        ],
        "counts": list(GPU_COUNTS),
        "context": str(DEFAULT_CONTEXT),
        "halvings": MAX_HALVINGS,
        "bits": list(RESCUE_BITS),
        "dequantized": DEQUANTIZED,
        "no_kernels": NO_KERNELS,
        "suggestions": MAX_COMBINATIONS,
    }


def _rules_of_a_stage() -> dict[str, Json]:
    """Return the activations, logits and overhead of a GPU in 16 bits, as forms of the most
    elements of a token that live at once, the width of the stream, the vocabulary and TP.
    """
    width, stream, vocab, tp = map(variable, ("width", "stream", "vocab", "TP"))
    tokens = prefill_chunk(TOKENS, BATCH, PREFILL_CHUNK)
    forms = {
        "activations": activation_bytes(tokens, width, stream, tp, 2),
        "logits": product((LOGIT_BYTES, BATCH, vocab)),
        "overhead": overhead_bytes(total(map(variable, ("cache", "activations", "logits")))),
    }
    return {name: Expr.const(x).to_expression_json() for name, x in forms.items()}


def kept_as(model: FamilyModel) -> Iterator[tuple[str, MemoryCalculator]]:
    """Yield the model under each possible dtype, the config's first."""
    try:
        names = dict.fromkeys((declared := declared_dtype(model), *_WEIGHTS))
    except UnknownQuantization:  # the page offers formats to choose from
        names, declared = dict.fromkeys(_WEIGHTS), ""
    if isinstance(model, CheckpointModel):
        yield AS_STORED, MemoryCalculator(model, MemoryRequest(), model.stored)
    for name in names:
        if (found := _sizes(model, "" if name == declared else name)) is not None:
            yield name, found


def sizes(model: FamilyModel, made: Mapping[str, MemoryCalculator]) -> dict[str, Any]:
    """Return the choices of the sliders, and the memory of each stage for each GPU count."""
    first, start = next(iter(made.items()))
    elements = ElementBytes()
    layouts = _layouts(model, made, elements)
    return {
        "context": str(_usual_context(model, start)),
        "own": str(model.tree.context or start.context),
        "stated": model.tree.context is not None,
        "notes": {name: list(x.notes) for name, x in made.items() if x.notes},
        "dtype": first,
        "kv": start.kv_dtype,
        "dtypes": [
            _dtype(name, x, elements.of_dtype(i)) for i, (name, x) in enumerate(made.items())
        ],
        "kvs": [_kv(name) for name in dict.fromkeys((start.kv_dtype, *_KEPT))],
        **layouts,
        "work": {
            "decode": start.decode_flops.at(P=TOKENS - 1).to_expression_json(),
            "prefill": start.prefill_flops.at(P=Expr.const(0)).to_expression_json(),
        },
    }


def _usual_context(model: FamilyModel, start: MemoryCalculator) -> int:
    """Return the tokens that the sliders begin with; at most the model's context, if that is a
    number that follows its letter.
    """
    own = as_number(model.tree.context or 0)
    return choose_if_less(own, DEFAULT_CONTEXT, own, DEFAULT_CONTEXT) if own else start.context


def _sizes(model: FamilyModel, dtype: str) -> MemoryCalculator | None:
    """Return the model under a dtype; None if it cannot be stored that way."""
    try:
        found = MemoryCalculator(model, MemoryRequest(dtype=dtype))
        return found if found.weights else None
    except LlamathError:
        return None


def _dtype(name: str, found: MemoryCalculator, each: Mapping[str, Fraction]) -> dict[str, Any]:
    return {
        "name": name,
        "title": format_name(name),
        "bytes": str(sum(x.bytes for x in found.weights)),
        "of": [
            " + ".join(x.what for x in found.weights),
            " + ".join(x.formula for x in found.weights),
        ],
        "bits": {
            "mean": Quotient(8 * total(x.bytes for x in found.weights), _num_weights(found)),
            "suggested": suggested_bits(name),
        },
        "codecs": _codecs(found),
        "dequantized": [x.name for x in _known_gpus() if lacks_rate(x, found.packer.name)],
        "unsupported": [x.name for x in _known_gpus() if not is_supported(x, found.packer.name)],
        "each": element_texts(each),
        "variables": {"act_bytes": str(DTYPES[found.packer.compute_dtype].bytes)}
        | element_variables(each),
        "rates": list(compute_dtypes(found.packer.name, found.packer.compute_dtype)),
    }


def _num_weights(found: MemoryCalculator) -> int:
    return sum(as_number(x.weight.parameters) * as_number(x.copies) for x in fold(found.tree)) or 1


def _codecs(found: MemoryCalculator) -> dict[str, str]:
    """Return the bytes of a weight of n elements, or of an out × in matrix, by storage format."""
    used = {} if found.storage is None else dict.fromkeys(x.codec for x in found.storage.weights)
    formulas = {} if found.storage is None else found.storage.formulas
    return {
        x: f"{DTYPES[x].bytes}·n" + (f"/{DTYPES[x].block}" if DTYPES[x].block > 1 else "")
        if x in DTYPES
        else formulas[x]
        for x in used
    }


def blocks_by_dtype(
    model: FamilyModel, memory_by_dtype: Mapping[str, MemoryCalculator]
) -> dict[str, list[int] | None]:
    """Return the rows and columns of a block of weights under each dtype: types, and bytes of an
    element, depend on whether weights are whole blocks. None for formats that name single layers,
    and for types by layer of models with recurrent layers.
    """
    found = {name: _block(x) for name, x in memory_by_dtype.items()}
    has_states = any(isinstance(x.block, RecurrentMixer) for x in fold_blocks(model.tree))
    return {
        name: None
        if (has_states and block[1] > _LEGACY)
        or (block[0] > 1 and _names_layers(memory_by_dtype[name]))
        else block
        for name, block in found.items()
    }


def _names_layers(found: MemoryCalculator) -> bool:
    """Whether some layers of a kind are stored otherwise than others."""
    weights = [x for x in found.storage.weights if x.layers] if found.storage is not None else []
    if not weights:
        return False
    layers = [id(x) for x in found.tree.layers]
    times = Counter(layers)
    return any(
        len(x.layers) != sum(times[y] for y in {layers[i] for i in x.layers}) for x in weights
    )


def _block(found: MemoryCalculator) -> list[int]:
    codecs = () if found.storage is None else {x.codec for x in found.storage.weights}
    if codecs and not all(x in DTYPES for x in codecs):
        return [_GROUP, _GROUP]
    return [1, max((DTYPES[x].block for x in codecs), default=1)]


def _kv(name: str) -> dict[str, Any]:
    found = kv_format(name)
    values = {
        "kv_block": found.block,
        "kv_bytes": found.bytes,
        "conv_bytes": found.conv_state_bytes,
    }
    return {
        "name": name,
        "title": format_name(name),
        "variables": {symbol: str(n) for symbol, n in values.items()},
        "wide": name in WIDE_KV_DTYPES,
    }


def hardware_of_all(models: Iterable[FamilyModel]) -> tuple[str, str]:
    """Return the GPU and the number of the smallest hardware that runs each of the models with one
    sequence of the first one's context: with headroom, else if they fit, else the default GPU in
    the largest number.
    """
    with unmarked():
        made = [next(kept_as(x))[1] for x in models]
        choosers, context = [LayoutChooser(x) for x in made], made[0].context

        def fitting(gpu: Device, count: int) -> Iterator[tuple[tuple[Device, int], bool]]:
            if all(is_supported(gpu, "" if x.stored else x.packer.name) for x in made):
                each = [total_of_fitting(x, gpu, count, context, 1) for x in choosers]
                needed = [x for x in each if x is not None]
                if len(needed) == len(each):
                    yield (gpu, count), headroom_of(gpu.memory, max(needed)) >= 0

        groups = (
            [x for gpu in group for x in fitting(gpu, count)]
            for count, alike in by_size(_known_gpus(), NODE_COUNTS)
            for group in alike
        )
        found = recommended(groups, lambda x: x[0].bandwidth)
    return (found[0].name, str(found[1])) if found else (DEFAULT_GPU, str(NODE_COUNTS[-1]))


def _start_gpus(calculator: MemoryCalculator, counts: Collection[int]) -> int:
    """Return the smallest number of the default GPU on which the model fits at the default
    context, else the largest number.
    """
    chooser, gpu = LayoutChooser(calculator), find_device(DEFAULT_GPU)
    smallest = (
        n for n in counts if total_of_fitting(chooser, gpu, n, calculator.context, 1) is not None
    )
    with unmarked():
        return next(smallest, max(counts))


def _gpu_counts(calculator: MemoryCalculator) -> tuple[int, ...]:
    is_large = sum(x.bytes for x in calculator.weights) > GPU_COUNTS[-1] * _SMALL
    return (*GPU_COUNTS, *(_MORE_GPUS if is_large else ()))


def _layouts(
    model: FamilyModel, made: Mapping[str, MemoryCalculator], elements: ElementBytes
) -> dict[str, Any]:
    """Return the layouts, the splits (layout, replicas) of each number of GPUs in the order in
    which `fit` tries them, and their forms.
    """
    first = next(iter(made.values()))
    found = ((count, serving_layouts(model.tree, count, count)) for count in _gpu_counts(first))
    splits = {count: x for count, x in found if x}
    layouts = list(dict.fromkeys(x.layout for each in splits.values() for x in each))
    forms: _Forms = {}
    return {
        "layouts": [_layout(x, made, elements, forms) for x in layouts],
        "gpus": [
            {"count": str(count), "splits": [[layouts.index(x.layout), x.replicas] for x in each]}
            for count, each in splits.items()
        ],
        "start": str(_start_gpus(first, splits)),
        "forms": [form for _, form in forms.values()],
    }


def _shared(form: Json | Either, forms: _Forms) -> int:
    """Return the place of an expression among those that all stages share."""
    return forms.setdefault(json.dumps(own_data(form)), (len(forms), form))[0]


def _layout(
    layout: Layout,
    made: Mapping[str, MemoryCalculator],
    elements: ElementBytes,
    forms: _Forms,
) -> dict[str, Any]:
    first = ShardedModel(
        next(iter(made.values())), layout.replace(tp=Expr.variable("TP", layout.tp))
    )
    shards = {name: first.with_dtype_of(x) for name, x in made.items()}
    stages: dict[str, dict[str, Any]] = {}
    keys: list[str] = []
    reads, all_reads = list[list[WeightRead]](), list[list[WeightRead]]()
    values: dict[str, dict[str, Any] | Json] = {}
    for i, same in enumerate(first.equal_stages):
        if same < i:
            keys.append(keys[same])
        else:
            stage = _stage(first, i, forms) | {"weights": _weight_bytes(shards, i, elements)}
            found, numbers = _reads(shards, i, len(stages), elements)
            keys.append(json.dumps(own_data([stage, [*numbers.values()]])))
            if keys[i] not in stages:
                stages[keys[i]] = stage | {"where": []}
                reads.append(found)
                values |= numbers
        stages[keys[i]]["where"].append(_where(first, i))
        all_reads.append(reads[list(stages).index(keys[i])])
    work, caches = variable("work"), [first.cache_bytes(i, SIZES.cache) for i in range(layout.pp)]
    passes = {
        "decode": decode_work(all_reads, caches, work, first.layout, BATCH),
        "prefill": prefill_work(reads, work, first.layout, BATCH * TOKENS),
    }
    return {
        "tp": str(layout.tp),
        "pp": str(layout.pp),
        "name": layout.axes or "one GPU",
        "stages": [x | {"where": _joined(x["where"])} for x in stages.values()],
        "speed": {
            name: {
                key: Expr.const(n).to_expression_json()
                for key, n in (("tokens", x.tokens), ("bytes", x.bytes), ("FLOPs", x.flops))
            }
            for name, x in passes.items()
        },
        "read": values,
    }


def _joined(places: Sequence[str]) -> str:
    """Return the layers of equal stages as text."""
    return (
        "; ".join(places)
        if len(places) < 4
        else (f"{places[0]}; … {places[-1]}, {len(places)} stages")
    )


def _weight_bytes(made: Mapping[str, ShardedModel], i: int, elements: ElementBytes) -> Json:
    """Return the bytes of the weights on one GPU of a stage."""
    shards = [*made.values()]
    return round_div(
        elements.form(shards, shards[0].elements_by_pattern(i).items()), UNIT
    ).to_expression_json()


def _reads(
    made: Mapping[str, ShardedModel], i: int, place: int, elements: ElementBytes
) -> tuple[list[WeightRead], dict[str, dict[str, Any] | Json]]:
    """Return what a pass reads on one GPU of a stage: `W` in full, `R…` and `X…` in part; and these
    as expressions.

    Each weight that is read in full is rounded by itself: to the expression of them all, `more`
    adds what this makes of it, by dtype.
    """
    shards = [*made.values()]
    columns = list(zip(*(x.reads[i] for x in shards), strict=True))
    weights = shards[0].read_elements(i)
    # layers of another kind by themselves: what has the same number there has another in an edit
    seen = Counter[str]()
    parts = list[tuple[tuple[WeightRead, ...], int]]()
    for column, (pattern, _) in zip(columns, weights, strict=True):
        parts.append((column, seen[pattern]))
        seen[pattern] += 1
    partial = Counter(x for x in parts if x[0][0].rows or x[0][0].missed)
    mark = str(place or "")
    in_full = [x for x in parts if x not in partial]
    form = elements.form(
        shards, (weight for x, weight in zip(parts, weights, strict=True) if x not in partial)
    )
    more = {
        dtype: n
        for dtype, *reads in zip(made, *(x for x, _ in in_full), strict=True)
        if (n := _rounding(reads))
    }
    whole = round_div(form, UNIT).to_expression_json()
    values: dict[str, dict[str, Any] | Json] = {
        f"W{mark}": {"form": whole, "more": more} if more else whole
    }
    reads = [WeightRead(variable(f"W{mark}"))]
    for place_of_part, (part, times) in enumerate(partial.items()):
        column, _ = part
        name = f"{'R' if column[0].rows else 'X'}{mark}{_letters(place_of_part)}"
        is_whole = all(x.unit == 1 for x in column)
        size = elements.form(shards, [weights[parts.index(part)]])
        reads += [
            column[0]._replace(size=variable(name), unit=1 if is_whole else variable(f"{name}'"))
        ] * times
        values[name] = (floor_div(size, UNIT) if is_whole else size).to_expression_json()
        if not is_whole:
            values[f"{name}'"] = UNIT.to_expression_json()
    return reads, values


def _letters(n: int) -> str:
    """Return the n-th of a, b, … z, aa, ab and so on."""
    before, place = divmod(n, 26)
    return (_letters(before - 1) if before else "") + chr(ord("a") + place)


def _rounding(reads: Sequence[WeightRead]) -> int:
    """Return the sum of rounded bytes less the rounded sum."""
    whole = sum((Fraction(x.size, x.unit) for x in reads), Fraction())
    return int(total(x.of(1) for x in reads)) - int(round_div(*whole.as_integer_ratio()))


def _stage(shards: ShardedModel, i: int, forms: _Forms) -> dict[str, Any]:
    """Return the memory of one GPU of a stage without its weights; its expressions are places in
    `forms`.
    """
    found = shards.memory_of_stage(i, SIZES)
    return {
        "cache": [
            {"what": x.kind, "form": _shared(cache_expression(x), forms)}
            for x in shards.stage_cache_specs(i)
        ],
        "activations": _activations(shards, Expr.const(found.activations), forms),
        "logits": _shared(Expr.const(found.logits).to_expression_json(), forms),
        "overhead": _shared(
            overhead_bytes(
                total(map(variable, ("cache", "activations", "logits")))
            ).to_expression_json(),
            forms,
        ),
    }


def _activations(shards: ShardedModel, written: Expr, forms: _Forms) -> int:
    """Return the place of the activations, in letters where the peak of other dimensions is at the
    same operation.
    """
    width, most = shards.calculator.peak.width, shards.calculator.most_elements
    if not width.symbols or not is_marking():
        return _shared(written.to_expression_json(), forms)
    elsewhere = Expr.const(shards.activations(Expr.const(most), SIZES.activation))
    form = Either(width, most, written.to_expression_json(), elsewhere.to_expression_json())
    return _shared(form, forms)


def cache_expression(x: CacheSpec) -> Json:
    """Return the cache bytes of one kind of mixer in all its layers."""
    return total(
        (x.growing_bytes(TOKENS, BATCH, SIZES.cache), x.fixed_bytes(BATCH, SIZES.cache))
    ).to_expression_json()


def _where(shards: ShardedModel, i: int) -> str:
    spans = (str(a) if a == b - 1 else f"{a}–{b - 1}" for a, b in shards.stages[i].runs)
    return f"layers {', '.join(spans)}"
