"""`Shape`: a family as the search sees it: the config key of each letter, and the total as a polynomial that is held against the tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.errors import ConfigError, LlamathError
from ...core.record_type import Record
from ...loading import load
from ...model import Model
from ..inference.cache_bytes import cache_specs
from .polynomial import Polynomial, active_polynomial, total_polynomial

DIM_LETTERS = ("L", "d", "H", "K", "h", "F", "Fe")
REQUIRED_LETTERS = ("L", "d", "H")
LAYER_ORDER_KEYS = ("layer_types", "no_rope_layers", "layers_block_type", "hybrid_override_pattern")
"""Keys that list the layers one by one: without them the family has an order of its own for any number."""


class FamilyShape(Record):
    """What a design of a family can change, and what its total is then."""

    data: Mapping[str, Any]  # HF keys that every candidate starts from
    keys: Mapping[str, str]  # letter → HF key
    sizes: Mapping[str, int]  # of the template
    ffn: str  # the letter of the feed-forward width that is searched
    total: Polynomial
    active: Polynomial
    cached: tuple[int, bool]  # elements remembered for a token: so many for each layer, or for each layer, KV head and number of a head

    @property
    def grouped(self) -> bool:
        """Whether KV heads have a key of their own."""
        return "K" in self.keys and self.keys["K"] != self.keys["H"]

    @property
    def vocab(self) -> int:
        """The rows of the embedding."""
        return self.sizes["V"]

    def config(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The HF keys of a candidate; the size of a head is left out where it is width / heads."""
        made = {**self.data, **{self.keys[letter]: n for letter, n in sizes.items() if letter in self.keys and letter != "h"}}
        if "h" in self.keys and "h" in sizes and (sizes["H"] * sizes["h"] != sizes["d"] or made.get("head_dim") is not None):
            made["head_dim"] = sizes["h"]
        return made

    def kv_elements(self, layers: int, kv_heads: int, head_dim: int) -> int:
        """Numbers remembered for each token."""
        per, by_head = self.cached
        return per * layers * (kv_heads * head_dim if by_head else 1)


def family_shape(model: Model, changes: Mapping[str, Any]) -> FamilyShape:
    """The shape of a model's family, with some keys changed; refused where the total is no polynomial that could be searched."""
    data = {**{key: value for key, value in model.config.data.items() if key not in LAYER_ORDER_KEYS}, **changes}
    base = _load_base(model, data)
    letters = base.count.formula.letters
    keys = {
        letter: key
        for letter, key in base.config.key_by_symbol.items()
        if letter in (*DIM_LETTERS, "V", "E", "k") and (letter in letters or letter == "k")
    }
    ffn = "Fe" if "Fe" in keys else "F"
    if any(x not in keys for x in (*REQUIRED_LETTERS, ffn)):
        raise _unsearchable(base)
    free = {letter for letter in DIM_LETTERS if letter in letters}
    made = FamilyShape(
        data=data,
        keys=keys,
        sizes=letters,
        ffn=ffn,
        total=Polynomial.of(total_polynomial(base.count), free),
        active=Polynomial.of(active_polynomial(base.count, base.tree), free),
        cached=_cached(base),
    )
    _check_against_tree(made, base)
    return made


def _load_base(model: Model, data: Mapping[str, Any]) -> Model:
    try:
        return load(data)
    except ConfigError:
        if any(key in model.config.data for key in LAYER_ORDER_KEYS):
            raise _unsearchable(model) from None
        raise


def _check_against_tree(found: FamilyShape, base: Model) -> None:
    """Hold the polynomial against the tree at points of its own."""
    if not (found.total.linear(found.ffn) and found.active.linear(found.ffn)):
        raise _unsearchable(base)
    v = {letter: found.sizes[letter] for letter in DIM_LETTERS if letter in found.sizes}
    for sizes in (v, v | {"L": v["L"] + 12}, v | {found.ffn: 3 * v[found.ffn]}, _doubled(v)):
        try:
            model = load(found.config(sizes))
        except ConfigError:
            raise _unsearchable(base) from None
        at = (sizes["L"], sizes[found.ffn])
        if found.total.plane(sizes, found.ffn).at(*at) != model.parameters.total:
            raise _unsearchable(base)
        if found.active.plane(sizes, found.ffn).at(*at) != model.parameters.active or _tree_kv_elements(model) != _predicted_kv_elements(
            found, sizes
        ):
            raise _unsearchable(base)


def _doubled(v: Mapping[str, int]) -> dict[str, int]:
    """Twice the width with twice the heads."""
    return {**v, **{letter: 2 * v[letter] for letter in ("d", "H", "K") if letter in v}}


def _predicted_kv_elements(found: FamilyShape, sizes: Mapping[str, int]) -> int:
    return found.kv_elements(sizes["L"], sizes.get("K", 1), sizes.get("h", 1))


def _tree_kv_elements(model: Model) -> int:
    """Numbers that one more token leaves behind, in all layers together, as long as no window is full."""
    return sum(int(x.layers) * sum(map(int, x.rows)) for x in cache_specs(model.tree))


def _cached(base: Model) -> tuple[int, bool]:
    """What the tree's cache is proportional to."""
    v = base.count.formula.letters
    whole, layers = _tree_kv_elements(base), v.get("L", 1)
    each = v.get("K", 0) * v.get("h", 0)
    by_head = bool(each) and whole % (layers * each) == 0
    return (whole // (layers * each), True) if by_head else (whole // layers, False)


def _unsearchable(base: Model) -> LlamathError:
    return LlamathError(
        f"design cannot search the {base.family.name} family: its total is not affine in layers and feed-forward width, each from one key",
        hint="--like llama-3, qwen3, gemma-3, mixtral, deepseek-v3 or classic can be searched",
    )
