"""Quantization recipes: what a `quantization_config` declares for each matrix of a model: its
stored format, or why it stays unquantized.

`read_recipe` reads the config of any producer. A recipe is a list of rules, of which the first that
applies to a matrix chooses. A recipe that is not known is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ...utils.errors import UnknownQuantization
from ...utils.record_type import Record
from .matrix_formats import Axis, MatrixFormat
from .registry import producer_of_method
from .shared.name_patterns import NamePatterns, like_transformers
from .shared.recipe_keys import counted_or_given, strings, unknown

Keys = Mapping[str, Any]

_PREFIXES = (
    "model.language_model.",
    "language_model.model.",
    "language_model.",
    "model.",
    "backbone.",
    "transformer.",
)
"""Prefixes of text models' module names, longest first; recipes use any of them, also where the
tensors have another."""


class Matrix(NamedTuple):
    """A matrix that a recipe may quantize."""

    names: tuple[str, ...]  # of its module: as stored, then with other prefixes
    kind: str  # linear, expert, head, embedding, router or other
    in_gate_class: bool = False  # a router whose class is not a linear layer
    # a linear layer that transformers' class of the model excepts from quantization
    is_excepted: bool = False


def module_names(name: str) -> tuple[str, ...]:
    """Return a module's stored name, and the names that recipes use for it."""
    core = without_prefix(name)
    names = (name, *(f"{x}{core}" for x in _PREFIXES), *(() if "." in core else (core,)))
    return tuple(dict.fromkeys(names))


def without_prefix(name: str) -> str:
    """Return a module's name without the prefix of text models."""
    return next((name.removeprefix(x) for x in _PREFIXES if name.startswith(x)), name)


class Choice(NamedTuple):
    """The stored format of a matrix, or the reason why it stays unquantized."""

    format: MatrixFormat | None
    reason: str = ""


class CacheScales(NamedTuple):
    """Scales of a KV cache that are stored in each attention block, for keys and for values."""

    dtype: str
    # named after the projections, `k_proj.k_scale`; else after the block, `self_attn.k_scale`
    in_projections: bool
    shape: tuple[Axis, ...] = ()  # `out` is the number of KV heads

    def lengths(self, kv_heads: int) -> tuple[int, ...]:
        """Return the shape of one scale."""
        return tuple(x.length(kv_heads, 0) for x in self.shape)


Rule = Callable[[Matrix], Choice | None]
"""The choice for a matrix; None if the rule does not apply to it."""


class Recipe(Record):
    """What a quantization config declares for each matrix."""

    method: str  # quant_method, or the library
    name: str  # of the formats, as shown for the weights' dtype
    rules: tuple[Rule, ...]  # the last one applies to everything
    patterns: tuple[str, ...] = ()  # those that it matches names with
    default_dtype: str = ""  # of unquantized weights, where it is not the model's own
    kv_cache: str = ""  # the number format that it declares for the KV cache
    cache_scales: CacheScales | None = None  # those that its quantizer stores
    notes: tuple[str, ...] = ()
    table: tuple[str, ...] = ()  # the formats that a table of layers names
    # the module of experts that are stored as one tensor; empty: they are stored one by one
    expert_stack: str = ""
    is_seen: bool = False  # loaders look at the tensors to tell what is quantized

    def choose(self, x: Matrix) -> Choice:
        """Return the choice for a matrix."""
        return next(choice for rule in self.rules if (choice := rule(x)) is not None)

    @cached_property
    def names_experts(self) -> bool:
        """Whether it treats experts of a layer one by one."""
        return any(re.search(_EXPERT, x) for x in self.patterns)


_EXPERT = r"expert(?:(?!expert)\w)*+\W{1,3}(?:\d|\[|\()"


# Rules that several producers have


def keep(reason: str, *kinds: str) -> Rule:
    """Leave matrices of these kinds unquantized."""
    return lambda x: Choice(None, reason) if x.kind in kinds else None


NOT_LINEAR = "not a linear layer"


def linear_only(x: Matrix) -> Choice | None:
    """Leave unquantized whatever is no linear layer of a block, and no head."""
    if x.kind == "router":
        return Choice(None, "router")
    return None if x.kind in ("linear", "expert", "head") else Choice(None, NOT_LINEAR)


def keep_listed(names: NamePatterns, reason: str) -> Rule:
    """Leave modules unquantized that a list names."""
    return lambda x: Choice(None, reason) if names.find(x.names) else None


def by_pattern(
    formats: Mapping[str, MatrixFormat | None],
    translate: Callable[[str], str],
    reason: str,
    *but: str,
) -> Rule:
    """Choose by a table of names and patterns, where None is the reason to leave a matrix as it
    is; matrices of the kinds `but` are not looked up.
    """
    names = NamePatterns(formats, translate)

    def choose(x: Matrix) -> Choice | None:
        if x.kind in but or not (found := names.find(x.names)):
            return None
        to = formats[found]
        return Choice(to, "" if to is not None else reason)

    return choose


def always(to: MatrixFormat) -> Rule:
    """Quantize everything that no rule before has left out."""
    return lambda _: Choice(to)


_RENAMED_HEADS = frozenset(("head", "model.llm.unembed"))
"""Names of heads in files that transformers loads as `lm_head`, the name that its recipes use."""


def skipping_recipe(
    method: str,
    config: Keys,
    to: MatrixFormat,
    *keys: str,
    keeps_head: bool = False,
    translate: Callable[[str], str] = like_transformers,
    default_dtype: str = "",
) -> Recipe:
    """Return the recipe of transformers' quantizers: every linear layer but those listed under
    one of the keys; without a list, the head stays too.
    """
    listed = strings(config, *keys)
    names = NamePatterns(listed or (), translate)
    keeps_head = keeps_head or listed is None

    def keep_exceptions(x: Matrix) -> Choice | None:
        if x.kind == "head" and keeps_head:
            return Choice(None, "output head")
        if x.is_excepted:
            return Choice(None, "excepted by the model's class")
        is_renamed = x.kind == "head" and x.names[0] in _RENAMED_HEADS
        own = (*x.names, "lm_head") if is_renamed else x.names
        return Choice(None, f"in {keys[0]}") if names.find(own) else None

    return Recipe(
        method=method,
        name=to.name,
        rules=(linear_only, keep_exceptions, always(to)),
        patterns=listed or (),
        default_dtype=default_dtype,
    )


def joined_names(formats: Sequence[MatrixFormat | None]) -> str:
    """Return the names of formats, each once."""
    return "+".join(dict.fromkeys(x.name for x in formats if x is not None))


def cache_format(scheme: object) -> str:
    """Return the number format that a recipe declares for the KV cache."""
    if isinstance(scheme, Mapping):
        kind = "fp" if scheme.get("type", "float") == "float" else "int"
        return f"{kind}{scheme.get('num_bits', 8)}"
    is_named = isinstance(scheme, str) and scheme.lower() not in ("none", "auto")
    return str(scheme).lower() if is_named else ""


_REFUSED = {
    "vptq": "the lengths of its indices and codebooks follow from no published rule",
    "spqr": "its sparse part has a length of its own in each matrix",
    "higgs": "its packing depends on the GPU that it was made for",
    "quanto": "transformers quantizes such a model when it loads it, and cannot save it",
    "sinq": "its layout is not published",
    "fp_quant": "its layout depends on how it is loaded",
    "metal": "transformers quantizes such a model when it loads it",
    "fouroversix": "its layout is not published",
}
"""Methods of transformers whose tensors do not follow from the config, with the reason."""


def read_recipe(config: Keys, dtype: str = "BF16", *, is_mlx: bool = False) -> Recipe:
    """Read a quantization config; `dtype` is that of unquantized weights. An unknown recipe is
    an error that names it.
    """
    method = config.get("quant_method")
    if not isinstance(method, str):
        method = _method_by_keys(config, is_mlx) or method
    name = str(method or "without a quant_method").lower()
    producer = producer_of_method(name)
    if producer is not None and producer.read is not None:
        return producer.read(config, dtype)
    if name in _REFUSED:
        raise UnknownQuantization(
            f"quantization quant_method {name} in quantization_config cannot be sized: "
            f"{_REFUSED[name]}",
            hint=counted_or_given(),
        )
    raise unknown(f"quant_method {method}" if method else "config without a quant_method")


def _method_by_keys(config: Keys, is_mlx: bool) -> str:
    """Return the quant_method of a config that has none, as some producers write it."""
    producer = config.get("producer")
    sections = (config, config.get("quantization"))
    if any(isinstance(x, Mapping) and "quant_algo" in x for x in sections) or (
        isinstance(producer, Mapping) and producer.get("name") == "modelopt"
    ):
        return "modelopt"
    has_bits = config.keys() >= {"bits", "group_size"}
    if is_mlx or (has_bits and config.keys().isdisjoint(("sym", "zero_point"))):
        return "mlx"
    if config.get("load_in_4bit") or config.get("load_in_8bit"):
        return "bitsandbytes"
    return "compressed-tensors" if isinstance(config.get("config_groups"), Mapping) else ""
