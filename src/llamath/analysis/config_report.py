"""`config`: the configuration said twice, as Hugging Face's keys and as Meta's `ModelArgs`, each key with what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ..config_keys import CONFIG_KEYS, GROUPS, NO_EFFECT, SYNONYMS, describe_key
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.errors import ConfigError
from ..core.expr import Dim
from ..core.meta_args import LLAMA3_ROPE_SCALING, ModelArgs, config_to_args, ffn_width_args
from ..core.record_type import Record
from ..core.tree import fold

T = TypeVar("T")
Kinds = tuple[str, ...]
UNKNOWN = "not a key that is known here"
UNREAD = "unread"
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
"""Hugging Face's key → the fields of `ModelArgs` that say the same."""


class ConfigKey(Record):
    """One key, dotted if nested: what holds, whether only because it is absent or null, what it says, and what it moves."""

    key: str
    value: Any
    absent: bool
    says: str
    moves: str
    group: str  # of `GROUPS`, or `unread`
    meta: tuple[str, ...] = ()


class Derived(Record):
    """A number that follows from several keys."""

    says: str
    formula: str
    value: int | float


class ConfigReport(Record):
    """Both sayings; `meta` is None where the reference cannot express the model, and `why` says why."""

    keys: tuple[ConfigKey, ...]
    meta: ModelArgs | None
    why: str = ""
    derived: tuple[Derived, ...] = ()
    widths: tuple[tuple[int, float | None], ...] = ()  # every (multiple_of, ffn_dim_multiplier) found that gives the feed-forward width
    remarks: tuple[str, ...] = ()  # what `ModelArgs` leave unsaid


class _RecordingConfig(Config):
    """A configuration that keeps apart what a builder uses, what it only knows, and what a null says."""

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
            self.objects[key] = _RecordingConfig(super().sub(key).data, self.source, f"{self._path}{key}.")
        return self.objects[key]


_LLAMA_ONLY = "Meta's reference implements the llama family alone"


def config_report(config: Config, family: str, build: Callable[[Config], Decoder], meta: ModelArgs | bool) -> ConfigReport:
    """Explain a configuration that has been read; `meta` are the arguments it came from, or whether Meta's reference has its family."""
    own = meta is not False
    seen = _RecordingConfig(config.data, config.source)
    tree = build(seen)
    sizes = [dim for x in fold(tree) for dim in (*x.weight.shape, Dim.const(x.copies))]
    letters = {letter: n for dim in sizes for letter, n in dim.atoms.items()}
    kinds = (family, *(kind for kind, there in (("latent", "kv_lora_rank" in seen.keys_read), ("hybrid", "c" in letters)) if there))
    learned = seen.key_by_symbol.get("C", "") if "C" in letters else ""
    args, why = (meta, "") if isinstance(meta, ModelArgs) else _meta(config) if own else (None, _LLAMA_ONLY)
    return ConfigReport(
        keys=tuple(_keys(seen, config.keys_read, kinds, learned)),
        meta=args,
        why=why,
        derived=tuple(_derived(letters, own)),
        widths=() if args is None else tuple(dict.fromkeys(ffn_width_args(args.dim, args.ffn_width))),
        remarks=() if args is None else tuple(_remarks(config, tree)),
    )


def params_json(args: ModelArgs) -> Mapping[str, Any]:
    """The fields that a published `params.json` has."""
    skipped = {"max_batch_size", "max_seq_len"} | ({"use_scaled_rope"} if not args.use_scaled_rope else set())
    return {name: value for name in args.fields if name not in skipped and (value := getattr(args, name)) is not None}


def _keys(seen: _RecordingConfig, read: set[str], kinds: Kinds, learned: str) -> list[ConfigKey]:
    """Every key that is there or was found absent, by what it moves; what is inside an object follows it."""
    nested = {name: list(_level(x, kinds, f"{name}.", seen)) for name, x in seen.objects.items() if x.data}
    said = {SYNONYMS.get(x, x) for x in seen.data} | {x.key.rpartition(".")[2] for keys in nested.values() for x in keys if not x.absent}
    used = read - (seen.known - seen.keys_read)
    keys = [_present(seen, name, (*kinds, "learned") if name == learned else kinds, "", used) for name in seen.data]
    present = {*said, *seen.data}
    keys += [_absent(name, default, kinds) for name, default in seen.defaults_used.items() if not {name, SYNONYMS.get(name)} & present]
    return [y for x in sorted(keys, key=_rank) for y in (x, *nested.get(x.key, ()))]


def _level(seen: _RecordingConfig, kinds: Kinds, path: str, top: _RecordingConfig) -> Iterator[ConfigKey]:
    """The keys inside an object; what it leaves to a key outside of it is not among them."""
    for name in seen.data:
        yield _present(seen, name, kinds, path, seen.keys_read)
        if name in seen.objects:
            yield from _level(seen.objects[name], kinds, f"{path}{name}.", top)
    yield from (
        _absent(path + name, x, kinds) for name, x in seen.defaults_used.items() if name not in {*seen.data, *top.data, *top.defaults_used}
    )


def _present(seen: _RecordingConfig, name: str, kinds: Kinds, path: str, used: set[str]) -> ConfigKey:
    key, value = path + name, seen.data[name]
    default = seen.defaults_used.get(name) if value is None else None
    says, moves, group = _words(key, kinds, "used" if name in used else "known" if name in seen.known else UNREAD)
    value = value if default is None else default
    return ConfigKey(key=key, value=value, absent=default is not None, says=says, moves=moves, group=group, meta=META_FIELDS.get(key, ()))


def _absent(key: str, default: object, kinds: Kinds) -> ConfigKey:
    says, moves, group = _words(key, kinds, "used")
    return ConfigKey(key=key, value=default, absent=True, says=says, moves=moves, group=group, meta=META_FIELDS.get(key, ()))


def _words(key: str, kinds: Kinds, state: str) -> tuple[str, str, str]:
    """What is said of a key, and its group, by whether the family uses it, knows it and does not, or never read it."""
    says, moves = describe_key(key, *kinds) or (NO_EFFECT.get(key, UNKNOWN), "nothing")
    group = moves.split()[0].rstrip(":;,")
    if state == UNREAD:
        if key in NO_EFFECT or key.startswith("_"):
            return NO_EFFECT.get(key, "metadata"), "nothing", "nothing"
        return says, "not read" if says == UNKNOWN else f"not read; elsewhere {moves}", UNREAD
    if state == "known" and group not in ("apart", "nothing"):
        return says, "nothing in this model", "nothing"
    return says, moves, group


def _rank(key: ConfigKey) -> tuple[int, int, bool]:
    """The heaviest first, then in the order of `CONFIG_KEYS`."""
    order = list(CONFIG_KEYS)
    name = SYNONYMS.get(key.key, key.key)
    return (*GROUPS, UNREAD).index(key.group), order.index(name) if name in CONFIG_KEYS else len(order), key.absent


def _meta(config: Config) -> tuple[ModelArgs | None, str]:
    """The same model as `ModelArgs`, or why there is none."""
    try:
        return config_to_args(Config(config.data, config.source)), ""
    except ConfigError as error:
        return None, str(error)


def _remarks(config: Config, tree: Decoder) -> Iterator[str]:
    """What gets lost in `ModelArgs`."""
    if tree.head is not None and (head := tree.head.weight).tied:
        yield (
            "the head is the embedding itself, which params.json cannot say: read back, it counts "
            f"{int(head.size):,} more, unless with --set tie_word_embeddings=true"
        )
    given = config.data.get("rope_parameters") or config.data.get("rope_scaling") or {}
    if other := [
        f"{key} {given[key]}, not {value}"
        for key, value in LLAMA3_ROPE_SCALING.items()
        if given.get(key, value) != value and key != "rope_type"
    ]:
        yield f"use_scaled_rope stands for constants in the reference's code; this model has {', '.join(other)}"


def _derived(letters: Mapping[str, int], own: bool) -> Iterator[Derived]:
    """What follows from the dimensions, by their letters."""
    n = letters.get
    d, H, h, K, F, L = n("d"), n("H"), n("h"), n("K"), n("F"), n("L")
    if d and H and h:
        yield Derived(says="numbers in one head", formula="h = d / H" if H * h == d else "h, not d / H", value=h)
    if H and h and H * h != d:
        yield Derived(says="numbers in the queries of all heads", formula="H·h", value=H * h)
    if H and K:
        yield Derived(says="query heads for each key/value head", formula="H / K", value=H // K)
    if own and L and K and h:
        yield Derived(says="numbers in the cache for each token", formula="2·L·K·h", value=2 * L * K * h)
    if "r" in letters and "p" in letters and not h:
        yield Derived(says="numbers in the cache for each token and layer", formula="r + p", value=letters["r"] + letters["p"])
    if F and d:
        yield Derived(says="the feed-forward's width over the stream's", formula="F / d", value=F // d if F % d == 0 else round(F / d, 4))
