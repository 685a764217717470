"""The rules of inference engines as data: which layouts start with which shapes, how the KV cache
is paged, and what the engine needs.

Every rule and every figure names its source (a file of the engine's code, or an address) and the
versions that it holds for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from ..utils.errors import Argument, LlamathError, nearest, safe
from ..utils.record_type import Record
from .engine_flags import Flag, Flags, read_flags

FOLDER = os.path.dirname(__file__)
ENGINES = ("vllm", "sglang", "llama.cpp", "ollama", "transformers", "tensorrt-llm")
_ALIASES = {
    **dict.fromkeys(("trtllm", "trt-llm", "tensorrtllm"), "tensorrt-llm"),
    **dict.fromkeys(("llamacpp", "llama-cpp"), "llama.cpp"),
}
_VERSION = re.compile(r"\d{1,5}(?:\.\d{1,5}){0,3}", re.ASCII)

Version = tuple[int, ...]


class EngineRule(Record):
    """A condition on a value of a layout without which an engine does not start, in the engine's
    own words.
    """

    id: str
    of: str  # device, model, matrix, experts or pair: whose values it reads
    when: Mapping[str, Any]  # values for which it holds: a value, a list of them, or ">1"
    value: str
    check: str  # multiple_of, divides_either, at_least, at_most, none_of, one_of
    other: Any  # a number, the name of another value, or a list
    says: str  # what the engine prints, with values in braces
    source: str
    since: Version = ()
    until: Version = ()  # the first version without it
    workaround: str = ""
    level: str = "refuses"  # or warns: it starts, perhaps with another kernel or slowly

    def holds_for(self, version: Version) -> bool:
        """Return whether a version has this rule."""
        return version >= self.since and (not self.until or version < self.until)


class EngineFigure(Record):
    """A figure of an engine, with its source and versions."""

    value: Any
    source: str
    since: Version = ()


class Engine(Record):
    """What is known about one engine, as of a version."""

    name: str
    title: str
    version: Version  # that the rules were read from, or an older one that was asked for
    newest: Version
    source: str
    runner: str  # the engine that computes, for most itself
    rules: tuple[EngineRule, ...]  # those of the version
    figures: Mapping[str, EngineFigure]  # those of the version
    later: tuple[EngineRule, ...] = ()  # rules that older versions have, and this one does not
    notes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name with the version."""
        return f"{self.title} {format_version(self.version)}" if self.version else self.title

    def has(self, flag: Flag) -> bool:
        """Return whether the version has a flag: one that was read on either side of it has it."""
        if not flag.since:
            return True
        read = self.flags.versions
        before = read[: read.index(flag.since)]
        after = read[read.index(flag.until) + 1 :]
        too_old = bool(before) and self.version <= parse_version(before[-1])
        return not too_old and not (bool(after) and self.version >= parse_version(after[0]))

    @property
    def flags(self) -> Flags:
        """The flags of its command line."""
        return read_flags(_file(self.name), self.name)

    def figure(self, name: str, default: Any = None) -> Any:
        """Return the value of a figure; an error if the engine has none and there is no default."""
        if name not in self.figures and default is None:
            raise LlamathError(f"{self.title}: {name} is not known")
        return self.figures[name].value if name in self.figures else default


def format_version(version: Version) -> str:
    """Return a version as text."""
    return ".".join(map(str, version))


def parse_version(text: str) -> Version:
    """Parse a version such as `0.19.1`."""
    if not _VERSION.fullmatch(text):
        raise LlamathError(
            f"a version should be numbers with dots, found {safe(text, 30)!r}",
            hint=f"such as {Argument('engine', 'vllm@0.19.1')}",
        )
    return tuple(map(int, text.split(".")))


def find_engine(text: str) -> Engine:
    """Return an engine by its name, in the version that its rules were read from, or in an older
    one: `vllm@0.19.1`.
    """
    name, at, wanted = text.strip().lower().partition("@")
    name = _ALIASES.get(name, name)
    if name not in ENGINES:
        near = nearest(name, (*ENGINES, *_ALIASES), most=1)
        hint = (
            f"did you mean {_ALIASES.get(near[0], near[0])}?"
            if near
            else (f"one of {', '.join(ENGINES)}")
        )
        raise LlamathError(
            f"unknown engine {safe(text, 40)!r}: expected one of {', '.join(ENGINES)}", hint=hint
        )
    data = _read(name)
    newest = parse_version(data["version"]) if data["version"] else ()
    version = parse_version(wanted) if at else newest
    known = [parse_version(x) for x in data.get("releases", data["version"]).split()]
    if version not in (*known, newest):
        raise _unknown_version(name, data["title"], wanted, known)
    rules = tuple(_rules(data))
    return Engine(
        name=name,
        title=data["title"],
        version=version,
        newest=newest,
        source=data["source"],
        runner=data.get("runner", name),
        rules=tuple(x for x in rules if x.holds_for(version)),
        figures={key: _figure(key, entries, version) for key, entries in data["figures"].items()},
        later=tuple(
            x for x in rules if not x.holds_for(version) and x.until and version >= x.until
        ),
        notes=tuple(data.get("notes", ())),
    )


def _unknown_version(name: str, title: str, wanted: str, known: Sequence[Version]) -> LlamathError:
    """Return the error about a version whose rules are not known, with the nearest that are."""
    if not known:
        return LlamathError(
            f"{title} {safe(wanted, 30)}: its rules are known without a version",
            hint=f"give {Argument('engine', name)}",
        )
    version = parse_version(wanted)
    after = next((x for x in known if x >= version), known[-1])
    before = next((x for x in reversed(known) if x <= version), known[0])
    near = " or ".join(
        dict.fromkeys(
            str(Argument("engine", f"{name}@{format_version(x)}")) for x in (before, after)
        )
    )
    span = " to ".join(dict.fromkeys(format_version(x) for x in (known[0], known[-1])))
    alone = "" if known[1:] else " alone"
    return LlamathError(
        f"{title} {safe(wanted, 30)}: its rules are known for the releases {span}{alone}",
        hint=f"give {near}",
    )


def _rules(data: Mapping[str, Any]) -> Iterator[EngineRule]:
    for x in data["rules"]:
        check, other = x["check"]
        yield EngineRule(
            id=x["id"],
            of=x["of"],
            when=x.get("when", {}),
            value=x["value"],
            check=check,
            other=other,
            says=x["says"],
            source=x["source"],
            since=parse_version(x["since"]) if "since" in x else (),
            until=parse_version(x["until"]) if "until" in x else (),
            workaround=x.get("workaround", ""),
            level=x.get("level", "refuses"),
        )


def _figure(name: str, entries: list[Mapping[str, Any]], version: Version) -> EngineFigure:
    """Return the latest entry that the version has."""
    found = [x for x in entries if parse_version(x.get("since", "0")) <= version or not version]
    if not found:
        raise LlamathError(f"{name} of this version is not known")
    x = found[-1]
    return EngineFigure(
        value=x["value"], source=x["source"], since=parse_version(x.get("since", "0"))
    )


@cache
def _read(name: str) -> dict[str, Any]:
    from ..utils.strict_json import read_json

    data: dict[str, Any] = read_json(_file(name))
    return data


def _file(name: str) -> str:
    return os.path.join(FOLDER, f"{name.replace('.', '_').replace('-', '_')}.json")
