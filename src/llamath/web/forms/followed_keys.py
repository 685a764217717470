"""`followed_keys`: the keys of a config that are no dimensions and that the page of a model follows
all the same, each with what the page has to know for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any, TypeVar

from ...analysis.graph.node import Node
from ...analysis.graph.recorder import record
from ...analysis.learn.tour.attention_texts import scaled_angles
from ...analysis.storage.choose_storage import released_format
from ...analysis.understand.fact_sheet import activation_name, rope_words
from ...checkpoint.quantization import QUANTIZATION_KEYS
from ...checkpoint.quantization.weight_format import PLAIN_FORMATS, declared_weight_format
from ...config_keys import SYNONYMS
from ...core.attention_facts import AttentionWindow
from ...core.blocks import MLP, AttentionBase, Decoder
from ...core.config import ACTIVATIONS, HIDDEN_ACTS
from ...core.expr import Expr, as_number
from ...core.positions import Rope
from ...core.tree import Block, Stack, fold_blocks
from ...families.rope_shared import ROPE_TYPES
from ...loading import load_family
from ...model import FamilyModel
from ...utils.errors import LlamathError

CONTEXT, WINDOW = "context", "window"
"""The letters of the context and of the window that a config states."""
_THETA, _SCALING, _PARAMETERS = "rope_theta", "rope_scaling", "rope_parameters"
_ORIGINAL = "original_max_position_embeddings"
B = TypeVar("B", bound=Block)
_KINDS = ("default", "linear", "dynamic", "yarn", "llama3")
"""The kinds of rotary positions that a few numbers describe."""
_SAMPLES = {"theta": 33.0, "factor": 55.0, "original_context": 77}
"""Numbers in whose place those of a config are written."""
_DTYPES = ("float32", "bfloat16", "float16")
"""In the order in which a page has them after the first."""


def names_of(key: str) -> list[str]:
    """Return a key and its synonyms."""
    return [key, *(name for name, meant in SYNONYMS.items() if meant == key)]


def with_key_letters(model: FamilyModel) -> FamilyModel:
    """Return a model whose context and window are numbers that follow their letters, where a config
    key alone states them.
    """
    tree = model.tree
    if context_key(model):
        tree = tree.replace(context=as_number(Expr(CONTEXT, int(tree.context or 0))))
    if window_key(model):
        tree = with_window(tree, as_number(Expr(WINDOW, *_windows(tree))))
    return model.replace(tree=tree)


def context_key(model: FamilyModel) -> str:
    """Return the key that states the context and nothing else; empty if there is none."""
    n, dimensions = model.tree.context, set(model.config.key_by_symbol.values())
    if n is None or any(x.depends_on_length for x in _ropes(model.tree)):
        return ""
    for key in names_of("max_position_embeddings"):
        if model.config.data.get(key) == n and key not in dimensions:
            other = _try_load(model, {key: int(n) + 1})
            if other is not None and other.tree.context == n + 1:
                return key
    return ""


def window_key(model: FamilyModel) -> str:
    """Return the key that states the one window of a model and nothing else; empty if there is
    none.
    """
    windows, tree = _windows(model.tree), model.tree
    if len(windows) != 1 or tree.is_multimodal:
        return ""
    (n,) = windows
    for key in names_of("sliding_window"):
        if model.config.data.get(key) == n or key in model.config.defaults_used:
            others = [(x, _try_load(model, {key: x})) for x in (n + 1, 2 * n)]
            if all(y is not None and y.tree == with_window(tree, x) for x, y in others):
                return key
    return ""


def _windows(tree: Decoder) -> set[int]:
    """Return the sizes of the sliding windows of a model's layers."""
    blocks = [x.block for x in fold_blocks(tree) if isinstance(x.block, AttentionBase)]
    return {x.window.size for x in blocks if x.window.size is not None}


def with_window(block: B, size: int) -> B:
    """Return a block in which each sliding window has this size."""

    def changed(x: Any) -> Any:
        if isinstance(x, Stack):
            return x.with_blocks(changed)
        if isinstance(x, AttentionWindow):
            return x if x.size is None else x.replace(size=size)
        if not isinstance(x, Block):
            return x
        made = {name: changed(y) for name, y in zip(x.fields, x.values(), strict=True)}
        return x if all(made[y] is getattr(x, y) for y in made) else x.replace(**made)

    found: B = changed(block)
    return found


def followed_keys(model: FamilyModel) -> dict[str, Any]:
    """Return what of a config the page of a model follows: `context` and `window` by their keys,
    `rope` with the base of a config without one, `act` by its key, `dtypes` by their names unless
    weights are quantized; `words` are pairs of a text of the model and one in its place.
    """
    released = released_format(model)
    is_plain = released is not None and released.name in PLAIN_FORMATS
    return {
        "context": context_key(model),
        "window": window_key(model),
        "rope": _rope(model),
        "act": next(_activations(model), None),
        "dtypes": {x: declared_weight_format({"dtype": x}).name for x in _DTYPES}
        if is_plain
        else None,
        "packed": list(QUANTIZATION_KEYS),
    }


def scalings() -> dict[str, dict[str, Any]]:
    """Return the kinds of rotary positions that the page follows: the words of the library with
    `{theta}`, `{factor}` and `{original_context}`, the sentence of the tour, and the keys that it
    reads.
    """
    found = {}
    for name in _KINDS:
        rope, fields = _sample(name), ROPE_TYPES[name][1]
        words = rope_words(rope, None)
        for field, n in _SAMPLES.items():
            words = words.replace(f"{n:g}", f"{{{field}}}")
        keys = {"rope_type", "type", _THETA, _ORIGINAL, *fields} - {"original_context"}
        found[name] = {
            "words": words,
            "tour": scaled_angles(rope.scaling),
            "keys": sorted(keys),
        }
    return found


def _sample(name: str) -> Rope:
    kind, fields = ROPE_TYPES[name]
    values: dict[str, Any] = {x: n for x, n in _SAMPLES.items() if x in fields or x == "theta"}
    values |= {x: 1.0 for x in ("low_freq_factor", "high_freq_factor") if x in fields}
    made: Rope = kind(**{**values, "dim": 4})
    return made


def _ropes(tree: Decoder) -> list[Rope]:
    blocks = (x.block for x in fold_blocks(tree) if isinstance(x.block, AttentionBase))
    return [rope for x in blocks if (rope := getattr(x, "rope", None)) is not None]


def _try_load(model: FamilyModel, changes: Mapping[str, Any]) -> FamilyModel | None:
    """Return the model with other keys, without those that are None here."""
    data = {key: x for key, x in {**model.config.data, **changes}.items() if x is not None}
    try:
        return load_family(data)
    except LlamathError:
        return None


def _rope(model: FamilyModel) -> dict[str, Any] | None:
    """Return the base of a config without one, where all attention rotates alike, by the usual
    keys.
    """
    own = _one(_ropes(model.tree))
    if own is None or model.tree.is_multimodal:
        return None
    sample = {"rope_type": "linear", "factor": 2.0}
    sharp = {"rope_type": "yarn", "factor": 8.0, "mscale": 2.0, "mscale_all_dim": 2.0}
    plain = {_SCALING: None, _PARAMETERS: None}
    tried = [
        _try_load(model, {_PARAMETERS: None, _THETA: 12345.0, _SCALING: sample}),
        _try_load(model, {**plain, _THETA: 12345.0}),
        _try_load(model, {**plain, _THETA: None}),
        _try_load(model, {_PARAMETERS: None, _SCALING: {**sharp, _ORIGINAL: 64}}),
    ]
    if len({str(_score_scales(x)) for x in tried if x is not None}) > 1:
        return None
    scaled, based, usual = (None if x is None else _one(_ropes(x.tree)) for x in tried[:3])
    if scaled is None or based is None or usual is None:
        return None
    follows = (
        scaled.theta == based.theta == 12345.0
        and getattr(scaled, "factor", None) == 2.0
        and scaled.dim == based.dim == usual.dim == own.dim
        and not (scaled.for_grids or based.scaling or usual.scaling)
    )
    if not follows:
        return None
    nodes = [x for _, x in record(model.tree).nodes() if x.attributes.get("rope") == own]
    return {
        "theta": usual.theta,
        "words": {
            name: list(_texts(nodes, "rope", _sample(name).replace(dim=own.dim))) for name in _KINDS
        },
    }


def _score_scales(model: FamilyModel) -> list[object]:
    """Return the factors of scores, which depend on the scaling of positions in some families."""
    nodes = (x for _, x in record(model.tree).nodes())
    return [y.scale for x in nodes if (y := x.attributes.get("transform")) is not None]


def _one(ropes: Iterable[Rope]) -> Rope | None:
    found = list(dict.fromkeys(ropes))
    return found[0] if len(found) == 1 else None


def _activations(model: FamilyModel) -> Iterator[dict[str, Any]]:
    """Yield the key of the activation with, for each other one that saves as much, texts in the
    place of others.
    """
    mlps = [x.block for x in fold_blocks(model.tree) if isinstance(x.block, MLP)]
    names = {x.activation for x in mlps}
    nodes = [x for _, x in record(model.tree).nodes() if x.attributes.get("activation") in names]
    if len(names) != 1 or not names <= HIDDEN_ACTS:
        return
    (own,) = names
    for key in names_of("hidden_act"):
        if key not in model.config.data and key not in model.config.keys_read:
            continue
        other = _try_load(model, {key: "gelu" if own != "gelu" else "silu"})
        if (
            other is None
            or {x.block.activation for x in fold_blocks(other.tree) if isinstance(x.block, MLP)}
            == names
        ):
            continue
        yield {
            "key": key,
            "own": own,
            "words": {
                name: [
                    *sorted(
                        {
                            (activation_name(x), activation_name(x.replace(activation=name)))
                            for x in mlps
                        }
                    ),
                    *_texts(nodes, "activation", name),
                ]
                for name in sorted(HIDDEN_ACTS)
                if ACTIVATIONS[name][4:] == ACTIVATIONS[own][4:] and name != own
            },
        }


def _texts(nodes: Iterable[Node], attribute: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the texts of steps with the texts under another value of an attribute."""
    pairs = set()
    for x in nodes:
        other = copy(x)
        other.attributes = {**x.attributes, attribute: value}
        if callable(words := x.op.description):
            pairs.add((words(x), words(other)))
    yield from sorted(x for x in pairs if x[0] != x[1])
