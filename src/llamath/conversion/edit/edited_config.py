"""`edit_config`: the config.json of an edited model, checked against the edited tree.

A config can express an edit if the family builds the edited tree from it. Lists with one entry per
layer are sliced, lists of layers' numbers are renumbered, and where a pattern (every sixth layer,
…) no longer describes the layers, they are listed one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import sqrt
from typing import Any

from ...checkpoint.quantization import QUANTIZATION_KEYS
from ...config_keys import any_name
from ...core.blocks import AttentionBase, Decoder, MoE
from ...core.mixers import RecurrentMixer, ShortConv
from ...core.tree import Block
from ...families.multimodal_registry import TEXT_KEYS
from ...loading import load_family
from ...model import FamilyModel
from ...utils.errors import ConvertError, LlamathError, safe
from .edited_tree import TreeEdit, equal_trees

Keys = dict[str, Any]

_PER_LAYER = """layer_types layers_block_type hybrid_override_pattern block_types attn_type_list
    attention_layers mlp_layer_types no_rope_layers rope_layers layer_rope_theta
    sliding_window_layers indexer_types index_topk_pattern num_attention_heads_per_layer
    swiglu_limits swiglu_limits_shared partial_rotary_factors rope_theta intermediate_size
    activation_sparsity_pattern block_configs ffn_multipliers hybrid_layer_pattern moe_layer_freq
    num_kv_heads num_query_heads""".split()
"""Keys with one entry (of a list or a text) for each layer."""
_LAYER_NUMBERS = (
    "mlp_only_layers full_attn_idxs moe_layers attn_layer_indices local_layer_ids "
    "cross_attention_layers hybrid_layer_ids".split()
)
"""Keys with a list of layers' numbers."""
_FIRST_LAYERS = "first_k_dense_replace num_dense_layers max_window_layers dense_mlp_idx".split()
"""Keys with the number of layers at the start that differ."""
_LAST_LAYERS = ("num_kv_shared_layers",)
"""Keys with the number of layers at the end that differ."""
_BY_LAYER = ("per_layer_config",)
"""Keys with an object by layer number."""


class LayerNumbers:
    """Renumbers layers in module names of a quantization recipe."""

    def __init__(self, edit: TreeEdit, layer_word: str) -> None:
        self._layers = (
            None if edit.layers is None else {old: new for new, old in enumerate(edit.layers)}
        )
        self._layer = re.compile(rf"(?<![\w])({re.escape(layer_word)}\.)(\d{{1,9}})(?![\w])")

    def rename(self, text: str) -> str | None:
        """Return a name with the layer's new number; None if the layer is gone."""
        if self._layers is None or (match := self._layer.search(text)) is None:
            return text
        number = self._layers.get(int(match[2]))
        return (
            None
            if number is None
            else f"{text[: match.start()]}{match[1]}{number}{text[match.end() :]}"
        )

    def rename_all(self, value: Any) -> Any:
        """Return a section of a config with the names in it renamed, and those of removed
        modules left out.
        """
        if isinstance(value, str):
            return self.rename(value)
        if isinstance(value, list):
            renamed = [self.rename_all(x) for x in value]
            return [
                new
                for new, old in zip(renamed, value, strict=True)
                if new is not None or old is None
            ]
        if isinstance(value, Mapping):
            pairs = ((self.rename(key), self.rename_all(x)) for key, x in value.items())
            return {key: x for key, x in pairs if key is not None}
        return value


def edit_config(model: FamilyModel, stored: Keys, tree: Decoder, edit: TreeEdit) -> Keys:
    """Return the keys of the new config.json, from which the family builds the edited tree."""
    reason = ""
    for keys in _candidates(model, stored, tree, edit):
        try:
            edited = load_family(keys).text
        except LlamathError as error:
            reason = reason or f": {error}"
            continue
        if equal_trees(edited.tree, tree):
            return keys
    reason = reason or _first_difference(model, stored, tree, edit)
    raise ConvertError(
        f"a config of the {model.family.name} family cannot express this edit{reason}"
    )


def _candidates(model: FamilyModel, stored: Keys, tree: Decoder, edit: TreeEdit) -> Iterator[Keys]:
    """Yield configs that may describe the tree: with the patterns of the original, then with
    layers listed one by one.
    """
    base = _edit_keys(model, stored, edit)
    yield base
    if edit.layers is None:
        return
    lists = _layer_lists(model, tree)
    for chosen in product((False, True), repeat=len(lists)):
        if any(chosen):
            added = {
                key: x
                for take, keys in zip(chosen, lists, strict=True)
                if take
                for key, x in keys.items()
            }
            yield _with_text_keys(base, added)


def _first_difference(model: FamilyModel, stored: Keys, tree: Decoder, edit: TreeEdit) -> str:
    """Describe the first layer that the config with the original's patterns describes otherwise."""
    built = load_family(_edit_keys(model, stored, edit)).text.tree
    for new, (a, b) in enumerate(zip(built.layers, tree.layers, strict=False)):
        if a != b:
            old = edit.layers[new] if edit.layers is not None else new
            return (
                f": layer {new}, layer {old} of the original, would have another "
                f"{_differing_field(a, b)}"
            )
    return ": it would describe another model"


def _differing_field(a: Block, b: Block) -> str:
    """Return the path of the first field in which two blocks differ."""
    if type(a) is not type(b):
        return type(b).__name__
    name = next(x for x in b.fields if getattr(a, x) != getattr(b, x))
    inner = getattr(a, name), getattr(b, name)
    if (
        isinstance(inner[0], Block)
        and isinstance(inner[1], Block)
        and type(inner[0]) is type(inner[1])
    ):
        return f"{name}.{_differing_field(*inner)}"
    return name


def _edit_keys(model: FamilyModel, stored: Keys, edit: TreeEdit) -> Keys:
    """Return the keys with the numbers of the edits, in the order in which they are stored."""
    text_key = _text_key(stored)
    text = dict(stored[text_key]) if text_key else dict(stored)
    changes: Keys = {}
    if edit.layers is not None:
        changes |= _layer_keys(model, text, edit.layers)
    if edit.vocab is not None:
        changes |= _renamed_number(model, text, "V", "vocab_size", edit.vocab)
    keys = _with_text_keys(stored, changes)
    if text_key and edit.vocab is not None and keys.get("vocab_size") == int(model.tree.vocab):
        keys["vocab_size"] = edit.vocab
    names = LayerNumbers(edit, model.family.hf.layer.rstrip(".").split(".")[-2])
    for part in (keys, keys[text_key]) if text_key else (keys,):
        for key in QUANTIZATION_KEYS:
            if isinstance(part.get(key), Mapping):
                part[key] = names.rename_all(part[key])
    return keys


def _text_key(stored: Keys) -> str:
    return next((x for x in TEXT_KEYS if isinstance(stored.get(x), Mapping)), "")


def _with_text_keys(stored: Keys, changes: Keys) -> Keys:
    """Return the config with keys of the text model changed."""
    text_key = _text_key(stored)
    return (
        {**stored, text_key: {**stored[text_key], **changes}} if text_key else {**stored, **changes}
    )


def _renamed_number(model: FamilyModel, text: Keys, symbol: str, key: str, value: int) -> Keys:
    """Return a number under each of its names in the config; if it has none, under the one that
    the family reads.
    """
    read = model.config.key_by_symbol.get(symbol, key)
    present = [
        x
        for x in dict.fromkeys((read, *any_name(key).split("|")))
        if text.get(x) is not None and type(text[x]) is int
    ]
    return dict.fromkeys(present or [read], value)


def _layer_keys(model: FamilyModel, text: Keys, layers: Sequence[int]) -> Keys:
    """Return the keys on layers after some are dropped."""
    old = int(model.tree.layers.n)
    changes: Keys = {}
    if "L" in model.config.key_by_symbol or any(
        x in text for x in any_name("num_hidden_layers").split("|")
    ):
        changes |= _renamed_number(model, text, "L", "num_hidden_layers", len(layers))
    for key in _PER_LAYER:
        if isinstance(value := text.get(key), list | str) and len(value) >= old:
            sliced = [value[i] for i in layers]
            changes[key] = "".join(sliced) if isinstance(value, str) else sliced
    for key in _LAYER_NUMBERS:
        if isinstance(value := text.get(key), list):
            changes[key] = [new for new, i in enumerate(layers) if i in value]
    for key in _FIRST_LAYERS:
        if type(value := text.get(key)) is int and value < old:
            changes[key] = sum(i < value for i in layers)
    for key in _LAST_LAYERS:
        if type(value := text.get(key)) is int and value:
            changes[key] = sum(i >= old - value for i in layers)
    factor = text.get("scale_depth", model.config.defaults_used.get("scale_depth"))
    if isinstance(factor, int | float):  # divided by √L (MiniCPM)
        changes["scale_depth"] = factor * sqrt(len(layers) / old)
    for key in _BY_LAYER:
        if isinstance(value := text.get(key), Mapping):
            # "5" or "05"
            by_number = {
                int(x): settings for x, settings in value.items() if x.isdecimal() and len(x) < 10
            }
            changes[key] = {
                str(new): by_number[i] for new, i in enumerate(layers) if i in by_number
            }
    return changes


def _layer_lists(model: FamilyModel, tree: Decoder) -> list[Keys]:
    """Return the lists that describe the layers one by one, of those that the family reads."""
    layers, read = list(tree.layers), model.config.keys_read
    mixers = [getattr(x, "attn", None) for x in layers]
    sparse = [_is_sparse(x) for x in layers]
    numbers = range(len(layers))
    lists: list[Keys] = []
    if "layer_types" in read and "layers_block_type" not in read:
        lists.append({"layer_types": [_layer_type(x) for x in mixers]})
    if "no_rope_layers" in read:
        lists.append(
            {
                "no_rope_layers": [
                    int(isinstance(x, AttentionBase) and x.rope is not None) for x in mixers
                ]
            }
        )
    if "mlp_only_layers" in read and "decoder_sparse_step" in read:
        lists.append(
            {"mlp_only_layers": [i for i in numbers if not sparse[i]], "decoder_sparse_step": 1}
        )
    if "mlp_layer_types" in read:
        lists.append({"mlp_layer_types": ["sparse" if x else "dense" for x in sparse]})
    if "indexer_types" in read:
        lists.append(
            {"indexer_types": ["full" if getattr(x, "indexer", None) else "shared" for x in mixers]}
        )
    if "moe_layer_start_index" in read:
        lists += _moe_interval(sparse)
    if "attention_types" in read:
        lists.append(
            {
                "attention_types": [
                    [["global" if _layer_type(x) == "full_attention" else "local"], 1]
                    for x in mixers
                ]
            }
        )
    if "moe_layers" in read:
        lists.append({"moe_layers": [i for i in numbers if sparse[i]]})
    return lists


def _moe_interval(sparse: Sequence[bool]) -> list[Keys]:
    """Return the keys for every nth layer from a first to a last one, if that describes the
    layers with experts (ERNIE).
    """
    numbers = [i for i, x in enumerate(sparse) if x] or [len(sparse)]
    first, last = numbers[0], numbers[-1]
    for every in range(1, len(sparse) + 1):
        if numbers == [i for i in range(first, last + 1) if (i + 1) % every == 0]:
            return [
                {
                    "moe_layer_start_index": first,
                    "moe_layer_end_index": last,
                    "moe_layer_interval": every,
                }
            ]
    return []


def _layer_type(mixer: object) -> str:
    """Return the entry of `layer_types` for a mixer."""
    if isinstance(mixer, AttentionBase):
        window = mixer.window
        return (
            "sliding_attention"
            if window.size is not None
            else "chunked_attention"
            if window.chunk is not None
            else "full_attention"
        )
    return (
        "conv"
        if isinstance(mixer, ShortConv)
        else "linear_attention"
        if isinstance(mixer, RecurrentMixer)
        else "full_attention"
    )


def _is_sparse(layer: Block) -> bool:
    mlp = getattr(layer, "mlp", None)
    return isinstance(mlp, MoE) or isinstance(getattr(mlp, "moe", None), MoE)


def special_token_ids(keys: Mapping[str, Any], where: str) -> Iterator[tuple[int, str]]:
    """Yield the ids of special tokens in a config, with the names of their keys."""
    for key, value in keys.items():
        if isinstance(value, Mapping) and key.endswith("_config"):
            yield from special_token_ids(value, f"{where}{safe(key, 60)}.")
        elif re.fullmatch(r"\w*token_(id|ids|index)", key):
            ids = value if isinstance(value, list) else [value]
            yield from ((x, f"{where}{safe(key, 60)}") for x in ids if type(x) is int and x >= 0)
