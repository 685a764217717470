"""Readers of what differs between layers: their types, flags and settings, and the stacks made
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from ..core.blocks import Layer, MoE
from ..core.config import Config
from ..core.expr import Expr
from ..core.tree import Block, Stack, cycle, repeat, sequence
from ..utils.errors import safe

MAX_LISTED_LAYERS = 65536
"""Upper limit of layers that are listed one by one."""


def check_listed(c: Config, n: int, key: str = "num_hidden_layers") -> None:
    """Refuse more layers than can be listed one by one."""
    if n > MAX_LISTED_LAYERS:
        raise c.error(key, f"is {n}: too many layers to list one by one")


def listed_layers(c: Config, n: int, key: str = "num_hidden_layers") -> range:
    """Return the numbers of n layers that are listed one by one."""
    check_listed(c, n, key)
    return range(n)


def layer_kinds(
    c: Config, n: int, kinds: Iterable[str], default: Callable[[int], str], key: str = "layer_types"
) -> list[str]:
    """Read the type of each of the n layers; without the key, `default` names the type of layer
    i.
    """
    if key in c:
        return read_layer_types(c, n, kinds, key)
    check_listed(c, n)
    return [default(i) for i in range(n)]


def read_layer_types(
    c: Config, n: int, kinds: Iterable[str], key: str = "layer_types"
) -> list[str]:
    """Read the type of each of the n layers."""
    types: list[str] = c[key]
    key = next((x for x in key.split("|") if x in c), key)
    if not isinstance(types, list) or len(types) != n:
        raise c.error(
            key, f"should be a list of {n} layers", f"{key}=null takes the family's own order"
        )
    if unknown := [x for x in types if x not in list(kinds)]:
        raise c.error(
            key, f"has the unknown type {safe(repr(unknown[0]), 60)}", f"known: {', '.join(kinds)}"
        )
    return types


def mlp_kinds(c: Config, n: int, first: int) -> list[str]:
    """Read which of the n layers are dense and which are sparse; without `mlp_layer_types`,
    those from number `first` on are sparse.
    """
    return layer_kinds(
        c, n, ("dense", "sparse"), lambda i: "dense" if i < first else "sparse", "mlp_layer_types"
    )


def layer_flags(
    c: Config, key: str, n: int, default: Callable[[int], bool]
) -> Callable[[int], bool]:
    """Return which of the n layers have a flag: those with 1 in a list of 1 and 0 for each
    layer; without the key, as `default` says.
    """
    if key not in c:
        return default
    flags: list[int] = c[key]
    if not isinstance(flags, list) or len(flags) != n or any(x not in (0, 1) for x in flags):
        raise c.error(key, f"should be a list with 1 or 0 for each of {n} layers")
    return lambda i: flags[i] == 1


def layer_numbers(c: Config, key: str, default: Iterable[int] = ()) -> list[int]:
    """Read a list of layers by number."""
    numbers = c.get(key, list(default))
    if any(type(x) is not int for x in numbers):
        raise c.error(key, "should list layers by number")
    return numbers


def ints_by_layer(c: Config, key: str, n: int, default: int) -> list[int]:
    """Read a positive integer for each of the n layers."""
    if key not in c:
        return [default] * min(int(n), MAX_LISTED_LAYERS + 1)
    values: list[int] = c[key]
    if (
        not isinstance(values, list)
        or len(values) != n
        or any(type(x) is not int or x < 1 for x in values)
    ):
        raise c.error(key, f"should be a list of {n} positive integers, one for each layer")
    return values


def settings_of_layers(c: Config, types: list[str], kind: str) -> Config | None:
    """Return what `per_layer_config` sets for the layers of a type, which all have the same
    settings, and other layers none.

    transformers 5 saves it where layers differ; None: without that key, or where no layer differs.
    """
    configs, numbers = c.sub("per_layer_config"), [i for i, x in enumerate(types) if x == kind]
    if not configs.data:
        return None
    # transformers writes "5" or "05"
    listed = {int(key): key for key in configs.data if key.isdecimal() and len(key) < 10}
    settings = list(configs.data.values())
    if (
        sorted(listed) != numbers
        or len(listed) < len(settings)
        or any(x != settings[0] for x in settings)
    ):
        raise c.error(
            "per_layer_config",
            f"should have the same settings for each layer of {kind}, and none for other layers",
        )
    configs.ignore(*listed.values())
    return configs.sub(listed[numbers[0]])


def numbered(symbol: str, values: Iterable[int]) -> dict[int, Expr]:
    """Return a dimension for each of these values: with the letter alone if there is one, else
    numbered in order, like F1, F2.
    """
    distinct = list(dict.fromkeys(values))
    return {
        x: Expr(symbol if len(distinct) == 1 else f"{symbol}{i}", x)
        for i, x in enumerate(distinct, 1)
    }


def layers_from(
    layer: Callable[..., Block], *facts: Iterable[Any], count_dim: int | None = None
) -> Stack:
    """Return the layers that `layer` makes, each of its entry in every list of facts; layers
    with the same facts are one block.
    """
    known = cache(layer)
    return sequence((known(*row) for row in zip(*facts, strict=True)), count_dim=count_dim)


def layers_by_type(
    c: Config, n: int, kinds: Mapping[str, Block], default: Stack, key: str = "layer_types"
) -> Stack:
    """Return the layers in the order of `layer_types`; without that key, in the family's own
    order.
    """
    return (
        sequence((kinds[x] for x in read_layer_types(c, n, kinds, key)), count_dim=n)
        if key in c
        else default
    )


def layers_at(c: Config, n: int, key: str, listed: Block, other: Block) -> Stack:
    """Return n layers, of which `key` lists some by number."""
    boundaries = (-1, *sorted(i for i in set(layer_numbers(c, key)) if 0 <= i < n), int(n))
    runs = [run for a, b in pairwise(boundaries) for run in (((other,), b - a - 1), ((listed,), 1))]
    return Stack(*runs[:-1], count_dim=n)


def alternating(c: Config, n: int, windowed: Block, full: Block, nth: int) -> Stack:
    """Return layers with a window, every nth without one, unless `layer_types` gives another
    order.
    """
    if nth < 1:
        raise c.error("sliding_window_pattern", f"should be a positive integer, not {nth}")
    return layers_by_type(
        c,
        n,
        {"sliding_attention": windowed, "full_attention": full},
        every_nth(nth, full, windowed, n),
    )


def every_nth(nth: int, other: Block, default: Block, n: int) -> Stack:
    """Return n layers in which every nth is `other`, stored compactly even for large numbers."""
    whole, rest = divmod(int(n), nth)
    if nth <= whole:
        return cycle((*(default,) * (nth - 1), other), n)
    return (
        Stack(*(((default,), nth - 1), ((other,), 1)) * whole, ((default,), rest), count_dim=n)
        if whole
        else repeat(default, n)
    )


def layers_with_late_windows(
    c: Config, n: int, layer: Callable[[int | None], Layer], full: int = 28
) -> Stack:
    """Return Qwen's layers: with `use_sliding_window`, those from `max_window_layers` on have a
    window.
    """
    first, window = min(n, c.get("max_window_layers", full)), c.nullable("sliding_window", 4096)
    early = late = layer(None)
    order = repeat(early, n)
    if c.get("use_sliding_window", False):
        late = layer(window)
        order = Stack(((early,), first), ((late,), n - first), count_dim=n)
    return layers_by_type(c, n, {"full_attention": early, "sliding_attention": late}, order)


def with_experts(c: Config, layers: Stack, moe: MoE, sparse: Iterable[bool]) -> Stack:
    """Return the layers with experts instead of the MLP where `sparse` says so, layer by layer."""
    check_listed(c, layers.n)
    with_moe = {id(x): x.replace(mlp=moe) for x, _ in layers.distinct()}
    return sequence(
        (with_moe[id(x)] if y else x for x, y in zip(layers, sparse, strict=True)),
        count_dim=layers.count_dim or layers.n,
    )


def dense_first(c: Config, dense: Layer, sparse: Layer, default: int) -> Stack:
    """Return `first_k_dense_replace` dense layers, then sparse ones."""
    if c.get("moe_layer_freq", 1) != 1:
        raise c.error(
            "moe_layer_freq",
            f"is {c['moe_layer_freq']!r}; only 1 is supported",
            "every layer after the first dense layers is sparse",
        )
    L = c.dim("L", "num_hidden_layers")
    first = min(c.dim("dense", "first_k_dense_replace", default=default, least=0).plain(), L)
    return Stack(((dense,), first), ((sparse,), L - first))


def dense_or_sparse(c: Config, dense: Layer, sparse: Layer, default: int = 1) -> Stack:
    """Return the layers in the order of `mlp_layer_types`; without that key, all but the first
    are sparse.
    """
    if "mlp_layer_types" not in c:
        return dense_first(c, dense, sparse, default)
    c.ignore("first_k_dense_replace", "moe_layer_freq")
    L, kinds = c.dim("L", "num_hidden_layers"), {"dense": dense, "sparse": sparse}
    return sequence(
        (kinds[x] for x in read_layer_types(c, L, kinds, "mlp_layer_types")), count_dim=L
    )
