"""The treemap's data: weights by kind of layer, with their bytes under each dtype, their FLOPs and the cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...analysis.flops.flop_count import list_matmuls
from ...analysis.inference.cache_bytes import cache_spec as what_is_kept
from ...analysis.inference.inference_memory import AS_STORED, MemoryCalculator
from ...core.blocks import Decoder
from ...core.expr import Expr
from ...core.forward_pass import AttentionBase
from ...core.tree import Block, Folded, Stack, fold, fold_blocks, fold_field
from ...model import Model
from .checkpoint_data import Checked, pieces
from .forms import number, sum_of, times_of
from .pass_forms import NEXT, known
from .size_forms import cache_bytes_form

SHOWN = 1000
"""Deeper models are not shown layer by layer."""
Key = tuple[str, tuple[int, ...]]


class Part(NamedTuple):
    """A part of the model: a block outside the layers, or one kind of layer."""

    section: int
    prefix: str
    block: Block | None  # of a layer
    leaves: Sequence[Folded]
    times: int


class Held(NamedTuple):
    """Return the bytes of a weight in one layer, or with None in all layers of its kind."""

    part: Part
    key: Key
    layer: int | None
    bytes: int
    codec: str  # what it is kept as, and the bytes of one copy
    each: int


def areas(model: Model, kept: Mapping[str, MemoryCalculator]) -> dict[str, Any]:
    """Return the weights by section, the mixing FLOPs, and the layers one by one."""
    parts = list(_parts(model))
    held = {name: list(_held(model.tree, parts, x)) for name, x in kept.items()}
    if isinstance(model, Checked):
        held[AS_STORED] = list(_stored(model, parts))
    return {
        "tiles": _tiles(model.tree, parts, held),
        "mixing": [x for part in parts for x in _mixing(part)],
        "cached": [x for part in parts for x in _cached_layers(part)],
        "layers": _layers(model.tree, parts, held),
    }


def _parts(model: Model) -> Iterator[Part]:
    """Yield the parts in tree order, each with its section of `count`."""
    sections, tree = model.count.sections, model.tree
    rows = {_alike((y.pattern, y.weight.shape, y.copies) for y in x.rows): i for i, x in enumerate(sections) if x.name == "layers"}
    for name, child in tree.children:
        if isinstance(child, Stack):
            for block, n in child.distinct():
                leaves = fold(block)
                where = rows[_alike((y.pattern.replace("{l}", "{e}"), y.weight.shape, y.copies) for y in leaves)]
                yield Part(where, f"{name}.{{l}}.", block, leaves, int(n))
        else:
            where = next(i for i, x in enumerate(sections) if x.name == name)
            yield Part(where, "", None, fold_field(tree, name), 1)


def _alike(rows: Iterable[tuple[str, Sequence[Expr], int]]) -> tuple[object, ...]:
    return tuple((pattern, tuple(d.symbol for d in shape), tuple(map(int, shape)), int(copies)) for pattern, shape, copies in rows)


def _key(part: Part, x: Folded) -> Key:
    pattern = x.pattern if part.block is None else x.pattern.replace("{l}", "{e}")
    return part.prefix + pattern, tuple(map(int, x.weight.shape))


def _held(tree: Decoder, parts: Sequence[Part], sizes: MemoryCalculator) -> Iterator[Held]:
    """Return the bytes of every weight under a dtype."""
    storage = sizes.storage
    if storage is None:
        return
    if not any(x.layers for x in storage.weights):
        untied = ((part, x) for part in parts for x in part.leaves if not x.weight.tied)
        for (part, x), found in zip(untied, storage.weights, strict=True):
            yield Held(part, _key(part, x), None, found.bytes * int(x.copies) * part.times, found.codec, found.bytes)
        return
    kinds = {id(part.block): part for part in parts}
    alone = {_key(part, x): part for part in parts if part.block is None for x in part.leaves}
    order = [kinds[id(x)] for x in tree.layers]
    for found in storage.weights:
        key = found.leaf.pattern, tuple(map(int, found.leaf.weight.shape))
        if found.layers:
            each = found.total // len(found.layers)
            yield from (Held(order[i], key, i, each, found.codec, found.bytes) for i in found.layers)
        else:
            yield Held(alone[key], key, None, found.total, found.codec, found.bytes)


def _stored(model: Checked, parts: Sequence[Part]) -> Iterator[Held]:
    """Return the stored bytes of the weights."""
    kinds = {id(part.block): part for part in parts}
    alone = {_key(part, x)[0]: part for part in parts if part.block is None for x in part.leaves}
    order = [kinds[id(x)] for x in model.tree.layers]
    for layer, part, size in pieces(model):
        key = part.pattern, tuple(map(int, part.weight.shape))
        yield Held(alone[part.pattern] if layer is None else order[layer], key, layer, size, "", size)


def _tiles(tree: Decoder, parts: Sequence[Part], held: Mapping[str, list[Held]]) -> list[dict[str, Any]]:
    """Return the weights of each section: parameters, FLOPs per token, and bytes under each dtype."""
    done = iter(x for x in list_matmuls(tree, NEXT) if not x.mixing)
    made: dict[tuple[int, Key], dict[str, Any]] = {}
    for part in parts:
        for x in part.leaves:
            key = _key(part, x)
            shape = {"dims": [y.symbol for y in x.weight.shape], "shape": [str(n) for n in key[1]]}
            counts = {
                "copies": 0,
                "live": 0,
                "parameters": 0,
                "flops": 0,
                "bytes": dict.fromkeys(held, 0),
                "kept": {dtype: {} for dtype in held},
            }
            tile = made.setdefault(
                (part.section, key), {"section": part.section, "path": key[0], "group": x.group or "other"} | shape | counts
            )
            tile["copies"] += int(x.copies) * part.times
            tile["live"] += int(x.active) * part.times
            tile["parameters"] += int(x.weight.parameters) * int(x.copies) * part.times
            tile["flops"] += int(next(done).flops) if x.weight.role == "matmul" else 0
    for dtype, found in held.items():
        for one in found:
            tile = made[one.part.section, one.key]
            tile["bytes"][dtype] += one.bytes
            if one.each:
                kept, how = tile["kept"][dtype], (one.codec, one.each)
                kept[how] = kept.get(how, 0) + one.bytes // one.each
    return [_texts(x) for x in made.values()]


def _texts(tile: dict[str, Any]) -> dict[str, Any]:
    counts = {name: str(tile[name]) for name in ("copies", "live", "parameters", "flops")}
    kept = {dtype: [[codec, str(n), str(each)] for (codec, each), n in found.items()] for dtype, found in tile["kept"].items()}
    return tile | counts | {"bytes": {name: str(n) for name, n in tile["bytes"].items()}, "kept": kept}


def _mixing(part: Part) -> Iterator[dict[str, Any]]:
    """Return the mixing FLOPs per token in all layers of a kind."""
    if part.block is None:
        return
    mixers = {x.pattern: x.block for x in fold_blocks(part.block)}
    for x in list_matmuls(part.block, NEXT):
        if x.mixing:
            mixer = mixers[x.pattern]
            each = number(x.flops, known(mixer.window if isinstance(mixer, AttentionBase) else None, NEXT))
            path = f"{part.prefix}{x.pattern}"
            yield {"section": part.section, "path": path, "group": x.group, "flops": times_of(number(Expr.const(part.times)), each)}


def _cached_layers(part: Part) -> Iterator[dict[str, Any]]:
    """Return the cache bytes of a kind of layer, in all its layers."""
    for x in fold_blocks(part.block) if part.block is not None else ():
        if (found := what_is_kept(x.block)) is not None:
            form = cache_bytes_form(found.replace(layers=Expr.const(part.times) * int(x.copies)))
            yield {"section": part.section, "path": f"{part.prefix}{x.pattern}", "what": found.kind, "form": form}


def _layers(tree: Decoder, parts: Sequence[Part], held: Mapping[str, list[Held]]) -> dict[str, Any]:
    """Return every layer; identical layers share one entry."""
    n = int(tree.layers.n)
    if n > SHOWN:
        return {"kinds": [], "order": []}
    kinds = {id(part.block): _one(part) for part in parts if part.block is not None}
    order = [id(x) for x in tree.layers]
    sizes = {dtype: _by_layer(order, found) for dtype, found in held.items()}
    index_of: dict[str, int] = {}
    made: list[dict[str, Any]] = []
    places = []
    for i, kind in enumerate(order):
        of = {dtype: each[i] for dtype, each in sizes.items()}
        one = kinds[kind] | {"bytes": {dtype: str(sum(x.values())) for dtype, x in of.items()}}
        one["of"] = {dtype: [str(x.get(path, 0)) for path in one["paths"]] for dtype, x in of.items()}
        key = repr(one)
        if key not in index_of:
            index_of[key] = len(made)
            made.append(one)
        places.append(index_of[key])
    return {"kinds": made, "order": places}


def _by_layer(order: Sequence[int], found: Sequence[Held]) -> list[Mapping[str, int]]:
    """Return the bytes of each layer, weight by weight."""
    each: dict[int, Counter[str]] = {}
    own = [Counter[str]() for _ in order]
    for x in found:
        if x.layer is not None:
            own[x.layer][x.key[0]] += x.bytes
        elif x.part.block is not None:
            each.setdefault(id(x.part.block), Counter())[x.key[0]] += x.bytes // x.part.times
    return [own[i] + each.get(kind, Counter()) for i, kind in enumerate(order)]


def _one(part: Part) -> dict[str, Any]:
    """Return one layer of a kind."""
    assert part.block is not None
    one = part._replace(times=1)
    products = sum(int(x.flops) for x in list_matmuls(part.block, NEXT) if not x.mixing)
    groups: dict[str, int] = {}
    for x in part.leaves:
        groups[x.group or "other"] = groups.get(x.group or "other", 0) + int(x.weight.parameters) * int(x.copies)
    return {
        "section": part.section,
        "parameters": str(sum(groups.values())),
        "groups": {name: str(n) for name, n in groups.items() if n},
        "paths": list(dict.fromkeys(_key(part, x)[0] for x in part.leaves if not x.weight.tied)),
        "flops": sum_of(str(products), *(x["flops"] for x in _mixing(one))),
        "cache": sum_of(*(x["form"] for x in _cached_layers(one))),
    }
