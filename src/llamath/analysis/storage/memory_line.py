"""`MemoryLine`: one line of a memory report, with its formula; and the estimate of the overhead,
which every memory report has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ...core.expr import Expr, floor_div, total, written_floor_div
from ...render.tables import Cell, Column, Row, Table
from ...utils.number_format import format_count, group_digits
from ...utils.number_marks import own_text
from ...utils.record_type import Record

if TYPE_CHECKING:
    from ...model import FamilyModel

OVERHEAD_FIXED, OVERHEAD_DIVISOR = 512 * 2**20, 50
"""The overhead is 512 MiB for the device's context and libraries, and 2% (1/50) of everything
but weights and optimizer states."""


class MemoryLine(Record):
    """The bytes of one part of the memory, as the expression whose letters and numbers are printed.

    `note` says where a number without letters is from, or adds to the formula; an inexact line is
    an estimate, and its note says whose.
    """

    what: str
    bytes: int
    note: str = ""
    exact: bool = True

    json_fields: ClassVar[tuple[str, ...]] = ("what", "bytes", "formula", "exact")

    @property
    def formula(self) -> str:
        """The expression in letters and in numbers, with the note."""
        size = Expr.const(self.bytes)
        symbols, numbers = size.symbol, size.numbers
        value = str(int(size))
        parts = (
            []
            if own_text(symbols) == value
            else [symbols]
            if own_text(numbers) in (own_text(symbols), value)
            else [f"{symbols} = {numbers}"]
        )
        return ", ".join([*map(group_digits, parts), *([self.note] if self.note else [])])


_COLUMNS = (
    Column("part"),
    Column("bytes", "count"),
    Column("GB", "GB", "", drop=1),
    Column("GiB", "GiB", ""),
    Column("", key="exact"),
    Column("formula", below=True),
)


def mtp_line(size: int, layers: int, note: str = "", *, is_gguf: bool) -> MemoryLine:
    """Return the line of layers for multi-token prediction, which no total has: vLLM's and
    SGLang's `load_weights` leave them out of the main model, transformers ignores their keys
    (`_keys_to_ignore_on_load_unexpected`), and llama.cpp skips those of the architectures that have
    names here (`TENSOR_SKIP` in `src/models/glm4-moe.cpp`).
    """
    who = "llama.cpp skips" if is_gguf else "engines load only for speculative decoding"
    own = f"{format_count(layers, 'layer')}, which {who}"
    return MemoryLine(what="MTP, not loaded", bytes=size, note=f"{own}; {note}" if note else own)


def lines_table(lines: Sequence[MemoryLine], not_loaded: Sequence[MemoryLine] = ()) -> Table:
    """Return lines and their sum, each with its formula, and below it what is in the files alone;
    estimates are marked.
    """
    total = MemoryLine(
        what="total", bytes=int(sum(x.bytes for x in lines)), exact=all(x.exact for x in lines)
    )
    return Table(
        columns=_COLUMNS,
        rows=(*map(_cells, lines), Row(_cells(total), is_sum=True), *map(_cells, not_loaded)),
        legend="" if total.exact else "≈ depends on the implementation, which the formula names",
    )


def _cells(x: MemoryLine) -> tuple[Any, ...]:
    mark = Cell(x.exact, text="" if x.exact else "≈")
    return x.what, x.bytes, x.bytes, x.bytes, mark, x.formula


def letters_text(model: FamilyModel, context: int, batch: int, values: Mapping[str, int]) -> str:
    """Return the letters of the formulas with their names and values."""
    keys = model.config.key_by_symbol
    letters = [f"{x} {keys[x]} {n:,}" if x in keys else f"{x} {n:,}" for x, n in values.items()]
    return ", ".join([f"with T tokens {context:,}", f"B sequences {batch:,}", *letters])


def letters_of(lines: Iterable[MemoryLine]) -> dict[str, int]:
    """Return the dimensions of the model in the formulas of lines, with their values."""
    return {letter: n for x in lines for letter, n in Expr.const(x.bytes).letters.items()}


def overhead_bytes(dynamic: int) -> Expr:
    """Return the overhead's estimate, given the bytes that are allocated and freed as the model
    runs.
    """
    return total((OVERHEAD_FIXED, floor_div(dynamic, OVERHEAD_DIVISOR)))


def overhead_line(dynamic: Mapping[str, int]) -> MemoryLine:
    """Return the overhead as a line of a report, given what is allocated and freed as the model
    runs: name → bytes.
    """
    sizes = {name: n for name, n in dynamic.items() if n}
    size = total(
        (
            OVERHEAD_FIXED,
            written_floor_div(total(sizes.values()).alias(" + ".join(sizes)), OVERHEAD_DIVISOR),
        )
    )
    rule = f"{OVERHEAD_FIXED // 2**20} MiB and {100 // OVERHEAD_DIVISOR}%"
    what_for = "an estimate: the device's context, library workspaces, allocator fragmentation"
    return MemoryLine(what="overhead", bytes=size, note=f"{rule}, {what_for}", exact=False)
