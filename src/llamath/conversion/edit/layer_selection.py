"""`select_layers`: the layers that `0:16` and `0:4,7` select, and their text in a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...questions.edit_settings import LAYER_RANGE
from ...utils.errors import ArgumentError
from ...utils.number_format import format_ranges


def select_layers(selection: str | int | Iterable[str | int], count: int) -> tuple[int, ...]:
    """Return the selected ones of `count` layers, ascending: ranges are half-open, and negative
    numbers count from the end.
    """
    items = [selection] if isinstance(selection, str | int) else selection
    chosen: set[int] = set()
    for x in (number for item in items for number in _layers_of(item, count)):
        if x in chosen:
            raise ArgumentError("layers", f": layer {x} is selected twice")
        chosen.add(x)
    if not chosen:
        raise ArgumentError("layers", " selects no layer", hint=f"the layers are 0 to {count - 1}")
    return tuple(sorted(chosen))


def describe_layers(layers: Iterable[int], count: int) -> str:
    """Return some of `count` layers as text: `layers 20–27 (8 of 32)`."""
    runs: list[tuple[int, int, int]] = []
    for x in layers:
        if runs and runs[-1][1] == x - 1:
            runs[-1] = (runs[-1][0], x, 1)
        else:
            runs.append((x, x, 1))
    chosen = sum(last - first + 1 for first, last, _ in runs)
    return (
        f"{'layer' if chosen == 1 else 'layers'} {format_ranges(tuple(runs))} ({chosen} of {count})"
    )


def _layers_of(item: str | int, count: int) -> Iterator[int]:
    if isinstance(item, int):
        yield _check_layer(item, count)
        return
    for part in item.split(","):
        match = LAYER_RANGE.fullmatch(part.strip())
        assert match is not None, "the text was checked when it was read"
        if match[1] is not None:
            yield _check_layer(int(match[1]), count)
            continue
        first, last = (
            None if x is None else _check_layer(int(x), count, end=count)
            for x in (match[2], match[3])
        )
        if match[4] is not None and not int(match[4]):
            raise ArgumentError("layers", f": {part.strip()}: the step should be at least 1")
        yield from range(first or 0, count if last is None else last, int(match[4] or 1))


def _check_layer(number: int, count: int, end: int | None = None) -> int:
    """Return a number counted from 0; `end` is allowed as the end of a range."""
    found = number + count if number < 0 else number
    if not 0 <= found < count and found != end:
        raise ArgumentError(
            "layers",
            f": expected layers from 0 to {count - 1}, found {number}",
            hint="a range leaves out its end, as in Python",
        )
    return found
