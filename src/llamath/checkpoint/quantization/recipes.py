"""Quantization recipes: what a `quantization_config` declares for each matrix of a model: its
stored format, or why it stays unquantized.

`read_recipe` reads the configs of transformers' quantizers, ModelOpt (also `hf_quant_config.json`),
compressed-tensors, AutoRound, Quark and MLX. Names are matched by the rules of the library that
wrote the config. A recipe that is not known is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ...utils.dotted_names import DottedNames
from ...utils.errors import Argument, Call, Name, UnknownQuantization, safe
from ...utils.record_type import Record
from . import matrix_formats as formats
from .matrix_formats import IN, OUT, Axis, MatrixFormat, MatrixPart, per

if TYPE_CHECKING:
    from ...utils.linear_regex import PatternList

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
    core = _without_prefix(name)
    names = (name, *(f"{x}{core}" for x in _PREFIXES), *(() if "." in core else (core,)))
    return tuple(dict.fromkeys(names))


def _without_prefix(name: str) -> str:
    return next((name.removeprefix(x) for x in _PREFIXES if name.startswith(x)), name)


class Choice(NamedTuple):
    """The stored format of a matrix, or the reason why it stays unquantized."""

    format: MatrixFormat | None
    reason: str = ""


class CacheScales(NamedTuple):
    """The scales of a KV cache that are stored in each attention block, one for keys and one for
    values.
    """

    dtype: str
    # named after the projections, `k_proj.k_scale`; else after the block, `self_attn.k_scale`
    in_projections: bool
    shape: tuple[Axis, ...] = ()  # `out` is the number of KV heads

    def lengths(self, kv_heads: int) -> tuple[int, ...]:
        """Return the shape of one scale."""
        return tuple(x.length(kv_heads, 0) for x in self.shape)


class Recipe(Record):
    """What a quantization config declares for each matrix."""

    method: str  # quant_method, or the library
    name: str  # of the formats, as shown for the weights' dtype
    choose: Callable[[Matrix], Choice]
    patterns: tuple[str, ...] = ()  # those that it matches names with
    kv_cache: str = ""  # the number format that it declares for the KV cache
    cache_scales: CacheScales | None = None  # those that its quantizer stores
    notes: tuple[str, ...] = ()
    table: tuple[str, ...] = ()  # the formats that a table of layers names

    @cached_property
    def names_experts(self) -> bool:
        """Whether it treats experts of a layer one by one."""
        return any(_EXPERT.search(x) for x in self.patterns)


_EXPERT = re.compile(r"expert(?:(?!expert)\w)*+\W{1,3}(?:\d|\[|\()")


def _unknown(what: str, where: str = "quantization_config") -> UnknownQuantization:
    return UnknownQuantization(
        f"unknown quantization {safe(what, 80)} in {where}: expected one of "
        f"{', '.join(sorted(_METHODS))}",
        hint=f"{Argument('dtype')} sets the format of the weights: {Argument('dtype', 'fp8')}",
    )


# Matching of names


def _pattern_list(patterns: Iterable[str]) -> PatternList:
    from ...utils.linear_regex import PatternList

    return PatternList(patterns, _refuse)


def _counted_or_given() -> str:
    """Return how to size weights whose quantization is not understood."""
    counted = f"{Call('ls', Name('path'))} counts the bytes of a checkpoint"
    return f"{counted}; {Argument('dtype')} sets the format of the weights"


def _refuse(problem: str) -> UnknownQuantization:
    return UnknownQuantization(
        f"quantization_config: {problem}",
        hint=f"{Argument('dtype')} sets the format of the weights",
    )


def _strings(config: Keys, *keys: str) -> tuple[str, ...] | None:
    """Return the first list of names that a config has under one of these keys; None if it has
    none.
    """
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, Sequence) or not all(isinstance(x, str) for x in value):
            raise UnknownQuantization(
                f"quantization_config: {key} should be a list of names, "
                f"found {safe(repr(value), 60)}"
            )
        return tuple(value)
    return None


class _Names:
    """A list of names or patterns. Plain names with a layer's number match names and parents;
    `translate` makes patterns of others.
    """

    def __init__(self, patterns: Iterable[str], translate: Callable[[str], str]) -> None:
        self.patterns = tuple(dict.fromkeys(patterns))
        self.exact = frozenset(self.patterns)
        self._parents = DottedNames(self.patterns)
        special = {
            x: regex
            for x in self.patterns
            if not (_PLAIN.fullmatch(x) and _INDEX.search(x)) and (regex := translate(x))
        }
        self._special = tuple(special)
        self._regexes = _pattern_list(special.values()) if special else None

    def find(self, names: Iterable[str]) -> str:
        """Return the pattern that matches one of the names or a parent, or an empty string."""
        for name in names:
            if found := [*self._parents.along(name)]:
                return self.patterns[found[-1]]
        return self.find_special(names)

    def find_special(self, names: Iterable[str]) -> str:
        """Return the first pattern, other than a plain name with a number, that matches one of
        the names; or an empty string.
        """
        if self._regexes is not None:
            for name in names:
                if (found := self._regexes.first_match(name)) is not None:
                    return self._special[found]
        return ""


_PLAIN = re.compile(r"[\w.]+")
_INDEX = re.compile(r"\.\d+(\.|$)")


def _like_transformers(key: str) -> str:
    """Translate as transformers' `should_convert_module`: from the start to a boundary, as a
    regular expression, or as a suffix.
    """
    return rf"(?:{key})(?:(?<=\.)|(?=\.|$))|{_suffix(key)}"


def _suffix(key: str) -> str:
    return f".*{re.escape(key)}$"


def _inside_name(key: str) -> str:
    """Translate whole parts of a dotted name, anywhere in it."""
    return rf"(?:.*\.)?{re.escape(key.strip('.'))}(?:\.|$)"


def _like_awq(key: str) -> str:
    """Translate by the rules of transformers and of AutoAWQ, which looks for it anywhere in the
    name.
    """
    return f"{_like_transformers(key)}|{_inside_name(key)}"


def _like_modelopt(key: str) -> str:
    """Translate a shell wildcard over the name; other names match exactly, or as a parent."""
    if not any(x in key for x in "*?["):
        return ""
    from ...utils.regex_syntax import wildcard_regex

    return wildcard_regex(key)


def _like_compressed_tensors(key: str) -> str:
    """Translate `re:` and a regular expression; other names match exactly."""
    return key.removeprefix("re:") if key.startswith("re:") else ""


def _like_auto_round(key: str) -> str:
    """Translate a regular expression of the whole name; other names match exactly, or as a
    parent.
    """
    return "" if _PLAIN.fullmatch(key) else f"(?:{key})$"


def _like_quark(key: str) -> str:
    """Translate a wildcard, or `re:` and a regular expression."""
    return _like_compressed_tensors(key) or _like_modelopt(key)


_LAYERS = ("linear", "expert")
_NOT_LINEAR = "not a linear layer"


def _linear_only(x: Matrix) -> Choice | None:
    """Return the choice for whatever is no linear layer of a block."""
    if x.kind == "router":
        return Choice(None, "router")
    return None if x.kind in _LAYERS or x.kind == "head" else Choice(None, _NOT_LINEAR)


_RENAMED_HEADS = frozenset(("head", "model.llm.unembed"))
"""Names of heads in files that transformers loads as `lm_head`, the name that its recipes use."""


def _skipping(
    config: Keys,
    to: MatrixFormat,
    keys: Sequence[str],
    head_by_default: bool = False,
    translate_key: Callable[[str], str] = _like_transformers,
) -> Callable[[Matrix], Choice]:
    """Return the rule of transformers' quantizers: every linear layer but those listed; without
    a list, the head stays too.
    """
    listed = _strings(config, *keys)
    names = _Names(listed or (), translate_key)
    keeps_head = head_by_default or listed is None

    def choose(x: Matrix) -> Choice:
        if (choice := _linear_only(x)) is not None:
            return choice
        if x.kind == "head" and keeps_head:
            return Choice(None, "output head")
        if x.is_excepted:
            return Choice(None, "excepted by the model's class")
        own = (
            (*x.names, "lm_head") if x.kind == "head" and x.names[0] in _RENAMED_HEADS else x.names
        )
        return Choice(None, f"in {keys[0]}") if names.find(own) else Choice(to)

    return choose


def _int(config: Keys, key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int:
        raise UnknownQuantization(
            f"quantization_config: {key} should be an integer, found {safe(repr(value), 60)}"
        )
    return value


def _bits(
    config: Keys, allowed: Sequence[int], key: str = "bits", default: int | None = None
) -> int:
    bits = _int(config, key, default)
    if bits not in allowed:
        raise UnknownQuantization(
            f"quantization_config: {key} should be one of "
            f"{', '.join(map(str, allowed))}, found {bits}"
        )
    return bits


def _group(config: Keys, default: int | None = None) -> int:
    group = _int(config, "group_size", default)
    if group == 0 or group < -1 or group > 1 << 20:
        raise UnknownQuantization(
            f"quantization_config: group_size should be -1 or positive, found {group}"
        )
    return group


# Recipes by method


_FP8_LISTS = ("modules_to_not_convert", "ignored_layers")
_SHARD = re.compile(r"\.shard_[^.]*$")


def _fp8(config: Keys, dtype: str) -> Recipe:
    block = config.get("weight_block_size", None)
    if block is not None and not (
        isinstance(block, Sequence)
        and len(block) == 2
        and all(type(n) is int and n > 0 for n in block)
    ):
        raise UnknownQuantization(
            "quantization_config: weight_block_size should be two "
            f"positive integers, found {safe(repr(block), 60)}"
        )
    scheme = str(config.get("activation_scheme", "dynamic"))
    if scheme not in ("dynamic", "static"):
        raise _unknown(f"activation_scheme {scheme}")
    experts = str(config.get("expert_dtype") or "fp8")
    if experts not in ("fp8", "fp4"):
        raise _unknown(f"expert_dtype {experts}")
    static = "activation_scale" if scheme == "static" else ""
    if str(config.get("quant_method")).lower() == "mxfp8":
        if block is None or tuple(block) != (1, 32) or static or experts != "fp8":
            raise _unknown(
                f"mxfp8 with weight_block_size {block}, {scheme} activations and {experts} experts"
            )
        to = formats.mxfp8_format("weight_scale_inv")
    # DeepSeek-V4; V3.1's scales are in F32
    elif "expert_dtype" in config and config.get("scale_fmt") == "ue8m0":
        to = formats.fp8_format((block[0], block[1]) if block else None, "scale", static, "F8_E8M0")
    else:
        to = formats.fp8_format((block[0], block[1]) if block else None, static=static)
    fp8, fp4 = _skipping(config, to, _FP8_LISTS), formats.fp4_experts_format()
    found = config.get("quantized_layers")
    layers: Keys = found if isinstance(found, Mapping) else {}
    by_layer = _modelopt_layers(layers, dtype) if layers else None
    tables, kept = (
        _strings(config, "modules_to_convert") or (),
        _Names(_strings(config, *_FP8_LISTS) or (), _like_transformers),
    )
    ends = _pattern_list(map(_suffix, tables))

    def choose(x: Matrix) -> Choice:
        if x.kind == "embedding" and tables:
            if any(ends.first_match(name) is not None for name in x.names):
                return (
                    Choice(None, f"in {_FP8_LISTS[0]}")
                    if kept.find(x.names)
                    else Choice(formats.fp8_table_format())
                )
            if any(ends.first_match(_SHARD.sub("", name)) is not None for name in x.names):
                listed = safe(", ".join(tables), 80)
                raise UnknownQuantization(
                    f"quantization_config: modules_to_convert ({listed}) names a table in "
                    "shards, whose scales are not described anywhere",
                    hint=_counted_or_given(),
                )
        if by_layer is not None and (named := by_layer(x)).format is not None:
            return named
        choice = fp8(x)
        return (
            Choice(fp4)
            if experts == "fp4" and x.kind == "expert" and choice.format is not None
            else choice
        )

    names = {"fp8": to.name, "fp4": f"{fp4.name}+{to.name}"}
    listed = *(_strings(config, *_FP8_LISTS) or ()), *tables, *layers
    table = _formats_of(layers, by_layer) if by_layer is not None else ()
    return Recipe(method="fp8", name=names[experts], choose=choose, patterns=listed, table=table)


def _awq(config: Keys, _: str) -> Recipe:
    bits, group = (
        _bits(config, (4,), "bits" if "bits" in config else "w_bit", 4),
        _group(config, config.get("q_group_size", 128)),
    )
    version = next(
        (
            str(x).lower()
            for key in ("version", "checkpoint_format", "format")
            if (x := config.get(key)) is not None
        ),
        "gemm",
    )
    version = "llm-awq" if config.get("backend") == "llm-awq" else version
    if version not in ("gemm", "gemv", "gemv_fast", "exllama", "ipex", "auto"):
        raise _unknown(f"AWQ version {version}")
    to = formats.awq_format(bits, group, version)
    choose = _skipping(
        config, to, ("modules_to_not_convert",), head_by_default=True, translate_key=_like_awq
    )
    return Recipe(
        method="awq",
        name=to.name,
        choose=choose,
        patterns=_strings(config, "modules_to_not_convert") or (),
    )


def _gptq(config: Keys, _: str) -> Recipe:
    allowed = (2, 3, 4, 5, 6, 7, 8)
    bits, group = _bits(config, allowed), _group(config, 128)
    layout = str(config.get("checkpoint_format") or config.get("format") or "gptq").lower()
    marlin = layout == "marlin" or config.get("is_marlin_format") is True
    if layout not in ("gptq", "gptq_v2", "marlin"):
        raise _unknown(f"GPTQ checkpoint_format {layout}")
    if (word := config.get("pack_dtype")) is not None and str(word).removeprefix(
        "torch."
    ) != "int32":
        raise _unknown(f"GPTQ pack_dtype {word}")
    make = formats.marlin_format if marlin else formats.gptq_format
    to, dynamic = make(bits, group), config.get("dynamic") or {}
    if not isinstance(dynamic, Mapping):
        raise UnknownQuantization(
            f"quantization_config: dynamic should be an object, found {safe(repr(dynamic), 60)}"
        )
    changes: list[MatrixFormat | None] = []
    for pattern, keys in dynamic.items():
        overrides = keys if isinstance(keys, Mapping) else {}
        changed = make(_bits(overrides, allowed, default=bits), _group(overrides, group))
        changes.append(None if pattern.startswith("-:") else changed)
    rules = _pattern_list(x.removeprefix("+:").removeprefix("-:") for x in dynamic)
    inside = config.get("modules_in_block_to_quantize")
    parts = inside if isinstance(inside, list) else [] if inside is None else [inside]
    names = [
        x
        for part in parts
        for x in _strings({"modules_in_block_to_quantize": part}, "modules_in_block_to_quantize")
        or ()
    ]
    ends = DottedNames(names, from_end=True)
    skipped = _Names(_strings(config, "modules_to_not_convert") or (), _inside_name)

    def choose(x: Matrix) -> Choice:
        if (choice := _linear_only(x)) is not None:
            return choice
        if x.kind == "head" and config.get("lm_head") is not True:
            return Choice(None, "output head")
        if matched := [i for name in x.names if (i := rules.first_match(name)) is not None]:
            changed = changes[min(matched)]
            return Choice(changed, "" if changed else "excluded in dynamic")
        if inside is not None and not any(
            names[i] != name for name in x.names for i in ends.along(name)
        ):
            return Choice(None, "not in modules_in_block_to_quantize")
        return Choice(None, "in modules_to_not_convert") if skipped.find(x.names) else Choice(to)

    return Recipe(
        method="gptq", name=to.name, choose=choose, patterns=(*map(str, dynamic), *skipped.patterns)
    )


_BNB_WORDS = {
    "uint8": "U8",
    "int8": "I8",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}
"""The dtypes that bitsandbytes packs its 4 bits into."""


def _bitsandbytes(config: Keys, _: str) -> Recipe:
    if config.get("load_in_4bit") or config.get("_load_in_4bit"):
        kind = str(config.get("bnb_4bit_quant_type", "fp4"))
        if kind not in ("nf4", "fp4"):
            raise _unknown(f"bnb_4bit_quant_type {kind}")
        words = str(config.get("bnb_4bit_quant_storage") or "uint8").removeprefix("torch.")
        if words not in _BNB_WORDS:
            raise _unknown(f"bnb_4bit_quant_storage {words}")
        to = formats.bnb_4bit_format(
            kind, bool(config.get("bnb_4bit_use_double_quant")), _BNB_WORDS[words]
        )
    elif config.get("load_in_8bit") or config.get("_load_in_8bit"):
        to = formats.bnb_int8_format()
    else:
        raise _unknown("bitsandbytes with neither load_in_4bit nor load_in_8bit")
    keys = ("llm_int8_skip_modules",)
    return Recipe(
        method="bitsandbytes",
        name=to.name,
        choose=_skipping(config, to, keys),
        patterns=_strings(config, *keys) or (),
    )


def _mxfp4(config: Keys, _: str) -> Recipe:
    to = formats.mxfp4_format(stacked=True)
    names = _Names(_strings(config, "modules_to_not_convert") or (), _like_transformers)

    def choose(x: Matrix) -> Choice:
        if x.kind != "expert":
            return Choice(None, "router" if x.kind == "router" else "only experts are quantized")
        return Choice(None, "in modules_to_not_convert") if names.find(x.names) else Choice(to)

    return Recipe(method="mxfp4", name=to.name, choose=choose, patterns=names.patterns)


def _simple(
    make: Callable[[Keys, str], MatrixFormat], method: str, *keys: str
) -> Callable[[Keys, str], Recipe]:
    """Return the reader of a method with one format and a list of exceptions."""

    def read(config: Keys, dtype: str) -> Recipe:
        to = make(config, dtype)
        return Recipe(
            method=method,
            name=to.name,
            choose=_skipping(config, to, keys),
            patterns=_strings(config, *keys) or (),
        )

    return read


def _hqq(config: Keys, dtype: str) -> Recipe:
    inner = config.get("quant_config")
    inner = inner if isinstance(inner, Mapping) else config
    common = inner.get("weight_quant_params")
    layers = (
        {}
        if isinstance(common, Mapping)
        else {k: v for k, v in inner.items() if isinstance(v, Mapping)}
    )
    skip = _Names(_strings(config, "skip_modules") or ("lm_head",), _inside_name)

    def format_of(keys: Keys) -> MatrixFormat:
        params = keys.get("weight_quant_params", keys)
        params = params if isinstance(params, Mapping) else {}
        bits, group = _bits(params, (1, 2, 3, 4, 8), "nbits", 4), _group(params, 64)
        if params.get("view_as_float") or group < 1 or group % 8:
            raise _unknown(f"hqq with view_as_float or group_size {group}")
        return formats.hqq_format(bits, group, _int(params, "axis", 1), dtype)

    uniform = format_of(common) if isinstance(common, Mapping) else None
    by_name = {name: format_of(keys) for name, keys in layers.items()}
    all_formats, ends = list(by_name.values()), DottedNames(by_name, from_end=True)
    if uniform is None and not by_name:
        raise _unknown("hqq without weight_quant_params")

    def choose(x: Matrix) -> Choice:
        if (choice := _linear_only(x)) is not None:
            return choice
        if skip.find(x.names):
            return Choice(None, "in skip_modules")
        if uniform is not None:
            return Choice(uniform)
        matched = [i for own in x.names for i in ends.along(own)]
        return (
            Choice(all_formats[min(matched)])
            if matched
            else Choice(None, "in no entry of quant_config")
        )

    name = "+".join(dict.fromkeys(x.name for x in ([uniform] if uniform else by_name.values())))
    return Recipe(method="hqq", name=name, choose=choose, patterns=(*by_name, *skip.patterns))


def _bitnet(config: Keys, dtype: str) -> Recipe:
    if (
        config.get("linear_class") == "autobitlinear"
        and config.get("quantization_mode") == "online"
    ):
        weight = MatrixPart(".weight", dtype, (OUT, IN))
        to = MatrixFormat(
            name="bitnet-online", title="BitNet, quantized when it is loaded", parts=(weight,)
        )
    else:
        to = formats.bitnet_format(dtype)
    keys = ("modules_to_not_convert",)
    return Recipe(
        method="bitnet",
        name=to.name,
        choose=_skipping(config, to, keys),
        patterns=_strings(config, *keys) or (),
    )


_TORCHAO = {
    "int8weightonlyconfig": "int8",
    "int8_weight_only": "int8",
    "int8dynamicactivationint8weightconfig": "int8",
    "int8_dynamic_activation_int8_weight": "int8",
    "float8weightonlyconfig": "fp8-tensor",
    "float8_weight_only": "fp8-tensor",
    "float8dynamicactivationfloat8weightconfig": "fp8-granularity",
    "float8_dynamic_activation_float8_weight": "fp8-granularity",
    "int4weightonlyconfig": "int4",
    "int4_weight_only": "int4",
}


def _torchao(config: Keys, dtype: str) -> Recipe:
    kind, keys = config.get("quant_type"), config.get("quant_type_kwargs") or {}
    if isinstance(kind, Mapping):
        kind = kind.get("default", kind)
        keys = kind.get("_data", {}) if isinstance(kind, Mapping) else {}
        kind = kind.get("_type") if isinstance(kind, Mapping) else kind
    keys = keys if isinstance(keys, Mapping) else {}
    method = _TORCHAO.get(str(kind).lower())
    granularity = keys.get("granularity")
    if isinstance(granularity, Sequence) and not isinstance(granularity, str):
        granularity = granularity[0] if granularity else None
    name = str(
        granularity.get("_type") if isinstance(granularity, Mapping) else granularity or "PerTensor"
    ).lower()
    if method == "fp8-granularity":
        method = {"pertensor": "fp8-tensor", "perrow": "fp8-rows"}.get(name)
    if method == "int8" and keys.get("group_size") is None and name in ("pertensor", "perrow"):
        to = formats.torchao_format("int8-rows", "I8", (OUT, Axis("")), zero=True)
    elif method in ("fp8-tensor", "fp8-rows"):
        rows = method == "fp8-rows" or "weightonly" in str(kind).lower().replace("_", "")
        to = formats.torchao_format(
            "fp8-rows" if rows else "fp8-tensor",
            "F8_E4M3",
            (OUT, Axis("")) if rows else (Axis(""), Axis("")),
        )
    elif method == "int4":
        to = _torchao_int4(keys, dtype)
    else:
        raise _unknown(f"torchao quant_type {kind}")
    lists = ("modules_to_not_convert",)
    # the head as well; torchao passes over embeddings in these formats
    if config.get("include_input_output_embeddings"):
        config = {
            **config,
            lists[0]: [
                x for x in _strings(config, *lists) or () if x not in ("lm_head", "embed_out")
            ],
        }
    return Recipe(
        method="torchao",
        name=to.name,
        choose=_skipping(config, to, lists),
        patterns=_strings(config, *lists) or (),
    )


def _torchao_int4(keys: Keys, dtype: str) -> MatrixFormat:
    """Return INT4 of torchao, in one of its packings."""
    group, packing = _group(keys, 128), keys.get("int4_packing_format", "plain")
    packing = str(packing.get("_data") if isinstance(packing, Mapping) else packing).lower()
    per_group = (per(IN, group), OUT)
    scale = MatrixPart("._weight_scale", dtype, per_group)
    layouts = {
        "plain": (
            MatrixPart("._weight_qdata", "I8", (OUT, per(IN, 2))),
            scale,
            MatrixPart("._weight_zero_point", dtype, per_group),
        ),
        "plain_int32": (
            MatrixPart("._weight_qdata", "I32", (OUT, per(IN, 8))),
            scale,
            MatrixPart("._weight_zero_point", "I8", per_group),
        ),
        "tile_packed_to_4d": (
            MatrixPart(
                "._weight_qdata",
                "I32",
                (per(OUT, 8), Axis("in", 1, 1024, 8), Axis("", 32), Axis("", 4)),
            ),
            MatrixPart(
                "._weight_scale_and_zero",
                dtype,
                (Axis("in", 1, 1024, max(1024 // group, 1)), OUT, Axis("", 2)),
            ),
        ),
    }
    if packing not in layouts:
        raise _unknown(f"torchao int4_packing_format {packing}")
    return MatrixFormat(
        name=f"int4-g{group}", title=f"INT4 of torchao, groups of {group}", parts=layouts[packing]
    )


# ModelOpt


def _modelopt_format(algo: str, keys: Keys, dtype: str) -> MatrixFormat:
    """Return the format of one of ModelOpt's algorithms."""
    group = keys.get("group_size") or 0
    if type(group) is not int or group < 0:
        raise _unknown(f"group_size {group} of {algo}")
    scale = MatrixPart(".pre_quant_scale", dtype, (IN,))
    makers: dict[str, Callable[[], MatrixFormat]] = {
        "FP8": lambda: formats.fp8_format(None, "weight_scale", "input_scale").replace(name="fp8"),
        "FP8_PER_CHANNEL_PER_TOKEN": lambda: formats.fp8_rows_format(axes=(OUT,)),
        "FP8_PB_WO": lambda: formats.fp8_format(
            (group or 128, group or 128), "weight_scale", axes_between=True
        ),
        "NVFP4": lambda: formats.nvfp4_format(True, group or 16),
        "W4A8_NVFP4_FP8": lambda: formats.nvfp4_format(True, group or 32).replace(
            name="nvfp4-w4a8", compute_rate="fp8"
        ),
        "W4A16_NVFP4": lambda: formats.nvfp4_format(False, group or 16),
        "NVFP4_AWQ": lambda: formats.nvfp4_format(True, group or 16, dtype),
        "MXFP8": formats.mxfp8_format,
        "MXFP4": formats.mxfp4_format,
        "W4A8_MXFP4_FP8": lambda: formats.mxfp4_format().replace(
            name="mxfp4-w4a8", compute_rate="fp8"
        ),
        "W4A16_AWQ": lambda: formats.int4_blocks_format(group or 128, dtype, False),
        "W4A8_AWQ": lambda: formats.int4_blocks_format(group or 128, dtype, True),
        "W8A16": lambda: formats.int8_format("w8a16"),
        "W8A8_SQ_PER_CHANNEL": lambda: formats.int8_format(
            "w8a8", extra=(MatrixPart(".input_scale", "F32"), scale)
        ),
    }
    maker = makers.get(algo.upper())
    if maker is None:
        raise _unknown(f"quant_algo {algo} (known: {', '.join(makers)}, MIXED_PRECISION)")
    return maker()


def _modelopt_layers(layers: Keys, dtype: str) -> Callable[[Matrix], Choice]:
    """Return the rule of a table of layers, each with its algorithm; an entry counts for
    everything inside it.
    """
    by_name: dict[str, Callable[[Matrix], MatrixFormat] | None] = {}
    format_by_keys: dict[str, Callable[[Matrix], MatrixFormat]] = {}
    for name, keys in layers.items():
        keys = keys if isinstance(keys, Mapping) else {"quant_algo": keys}
        algo = keys.get("quant_algo")
        if algo in (None, "NONE", "none"):
            by_name[name] = None
            continue
        key = repr(sorted(map(repr, keys.items())))
        if key not in format_by_keys:
            format_by_keys[key] = _with_input_scales(
                _modelopt_format(str(algo), keys, dtype), str(algo)
            )
        by_name[name] = format_by_keys[key]
    names = _Names(by_name, _like_modelopt)

    def choose(x: Matrix) -> Choice:
        # DeepSeek-V4's own names have no prefix
        found = names.find((*x.names, _without_prefix(x.names[0])))
        to = by_name[found] if found else None
        return Choice(None, "not in quantized_layers") if to is None else Choice(to(x))

    return choose


def _formats_of(layers: Iterable[str], choose: Callable[[Matrix], Choice]) -> tuple[str, ...]:
    """Return the names of the formats in a table of layers."""
    return tuple(
        sorted({x.name for name in layers if (x := choose(Matrix((name,), "linear")).format)})
    )


_MODELOPT_KEPT = (
    *(
        "*lm_head*",
        "*router*",
        "*block_sparse_moe.gate*",
        "*mlp.gate",
        "*mlp.shared_expert_gate",
        "*conv1d*",
        "*output_layer*",
    ),
    *(
        "*linear_attn.in_proj_a",
        "*linear_attn.in_proj_b",
        "*proj_out*",
        "mtp.*",
        "*visual*",
        "*vision_tower*",
        "*multi_modal_projector*",
    ),
)
"""What ModelOpt's own presets leave unquantized."""
_AFTER_NORM = re.compile(
    r"(?:.*\.)?(?:[qkv]_proj|qkv_proj|gate_proj|up_proj|gate_up_proj"
    r"|query_key_value)"
)
"""Modules whose inputs come from a norm, into which ModelOpt's AWQ moves their scales of inputs."""


def _with_input_scales(to: MatrixFormat, algo: str) -> Callable[[Matrix], MatrixFormat]:
    """Return the format of each module: scales of inputs are stored only where ModelOpt cannot
    move them into the norm before.
    """
    plain = to.replace(parts=tuple(x for x in to.parts if x.suffix != ".pre_quant_scale"))
    if plain.parts == to.parts:
        return lambda _: to
    if algo.upper() == "W8A8_SQ_PER_CHANNEL":
        return lambda x: plain if x.kind == "expert" else to
    return lambda x: plain if _AFTER_NORM.fullmatch(x.names[0]) else to


def _modelopt(config: Keys, dtype: str) -> Recipe:
    inner = config.get("quantization")
    keys: Keys = inner if isinstance(inner, Mapping) else config
    listed = _strings(keys, "exclude_modules", "ignore")
    excluded = _Names(_MODELOPT_KEPT if listed is None else listed, _like_modelopt)
    algo, layers = keys.get("quant_algo"), keys.get("quantized_layers")
    notes: list[str] = []
    table: tuple[str, ...] = ()
    if isinstance(layers, Mapping) and layers:
        by_layer = _modelopt_layers(layers, dtype)
        table = _formats_of(layers, by_layer)

        def choose(x: Matrix) -> Choice:
            return Choice(None, "in exclude_modules") if excluded.find(x.names) else by_layer(x)

        name = "+".join(table)
    elif isinstance(algo, str) and algo != "MIXED_PRECISION":
        to = _modelopt_format(algo, keys, dtype)
        format_of = _with_input_scales(to, algo)
        if algo.upper() == "W8A8_SQ_PER_CHANNEL":
            notes.append(
                "scales of inputs are counted for linear layers, as SmoothQuant stores "
                "them; ModelOpt's plain INT8 has none"
            )
        if algo.upper() == "NVFP4_AWQ":
            notes.append(
                "scales of inputs are counted for down and output projections; since 0.40, "
                "ModelOpt moves those of Llama's and Qwen3's "
                "down projections into the up projection, and of their output projections where "
                "all heads have keys of their own"
            )
        if listed is None:
            notes.append(
                "the recipe lists no exclude_modules; ModelOpt's own exceptions are "
                "assumed: head, routers and convolutions"
            )

        def choose(x: Matrix) -> Choice:
            if x.kind in ("router", "embedding", "other"):
                return Choice(None, "router" if x.kind == "router" else _NOT_LINEAR)
            return (
                Choice(None, "in exclude_modules")
                if excluded.find(x.names)
                else Choice(format_of(x))
            )

        name = to.name
    elif isinstance(config.get("config_groups"), Mapping):
        groups = {}
        for group in config["config_groups"].values():
            weights = group.get("weights") if isinstance(group, Mapping) else None
            if not isinstance(weights, Mapping):
                raise _unknown("ModelOpt group without weights")
            kind = f"{weights.get('type')} {weights.get('num_bits')}" + (
                " with activations" if group.get("input_activations") else ""
            )
            named = {
                "float 8 with activations": "FP8",
                "float 4 with activations": "NVFP4",
                "float 4": "W4A16_NVFP4",
            }.get(kind)
            for target in _strings(group, "targets") or ("Linear",):
                groups[target] = {
                    "quant_algo": named or f"of {kind}",
                    "group_size": weights.get("group_size"),
                }
        return _modelopt(
            {
                **{k: v for k, v in config.items() if k != "config_groups"},
                "quantized_layers": groups,
            },
            dtype,
        )
    else:
        raise _unknown(f"quant_algo {algo}")
    cache = keys.get("kv_cache_quant_algo") or config.get("kv_cache_scheme")
    patterns = (*excluded.patterns, *(layers if isinstance(layers, Mapping) else ()))
    kv_cache = _cache_name(cache)
    return Recipe(
        method="modelopt",
        name=name,
        choose=choose,
        patterns=patterns,
        kv_cache=kv_cache,
        cache_scales=CacheScales("F32", in_projections=True) if kv_cache else None,
        notes=tuple(notes),
        table=table,
    )


def _cache_name(scheme: object) -> str:
    """Return the number format that a recipe declares for the KV cache."""
    if isinstance(scheme, Mapping):
        kind = "fp" if scheme.get("type", "float") == "float" else "int"
        return f"{kind}{scheme.get('num_bits', 8)}"
    return (
        str(scheme).lower()
        if isinstance(scheme, str) and scheme.lower() not in ("none", "auto")
        else ""
    )


# compressed-tensors


def _compressed_tensors(config: Keys, dtype: str) -> Recipe:
    groups = config.get("config_groups")
    _refuse_online_transforms(config.get("transform_config"))
    sparsity = config.get("sparsity_config")
    kind = sparsity.get("format") or "dense" if isinstance(sparsity, Mapping) else "dense"
    if kind == "sparse-24-bitmask" and isinstance(sparsity, Mapping):
        return _sparse_24(config, sparsity, dtype)
    if kind != "dense":
        raise _unknown(f"sparse format {kind}, whose size depends on the values")
    if not isinstance(groups, Mapping) or not groups:
        raise _unknown("compressed-tensors without config_groups")
    ignored = _Names(_strings(config, "ignore") or (), _like_compressed_tensors)
    group_formats: list[MatrixFormat] = []
    by_target: dict[str, MatrixFormat | None] = {}
    for group in groups.values():
        if not isinstance(group, Mapping):
            raise _unknown("compressed-tensors group")
        kind = group.get("format") or config.get("format")
        if kind == "mixed-precision":
            kind = None
        weights = group.get("weights")
        if not isinstance(weights, Mapping | None):
            raise _unknown("compressed-tensors weights that are no object")
        to = (
            None
            if weights is None
            else _compressed_format(str(kind or ""), weights, group.get("input_activations"), dtype)
        )
        if to is not None:
            group_formats.append(to)
        for target in _strings(group, "targets") or ():
            by_target[target] = to
    plain = {x: to for x, to in by_target.items() if not x.startswith("re:")}
    patterns = _Names(sorted(x for x in by_target if x.startswith("re:")), _like_compressed_tensors)

    def find(x: Matrix) -> str:
        """Return the target that applies: an exact name, then a regular expression, then a
        class.
        """
        if exact := next((name for name in x.names if name in plain), ""):
            return exact
        if matched := patterns.find_special(x.names):
            return matched
        classes = {"embedding": ("Embedding",), "other": ()}.get(x.kind, ("Linear", "LinearBase"))
        return next((name for name in classes if name in plain), "")

    def choose(x: Matrix) -> Choice:
        if x.kind == "router":
            return Choice(None, "router")
        if x.kind == "other":
            return Choice(None, _NOT_LINEAR)
        if _ignored(ignored, x):
            return Choice(None, "in ignore")
        target = find(x)
        return (
            Choice(by_target[target], "" if by_target[target] else "its group has no weights")
            if target
            else Choice(None, "no target")
        )

    name = "+".join(dict.fromkeys(x.name for x in group_formats))
    if not group_formats:
        raise _unknown("compressed-tensors without quantized weights")
    return Recipe(
        method="compressed-tensors",
        name=name,
        choose=choose,
        patterns=(*ignored.patterns, *by_target),
        kv_cache=_cache_name(config.get("kv_cache_scheme")),
        cache_scales=_compressed_cache_scales(config.get("kv_cache_scheme"), dtype),
    )


_FUSED = ("weight_input", "weight_output")
"""Where compressed-tensors multiplies a transform into the weights, so that nothing of it is
stored."""


def _refuse_online_transforms(config: object) -> None:
    """Refuse transforms of activations by name: their matrices are stored beside the weights,
    and the model computes with them.
    """
    if not config:
        return
    schemes = config.get("config_groups") if isinstance(config, Mapping) else None
    for scheme in schemes.values() if isinstance(schemes, Mapping) else (None,):
        applied = scheme.get("apply") if isinstance(scheme, Mapping) else None
        for x in applied if isinstance(applied, Sequence) else (None,):
            where = x.get("location") if isinstance(x, Mapping) else None
            if where not in _FUSED:
                kind = scheme.get("type") if isinstance(scheme, Mapping) else None
                raise _unknown(
                    f"compressed-tensors transform_config with {kind} at {where}, "
                    "whose matrices are stored, too"
                )


def _sparse_24(config: Keys, sparsity: Keys, dtype: str) -> Recipe:
    """Read 2:4 sparsity, which may be that of matrices which `config_groups` quantize: half of
    the values, and a bit for each.
    """
    dense = {key: x for key, x in config.items() if key != "sparsity_config"}
    quantized = _compressed_tensors(dense, dtype) if config.get("config_groups") else None
    ignored = _Names(_strings(sparsity, "ignore") or (), _like_compressed_tensors)
    targets = _Names(_strings(sparsity, "targets") or ("Linear",), _like_compressed_tensors)

    def is_sparse(x: Matrix) -> bool:
        if x.kind in ("router", "other", "embedding") or _ignored(ignored, x):
            return False
        return (
            "Linear" in targets.exact
            or any(name in targets.exact for name in x.names)
            or bool(targets.find_special(x.names))
        )

    def choose(x: Matrix) -> Choice:
        choice = (
            quantized.choose(x)
            if quantized is not None
            else Choice(None, "not in the targets of sparsity_config")
        )
        return Choice(formats.sparse_24_format(choice.format, dtype)) if is_sparse(x) else choice

    name = "sparse-24" + (f"+{quantized.name}" if quantized is not None else "")
    patterns = (
        *ignored.patterns,
        *targets.patterns,
        *(quantized.patterns if quantized is not None else ()),
    )
    return Recipe(method="compressed-tensors", name=name, choose=choose, patterns=patterns)


def _compressed_cache_scales(scheme: object, dtype: str) -> CacheScales | None:
    """Return the scales that compressed-tensors stores for a static KV cache."""
    if not isinstance(scheme, Mapping) or scheme.get("dynamic", False) is not False:
        return None
    one = Axis("")
    return CacheScales(
        dtype, False, (OUT, one, one) if scheme.get("strategy") == "attn_head" else (one,)
    )


def _ignored(names: _Names, x: Matrix) -> bool:
    """Whether compressed-tensors ignores a module: by its own name or class, not by its
    parents'.
    """
    kind = "Embedding" if x.kind == "embedding" else "Linear"
    return (
        kind in names.exact
        or any(name in names.exact for name in x.names)
        or bool(names.find_special(x.names))
    )


def _compressed_format(kind: str, weights: Keys, activations: object, dtype: str) -> MatrixFormat:
    """Return the format of a group's weights in compressed-tensors."""
    bits, number = weights.get("num_bits", 8), str(weights.get("type", "int"))
    group, symmetric = weights.get("group_size"), weights.get("symmetric", True) is not False
    group = group if type(group) is int and group > 0 else 0
    strategy = str(weights.get("strategy") or ("group" if group else "tensor"))
    static = isinstance(activations, Mapping) and activations.get("dynamic", False) is False
    if type(bits) is not int or not 1 <= bits <= 8:
        raise _unknown(f"compressed-tensors num_bits {bits}")
    if number not in ("int", "float"):
        raise _unknown(f"compressed-tensors type {number}")
    if not kind or kind == "fakequant":
        kind = _inferred_format(bits, number, group, weights, activations)
    if strategy == "block":
        block = weights.get("block_structure")
        if isinstance(block, str):
            block = [int(n) for n in block.lower().split("x") if n.isdecimal()]
        if (
            not isinstance(block, Sequence)
            or len(block) != 2
            or not all(type(n) is int and n > 0 for n in block)
        ):
            raise _unknown(f"compressed-tensors block_structure {block}")
        axes: tuple[Axis, ...] = (per(OUT, block[0]), per(IN, block[1]))
        suffix = f"-{block[0]}x{block[1]}"
    elif strategy in ("group", "tensor_group") and group:
        axes, suffix = (OUT, per(IN, group)), f"-g{group}"
    elif strategy == "channel":
        axes, suffix = (OUT, Axis("")), "-rows"
    elif strategy == "tensor":
        axes, suffix = (Axis(""),), "-tensor"
    else:
        raise _unknown(f"compressed-tensors strategy {strategy}")
    one = (Axis(""),)
    name, title = (
        f"{'fp' if number == 'float' else 'int'}{bits}{suffix}",
        (f"{kind}, {bits} bits, {strategy} scales"),
    )
    scale = MatrixPart(".weight_scale", dtype, axes)
    zero = [] if symmetric else [MatrixPart(".weight_zero_point", "I8", axes)]
    inputs = [MatrixPart(".input_scale", dtype, one)] if static else []
    if static and isinstance(activations, Mapping) and activations.get("symmetric") is False:
        inputs.append(MatrixPart(".input_zero_point", "I8", one))
    if kind in ("naive-quantized", "int-quantized", "float-quantized"):
        values = MatrixPart(".weight", "F8_E4M3" if number == "float" else "I8", (OUT, IN))
        rate = (
            {"int": "int8", "float": "fp8"}.get(number, "")
            if isinstance(activations, Mapping)
            else ""
        )
        return MatrixFormat(
            name=name, title=title, parts=(values, scale, *zero, *inputs), compute_rate=rate
        )
    if kind == "pack-quantized":
        if zero and strategy in ("group", "channel"):
            zero = [MatrixPart(".weight_zero_point", "I32", (per(OUT, 32, bits), axes[1]))]
        values = MatrixPart(".weight_packed", "I32", (OUT, per(IN, 32, bits)))
        index = (
            [MatrixPart(".weight_g_idx", "I32", (IN,))]
            if weights.get("actorder") in ("group", True)
            else []
        )
        shape = MatrixPart(".weight_shape", "I64", (Axis("", 2),))
        return MatrixFormat(
            name=name, title=title, parts=(values, scale, *zero, shape, *index, *inputs)
        )
    if kind == "nvfp4-pack-quantized":
        quantized = isinstance(activations, Mapping)
        scaled = isinstance(activations, Mapping) and activations.get("dynamic", False) is not True
        return formats.packed_nvfp4_format(group or 16, quantized, scaled)
    if kind in ("mxfp4-pack-quantized", "mxfp6-pack-quantized"):
        return formats.packed_mxfp_format(bits, group or 32).replace(title=title)
    if kind == "mxfp8-quantized":
        return formats.mxfp8_format()
    if kind == "marlin-24":
        parts = (
            MatrixPart(".weight_packed", "I32", (per(IN, 32), Axis("out", bits // 2))),
            MatrixPart(".scale_packed", "F16", (per(IN, group) if group else Axis(""), OUT)),
            MatrixPart(".meta", "I16", (per(IN, 32), Axis("out", 2))),
        )
        return MatrixFormat(name=f"marlin24-{bits}bit{suffix}", title=title, parts=parts)
    raise _unknown(f"compressed-tensors format {kind}")


def _inferred_format(bits: int, number: str, group: int, weights: Keys, activations: object) -> str:
    """Return the format that compressed-tensors infers from a group without one."""
    if number == "float" and bits == 4:
        return "mxfp4-pack-quantized" if group == 32 else "nvfp4-pack-quantized"
    if number == "float":
        return (
            "mxfp8-quantized"
            if group == 32 and "uint8" in str(weights.get("scale_dtype"))
            else "float-quantized"
        )
    return "pack-quantized" if activations is None or bits < 8 else "int-quantized"


# AutoRound, Quark, MLX


def _auto_round_float(kind: str, bits: int, keys: Keys, dtype: str) -> MatrixFormat:
    """Return the format of floating-point weights in auto-round."""
    if (kind, bits) == ("mx_fp", 4):
        return formats.packed_mxfp_format(4)
    if (kind, bits) == ("mx_fp", 8):
        return formats.mxfp8_format()
    if (kind, bits) == ("nv_fp", 4):
        return formats.packed_nvfp4_format(16, _int(keys, "act_bits", 16) <= 8)
    if (kind, bits, keys.get("group_size")) == ("fp", 8, -1):
        to = formats.fp8_rows_format(dtype, axes=(OUT,))
        static = _int(keys, "act_bits", 16) <= 8 and keys.get("act_dynamic") is False
        return (
            to.replace(parts=(*to.parts, MatrixPart(".input_scale", dtype, (Axis(""),))))
            if static
            else to
        )
    raise _unknown(
        f"auto-round data_type {kind} with {bits} bits and group_size {keys.get('group_size')}"
    )


def _auto_round(config: Keys, dtype: str) -> Recipe:
    packing = str(config.get("packing_format", "auto_round:auto_gptq")).lower()
    awq = "awq" in packing
    allowed = (4,) if awq else (2, 3, 4, 8)

    def format_of(keys: Keys) -> MatrixFormat | None:
        bits, kind = (
            _int(keys, "bits", _int(config, "bits")),
            str(keys.get("data_type", config.get("data_type", "int"))),
        )
        if bits >= 16:
            return None
        if kind != "int":
            return _auto_round_float(kind, bits, {**config, **keys}, dtype)
        if "llm_compressor" in packing or "nvfp" in packing or "mxfp" in packing:
            raise _unknown(f"auto-round packing_format {packing} with data_type {kind}")
        bits, group = _bits({"bits": bits}, allowed), _group(keys, _group(config, 128))
        return (
            formats.awq_format(bits, group)
            if awq
            else formats.gptq_format(bits, group, index=False)
        )

    to = format_of({})
    if to is None:
        raise _unknown("auto-round with 16 bits")
    extra = config.get("extra_config") or {}
    overrides = (
        {name: format_of(keys) for name, keys in extra.items() if isinstance(keys, Mapping)}
        if isinstance(extra, Mapping)
        else {}
    )
    names = _Names(overrides, _like_auto_round)
    blocks = _strings(config, "block_name_to_quantize", "to_quant_block_names")
    inside = tuple(y.strip() for x in blocks or () for y in x.split(",") if y.strip())
    parents = DottedNames(inside)
    skipped = _Names(_strings(config, "modules_to_not_convert") or (), _inside_name)

    def choose(x: Matrix) -> Choice:
        if (found := names.find(x.names)) and x.kind != "embedding":
            return Choice(overrides[found], "" if overrides[found] else "16 bits in extra_config")
        if (choice := _linear_only(x)) is not None:
            return choice
        if x.kind == "head":
            return Choice(None, "output head")
        if inside and not any(inside[i] != name for name in x.names for i in parents.along(name)):
            return Choice(None, "not in block_name_to_quantize")
        return Choice(None, "in modules_to_not_convert") if skipped.find(x.names) else Choice(to)

    return Recipe(
        method="auto-round", name=to.name, choose=choose, patterns=(*overrides, *skipped.patterns)
    )


def _quark_scale(spec: Keys, dtype: str) -> str:
    """Return the dtype of the scales of a tensor in Quark."""
    return "F32" if spec.get("scale_type") == "float32" or spec.get("dtype") == "int8" else dtype


def _quark_extras(keys: Keys, dtype: str) -> tuple[MatrixPart, ...]:
    """Return the scales of static inputs and outputs that Quark stores for a layer."""
    parts: list[MatrixPart] = []
    for name in ("input", "output"):
        found = keys.get(f"{name}_tensors")
        stages = (
            list(found) if isinstance(found, Sequence) and not isinstance(found, str) else [found]
        )
        for i, spec in enumerate(stages):
            if not isinstance(spec, Mapping) or spec.get("is_dynamic") is not False:
                continue
            end = "" if i == 0 else f"_{i + 1}"
            parts.append(MatrixPart(f".{name}_scale{end}", _quark_scale(spec, dtype)))
            if spec.get("dtype") == "int8":
                parts.append(MatrixPart(f".{name}_zero_point{end}", "I8"))
    return tuple(parts)


def _quark_weight(stages: Sequence[Keys], dtype: str) -> tuple[str, tuple[MatrixPart, ...], str]:
    """Return the name, the tensors and the GPU rate of a weight in Quark, which may be quantized
    in two stages.
    """
    kinds, schemes = (
        tuple(str(x.get("dtype")) for x in stages),
        tuple(str(x.get("qscheme")) for x in stages),
    )
    group, first = stages[0].get("group_size"), _quark_scale(stages[0], dtype)
    nibbles, exponents = (
        MatrixPart(".weight", "U8", (OUT, per(IN, 2))),
        MatrixPart(".weight_scale", "U8", (OUT, per(IN, 32))),
    )
    if kinds == ("fp4", "fp8_e4m3") and group == 16:
        scales = (
            MatrixPart(".weight_scale", "F8_E4M3", (OUT, per(IN, 16))),
            MatrixPart(".weight_scale_2", _quark_scale(stages[1], dtype)),
        )
        return "nvfp4", (nibbles, *scales), "fp4"
    if kinds == ("fp8_e4m3", "int4") and schemes == ("per_tensor", "per_channel"):
        second = _quark_scale(stages[1], dtype)
        scales = MatrixPart(".weight_scale", first), MatrixPart(".weight_scale_2", second, (OUT,))
        words = MatrixPart(".weight", "I32", (OUT, per(IN, 8)))
        return (
            "int4-fp8",
            (words, *scales, MatrixPart(".weight_zero_point_2", "I32", (per(OUT, 8),))),
            "fp8",
        )
    kind, scheme = kinds[0], schemes[0]
    axes = (OUT,) if scheme == "per_channel" else ()
    if len(kinds) == 1 and kind in ("fp8_e4m3", "int8") and scheme in ("per_tensor", "per_channel"):
        name = f"{'int8' if kind == 'int8' else 'fp8'}-{'rows' if axes else 'tensor'}"
        zero = (MatrixPart(".weight_zero_point", "I8", axes),) if kind == "int8" else ()
        values = MatrixPart(".weight", "I8" if kind == "int8" else "F8_E4M3", (OUT, IN))
        return (
            name,
            (values, MatrixPart(".weight_scale", first, axes), *zero),
            name.partition("-")[0],
        )
    is_mx = len(kinds) == 1 and group == 32 and stages[0].get("scale_format") in (None, "e8m0")
    if kind == "mx":
        kind = str(stages[0].get("mx_element_dtype"))
    if is_mx and kind in ("fp4", "mxfp4"):
        return "mxfp4", (nibbles, exponents), ""
    if is_mx and kind in ("fp6_e3m2", "fp6_e2m3"):
        return "mxfp6", (MatrixPart(".weight", "U8", (OUT, per(IN, 8, 6))), exponents), ""
    if (
        len(kinds) == 1
        and kind in ("int4", "uint4")
        and scheme == "per_group"
        and type(group) is int
        and group > 0
    ):
        zero = (MatrixPart(".weight_zero_point", "I32", (per(IN, group), per(OUT, 8))),)
        values = MatrixPart(".weight", "I32", (IN, per(OUT, 8)))
        return (
            f"int4-g{group}",
            (values, MatrixPart(".weight_scale", first, (per(IN, group), OUT)), *zero),
            "",
        )
    if len(kinds) == 1 and kind in ("int4", "uint4") and scheme == "per_channel":
        zero = (MatrixPart(".weight_zero_point", "I32", (per(OUT, 8),)),)
        return (
            "int4-rows",
            (
                MatrixPart(".weight", "I32", (OUT, per(IN, 8))),
                MatrixPart(".weight_scale", first, (OUT,)),
                *zero,
            ),
            "",
        )
    raise _unknown(
        f"quark dtype {' and '.join(kinds)}, {' and '.join(schemes)}, group_size {group}"
    )


def _quark_format(keys: object, dtype: str) -> MatrixFormat | None:
    """Return the format of a layer's config in Quark."""
    weight = keys.get("weight") if isinstance(keys, Mapping) else None
    listed = (
        list(weight) if isinstance(weight, Sequence) and not isinstance(weight, str) else [weight]
    )
    stages: list[Keys] = [x for x in listed if isinstance(x, Mapping)]
    if not isinstance(keys, Mapping) or len(stages) < len(listed) or not stages:
        return None
    name, parts, rate = _quark_weight(stages, dtype)
    title = f"Quark {' and '.join(str(x.get('dtype')) for x in stages)}, {stages[0].get('qscheme')}"
    has_inputs = isinstance(keys.get("input_tensors"), Mapping | Sequence)
    return MatrixFormat(
        name=name,
        title=title,
        parts=(*parts, *_quark_extras(keys, dtype)),
        compute_rate=rate if has_inputs else "",
    )


_last_quark_names: list[tuple[Keys, _Names]] = []
"""The overrides of the config that was read last, as the number types of all its matrices are
asked one by one."""


def _quark_names(overrides: Keys) -> _Names:
    if not _last_quark_names or _last_quark_names[0][0] is not overrides:
        _last_quark_names[:] = [(overrides, _Names(overrides, _like_modelopt))]
    return _last_quark_names[0][1]


def quark_number_types(config: Keys, weight: str) -> tuple[str, ...]:
    """Return the number types of a weight in Quark's config, one for each stage; none if the
    config does not tell.
    """
    layers = config.get("layer_quant_config")
    overrides = layers if isinstance(layers, Mapping) else {}
    found = _quark_names(overrides).find(module_names(weight.removesuffix(".weight")))
    keys = overrides[found] if found else config.get("global_quant_config")
    declared = keys.get("weight") if isinstance(keys, Mapping) else None
    stages = declared if isinstance(declared, list) else [declared]
    return tuple(str(x.get("dtype")) for x in stages if isinstance(x, Mapping))


def _quark(config: Keys, dtype: str) -> Recipe:
    to = _quark_format(config.get("global_quant_config"), dtype)
    layers = config.get("layer_quant_config") or {}
    overrides = (
        {name: _quark_format(keys, dtype) for name, keys in layers.items()}
        if isinstance(layers, Mapping)
        else {}
    )
    types = config.get("layer_type_quant_config") or {}
    if to is None and not overrides:
        raise _unknown("quark without quantized weights")
    if types:
        raise _unknown(f"quark layer_type_quant_config {', '.join(map(str, types))}")
    excluded = _Names(_strings(config, "exclude") or (), _like_quark)
    names = _Names(overrides, _like_modelopt)

    def choose(x: Matrix) -> Choice:
        if (choice := _linear_only(x)) is not None:
            return choice
        if excluded.find(x.names):
            return Choice(None, "in exclude")
        found = names.find(x.names)
        chosen = overrides[found] if found else to
        return Choice(chosen, "" if chosen else "no weights in its config")

    name = "+".join(dict.fromkeys(x.name for x in (to, *overrides.values()) if x))
    cache = config.get("kv_cache_quant_config") or {}
    return Recipe(
        method="quark",
        name=name,
        choose=choose,
        patterns=(*excluded.patterns, *overrides),
        kv_cache="fp8" if cache else "",
    )


_EXPERT_NUMBER = re.compile(r"\.experts\.\d+\.")
_MLX_TOWERS = frozenset({"vision_model", "vision_tower", "visual", "audio_model", "audio_tower"})
"""Modules that mlx-vlm leaves unquantized unless a config names what is in them."""
_MLX_MODES = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}


def _mlx(config: Keys, dtype: str) -> Recipe:
    def format_of(keys: Keys) -> MatrixFormat:
        mode = str(keys.get("mode", "affine"))
        if mode not in ("affine", *_MLX_MODES):
            raise _unknown(f"MLX mode {mode}", "quantization")
        bits, group = _MLX_MODES.get(mode, (4, 64))
        bits, group = _bits(keys, (2, 3, 4, 5, 6, 8), default=bits), _group(keys, group)
        if group < 0:
            raise _unknown(f"MLX group_size {group}", "quantization")
        return formats.mlx_format(bits, group, dtype, mode)

    to = format_of(config)
    defaults = {
        "bits": config.get("bits"),
        "group_size": config.get("group_size"),
        "mode": config.get("mode", "affine"),
    }
    overrides: dict[str, MatrixFormat | None] = {}
    for name, keys in config.items():
        if isinstance(keys, Mapping):
            mode = (
                {"mode": keys["mode"]}
                if "mode" in keys
                else {"mode": "affine"}
                if "bits" in keys
                else {}
            )
            overrides[name] = format_of({**({} if "mode" in keys else defaults), **keys, **mode})
        elif keys is False and "." in name:
            overrides[name] = None
    exact = frozenset(overrides)

    def choose(x: Matrix) -> Choice:
        names = (
            *x.names,
            *(_EXPERT_NUMBER.sub(".switch_mlp.", name) for name in x.names if x.kind == "expert"),
        )
        found = next((name for name in names if name in exact), "")
        if found:
            return Choice(overrides[found], "" if overrides[found] else "false in quantization")
        if x.kind == "other" or x.in_gate_class:
            return Choice(None, "router" if x.in_gate_class else _NOT_LINEAR)
        if any(part in _MLX_TOWERS for part in x.names[0].split(".")):
            return Choice(None, "tower")
        return Choice(to)

    name = "+".join(dict.fromkeys((to.name, *sorted(x.name for x in overrides.values() if x))))
    return Recipe(method="mlx", name=name, choose=choose, patterns=tuple(overrides))


_METHODS: dict[str, Callable[[Keys, str], Recipe]] = {
    "fp8": _fp8,
    "mxfp8": _fp8,
    "awq": _awq,
    "gptq": _gptq,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "modelopt": _modelopt,
    "compressed-tensors": _compressed_tensors,
    "auto-round": _auto_round,
    "quark": _quark,
    "mlx": _mlx,
    "fbgemm_fp8": _simple(
        lambda *_: formats.fp8_rows_format(), "fbgemm_fp8", "modules_to_not_convert"
    ),
    "eetq": _simple(lambda *_: formats.eetq_format(), "eetq", "modules_to_not_convert"),
    "bitnet": _bitnet,
    "hqq": _hqq,
    "torchao": _torchao,
}
_REFUSED = {
    "vptq": "the lengths of its indices and codebooks follow from no published rule",
    "aqlm": "its codebooks are not described here",
    "spqr": "its sparse part has a length of its own in each matrix",
    "higgs": "its packing depends on the GPU that it was made for",
    "quanto": "transformers quantizes such a model when it loads it, and cannot save it",
    "sinq": "its layout is not published",
    "fp_quant": "its layout depends on how it is loaded",
    "metal": "transformers quantizes such a model when it loads it",
    "fouroversix": "its layout is not published",
}
"""Methods of transformers whose tensors do not follow from the config, with the reason."""
_SAME_METHODS = {
    "modelopt_fp4": "modelopt",
    "modelopt_fp8": "modelopt",
    "modelopt_mixed": "modelopt",
    "nvfp4": "modelopt",
    "compressed_tensors": "compressed-tensors",
    "intel/auto-round": "auto-round",
    "auto_round": "auto-round",
    "bnb": "bitsandbytes",
    "gptqmodel": "gptq",
}


def read_recipe(config: Keys, dtype: str = "BF16", *, is_mlx: bool = False) -> Recipe:
    """Read a quantization config; `dtype` is that of unquantized weights. An unknown recipe is
    an error that names it.
    """
    method = config.get("quant_method")
    producer = config.get("producer")
    if not isinstance(method, str):
        inner = config.get("quantization")
        declares_algorithm = any(
            isinstance(x, Mapping) and "quant_algo" in x for x in (config, inner)
        )
        if declares_algorithm or (
            isinstance(producer, Mapping) and producer.get("name") == "modelopt"
        ):
            method = "modelopt"
        elif is_mlx or (
            "bits" in config
            and "group_size" in config
            and "sym" not in config
            and "zero_point" not in config
        ):
            method = "mlx"
        elif config.get("load_in_4bit") or config.get("load_in_8bit"):
            method = "bitsandbytes"
        elif isinstance(config.get("config_groups"), Mapping):
            method = "compressed-tensors"
    name = str(method or "without a quant_method").lower()
    if name == "compressed-tensors" and isinstance(config.get("quantization_config"), Mapping):
        config = config["quantization_config"]
    read = _METHODS.get(_SAME_METHODS.get(name, name))
    if read is None and name in _REFUSED:
        raise UnknownQuantization(
            f"quantization quant_method {name} in quantization_config cannot be sized: "
            f"{_REFUSED[name]}",
            hint=_counted_or_given(),
        )
    if read is None:
        raise _unknown(f"quant_method {method}" if method else "config without a quant_method")
    return read(config, dtype)
