"""`FamilyShape`: the config key of each dimension of a family, and its total as a polynomial
that is checked against the tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....config_keys import SYNONYMS
from ....loading import load_family
from ....model import FamilyModel
from ....utils.errors import ConfigError, LlamathError
from ....utils.record_type import Record
from ...graph.recorder import record
from ...size.memory.cache_bytes import cache_specs
from .polynomial import Polynomial, active_polynomial, total_polynomial

_DIM_LETTERS = ("L", "d", "H", "K", "h", "F", "Fe")
_REQUIRED_LETTERS = ("L", "d", "H")
LAYER_ORDER_KEYS = (
    "layer_types",
    "no_rope_layers",
    "layers_block_type",
    "hybrid_override_pattern",
)
"""Config keys that list the layers one by one; without them, the family's own order applies to
any depth."""


class FamilyShape(Record):
    """The dimensions of a family that a design can change, and the total as their function."""

    data: Mapping[str, Any]  # the Hugging Face config that every candidate starts from
    keys: Mapping[str, str]  # letter → Hugging Face key
    sizes: Mapping[str, int]  # the template's dimensions
    ffn: str  # the letter of the FFN width that is searched
    total: Polynomial
    active: Polynomial
    # cached elements per token and layer; True: multiplied by KV heads and head_dim
    cached: tuple[int, bool]

    @property
    def grouped(self) -> bool:
        """Return whether the number of KV heads has its own config key."""
        return "K" in self.keys and self.keys["K"] != self.keys["H"]

    @property
    def has_expert_key(self) -> bool:
        """Return whether the width of an expert has its own key, moe_intermediate_size."""
        key = self.keys[self.ffn]
        return SYNONYMS.get(key, key) == "moe_intermediate_size"

    @property
    def vocab(self) -> int:
        """The vocabulary size."""
        return self.sizes["V"]

    def config(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Return the Hugging Face config of a design; head_dim is left out where it is width /
        heads.
        """
        config = {
            **self.data,
            **{
                self.keys[letter]: n
                for letter, n in sizes.items()
                if letter in self.keys and letter != "h"
            },
        }
        if (
            "h" in self.keys
            and "h" in sizes
            and (sizes["H"] * sizes["h"] != sizes["d"] or config.get("head_dim") is not None)
        ):
            config["head_dim"] = sizes["h"]
        return config

    def kv_elements(self, layers: int, kv_heads: int, head_dim: int) -> int:
        """Return the cached elements per token."""
        per, by_head = self.cached
        return per * layers * (kv_heads * head_dim if by_head else 1)


def family_shape(model: FamilyModel, changes: Mapping[str, Any]) -> FamilyShape:
    """Return the shape of a model's family with some keys changed; an error if the total is not
    a searchable polynomial.
    """
    data = {key: value for key, value in model.config.data.items() if key not in LAYER_ORDER_KEYS}
    if _load_base(model, data).parameters.total != model.parameters.total:
        # its layers differ, and their order at another depth is not known
        raise _unsearchable(model)
    data |= changes
    base = _load_base(model, data)
    letters = base.count.formula.letters
    keys = {
        letter: key
        for letter, key in base.config.key_by_symbol.items()
        if letter in (*_DIM_LETTERS, "V", "E", "k") and (letter in letters or letter == "k")
    }
    ffn = "Fe" if "Fe" in keys else "F"
    if any(x not in keys for x in (*_REQUIRED_LETTERS, ffn)):
        raise _unsearchable(base)
    free = {letter for letter in _DIM_LETTERS if letter in letters}
    shape = FamilyShape(
        data=data,
        keys=keys,
        sizes=letters,
        ffn=ffn,
        total=Polynomial.of(total_polynomial(base.count), free),
        active=Polynomial.of(active_polynomial(base.count, base.tree), free),
        cached=_cached(base),
    )
    _check_against_tree(shape, base)
    return shape


def _load_base(model: FamilyModel, data: Mapping[str, Any]) -> FamilyModel:
    try:
        return load_family(data)
    except ConfigError:
        if any(key in model.config.data for key in LAYER_ORDER_KEYS):
            raise _unsearchable(model) from None
        raise


def _check_against_tree(shape: FamilyShape, base: FamilyModel) -> None:
    """Check the polynomial against the tree at several points."""
    if not (shape.total.linear(shape.ffn) and shape.active.linear(shape.ffn)):
        raise _unsearchable(base)
    letters = {letter: shape.sizes[letter] for letter in _DIM_LETTERS if letter in shape.sizes}
    for sizes in (
        letters,
        letters | {"L": letters["L"] + 12},
        letters | {shape.ffn: 3 * letters[shape.ffn]},
        _doubled(letters),
    ):
        try:
            model = load_family(shape.config(sizes))
        except ConfigError:
            raise _unsearchable(base) from None
        at = (sizes["L"], sizes[shape.ffn])
        if shape.total.plane(sizes, shape.ffn).at(*at) != model.parameters.total:
            raise _unsearchable(base)
        if shape.active.plane(sizes, shape.ffn).at(
            *at
        ) != model.parameters.active or _tree_kv_elements(model) != _predicted_kv_elements(
            shape, sizes
        ):
            raise _unsearchable(base)


def _doubled(v: Mapping[str, int]) -> dict[str, int]:
    """Double the width and the heads."""
    return {**v, **{letter: 2 * v[letter] for letter in ("d", "H", "K") if letter in v}}


def _predicted_kv_elements(shape: FamilyShape, sizes: Mapping[str, int]) -> int:
    return shape.kv_elements(sizes["L"], sizes.get("K", 1), sizes.get("h", 1))


def _tree_kv_elements(model: FamilyModel) -> int:
    """The cached elements of one more token in all layers, while no sliding window is full."""
    return sum(int(x.layers) * sum(map(int, x.rows)) for x in cache_specs(record(model.tree)))


def _cached(base: FamilyModel) -> tuple[int, bool]:
    """Return `FamilyShape.cached` of the tree."""
    letters = base.count.formula.letters
    elements, layers = _tree_kv_elements(base), letters.get("L", 1)
    head_elements = letters.get("K", 0) * letters.get("h", 0)
    by_head = bool(head_elements) and elements % (layers * head_elements) == 0
    return (elements // (layers * head_elements), True) if by_head else (elements // layers, False)


def _unsearchable(base: FamilyModel) -> LlamathError:
    return LlamathError(
        f"design cannot search the {base.family.name} family: its total is not affine in layers "
        "and FFN width, each from one config key",
        hint="llama-3, qwen3, gemma-3, mixtral, deepseek-v3 and classic can be searched",
    )
