"""`EditOptions`: the edits of one command, and the numbers that `20:28` and `0:32,40` select."""

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
"""Numbers: `"20:28"`, `"0:32,40"`, `20`, `range(20, 28)`."""


class EditOptions(Record):
    """The edits, in the order in which they are applied; shards are cut or joined alone."""

    drop_layers: Selection | None = None
    keep_experts: Selection | None = None
    resize_vocab: int | None = None
    untie: bool = False
    tp_shard: str = ""  # R/N
    join_shards: bool = False
    force: bool = False  # overwrite existing files
    dry_run: bool = False  # check and plan, and write nothing

    def check(self) -> None:
        """Raise if no edit is chosen, or edits that cannot be combined."""
        trees = {"drop_layers": self.drop_layers, "keep_experts": self.keep_experts, "resize_vocab": self.resize_vocab}
        others = [option_name(x) for x, value in trees.items() if value is not None] + (["--untie"] if self.untie else [])
        alone = (["--tp-shard"] if self.tp_shard else []) + (["--join-shards"] if self.join_shards else [])
        if not others and not alone:
            known = "--drop-layers, --keep-experts, --resize-vocab, --untie, --tp-shard or --join-shards"
            raise ConvertError("there is nothing to edit", hint=f"give one of {known}")
        if len(alone) == 2 or (alone and others):
            second = (*alone[1:], *others)[0]
            raise ConvertError(f"{alone[0]} cannot be combined with {second}", hint="edit the whole checkpoint first, then cut the result")
        for name in ("drop_layers", "keep_experts"):
            if isinstance(value := trees[name], str):
                _parse_items(value, option_name(name))


def option_name(field: str) -> str:
    """Return the command-line option of a field."""
    return f"--{field.replace('_', '-')}"


def select_numbers(selection: Selection, count: int, option: str, noun: str) -> tuple[int, ...]:
    """Return the selected ones of `count` layers or experts, ascending: ranges are half-open, and negative numbers count from the end."""
    if isinstance(selection, str):
        chosen = [x for item in _parse_items(selection, option) for x in _numbers_of(item, count, option, noun)]
    else:
        chosen = list(selection) if isinstance(selection, Iterable) else [selection]
        if wrong := [x for x in chosen if type(x) is not int]:
            raise ConvertError(f"{option} should list numbers of {noun}s, found {safe(repr(wrong[0]), 60)}")
        chosen = [_check_number(x, count, option, noun) for x in chosen]
    if not chosen:
        raise ConvertError(f"{option} {safe(str(selection), 60)} selects no {noun}", hint=f"the {noun}s are 0 to {count - 1}")
    return tuple(sorted(set(chosen)))


def parse_tp_shard(text: str) -> tuple[int, int]:
    """Parse `R/N`: rank R, counted from 0, of N ranks."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text, re.ASCII)
    if match is None:
        raise ConvertError(f"--tp-shard expects RANK/RANKS such as 0/2, found {safe(repr(text), 60)}")
    rank, ranks = int(match[1]), int(match[2])
    if ranks < 2:
        raise ConvertError(f"--tp-shard {text}: expected at least 2 ranks, found {ranks}")
    if rank >= ranks:
        raise ConvertError(f"--tp-shard {text}: expected a rank from 0 to {ranks - 1}, found {rank}", hint="ranks are counted from 0")
    return rank, ranks


def describe_numbers(numbers: Iterable[int], noun: str, count: int) -> str:
    """Return some of `count` layers or experts as text: `layers 20–27 (8 of 32)`."""
    runs: list[tuple[int, int, int]] = []
    for x in numbers:
        if runs and runs[-1][1] == x - 1:
            runs[-1] = (runs[-1][0], x, 1)
        else:
            runs.append((x, x, 1))
    chosen = sum(last - first + 1 for first, last, _ in runs)
    return f"{noun if chosen == 1 else f'{noun}s'} {format_ranges(tuple(runs))} ({chosen} of {count})"


def _parse_items(text: str, option: str) -> list[re.Match[str]]:
    items = [_ITEM.fullmatch(x.strip()) for x in text.split(",")[: _MAX_ITEMS + 1]]
    matches = [x for x in items if x is not None]
    if len(matches) < len(items) or len(items) > _MAX_ITEMS or not text.strip():
        raise ConvertError(f"{option} expects numbers and half-open ranges such as 20:28 or 0:4,7, found {safe(repr(text), 60)}")
    return matches


def _numbers_of(item: re.Match[str], count: int, option: str, noun: str) -> Iterable[int]:
    if item[1] is not None:
        return [_check_number(int(item[1]), count, option, noun)]
    first, last = (None if x is None else _check_number(int(x), count, option, noun, end=count) for x in (item[2], item[3]))
    if item[4] is not None and not int(item[4]):
        raise ConvertError(f"{option} {item[0]}: the step should be at least 1")
    return range(first or 0, count if last is None else last, int(item[4] or 1))


def _check_number(number: int, count: int, option: str, noun: str, end: int | None = None) -> int:
    """Return a number counted from 0; `end` is allowed as the end of a range."""
    found = number + count if number < 0 else number
    if not 0 <= found < count and found != end:
        raise ConvertError(
            f"{option}: expected {noun}s from 0 to {count - 1}, found {number}", hint="a range leaves out its end, as in Python"
        )
    return found
