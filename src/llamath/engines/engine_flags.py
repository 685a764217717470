"""The flags of engines' command lines as data: which there are, and what those that are sized or
printed mean.

`flags.json` has the names of all flags, read from the engines' argument classes; the file of an
engine says which of them mean something for memory and layout, and how its parser reads them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from ..utils.record_type import Record

FlagKind = Literal["switch", "value", "optional", "many"]
_KINDS: tuple[FlagKind, ...] = ("switch", "value", "optional", "many")
_FOLDER = os.path.dirname(__file__)


class Flag(Record):
    """A flag, and what it means."""

    name: str  # as commands print it
    names: tuple[str, ...]
    kind: FlagKind  # what follows: nothing, a value, a value or nothing, several values
    means: str = ""  # empty: nothing that is sized or printed
    value: str = ""  # how its value is read; empty: it is not
    words: Mapping[str, str | None] = {}  # values, each with llamath's; None: of unknown size
    uncounted: bool = False  # it changes memory or layout, and that is not computed
    since: str = ""  # the first and the last version that was read and has it; empty: all
    until: str = ""


class CommandLine(Record):
    """How an engine's parser reads the words of its command line, and what its numbers count."""

    equals: bool = False  # --flag=value
    dashes: bool = False  # --max_model_len is --max-model-len
    prefixes: bool = False  # --tp is --tp-size, if no other flag begins so
    negates: bool = False  # --no-flag of each switch
    negations: tuple[str, ...] = ()  # short flags that turn a switch off
    keys: bool = False  # --flag.key value, and -O3
    variable: str = ""  # variables of the environment instead of flags: an example
    tp_includes_dp: bool = False  # the tensor ranks are also those of copies of the attention
    context_of_all: bool = False  # the context is divided among the requests at once
    one_cache_dtype: bool = False  # keys and values are sized in one dtype


class Flags(Record):
    """The flags of an engine."""

    command_line: CommandLine | None  # None: it has no flags
    versions: tuple[str, ...]  # that were read
    all: tuple[Flag, ...]
    by_name: Mapping[str, Flag]

    def meaning(self, means: str) -> Flag | None:
        """Return the flag that commands print for a meaning."""
        return next((x for x in self.all if x.means == means), None)


def _with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(x) if isinstance(x, list) else x for key, x in fields.items()}


@cache
def read_flags(file: str, engine: str) -> Flags:
    """Return the flags of an engine, whose own file this is."""
    from ..utils.strict_json import read_json

    known: dict[str, Any] = read_json(os.path.join(_FOLDER, "flags.json")).get(engine, {})
    own: dict[str, Any] = read_json(file)
    meanings: Mapping[str, Mapping[str, Any]] = own.get("flags", {})
    uncounted = set(own.get("uncounted_flags", ()))
    names: dict[str, Flag] = {}
    for kind in _KINDS:
        for joined, versions in known.get(kind, {}).items():
            every = tuple(joined.split("|"))
            name = next((x for x in every if x in meanings), every[0])
            since, _, until = versions.partition(" to ")
            flag = Flag(
                name=name,
                names=every,
                kind=kind,
                uncounted=bool(uncounted & set(every)),
                since=since,
                until=until,
                **meanings.get(name, {}),
            )
            names |= dict.fromkeys(every, flag)
    order = {x: i for i, x in enumerate(meanings)}
    every_flag = sorted(set(map(id, names.values())))
    flags = {id(x): x for x in names.values()}
    line = own.get("command_line")
    return Flags(
        command_line=None if line is None else CommandLine(**_with_tuples(line)),
        versions=tuple(known.get("versions", ())),
        all=tuple(
            sorted(
                (flags[x] for x in every_flag),
                key=lambda x: (order.get(x.name, len(order)), x.name),
            )
        ),
        by_name=names,
    )
