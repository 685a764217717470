"""`Config`: a model's configuration, which checks the types of values and records which keys were
read.

`a|b` reads the first of these keys that is present. An absent key, or null, has the family's
default; without a default it is an error. Only exact types are accepted: a count is a JSON integer,
never a float, a boolean or a string.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast, overload

from ..utils.errors import ConfigError, ImpossibleModel, safe
from ..utils.named_tuple import NamedTuple
from .attention_facts import Heads
from .expr import Expr

T = TypeVar("T")
_MISSING: Any = object()


class Activation(NamedTuple):
    """An activation function, and what the views know of it."""

    # that machines compute: several names of transformers have the same; empty: a block of its
    # family computes it
    function: str
    plain: str  # of an MLP without a gate
    gated: str  # of one with a gate (Shazeer 2020, arXiv:2002.05202)
    is_hidden_act: bool = True  # whether a config may name it for its MLPs
    needs_output_only: bool = False  # its derivative does not need the input
    # transformers composes it of several operations: tensors that these save in between
    composed: int = 0


_SILU = Activation("silu", "SiLU", "SwiGLU")
_GELU = Activation("gelu", "GELU", "GeGLU")
_TANH_GELU = Activation("gelu_tanh", "GELU", "GeGLU")
ACTIVATIONS: dict[str, Activation] = {
    "silu": _SILU,
    "swish": _SILU,
    "gelu": _GELU,
    "gelu_python": _GELU,
    "gelu_fast": _TANH_GELU,
    "gelu_pytorch_tanh": _TANH_GELU,
    "gelu_new": _TANH_GELU._replace(composed=3),
    "quick_gelu": Activation("quick_gelu", "GELU", "GeGLU", composed=1),
    "relu": Activation("relu", "ReLU", "ReGLU", needs_output_only=True),
    "relu2": Activation("relu2", "ReLU²", "gated ReLU²"),
    "sigmoid": Activation("sigmoid", "sigmoid", "GLU", False, needs_output_only=True),
    "softplus": Activation("softplus", "softplus", "softplus", False),
    "tanh": Activation("tanh", "tanh", "tanh", False, needs_output_only=True),
    "swigluoai": Activation("", "swigluoai", "swigluoai"),
    "xielu": Activation("", "xIELU", "xIELU", False),
}
HIDDEN_ACTS = frozenset({name for name, x in ACTIVATIONS.items() if x.is_hidden_act})
"""The names of `hidden_act` that are read; those of one family alone are read by its file."""


_READ_BY_CLASSES = frozenset(
    (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "max_position_embeddings",
        "sliding_window",
        "rope_type",
    )
)
"""Of synonyms that disagree, transformers' classes read these: they are the classes' own names,
or replace them (`attribute_map`)."""
_REPLACES_HIDDEN_SIZE = "n_embed"
"""A synonym that the classes of BLOOM and Falcon read instead of hidden_size, and others do not
know."""


class Config:
    """One JSON object of a configuration."""

    def __init__(
        self,
        data: Mapping[str, Any],
        source: str = "config",
        path: str = "",
        preferred: Collection[str] = (),
    ) -> None:
        self.data = data
        self.preferred = preferred  # keys that take precedence over their synonyms
        self.source = source
        self._path = path
        self.keys_read: set[str] = set()  # every key that was read
        # keys that were absent, with the family's default
        self.defaults_used: dict[str, object] = {}
        # dimensions among them whose default is a constant of the family
        self.assumed_dims: dict[str, int] = {}
        self.key_by_symbol: dict[str, str] = {}  # letter of a dimension → its key
        # key that was read → its synonyms that are present with other values
        self.disagreements: dict[str, tuple[str, ...]] = {}
        self.nested: dict[str, Config] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and (self.data, self._path) == (other.data, other._path)

    def __hash__(self) -> int:
        return hash((self._path, frozenset(self.data)))

    def __repr__(self) -> str:
        return f"Config({self.source!r}, {len(self.data)} keys)"

    def __contains__(self, keys: str) -> bool:
        self.keys_read.update(keys.split("|"))
        return any(self.data.get(key) is not None for key in keys.split("|"))

    def __getitem__(self, keys: str) -> Any:
        return self.get(keys, _MISSING)

    def get(self, keys: str, default: T) -> T:
        """Return the value of the first of these keys that is present; it must have the type of
        the default.
        """
        self.keys_read.update(keys.split("|"))
        key = self._present(keys)
        if self.data.get(key) is None:
            if default is _MISSING:
                raise self.error(key, "is missing", "every config.json of such a model has it")
            self.defaults_used.setdefault(key, default)
            return default
        value = self.data[key]
        if not _fits(value, default):
            raise self.error(
                key,
                f"should be {_KINDS.get(type(default), 'something else')}, not "
                f"{safe(repr(value), 60)}",
            )
        return cast(T, float(value) if type(default) is float else value)

    def nullable(self, keys: str, default: T) -> T | None:
        """Like `get`, but an explicit null is None instead of the default."""
        names = keys.split("|")
        value = self.get(keys, default)
        return None if keys not in self and any(name in self.data for name in names) else value

    def dim(self, symbol: str, keys: str, default: int = _MISSING, least: int = 1) -> Expr:
        """Read a dimension and name it; a default that derives from other dimensions (a Expr) is
        the usual one and is not noted.
        """
        value = self.get(keys, _MISSING if default is _MISSING else int(default))
        if keys not in self:
            self.defaults_used[keys.split("|")[0]] = value
            if not isinstance(default, Expr):
                self.assumed_dims[keys.split("|")[0]] = value
        if type(value) is not int or not least <= value < 2**63:
            kind = "a positive integer" if least == 1 else f"an integer of at least {least}"
            raise self.error(
                self._present(keys),
                f"should be {kind}, not {safe(repr(value), 60)}",
                "a dimension is a JSON integer, like 4096",
            )
        self.key_by_symbol.setdefault(symbol, self._present(keys))
        return Expr(symbol, value)

    @overload
    def positive_int(self, keys: str) -> int | None: ...
    @overload
    def positive_int(self, keys: str, default: int) -> int: ...
    def positive_int(self, keys: str, default: int | None = None) -> int | None:
        """Return a positive integer; without a default, None if it is absent: a window, a
        context.
        """
        value = self.get(keys, default)
        if value is not None and (type(value) is not int or not 0 < value < 2**63):
            or_null = " or null" if default is None else ""
            raise self.error(
                self._present(keys),
                f"should be a positive integer{or_null}, not {safe(repr(value), 60)}",
            )
        return value

    def one_of(self, keys: str, default: str, *others: str) -> str:
        """Return a word that is the default or one of the others."""
        known, word = (default, *others), self.get(keys, default)
        if word not in known:
            raise self.error(
                self._present(keys),
                f"is the unknown {safe(repr(word), 60)}",
                f"known: {', '.join(known)}",
            )
        return word

    def require(self, keys: str, only: object, reason: str) -> None:
        """Refuse every value but this one, which an absent key has, for a reason like "every
        published model has it".
        """
        if (value := self.get(keys, only)) != only:
            raise self.error(
                self._present(keys),
                f"should be {_json(only)}, not {safe(_json(value), 60)}",
                reason,
            )

    def number(self, keys: str) -> float | None:
        """Return a number, or None if it is absent."""
        value: Any = self.get(keys, None)
        if value is not None and not _fits(value, 1.0):
            raise self.error(
                self._present(keys), f"should be a number or null, not {safe(repr(value), 60)}"
            )
        return None if value is None else float(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """Return a list of numbers."""
        values: list[float] = self.get(key, cast("list[float]", []))
        if not values or not all(_fits(x, 1.0) for x in values):
            raise self.error(key, "should be a list of numbers")
        return tuple(map(float, values))

    def activation(self, keys: str, default: str = "silu") -> str:
        """Return the name of a known activation function."""
        name = self.get(keys, default)
        if name not in HIDDEN_ACTS:
            raise self.error(
                self._present(keys),
                f"names the unknown activation {safe(repr(name), 60)}",
                f"known: {', '.join(sorted(HIDDEN_ACTS))}",
            )
        return name

    def heads(
        self,
        d: int,
        kv_keys: str = "num_key_value_heads",
        query_keys: str = "num_attention_heads",
        *,
        num_heads: int | None = None,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        rounded_down: bool = False,
    ) -> Heads:
        """Read the heads; `num_heads`, `num_kv_heads` and `head_dim` are the family's defaults
        where they are not (an error, H, d / H).

        `rounded_down`: H need not divide d.
        """
        H = self.dim("H", query_keys, default=num_heads or _MISSING)
        null = any(name in self.data for name in kv_keys.split("|")) and kv_keys not in self
        K = self.dim("K", kv_keys, default=H if null else num_kv_heads or H)
        if H % K:
            hint = "each key/value head serves the same number of query heads"
            raise self.error(
                self._present(kv_keys),
                f"is {K}, which does not divide the {H} attention heads",
                hint,
            )
        if "head_dim" not in self and not head_dim and not rounded_down and d % H:
            hint = "give head_dim if heads are not d / H wide"
            raise self.error(
                self._present(query_keys), f"is {H}, which does not divide the width {d}", hint
            )
        return Heads(H, K, self.dim("h", "head_dim", default=head_dim or Expr.const(d // H)))

    def square_heads(
        self, d: int, kv_keys: str = "num_key_value_heads", query_keys: str = "num_attention_heads"
    ) -> Heads:
        """Read the heads of a family whose heads together are always as wide as the residual
        stream.
        """
        H, K, h = self.heads(d, kv_keys, query_keys)
        if H * h != d:
            raise self.error(
                "head_dim", f"is {h}: the heads of this family are always d / H wide, {d // H} here"
            )
        return Heads(H, K, h)

    def rope(self) -> Config:
        """Return the object about rotary positions: `rope_parameters` (transformers 5), or
        `rope_scaling`.
        """
        return self.sub("rope_parameters" if "rope_parameters" in self else "rope_scaling")

    def rope_type(self) -> str:
        """Return the kind of rotary positions that this object describes."""
        return self.get("rope_type|type", "default")

    def sub(self, key: str) -> Config:
        """Return a nested object, empty if absent; the keys that are read in it are recorded
        too.
        """
        if key not in self.nested:
            value = self.get(key, cast("Mapping[str, Any]", {}))
            self.nested[key] = Config(value, self.source, f"{self._path}{key}.")
        return self.nested[key]

    def ignore(self, *keys: str) -> None:
        """Mark keys as known to this family and unused."""
        self.keys_read.update(keys)

    def has_read(self, key: str) -> bool:
        """Whether a key was read, dotted if it is nested."""
        outer, _, inner = key.partition(".")
        return (
            self.nested[outer].has_read(inner)
            if inner and outer in self.nested
            else key in self.keys_read
        )

    def unread(self) -> Iterator[str]:
        """Yield the keys that were not read, dotted."""
        yield from (self._path + key for key in self.data if key not in self.keys_read)
        for sub in self.nested.values():
            yield from sub.unread()

    def error(self, key: str, problem: str, hint: str = "") -> ConfigError:
        """Return an error about one key, with its place and a hint."""
        return ConfigError.of_key(f"{self.source}: {self._path}", key, problem, hint=hint)

    def located(self, error: ImpossibleModel) -> ConfigError:
        """Return an error of a block with the place of the config that the block was made of."""
        place = f"{self._path.removesuffix('.')}: " if self._path else ""
        return ConfigError(f"{self.source}: {place}{error}", hint=error.hint)

    def _present(self, keys: str) -> str:
        """The synonym that is present; of several with different values, the preferred one, or the
        one that transformers' class reads.

        If that is not known, they are an error.
        """
        if "|" not in keys:
            return keys
        names = keys.split("|")
        present = [name for name in names if self.data.get(name) is not None]
        if chosen := [name for name in present if name in self.preferred]:
            return chosen[0]
        for other in present[1:]:
            if self.data[other] != self.data[present[0]]:
                return self._read_by_class(present, other)
        return present[0] if present else names[0]

    def _read_by_class(self, present: Sequence[str], other: str) -> str:
        """Return which of these synonyms transformers' class reads, and note the others; an
        error if that is not known.
        """
        read = next((name for name in present if name in _READ_BY_CLASSES), None)
        if read is None or _REPLACES_HIDDEN_SIZE in present:
            first = present[0]
            raise self.error(
                other,
                f"contradicts {first}: {self.data[other]!r:.60} and "
                f"{self.data[first]!r:.60} for the same thing",
            )
        self.disagreements[read] = tuple(
            name for name in present if self.data[name] != self.data[read]
        )
        return read


def _json(value: object) -> str:
    """Write a value as in a file, a word without quotes."""
    return str(value).lower() if isinstance(value, bool) else str(value)


_KINDS = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    tuple: "a list",
    dict: "an object",
}


def _fits(value: object, default: object) -> bool:
    if default is None or default is _MISSING:
        return True
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    if isinstance(default, float):
        return isinstance(value, (int, float)) and -1e300 < value < 1e300
    if isinstance(default, str):
        return isinstance(value, str)
    if isinstance(default, Mapping):
        return isinstance(value, Mapping)
    if isinstance(default, Sequence):
        return isinstance(value, list)
    return isinstance(value, type(default))
