"""Where the parameters are: weights by kind of layer, with their bytes under each dtype, their
FLOPs and the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...analysis.graph.flop_count import list_flops
from ...analysis.graph.recorder import Graph, Region, record
from ...analysis.size.memory.cache_bytes import cache_specs
from ...analysis.size.memory.gpu_shards import TOKENS
from ...analysis.size.memory.inference_memory import AS_STORED, MemoryCalculator
from ...core.blocks import Decoder
from ...core.expr import Expr, Json, as_number, product, total
from ...core.tree import LOOPED, Block, Folded, Stack, Weight, fold, fold_field
from ...model import FamilyModel
from ...utils.number_marks import Arranged, Repeated
from .checkpoint_data import CheckpointModel, stored_weights
from .sizing.inference_data import cache_expression

_MAX_LISTED_LAYERS = 1000
"""Models with more layers are not shown layer by layer."""
_WeightKey = tuple[str, tuple[int, ...]]


class _Part(NamedTuple):
    """A part of the model: a block outside the layers, or one kind of layer."""

    section: int
    prefix: str
    block: Block | None  # the layer; None outside the layers
    leaves: Sequence[Folded]
    times: int


class _WeightBytes(NamedTuple):
    """The bytes of a weight in one layer, or in all layers of its kind if `layer` is None."""

    part: _Part
    key: _WeightKey
    layer: int | None
    bytes: int
    codec: str
    each: int  # bytes of one copy


def build_parameters(
    model: FamilyModel, memory_by_dtype: Mapping[str, MemoryCalculator]
) -> dict[str, Any]:
    """Return the weights by section, the FLOPs of attention products, the cache, and the layers
    one by one.
    """
    parts = list(_parts(model))
    graph = record(model.tree, batch=Expr.const(1), past_tokens=TOKENS - 1, decode=True)
    bytes_by_dtype = {
        name: list(_weight_bytes(model.tree, parts, x)) for name, x in memory_by_dtype.items()
    }
    if isinstance(model, CheckpointModel):
        bytes_by_dtype[AS_STORED] = list(_stored_bytes(model, parts))
    tiles = _tiles(graph, parts, bytes_by_dtype)
    return {
        "tiles": [_encode_tile(x) for x in tiles],
        "spine": component_bytes(tiles),
        "mixing": [
            _encode_product(part, path, group, flops)
            for part in parts
            for path, group, flops in _attention_products(graph, part)
        ],
        "cached": [x for part in parts for x in _cache_of_part(graph, part)],
        "layers": _layers_one_by_one(graph, parts, bytes_by_dtype),
    }


def _parts(model: FamilyModel) -> Iterator[_Part]:
    """Yield the parts in tree order, each with its section of `count`."""
    sections, tree = model.count.sections, model.tree
    rows = {
        _signature((y.pattern, y.weight, y.copies) for y in x.rows): i
        for i, x in enumerate(sections)
        if x.name == "layers"
    }
    for name, child in tree.children:
        if name == "layers" and isinstance(child, Stack):
            for block, n in child.distinct():
                leaves = fold(block)
                section = rows[
                    _signature(
                        (y.pattern.replace("{l}", "{e}"), y.weight, y.copies)
                        for y in _once_counted(leaves)
                    )
                ]
                yield _Part(section, f"{name}.{{l}}.", block, leaves, as_number(n))
        else:
            section = next(i for i, x in enumerate(sections) if x.name == name)
            yield _Part(section, "", None, fold_field(tree, name), 1)


def _once_counted(leaves: Sequence[Folded]) -> Iterator[Folded]:
    """Yield the weights of a block; of one that runs again, those of its first pass."""
    runs_again = any(LOOPED in x.weight.tied for x in leaves)
    for x in leaves:
        if not runs_again:
            yield x
        elif LOOPED in x.weight.tied:
            yield x._replace(weight=x.weight.replace(tied=""))


def _signature(rows: Iterable[tuple[str, Weight, int]]) -> tuple[object, ...]:
    return tuple(
        (pattern, tuple(d.symbol for d in x.shape), tuple(map(int, x.shape)), x.tied, int(copies))
        for pattern, x, copies in rows
    )


def _key(part: _Part, x: Folded) -> _WeightKey:
    pattern = x.pattern if part.block is None else x.pattern.replace("{l}", "{e}")
    return part.prefix + pattern, tuple(map(as_number, x.weight.shape))


def _weight_bytes(
    tree: Decoder, parts: Sequence[_Part], calculator: MemoryCalculator
) -> Iterator[_WeightBytes]:
    """Yield the bytes of every weight under a dtype."""
    storage = calculator.storage
    if storage is None:
        return
    if not any(x.layers for x in storage.weights):
        untied = ((part, x) for part in parts for x in part.leaves if not x.weight.tied)
        for (part, x), weight in zip(untied, storage.weights, strict=True):
            yield _WeightBytes(
                part,
                _key(part, x),
                None,
                weight.bytes * as_number(x.copies) * part.times,
                weight.codec,
                weight.bytes,
            )
        return
    part_of_block = {id(part.block): part for part in parts}
    part_of_weight = {
        _key(part, x): part for part in parts if part.block is None for x in part.leaves
    }
    part_of_layer = [part_of_block[id(x)] for x in tree.layers]
    for weight in storage.weights:
        key = weight.leaf.pattern, tuple(map(as_number, weight.leaf.weight.shape))
        if key in part_of_weight:  # also in the layers of a tower
            outside = part_of_weight[key]
            yield _WeightBytes(outside, key, None, weight.total, weight.codec, weight.bytes)
            continue
        own = {id(x): x for x in (part_of_layer[i] for i in weight.layers)}
        each = weight.bytes * _copies_in_layer(weight.leaf, len(weight.layers), own.values())
        if len(weight.layers) == sum(x.times for x in own.values()):
            for part in own.values():
                total = each * part.times
                yield _WeightBytes(part, key, None, total, weight.codec, weight.bytes)
            continue
        yield from (
            _WeightBytes(part_of_layer[i], key, i, each, weight.codec, weight.bytes)
            for i in weight.layers
        )


def _copies_in_layer(leaf: Folded, num_layers: int, parts: Iterable[_Part]) -> int:
    """Return how often a layer has a weight of several layers, in letters where they say it."""
    copies = int(leaf.copies) // num_layers
    own = (x for part in parts for x in part.leaves if _key(part, x)[0] == leaf.pattern)
    return next((as_number(x.copies) for x in own if int(x.copies) == copies), copies)


def _stored_bytes(model: CheckpointModel, parts: Sequence[_Part]) -> Iterator[_WeightBytes]:
    """Yield the bytes of the weights in the files of a checkpoint."""
    part_of_block = {id(part.block): part for part in parts}
    part_of_weight = {
        _key(part, x)[0]: part for part in parts if part.block is None for x in part.leaves
    }
    part_of_layer = [part_of_block[id(x)] for x in model.tree.layers]
    for layer, piece, num_bytes in stored_weights(model):
        key = piece.pattern, tuple(map(int, piece.weight.shape))
        yield _WeightBytes(
            part_of_weight[piece.pattern] if layer is None else part_of_layer[layer],
            key,
            layer,
            num_bytes,
            "",
            num_bytes,
        )


def _tiles(
    graph: Graph, parts: Sequence[_Part], bytes_by_dtype: Mapping[str, list[_WeightBytes]]
) -> list[dict[str, Any]]:
    """Return the weights of each section: parameters, FLOPs per token, and bytes under each
    dtype.
    """
    flops = [_matmul_flops(_region(graph, part)) for part in parts]
    tiles: dict[tuple[int, _WeightKey], dict[str, Any]] = {}
    for part, flops_by_path in zip(parts, flops, strict=True):
        for x in part.leaves:
            key = _key(part, x)
            shape = {
                "dims": [y.symbol for y in x.weight.shape],
                "shape": [str(n) for n in key[1]],
                "lookup": x.weight.role == "lookup",
            }
            counts = {
                "copies": 0,
                "live": 0,
                "parameters": 0,
                "flops": 0,
                "kept": {dtype: {} for dtype in bytes_by_dtype},
            }
            tile = tiles.setdefault(
                (part.section, key),
                {"section": part.section, "path": key[0], "group": x.group or "other"}
                | shape
                | counts,
            )
            tile["copies"] += as_number(x.copies) * part.times
            tile["live"] += as_number(x.active) * part.times
            tile["parameters"] += as_number(x.weight.parameters) * as_number(x.copies) * part.times
            tile["flops"] += flops_by_path.get(key[0], 0) * part.times
    for dtype, weights in bytes_by_dtype.items():
        for weight in weights:
            if weight.each:
                tile = tiles[weight.part.section, weight.key]
                copies_by_codec, codec_and_bytes = tile["kept"][dtype], (weight.codec, weight.each)
                copies_by_codec[codec_and_bytes] = copies_by_codec.get(
                    codec_and_bytes, 0
                ) + _copies(weight)
    for tile in tiles.values():
        tile["kept"] = {
            dtype: [(codec, n, each) for (codec, each), n in copies_by_codec.items()]
            for dtype, copies_by_codec in tile["kept"].items()
        }
    return list(tiles.values())


def _copies(weight: _WeightBytes) -> int:
    copies = Expr.const(weight.bytes).exact_div(weight.each)
    return copies if copies.symbols else int(copies)


def _encode_tile(tile: dict[str, Any]) -> dict[str, Any]:
    counts = {name: str(tile[name]) for name in ("copies", "live", "parameters", "flops")}
    codecs = {
        dtype: [[codec, str(n), str(each)] for codec, n, each in kept]
        for dtype, kept in tile["kept"].items()
    }
    return tile | counts | {"kept": codecs}


def _region(graph: Graph, part: _Part) -> Region:
    """Return the region of a part: that of its kind of layer, or the one outside the layers."""
    return next((x for x in graph.layers if x.block is part.block), graph.regions[0])


def _matmul_flops(region: Region) -> Mapping[str, int]:
    """Return the FLOPs per token of products with weights, by path, in one layer."""
    flops = Counter[str]()
    for x in list_flops(region):
        if not x.mixing:
            flops[x.path] += as_number(x.flops)
    return flops


def _attention_products(graph: Graph, part: _Part) -> Iterator[tuple[str, str, Expr]]:
    """Yield path, group and FLOPs per token of the products of each mixer in all layers of a
    kind.
    """
    if part.block is None:
        return
    mixing = [x for x in list_flops(_region(graph, part)) if x.mixing]
    for path, group in dict.fromkeys((x.path, x.group) for x in mixing):
        yield path, group, product((part.times, total(x.flops for x in mixing if x.path == path)))


def _encode_product(part: _Part, path: str, group: str, flops: Expr) -> dict[str, Any]:
    return {
        "section": part.section,
        "path": path,
        "group": group,
        "flops": flops.to_expression_json(),
    }


def _cache_of_part(graph: Graph, part: _Part) -> Iterator[dict[str, Any]]:
    """Yield the cache bytes in all layers of a kind."""
    if part.block is None:
        return
    nodes = _region(graph, part).nodes
    paths = {found(x).kind: x.path for x in nodes if (found := x.op.cached) is not None}
    for spec in cache_specs(graph, layers={id(part.block): part.times}):
        path = paths["row"] if spec.rows else paths.get("state", paths.get("conv", ""))
        yield {
            "section": part.section,
            "path": path,
            "what": spec.kind,
            "form": cache_expression(spec),
        }


def _layers_one_by_one(
    graph: Graph, parts: Sequence[_Part], bytes_by_dtype: Mapping[str, list[_WeightBytes]]
) -> dict[str, Any]:
    """Return the distinct layers, and the index of each layer in that list."""
    tree = graph.tree
    if int(tree.layers.n) > _MAX_LISTED_LAYERS:
        return {"kinds": [], "order": []}
    layer_of_block = {
        id(part.block): _single_layer(graph, part) for part in parts if part.block is not None
    }
    order = [id(x) for x in tree.layers]
    sizes = {dtype: _bytes_by_layer(order, weights) for dtype, weights in bytes_by_dtype.items()}
    index_of: dict[str, int] = {}
    distinct_layers: list[dict[str, Any]] = []
    order_of_layers = []
    for i, kind in enumerate(order):
        one = layer_of_block[kind]
        layer = one | {
            "of": {
                dtype: [str(each[i].get(path, 0)) for path in one["paths"]]
                for dtype, each in sizes.items()
            }
        }
        key = repr(layer)
        if key not in index_of:
            index_of[key] = len(distinct_layers)
            distinct_layers.append(layer)
        order_of_layers.append(index_of[key])
    listed = {"kinds": distinct_layers, "order": _runs(order_of_layers, tree.layers.n)}
    if (arrangement := tree.layers.arrangement) is None:
        return listed
    # in a format some layers of a block may differ: each as the first one with its block
    first = dict(zip(reversed(order), reversed(order_of_layers), strict=True))
    alike = arrangement.map(lambda block: first[id(block)])
    return listed | {"alike": Arranged([first[x] for x in order], alike, as_number(tree.layers.n))}


def _runs(order: list[int], layers: int) -> list[int]:
    """Return the indices; of equal layers, as one repeated."""
    return Repeated([(order[0], layers)]) if len(set(order)) == 1 else order


def _bytes_by_layer(
    order: Sequence[int], weights: Sequence[_WeightBytes]
) -> list[Mapping[str, int]]:
    """Return the bytes of each layer, weight by weight."""
    shared: dict[int, Counter[str]] = {}
    per_layer = [Counter[str]() for _ in order]
    for x in weights:
        if x.layer is not None:
            per_layer[x.layer][x.key[0]] += x.bytes
        elif x.part.block is not None:
            shared.setdefault(id(x.part.block), Counter())[x.key[0]] += x.bytes // x.part.times
    return [per_layer[i] + shared.get(block_id, Counter()) for i, block_id in enumerate(order)]


def _single_layer(graph: Graph, part: _Part) -> dict[str, Any]:
    """Return the weights and the cache of one layer of a kind."""
    return {
        "paths": list(dict.fromkeys(_key(part, x)[0] for x in part.leaves if not x.weight.tied)),
        "cache": _sum_json([x["form"] for x in _cache_of_part(graph, part._replace(times=1))]),
    }


def _sum_json(parts: list[Json]) -> Json:
    return ["+", *parts] if parts else 0


def component_bytes(tiles: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the bytes of each component of the weights, by dtype; in the order in which tokens
    pass them.
    """
    order = (
        "vision",
        "audio",
        "projector",
        "embedding",
        "attention",
        "mixer",
        "mlp",
        "router",
        "experts",
        "norm",
        "other",
        "head",
    )
    found: dict[str, dict[str, int]] = {name: {} for name in order}
    for tile in tiles:
        sizes = found.setdefault(tile["group"], {})
        for dtype, kept in tile["kept"].items():
            sizes[dtype] = sizes.get(dtype, 0) + sum(n * each for _, n, each in kept)
    return {
        name: {dtype: str(n) for dtype, n in sizes.items()}
        for name, sizes in found.items()
        if any(sizes.values())
    }
