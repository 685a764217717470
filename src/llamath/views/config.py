"""`config`: the configuration said twice, as Hugging Face's keys and as Meta's `ModelArgs`, each key with what it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from ..args import SCALED, ModelArgs, from_hf, widths
from ..blocks import Decoder
from ..config import Config
from ..errors import ConfigError
from ..glossary import GLOSSARY, GROUPS, NOTHING, SAME, entry
from ..record import Record
from ..tree import fold

T = TypeVar("T")
UNKNOWN = "not a key that is known here"
UNREAD = "unread"
META = {
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


class Key(Record):
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


class Configuration(Record):
    """Both sayings; `meta` is None where the reference cannot express the model, and `why` says why."""

    keys: tuple[Key, ...]
    meta: ModelArgs | None
    why: str = ""
    derived: tuple[Derived, ...] = ()
    widths: tuple[tuple[int, float | None], ...] = ()  # every (multiple_of, ffn_dim_multiplier) found that gives the feed-forward width
    remarks: tuple[str, ...] = ()  # what `ModelArgs` leave unsaid


class Witness(Config):
    """A configuration that keeps apart what a builder uses, what it only knows, and what a null says."""

    def __init__(self, data: Mapping[str, Any], source: str = "config", path: str = "") -> None:
        super().__init__(data, source, path)
        self.known: set[str] = set()
        self.objects: dict[str, Witness] = {}

    def ignore(self, *keys: str) -> None:
        self.known.update(keys)

    def nullable(self, keys: str, default: T) -> T | None:
        value = super().nullable(keys, default)
        if value is None:
            self.absent.pop(keys.split("|")[0], None)
        return value

    def sub(self, key: str) -> Config:
        if key not in self.objects:
            self.objects[key] = Witness(super().sub(key).data, self.source, f"{self._path}{key}.")
        return self.objects[key]


def configuration(config: Config, family: str, build: Callable[[Config], Decoder], own: bool) -> Configuration:
    """Explain a configuration that has been read; `own` says that its family is the one Meta's reference implements."""
    seen = Witness(config.data, config.source)
    tree = build(seen)
    letters = {letter: n for x in fold(tree) for dim in (*x.weight.shape, x.copies) for letter, n in getattr(dim, "atoms", {}).items()}
    keys = sorted(_keys(seen, config.read, family, {seen.letters["C"]} if "C" in letters and "C" in seen.letters else set()), key=_rank)
    meta, why = _meta(config) if own else (None, "Meta's reference implements the llama family alone")
    return Configuration(
        keys=tuple(keys),
        meta=meta,
        why=why,
        derived=tuple(_derived(letters, config, own)),
        widths=() if meta is None else tuple(dict.fromkeys(widths(meta.dim, meta.hidden))),
        remarks=() if meta is None else tuple(_remarks(config, tree, meta)),
    )


def params_json(args: ModelArgs) -> Mapping[str, Any]:
    """The fields that a published `params.json` has."""
    skipped = {"max_batch_size", "max_seq_len"} | ({"use_scaled_rope"} if not args.use_scaled_rope else set())
    return {name: value for name in args.fields if name not in skipped and (value := getattr(args, name)) is not None}


def _keys(seen: Witness, read: set[str], family: str, learned: set[str], path: str = "") -> Iterator[Key]:
    """The keys that are there and those that a builder found absent, with what is inside them; `learned` have a table of positions."""
    for name, value in seen.data.items():
        default = seen.absent.get(name) if value is None else None
        words = _words(path + name, "learned" if name in learned else family, _state(name, seen, read))
        yield Key(key=path + name, value=value if default is None else default, absent=default is not None, **words)
        if name in seen.objects and value:
            yield from _keys(seen.objects[name], seen.objects[name].read, family, set(), f"{path}{name}.")
    inside = {name for x in _objects(seen) for name in x.data}
    for name, default in seen.absent.items():
        if name not in seen.data and name not in (inside if not path else read_outside(seen, read)):
            yield Key(key=path + name, value=default, absent=True, **_words(path + name, family, "used"))
