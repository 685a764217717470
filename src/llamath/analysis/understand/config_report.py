"""`config_report`: the config as Hugging Face's keys and as Meta's `ModelArgs`, with the meaning
and the effect of each key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

from ...checkpoint.meta_args import LLAMA3_ROPE_SCALING, ModelArgs, config_to_args, ffn_width_args
from ...config_keys import NO_EFFECT, SYNONYMS
from ...config_keys.key_meanings import CONFIG_KEYS, GROUPS, describe_key, describe_tower_key
from ...core.blocks import Decoder
from ...core.config import Config
from ...core.expr import Expr
from ...core.tree import fold
from ...families.multimodal_registry import TEXT_KEYS
from ...model import FamilyModel
from ...render.report import Report
from ...render.tables import Part
from ...utils.errors import ConfigError
from ...utils.number_format import format_count
from ...utils.record_type import Record
from .config_tables import UNREAD, config_tables

T = TypeVar("T")
_ModelKinds = tuple[str, ...]
_UNKNOWN = "unknown key"
META_FIELDS = {
    "hidden_size": ("dim",),
    "num_hidden_layers": ("n_layers",),
    "num_attention_heads": ("n_heads",),
    "num_key_value_heads": ("n_kv_heads",),
    "vocab_size": ("vocab_size",),
    "intermediate_size": ("multiple_of", "ffn_dim_multiplier"),
    "rms_norm_eps": ("norm_eps",),
    "rope_theta": ("rope_theta",),
    "rope_scaling": ("use_scaled_rope",),
    "rope_parameters": ("use_scaled_rope",),
    "rope_parameters.rope_theta": ("rope_theta",),
}
"""Hugging Face's key → the fields of `ModelArgs` with the same meaning."""


class ConfigKey(Record):
    """One key, with dots if nested: its value, its meaning and its effect."""

    key: str
    value: Any
    absent: bool  # whether it is absent or null, and the value is the family's default
    says: str
    moves: str
    group: str  # of `GROUPS`, or `unread`
    meta: tuple[str, ...] = ()  # fields of `ModelArgs`


class _DerivedSize(Record):
    """A size that follows from several keys."""

    says: str
    formula: str
    value: int | float


class _WidthRule(NamedTuple):
    """A rule of Meta's for the width of the MLP."""

    multiple_of: int
    ffn_dim_multiplier: float | None


class ConfigReport(Report):
    """A model's config with explanations; `meta` is None if Meta's reference cannot express the
    model, for the reason `why`.
    """

    model: FamilyModel
    keys: tuple[ConfigKey, ...]
    meta: ModelArgs | None
    why: str | None = None
    derived: tuple[_DerivedSize, ...] = ()
    widths: tuple[_WidthRule, ...] = ()  # all rules that give the model's MLP width
    remarks: tuple[str, ...] = ()  # properties that `ModelArgs` cannot express

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "hf=model.config.data",
            "meta",
            "why",
            "keys",
            "derived",
            "widths",
            "remarks",
        ),
    )

    @property
    def summary(self) -> str:
        """The number of keys, and whether there is a params.json."""
        num_present = sum(not x.absent for x in self.keys)
        return (
            f"{self.model.name}: {format_count(num_present, 'config key')}, "
            f"{'no ' if self.meta is None else ''}params.json"
        )

    @property
    def headline(self) -> str:
        """The model."""
        return f"{self.model.name}: the config, key by key"

    @property
    def setting(self) -> str:
        """The source, and how to read the table."""
        family = f"{self.model.family.name} family, from {self.model.source}"
        return f"{family}\nbelow each key: its meaning → what it changes"

    @property
    def entries(self) -> Sequence[ConfigKey]:
        """The keys."""
        return self.keys

    @property
    def stated_notes(self) -> tuple[str, ...]:
        """The properties that `ModelArgs` cannot express."""
        return self.remarks

    def tables(self) -> Iterable[Part]:
        """The keys by effect next to Meta's arguments, and the sizes that follow."""
        return config_tables(self)


class _RecordingConfig(Config):
    """A config that records the keys that a builder reads, the keys that it declares without
    use, and the null keys.
    """

    def __init__(self, data: Mapping[str, Any], source: str = "config", path: str = "") -> None:
        super().__init__(data, source, path)
        self.known: set[str] = set()
        self.objects: dict[str, _RecordingConfig] = {}

    def ignore(self, *keys: str) -> None:
        self.known.update(keys)

    def nullable(self, keys: str, default: T) -> T | None:
        value = super().nullable(keys, default)
        if value is None:
            self.defaults_used.pop(keys.split("|")[0], None)
        return value

    def sub(self, key: str) -> Config:
        if key not in self.objects:
            self.objects[key] = _RecordingConfig(
                super().sub(key).data, self.source, f"{self._path}{key}."
            )
        return self.objects[key]


_LLAMA_ONLY = "Meta's reference implements only the llama family"


def config_report(model: FamilyModel, with_meta: bool = True) -> ConfigReport:
    """Explain the config of a model; without `with_meta`, Meta's arguments are left out."""
    config, family = model.config, model.family
    has_meta = with_meta and family.meta is not None
    recording = _RecordingConfig(config.data, config.source)
    tree = family.build(recording)
    sizes = [dim for x in fold(tree) for dim in (*x.weight.shape, Expr.const(x.copies))]
    letters = {letter: n for dim in sizes for letter, n in dim.atoms.items()}
    kinds = (
        family.name,
        *(
            kind
            for kind, present in (
                ("latent", "kv_lora_rank" in recording.keys_read),
                ("hybrid", "c" in letters),
                ("mamba", "R" in letters and "F" not in letters),
            )
            if present
        ),
    )
    learned = recording.key_by_symbol.get("C", "") if "C" in letters else ""
    args, why = (
        (model.args, None)
        if with_meta and model.args
        else _to_model_args(config)
        if has_meta
        else (None, _LLAMA_ONLY)
    )
    return ConfigReport(
        model=model,
        keys=tuple(
            _by_effect([*_keys(recording, config.keys_read, kinds, learned), *_tower_keys(model)])
        ),
        meta=args,
        why=why,
        derived=tuple(_derived(letters, has_meta or args is not None)),
        widths=()
        if args is None
        else tuple(dict.fromkeys(_WidthRule(*x) for x in ffn_width_args(args.dim, args.ffn_width))),
        remarks=() if args is None else tuple(_remarks(config, tree)),
    )


def params_json(args: ModelArgs) -> Mapping[str, Any]:
    """Return the fields that a published `params.json` has."""
    skipped = {"max_batch_size", "max_seq_len"} | (
        {"use_scaled_rope"} if not args.use_scaled_rope else set()
    )
    return {
        name: value
        for name in args.fields
        if name not in skipped and (value := getattr(args, name)) is not None
    }


def params_json_text(model: FamilyModel) -> str:
    """Return a `params.json` that gives this model."""
    report = config_report(model)
    if report.meta is None:
        raise ConfigError(f"{model.name} cannot be expressed as params.json: {report.why}")
    return json.dumps(params_json(report.meta), indent=2)


def _keys(
    recording: _RecordingConfig, read: set[str], kinds: _ModelKinds, learned: str
) -> list[ConfigKey]:
    """Return every key that is present or was read and absent, sorted by effect; the keys inside
    an object follow it.
    """
    nested = {
        name: list(_nested_keys(x, kinds, f"{name}.", recording))
        for name, x in recording.objects.items()
        if x.data
    }
    names = {SYNONYMS.get(x, x) for x in recording.data} | {
        x.key.rpartition(".")[2] for keys in nested.values() for x in keys if not x.absent
    }
    used = read - (recording.known - recording.keys_read)
    keys = [
        _present(recording, name, (*kinds, "learned") if name == learned else kinds, "", used)
        for name in recording.data
    ]
    present = {*names, *recording.data}
    keys += [
        _absent(name, default, kinds)
        for name, default in recording.defaults_used.items()
        if not {name, SYNONYMS.get(name)} & present
    ]
    return [y for x in sorted(keys, key=_rank) for y in (x, *nested.get(x.key, ()))]


def _by_effect(keys: Iterable[ConfigKey]) -> list[ConfigKey]:
    """Sort keys by their groups; the keys inside an object stay after it."""
    blocks: list[list[ConfigKey]] = []
    for x in keys:
        if "." in x.key and blocks:
            blocks[-1].append(x)
        else:
            blocks.append([x])
    return [
        x
        for block in sorted(blocks, key=lambda x: (*GROUPS, UNREAD).index(x[0].group))
        for x in block
    ]


def _tower_keys(model: FamilyModel) -> Iterator[ConfigKey]:
    """Yield the keys of the towers and of the whole configuration of a multimodal model, those
    of a tower after its own key.
    """
    if model.outer is None:
        return
    for x in _keys_of_part(model.outer, ""):
        if x.key not in model.config.data and x.key not in TEXT_KEYS:
            yield x
            if x.key in model.outer.nested:
                yield from _keys_of_part(model.outer.nested[x.key], f"{x.key}.")


def _keys_of_part(part: Config, path: str) -> Iterator[ConfigKey]:
    """Yield the keys of a tower's configuration, or of the whole one; those that were absent
    last.
    """
    absent = {
        key: x
        for key, x in part.defaults_used.items()
        if key not in part.data and not isinstance(x, Mapping)
    }
    for key, value in {**part.data, **absent}.items():
        no_effect = (
            "ids of special tokens"
            if key.endswith(("_token_id", "_token_index"))
            else NO_EFFECT.get(key)
        )
        if key in part.keys_read and (entry := describe_tower_key(key)) is not None:
            says, moves = entry
        elif no_effect is not None or key.startswith("_"):
            says, moves = no_effect or "metadata", "nothing"
        else:
            says, moves = _UNKNOWN, "not read"
        group = UNREAD if moves == "not read" else moves.split()[0].rstrip(":;,")
        yield ConfigKey(
            key=path + key, value=value, absent=key in absent, says=says, moves=moves, group=group
        )


def _nested_keys(
    recording: _RecordingConfig, kinds: _ModelKinds, path: str, top: _RecordingConfig
) -> Iterator[ConfigKey]:
    """Yield the keys inside an object, except those that fall back to a key outside of it."""
    for name in recording.data:
        yield _present(recording, name, kinds, path, recording.keys_read)
        if name in recording.objects:
            yield from _nested_keys(recording.objects[name], kinds, f"{path}{name}.", top)
    yield from (
        _absent(path + name, x, kinds)
        for name, x in recording.defaults_used.items()
        if name not in {*recording.data, *top.data, *top.defaults_used}
    )


def _present(
    recording: _RecordingConfig, name: str, kinds: _ModelKinds, path: str, used: set[str]
) -> ConfigKey:
    key, value = path + name, recording.data[name]
    default = recording.defaults_used.get(name) if value is None else None
    says, moves, group = _describe(
        key, kinds, "used" if name in used else "known" if name in recording.known else UNREAD
    )
    value = value if default is None else default
    return ConfigKey(
        key=key,
        value=value,
        absent=default is not None,
        says=says,
        moves=moves,
        group=group,
        meta=META_FIELDS.get(key, ()),
    )


def _absent(key: str, default: object, kinds: _ModelKinds) -> ConfigKey:
    says, moves, group = _describe(key, kinds, "used")
    return ConfigKey(
        key=key,
        value=default,
        absent=True,
        says=says,
        moves=moves,
        group=group,
        meta=META_FIELDS.get(key, ()),
    )


def _describe(key: str, kinds: _ModelKinds, state: str) -> tuple[str, str, str]:
    """Return a key's meaning, effect and group, given whether the family uses it, ignores it or
    never read it.
    """
    says, moves = describe_key(key, *kinds) or (NO_EFFECT.get(key, _UNKNOWN), "nothing")
    group = moves.split()[0].rstrip(":;,")
    if state == UNREAD:
        if key in NO_EFFECT or key.startswith("_"):
            return NO_EFFECT.get(key, "metadata"), "nothing", "nothing"
        return says, "not read" if says == _UNKNOWN else f"not read; elsewhere {moves}", UNREAD
    if state == "known" and group not in ("apart", "nothing"):
        return says, "nothing in this model", "nothing"
    return says, moves, group


def _rank(key: ConfigKey) -> tuple[int, int, bool]:
    """Return the sort key: keys of weights first, then in the order of `CONFIG_KEYS`."""
    order = list(CONFIG_KEYS)
    name = SYNONYMS.get(key.key, key.key)
    return (
        (*GROUPS, UNREAD).index(key.group),
        order.index(name) if name in CONFIG_KEYS else len(order),
        key.absent,
    )


def _to_model_args(config: Config) -> tuple[ModelArgs | None, str | None]:
    """Return the model as `ModelArgs`, or the reason why there are none."""
    try:
        return config_to_args(Config(config.data, config.source)), None
    except ConfigError as error:
        return None, str(error)


def _remarks(config: Config, tree: Decoder) -> Iterator[str]:
    """Yield the properties that `ModelArgs` cannot express."""
    if tree.head is not None and (head := tree.head.weight).tied:
        yield (
            "the head is tied to the embedding, which params.json cannot express: read from "
            "there, the model counts "
            f"{int(head.size):,} more parameters, unless tie_word_embeddings is set to true"
        )
    rope_scaling = config.rope().data
    if other := [
        f"{key} {rope_scaling[key]}, not {value}"
        for key, value in LLAMA3_ROPE_SCALING.items()
        if rope_scaling.get(key, value) != value and key != "rope_type"
    ]:
        yield (
            "use_scaled_rope stands for constants in Meta's code; this model has "
            f"{', '.join(other)}"
        )


def _derived(letters: Mapping[str, int], has_meta: bool) -> Iterator[_DerivedSize]:
    """Yield the sizes that follow from the dimensions."""
    n = letters.get
    d, H, h, K, F, L = n("d"), n("H"), n("h"), n("K"), n("F"), n("L")
    if d and H and h:
        yield _DerivedSize(
            says="size of a head", formula="h = d / H" if H * h == d else "h, not d / H", value=h
        )
    if H and h and H * h != d:
        yield _DerivedSize(says="size of the queries of all heads", formula="H·h", value=H * h)
    if H and K:
        yield _DerivedSize(says="query heads per key/value head", formula="H / K", value=H // K)
    if has_meta and L and K and h:
        yield _DerivedSize(says="cached elements per token", formula="2·L·K·h", value=2 * L * K * h)
    if "r" in letters and "p" in letters and not h:
        yield _DerivedSize(
            says="cached elements per token and layer",
            formula="r + p",
            value=letters["r"] + letters["p"],
        )
    if F and d:
        yield _DerivedSize(
            says="FFN size over hidden size",
            formula="F / d",
            value=F // d if F % d == 0 else round(F / d, 4),
        )
