"""The memory of a model without its weights, as forms of the numbers in its configuration: its
cache, with windows from keys that change no weight, the peak of its activations, and the letters
that tensor parallelism splits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from ...analysis.graph.liveness import live_elements
from ...analysis.graph.node import FLOAT32
from ...analysis.graph.recorder import record
from ...analysis.size.fit.serving_layouts import tp_degrees
from ...analysis.size.memory.cache_bytes import cache_specs, sum_cache_specs
from ...analysis.size.memory.gpu_shards import ShardedModel
from ...analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from ...core.blocks import Decoder
from ...core.expr import Expr, Json, compute, floor_div, total
from ...core.tree import fold
from ...model import FamilyModel
from ...questions.layout import Layout
from ...utils.errors import LlamathError
from ...utils.record_type import Record

TOKENS = "T"
"""The variable of the form of a cache."""
NO_WINDOW = 2**62
"""Stands for a window that a config does not have."""
GPU_COUNTS = (1, 2, 4, 8, 16)
"""The numbers of GPUs over which the page splits a model."""
_SOME_TOKENS = 8192
_MARK = 1_000_003
"""A window in whose place a letter is written."""
_WINDOWS = (7, 640, 30_000)
_USUAL = (512, 1024, 2048, 4096)
_MAX_PERIOD = 9
_ALL = "*"
"""Before the word that all entries of a list of layers are."""
_FULL = "full_attention"

Keys = Mapping[str, Any]
Load = Callable[[Keys], FamilyModel | None]


class CacheForm(Record):
    """Bytes of the cache of one sequence of T tokens in 16 bits, and the keys that decide it."""

    form: Json
    # key, its letter, and its value where a config has none of it (None: not known)
    windows: tuple[tuple[str, str, int | None], ...] = ()
    # others, with the values that they may have, as JSON; empty: absent
    keys: tuple[tuple[str, list[str]], ...] = ()

    def bytes(
        self,
        values: Mapping[str, int],
        config: Keys,
        *lengths: int,
        whole: Mapping[str, int] | None = None,
    ) -> list[int]:
        """Return the bytes of these numbers of tokens with the windows of a config; `whole` are the
        values that named parts have.
        """
        own = {
            letter: (usual or 0) if key not in config else config[key] or NO_WINDOW
            for key, letter, usual in self.windows
        }
        return [evaluated(self.form, {**values, **own, TOKENS: n}, whole) for n in lengths]

    def is_agreed(self, tree: Decoder, values: Mapping[str, int], config: Keys) -> bool:
        """Whether a model caches what the form says, of few and of many tokens."""
        lengths = (_SOME_TOKENS // 16, 16 * _SOME_TOKENS)
        return self.bytes(values, config, *lengths) == bytes_of(tree, *lengths)

    def to_json(self) -> dict[str, Any]:
        """Return the form, its windows with what their absence means, and its other keys."""
        windows = [(key, name, "" if n is None else str(n)) for key, name, n in self.windows]
        return {"form": self.form, "windows": windows, "keys": list(self.keys)}


def evaluated(x: Json, values: Mapping[str, int], whole: Mapping[str, int] | None = None) -> int:
    """Return the value of an expression of a form; of its named parts at `whole`, if given."""
    if not isinstance(x, list):
        return values[str(x)] if str(x) in values else int(x)
    function, *rest = x
    if function == "let":
        return evaluated(rest[1], values, whole)
    if function == "as":
        return evaluated(rest[1], whole or values, whole)
    return compute(function, [evaluated(y, values, whole) for y in rest])


def cache_of(tree: Decoder, layers: Sequence[Expr] = ()) -> Expr | None:
    """Return the bytes of the cache of one sequence as a form of T tokens; `layers` replace the
    numbers of layers that cache alike.
    """
    try:
        specs = cache_specs(record(tree))
    except LlamathError:
        return None
    if layers:
        if len(layers) != len(specs):
            return None
        specs = tuple(x.replace(layers=n) for x, n in zip(specs, layers, strict=True))
    tokens = Expr.variable(TOKENS, _SOME_TOKENS)
    return Expr.const(sum_cache_specs(specs, tokens, 1, "bf16").bytes)


def bytes_of(tree: Decoder, *lengths: int) -> list[int]:
    """Return the bytes of the cache of one sequence; none if the pass is not known."""
    try:
        specs = cache_specs(record(tree))
    except LlamathError:
        return []
    return [int(sum_cache_specs(specs, n, 1, "bf16").bytes) for n in lengths]


def layers_by_length(load: Load, data: Keys, key: str, n: int, letter: str) -> list[Expr]:
    """Return the numbers of layers that cache alike as forms of the number of all layers, found
    from models of other numbers; none if they are no regular pattern.
    """
    found = dict[int, list[int]]()
    for layers in range(n, n + 2 * _MAX_PERIOD):
        model = load({**data, key: layers})
        if model is None:
            return []
        try:
            found[layers] = [int(x.layers) for x in cache_specs(record(model.tree))]
        except LlamathError:
            return []
    if len({len(x) for x in found.values()}) != 1:
        return []
    whole, forms = Expr.variable(letter, n), list[Expr]()
    for counts in zip(*found.values(), strict=True):
        own = dict(zip(found, counts, strict=True))
        every = (
            (period, first, rest)
            for period in range(1, _MAX_PERIOD)
            for first in range(period)
            for rest in (False, True)
            if all(
                count == (m - (m + first) // period if rest else (m + first) // period)
                for m, count in own.items()
            )
        )
        if (shape := next(every, None)) is None:
            return []
        period, first, rest = shape
        part = Expr.const(floor_div(whole + first, period))
        # one letter each, as the bytes of a cache are written
        form = whole - part if rest else part
        forms.append(form.alias(f"{letter}{'abcdefgh'[len(forms) % 8]}"))
    return forms


def find_cache(
    trace: Callable[[Keys], Expr | None],
    load: Load,
    data: Keys,
    deciding: list[str],
    values: Mapping[str, int],
) -> CacheForm | None:
    """Return the form of a cache: windows among the deciding keys get letters, keys that decide
    nothing are left out.
    """
    base = trace(data)
    if base is None:
        return None
    form, fixed = base.to_expression_json(), list[tuple[str, list[str]]]()
    window: tuple[tuple[str, str, int | None], ...] = ()
    for key in deciding:
        value = data.get(key)
        if value is None or (type(value) is int and value > 0):
            other = trace({**data, key: _MARK})
            letter = "".join(x for x in key if x.isalpha())
            lettered = None if other is None else _with_letter(other.to_expression_json(), letter)
            if not window and lettered is not None and letter in json.dumps(lettered):
                found = CacheForm(form=lettered, windows=((key, letter, None),))
                if _follows(found, load, data, key, values):
                    window = ((key, letter, _absent(found, load, data, key, values)),)
                    form = lettered
                    continue
            elif _decides_nothing(load, data, key):
                continue
        word = _word(load, data, values) if key == "layer_types" and key not in data else ""
        fixed.append((key, [*([_ALL + word] if word else []), *_same_values(load, data, key)]))
    return CacheForm(form=form, windows=window, keys=tuple(fixed))


def _with_letter(x: Json, letter: str) -> Json:
    if isinstance(x, list):
        return [x[0], *(_with_letter(y, letter) for y in x[1:])]
    return letter if str(x) == str(_MARK) else x


def _lengths(window: int) -> tuple[int, ...]:
    return (_SOME_TOKENS // 16, 16 * _SOME_TOKENS, window - 1, window + 1)


def _follows(found: CacheForm, load: Load, data: Keys, key: str, values: Mapping[str, int]) -> bool:
    """Whether a form holds for other windows."""
    agreeing = 0
    for window in (*_WINDOWS, None):
        if (model := load({**data, key: window})) is not None:
            lengths = _lengths(window or 9)
            if found.bytes(values, {key: window}, *lengths) != bytes_of(model.tree, *lengths):
                return False
            agreeing += window is not None
    return agreeing > 1


def _absent(
    found: CacheForm, load: Load, data: Keys, key: str, values: Mapping[str, int]
) -> int | None:
    """Return the window of a config without the key; None if it is not known."""
    model = load({x: y for x, y in data.items() if x != key})
    if model is None:
        return None
    lengths = (1, 1000, *(x + 1 for x in _USUAL), 2 * _SOME_TOKENS)
    own = bytes_of(model.tree, *lengths)
    return next(
        (n for n in (NO_WINDOW, *_USUAL) if found.bytes(values, {key: n}, *lengths) == own), None
    )


def _decides_nothing(load: Load, data: Keys, key: str) -> bool:
    lengths = _lengths(640)
    others = [x for n in (1, 640, 30_000) if (x := load({**data, key: n})) is not None]
    without = load({x: y for x, y in data.items() if x != key})
    alike = {tuple(bytes_of(x.tree, *lengths)) for x in (load(data), without, *others) if x}
    return len(others) > 1 and len(alike) == 1


def _same_values(load: Load, data: Keys, key: str) -> Iterator[str]:
    """Yield the value of a key as JSON, empty without it, and others that mean the same."""
    own, lengths = load(data), _lengths(640)
    rest = {x: y for x, y in data.items() if x != key}
    yield json.dumps(data[key]) if key in data else ""
    for text in ("", "null", "false"):
        if text == (json.dumps(data[key]) if key in data else "") or own is None:
            continue
        other = load(rest | ({key: json.loads(text)} if text else {}))
        if other is not None and bytes_of(other.tree, *lengths) == bytes_of(own.tree, *lengths):
            yield text


def _word(load: Load, data: Keys, values: Mapping[str, int]) -> str:
    """Return the word of layers that are all alike, where a list of it changes nothing."""
    own = load(data)
    other = load({**data, "layer_types": [_FULL] * values.get("L", 0)})
    if own is None or other is None:
        return ""
    return _FULL if bytes_of(other.tree, *_lengths(9)) == bytes_of(own.tree, *_lengths(9)) else ""


class SizingForm(Record):
    """The peak of a token's activations in elements, the letters that tensor parallelism splits,
    and those that its degree has to divide.
    """

    peaks: tuple[Expr, ...]
    split: tuple[str, ...]
    divided: tuple[Expr, ...]
    is_whole: bool = False  # whether a GPU has all of it: what is split is not known in letters

    def to_json(self) -> dict[str, Any]:
        """Return the forms."""
        peaks = [x.to_expression_json() for x in self.peaks]
        return {
            "peak": {"form": reduce(lambda a, b: ["max", a, b], peaks)},
            "split": list(self.split),
            "divided": [{"form": x.to_expression_json()} for x in self.divided],
            "whole": self.is_whole,
        }

    def whole(self) -> SizingForm:
        """Return the form of a model that is not split."""
        return self.replace(split=(), divided=(), is_whole=True)

    def shares(self, values: Mapping[str, int], tp: int) -> dict[str, int]:
        """Return the letters on one of `tp` GPUs."""
        return {x: -(-n // tp) if x in self.split else n for x, n in values.items()}

    def is_agreed(
        self,
        model: FamilyModel,
        values: Mapping[str, int],
        total_form: Expr,
        cache: CacheForm,
        config: Keys,
    ) -> bool:
        """Whether the library sizes a model in the same way, on each number of GPUs."""
        try:
            calculator = MemoryCalculator(model, MemoryRequest(dtype="bf16", kv_dtype="bf16"))
            known = [1] if self.is_whole else [x for x in tp_degrees(model.tree) if x in GPU_COUNTS]
            divided = [x.evaluate(**values) for x in self.divided]
            tried = GPU_COUNTS[:1] if self.is_whole else GPU_COUNTS
            if known != [x for x in tried if all(n % x == 0 for n in divided)]:
                return False
            if int(calculator.peak.width) != max(x.evaluate(**values) for x in self.peaks):
                return False
            form = total_form.to_expression_json()
            for tp in known:
                sharded, own = ShardedModel(calculator, Layout(tp=tp)), self.shares(values, tp)
                if sharded.weights(0) != 2 * evaluated(form, own, values):
                    return False
                lengths = _lengths(_SOME_TOKENS)
                expected = [sharded.kv_cache(0, n, 1) for n in lengths]
                if expected != cache.bytes(own, config, *lengths, whole=values):
                    return False
        except LlamathError:
            return False
        return True


def sizing_of(tree: Decoder, letters: Collection[str]) -> SizingForm | None:
    """Return the forms of a traced tree in these letters; None if its forward pass is not known,
    or the peak depends on more.
    """
    try:
        graph = record(tree, activation_bytes=FLOAT32)
        sizes = {x.symbol: x for y in graph.layers for x in map(total, live_elements(y))}
    except LlamathError:
        return None
    if any(not x.variables <= {*letters} for x in sizes.values()):
        return None
    splits = [x.split for x in fold(tree) if x.split]
    parts = {Expr.const(x.parts).symbol: Expr.const(x.parts) for x in splits}
    divided = {Expr.const(x.parts).symbol: x for x in splits if not x.on_indivisible}
    return SizingForm(
        peaks=tuple(_largest([*sizes.values()])),
        split=tuple(sorted(x for x, n in parts.items() if x in n.variables)),
        divided=tuple(parts[x] for x in sorted(divided)),
    )


def _largest(sizes: list[Expr]) -> Iterator[Expr]:
    """Yield the sums that no other one is always as large as."""

    def is_under(a: Expr, b: Expr) -> bool:
        return all(b.terms.get(x, 0) >= k for x, k in a.terms.items()) and all(
            k >= 0 for k in b.terms.values()
        )

    for i, x in enumerate(sizes):
        others = (y for j, y in enumerate(sizes) if j != i)
        if not any(is_under(x, y) and not is_under(y, x) for y in others):
            yield x
