"""`EditOptions`: the edits of one command, and the layers that `20:28` and `0:4,7` select."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...utils.errors import ConvertError, safe
from ...utils.number_format import format_ranges
from ...utils.record_type import Record

_NUMBER = r"-?\d{1,9}"
_ITEM = re.compile(rf"({_NUMBER})|({_NUMBER})?:({_NUMBER})?(?::(\d{{1,9}}))?", re.ASCII)
_MAX_ITEMS = 100_000
Selection = str | int | Iterable[int]
"""Layers: `"20:28"`, `"0:4,7"`, `20`, `range(20, 28)`."""


class EditOptions(Record):
    """The edits, in the order in which they are applied; shards are cut or joined alone."""

    drop_layers: Selection | None = None
    resize_vocab: int | None = None
    tp_shard: str = ""  # R/N
    join_shards: bool = False
    force: bool = False  # overwrite existing files
    dry_run: bool = False  # check and plan, and write nothing

    def check(self) -> None:
        """Raise if no edit is chosen, or edits that cannot be combined."""
        trees = {"--drop-layers": self.drop_layers, "--resize-vocab": self.resize_vocab}
        others = [option for option, value in trees.items() if value is not None]
        alone = (["--tp-shard"] if self.tp_shard else []) + (
            ["--join-shards"] if self.join_shards else []
        )
        if not others and not alone:
            known = "--drop-layers, --resize-vocab, --tp-shard or --join-shards"
            raise ConvertError("there is nothing to edit", hint=f"give one of {known}")
        if len(alone) == 2 or (alone and others):
            second = (*alone[1:], *others)[0]
            raise ConvertError(
                f"{alone[0]} cannot be combined with {second}",
                hint="edit the whole checkpoint first, then cut the result",
            )
        if isinstance(self.drop_layers, str):
            _parse_items(self.drop_layers)


def select_layers(selection: Selection, count: int) -> tuple[int, ...]:
    """Return the selected ones of `count` layers, ascending: ranges are half-open, and negative
    numbers count from the end.
    """
    if isinstance(selection, str):
        chosen = [x for item in _parse_items(selection) for x in _layers_of(item, count)]
    else:
        chosen = list(selection) if isinstance(selection, Iterable) else [selection]
        if wrong := [x for x in chosen if type(x) is not int]:
            raise ConvertError(
                f"--drop-layers should list numbers of layers, found {safe(repr(wrong[0]), 60)}"
            )
        chosen = [_check_layer(x, count) for x in chosen]
    if not chosen:
        raise ConvertError(
            f"--drop-layers {safe(str(selection), 60)} selects no layer",
            hint=f"the layers are 0 to {count - 1}",
        )
    return tuple(sorted(set(chosen)))


def parse_tp_shard(text: str) -> tuple[int, int]:
    """Parse `R/N`: rank R, counted from 0, of N ranks."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    if match is None:
        raise ConvertError(
            f"--tp-shard expects RANK/RANKS such as 0/2, found {safe(repr(text), 60)}"
        )
    rank, ranks = int(match[1]), int(match[2])
    if ranks < 2:
        raise ConvertError(f"--tp-shard {text}: expected at least 2 ranks, found {ranks}")
    if rank >= ranks:
        raise ConvertError(
            f"--tp-shard {text}: expected a rank from 0 to {ranks - 1}, found {rank}",
            hint="ranks are counted from 0",
        )
    return rank, ranks


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


def _parse_items(text: str) -> list[re.Match[str]]:
    items = [_ITEM.fullmatch(x.strip()) for x in text.split(",")[: _MAX_ITEMS + 1]]
    matches = [x for x in items if x is not None]
    if len(matches) < len(items) or len(items) > _MAX_ITEMS or not text.strip():
        raise ConvertError(
            "--drop-layers expects numbers and half-open ranges such as 20:28 or "
            f"0:4,7, found {safe(repr(text), 60)}"
        )
    return matches


def _layers_of(item: re.Match[str], count: int) -> Iterable[int]:
    if item[1] is not None:
        return [_check_layer(int(item[1]), count)]
    first, last = (
        None if x is None else _check_layer(int(x), count, end=count) for x in (item[2], item[3])
    )
    if item[4] is not None and not int(item[4]):
        raise ConvertError(f"--drop-layers {item[0]}: the step should be at least 1")
    return range(first or 0, count if last is None else last, int(item[4] or 1))


def _check_layer(number: int, count: int, end: int | None = None) -> int:
    """Return a number counted from 0; `end` is allowed as the end of a range."""
    found = number + count if number < 0 else number
    if not 0 <= found < count and found != end:
        raise ConvertError(
            f"--drop-layers: expected layers from 0 to {count - 1}, found {number}",
            hint="a range leaves out its end, as in Python",
        )
    return found
