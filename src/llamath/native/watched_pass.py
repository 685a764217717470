"""`watch`: a pass of the native engine over a text, with every number that it computes."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Mapping
from math import exp, prod, sqrt
from typing import Any, ClassVar, NamedTuple

from ..analysis.check.verify.verified_checkpoint import open_verified
from ..checkpoint.open import local_copy
from ..embedded import MODEL_NAME
from ..generation.free_memory import check_free_memory, free_host_bytes
from ..render.report import Report
from ..render.tables import Cell, Column, Part, Table, Text
from ..utils.errors import LlamathError, nearest, safe
from ..utils.number_format import format_count
from .engine import NativeSession
from .engine import Row as TokenRow
from .native_session import NativeLlama
from .program import Result

_TOP, _NUMBERS, _KEYS = 5, 4, 3
"""How many likely next tokens, numbers of a step and tokens of a head are shown."""
MAX_TOKENS = 1024
"""The weights of attention grow with the square of the tokens."""
_LEAST_SHARE = 0.005
"""Smaller attention weights are not shown, unless all are."""


class WatchedValue(NamedTuple):
    """The result of a step: its shape, its root mean square, and its first numbers for the last
    token.
    """

    name: str
    shape: tuple[int, ...]
    rms: float
    numbers: tuple[float, ...]


class LikelyToken(NamedTuple):
    """A token that may be next, and its probability."""

    id: int
    text: str
    probability: float


class WatchedPass(Report):
    """A pass over a text, and the results of all of its steps: `report["layers.0.attn.q"]` is a
    memory view [tokens, numbers], or [tokens, heads, numbers], of float32.

    The weights of attention, such as `layers.0.attn.softmax`, are [tokens, heads, keys].
    """

    json_fields: ClassVar[tuple[str, ...]] = ("model=name", "tokens", "likely", "values=shown")

    llama: NativeLlama
    session: NativeSession
    ids: tuple[int, ...]
    texts: tuple[str, ...]  # of the tokens
    layer: int  # that is shown

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.llama.name or "the model"

    @property
    def results(self) -> Mapping[str, Result]:
        """Where the results of the steps are, by their names, in the order of the pass."""
        found: dict[str, Result] = {}
        for x in self.llama.native.program.results:
            if x.weights:
                found[x.weights] = x
            found[x.name] = x
        return found

    @property
    def names(self) -> list[str]:
        """The names of all steps with a result, in the order of the pass."""
        return list(self.results)

    def __getitem__(self, place: Any) -> Any:
        if not isinstance(place, str):
            return super().__getitem__(place)
        numbers, shape = self._numbers(place)
        return memoryview(numbers).cast("B").cast("f", shape)

    def _numbers(self, name: str) -> tuple[array[float], tuple[int, ...]]:
        if (found := self.results.get(name)) is None:
            close = nearest(name, self.names)
            hint = f"for example {close}" if close else "report.names lists them"
            raise LlamathError(f"the pass has no step {safe(name, 80)}", hint=hint)
        if name == found.weights:
            return self.session.attention(found.op, len(self.ids))
        return self.session.values(found.view)

    @property
    def entries(self) -> list[WatchedValue]:
        """The steps outside of layers, and those of the layer that is shown."""
        return [self._value(x) for x in self._shown_names()]

    def _value(self, name: str) -> WatchedValue:
        numbers, shape = self._numbers(name)
        rms = sqrt(sum(x * x for x in numbers) / max(len(numbers), 1))
        return WatchedValue(name, shape, rms, tuple(numbers[-prod(shape[1:]) :][:_NUMBERS]))

    def _shown_names(self) -> list[str]:
        own = f"layers.{self.layer}."
        return [x for x in self.names if x.startswith(own) or not x.startswith("layers.")]

    @property
    def tokens(self) -> list[dict[str, Any]]:
        """The tokens of the text."""
        return [{"id": x, "text": y} for x, y in zip(self.ids, self.texts, strict=True)]

    @property
    def likely(self) -> list[LikelyToken]:
        """The most likely next tokens."""
        logits = self.session.logits(len(self.ids) - 1)[: self.llama.native.vocab]
        most = max(logits)
        shares = [exp(x - most) for x in logits]
        total = sum(shares)
        best = sorted(range(len(shares)), key=lambda i: -shares[i])[:_TOP]
        return [LikelyToken(i, self._text(i), shares[i] / total) for i in best]

    def _text(self, token: int) -> str:
        return self.llama.tokenizer.decode([token], keep_special_tokens=True)

    @property
    def shown(self) -> dict[str, Any]:
        """The numbers of the steps that are shown, as nested lists."""
        return {name: self[name].tolist() for name in self._shown_names()}

    @property
    def headline(self) -> str:
        """The model and its tokens."""
        words = " ".join(repr(safe(x, 40)) for x in self.texts)
        return f"{self.name}: a pass over {format_count(len(self.ids), 'token')}: {words}"

    @property
    def summary(self) -> str:
        """The likeliest next token."""
        first = self.likely[0]
        return (
            f"{self.name}, {format_count(len(self.ids), 'token')}: next is "
            f"{safe(first.text, 40)!r}, {first.probability:.1%}"
        )

    def tables(self) -> Iterable[Part]:
        """The steps with their first numbers, what the heads attend to, and the next tokens."""
        rows = []
        for x in self.entries:
            shown = " ".join(f"{y:.3f}".replace("-", "−") for y in x.numbers)
            shape = Cell(list(x.shape), text=str(list(x.shape)))
            numbers = Cell(list(x.numbers), text=shown)
            rows.append((x.name, shape, Cell(x.rms, text=f"{x.rms:.4g}"), numbers))
        yield Table(
            columns=(
                Column("step"),
                Column("shape", drop=2),
                Column("rms", "right", drop=1),
                Column("first numbers of the last token", key="numbers"),
            ),
            rows=tuple(rows),
        )
        yield from self._heads()
        yield Table(
            columns=(Column("next token", key="token"), Column("probability", "percent.1")),
            rows=tuple((repr(safe(x.text, 40)), x.probability) for x in self.likely),
        )
        layers = len({x.split(".")[1] for x in self.names if x.startswith("layers.")})
        yield Text(f"layer {self.layer} of 0 to {layers - 1}; --layers shows another", "dim")

    def _heads(self) -> Iterable[Table]:
        """Yield what each head attends to at the last token, in the layer that is shown."""
        for name in (x for x in self._shown_names() if x == self.results[x].weights):
            weights = self[name].tolist()[-1]
            rows = []
            for head, row in enumerate(weights):
                most = sorted(zip(row, self.texts, strict=True), key=lambda x: -x[0])[:_KEYS]
                shares = [(x, y) for x, y in most if x >= _LEAST_SHARE] or most[:1]
                seen = ", ".join(f"{safe(y, 40)!r} {x:.0%}" for x, y in shares)
                rows.append((head, seen))
            yield Table(
                title=f"{name}: what the last token attends to",
                columns=(Column("head", "right"), Column("tokens", wrap=True)),
                rows=tuple(rows),
            )


def watch(
    text: str,
    model: str | os.PathLike[str] = MODEL_NAME,
    *,
    layer: int = 0,
    dtype: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> WatchedPass:
    """Run a pass of the native engine over a text, and return what every step computes:
    `report["layers.0.attn.q"]` has the queries of layer 0 as a memory view, which NumPy and torch
    read without a copy, and `report["layers.0.attn.softmax"]` the weights of its heads. The names
    are those of `trace`; `report.names` lists them.

    text: Text, read after the BOS token.
    model: The bundled model, or a path or repository with weights and a tokenizer.
    layer: Layer that the tables and the JSON show.
    dtype: float32, float16, bfloat16 or int8, if not that of the files.
    changes: Configuration keys to replace.
    """
    checkpoint = open_verified(local_copy(os.fspath(model)), changes or {})
    llama = NativeLlama.from_verified(checkpoint, dtype, keep=True)
    ids = llama.encode(text)
    native, layers = llama.native, len(llama.native.tree.layers)
    if not 0 <= layer < layers:
        raise LlamathError(f"the model has no layer {layer:,}", hint=f"layers 0 to {layers - 1:,}")
    context = native.tree.context
    if context is not None and len(ids) > context:
        raise LlamathError(
            f"the text of {len(ids):,} tokens is longer than the context of {int(context):,}",
            hint="use a shorter text",
        )
    if len(ids) > MAX_TOKENS:
        raise LlamathError(
            f"the text has {len(ids):,} tokens, expected at most {MAX_TOKENS:,}",
            hint="use a shorter text: every number of the pass is kept",
        )
    need = 4 * sum(x.width * max(x.rows_per_token, 1) for x in native.program.buffers) * len(ids)
    check_free_memory(need, f"the results of {len(ids):,} tokens", free_host_bytes())
    session = NativeSession(native, 1, len(ids))
    session.reserve(len(ids), 0)
    session.run([TokenRow(0, ids, 0)], all_logits=True)
    texts = tuple(llama.tokenizer.decode([x], keep_special_tokens=True) for x in ids)
    return WatchedPass(llama=llama, session=session, ids=tuple(ids), texts=texts, layer=layer)
