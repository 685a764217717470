"""`read_engine_arguments`: the flags of an engine's command line, as values that are sized."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ....engines import Engine, EngineFigure
from ....engines.engine_flags import CommandLine, Flag
from ....model import FamilyModel
from ....questions.value_kinds import MAX_TEXT
from ....utils.errors import Argument, ArgumentError, LlamathError, nearest, safe
from ....utils.record_type import Record
from .rank_shapes import EngineLayout

_MAX_WORDS = 200
_MAX_NUMBER = 2**53
_MULTIPLES = {
    **{x: 1000 ** (i + 1) for i, x in enumerate("kmgt")},
    **{x: 1024 ** (i + 1) for i, x in enumerate("KMGT")},
}
_HUMAN = re.compile(r"(\d{1,16})(?:\.(\d{1,16}))?([kKmMgGtT]?)", re.ASCII)
_NEGATIONS = ("--no-", "-no-")


class _Given(NamedTuple):
    """A flag with the words after it."""

    flag: Flag
    typed: str
    values: tuple[str, ...]
    negated: bool = False


class EngineArguments(Record):
    """The flags of a command line: values by what they mean, and the words to print again."""

    settings: Mapping[str, Any] = {}  # values by meaning
    typed: Mapping[str, str] = {}  # by meaning, as it was typed
    words: tuple[tuple[str, ...], ...] = ()  # of flags that no layout or request prints
    unused: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()  # on what the engine itself chooses

    def shown(self, name: str) -> str:
        """Return the flag, as it was typed, that says what an argument of llamath says."""
        return self.typed.get(name) or self.typed["all_context"]

    @property
    def notes(self) -> Iterator[str]:
        """Notes on the engine's own choices, and on flags that have no effect."""
        yield from self.remarks
        if self.uncounted:
            names = ", ".join(self.uncounted)
            yield f"not counted, although memory or layout depend on it: {names}"
        if self.unused:
            yield f"neither memory nor layout depend on {', '.join(self.unused)}"


def read_engine_arguments(engine: Engine, text: str) -> EngineArguments:
    """Read flags as a shell and the engine's own parser would."""
    if not text.strip():
        return EngineArguments()
    if len(text) > MAX_TEXT:
        raise LlamathError(f"{len(text):,} characters of flags: at most {MAX_TEXT:,} are read")
    if (line := engine.flags.command_line) is None:
        raise LlamathError(f"{engine.title} has no command line with flags")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise LlamathError(
            f"{safe(text, 60)!r} is not a command line: {str(error).lower()}"
        ) from None
    if len(words) > _MAX_WORDS:
        raise LlamathError(f"{len(words):,} words: at most {_MAX_WORDS} are read")
    given = list(_given_flags(engine, line, words))
    values: dict[str, Any] = {}
    typed: dict[str, str] = {}
    for x in given:
        if not x.flag.value:
            continue
        value, shown = _value(x), safe(" ".join((x.typed, *x.values)), 60)
        means = x.flag.means
        if values.setdefault(means, value) != value:
            raise LlamathError(f"{shown} contradicts {typed[means]}")
        typed.setdefault(means, shown)
    quiet = [x for x in given if not x.flag.value]
    return EngineArguments(
        settings=values,
        typed=typed,
        words=tuple(
            (x.typed if x.negated else x.flag.name, *(x.values or _bare(x.flag)))
            for x in given
            if x.flag.means not in PRINTED
        ),
        uncounted=tuple(dict.fromkeys(x.flag.name for x in quiet if x.flag.uncounted)),
        unused=tuple(dict.fromkeys(x.flag.name for x in quiet if not x.flag.uncounted)),
    )


PRINTED = {
    *("tp", "pp", "dp", "ep", "copies", "copies_are_attention", "dtype", "kv_dtype"),
    *("value_dtype", "context", "all_context", "batch", "memory_fraction", "gpu_layers"),
}
"""Meanings that a command has from the layout and the request."""


def _bare(flag: Flag) -> tuple[str, ...]:
    """Return the value of a flag without one, where there are words for it."""
    return ("on",) if flag.kind == "optional" and "on" in flag.words else ()


def _given_flags(engine: Engine, line: CommandLine, words: list[str]) -> Iterator[_Given]:
    """Yield each flag with its values."""
    i = 0
    while i < len(words):
        word, i = words[i], i + 1
        if line.variable:
            name, equals, value = word.partition("=")
            if not equals:
                raise LlamathError(
                    f"{engine.title} has variables of its environment, found {safe(word, 40)!r}",
                    hint=f"such as {line.variable}",
                )
            yield _Given(_find_flag(engine, line, name)[1], name, (value,))
            continue
        if not word.startswith("-") or word in ("-", "--"):
            raise LlamathError(
                f"expected a flag of {engine.title}, found {safe(word, 40)!r}",
                hint="the model and the engine's program are not part of the flags",
            )
        name, equals, value = word.partition("=") if line.equals else (word, "", "")
        if line.keys and re.fullmatch(r"-O\d", name):
            name, equals, value = "--optimization-level", "=", name[2:]
        negated, flag = _find_flag(engine, line, name)
        values = [value] if equals else []
        if line.keys and "." in name and not equals:
            values, i = words[i : i + 1], i + 1
        elif flag.kind == "many":
            while i < len(words) and not _is_flag(words[i]):
                values.append(words[i])
                i += 1
        elif not equals and (flag.kind == "value" or _is_optional_value(flag, words[i : i + 1])):
            values, i = words[i : i + 1], i + 1
        needed = flag.kind in {"value", "many"}
        if needed and (not values or _is_flag(values[0])):
            raise LlamathError(f"{safe(name, 60)} of {engine.title} needs a value")
        if flag.kind == "switch" and values and not ("." in name and line.keys):
            raise LlamathError(
                f"{safe(name, 60)} of {engine.title} takes no value, found {safe(values[0], 40)!r}"
            )
        yield _Given(flag, name, tuple(values), negated)


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-\d+(\.\d*)?|-\.\d+", word)


def _is_optional_value(flag: Flag, following: list[str]) -> bool:
    return (
        flag.kind == "optional"
        and bool(following)
        and (following[0] in flag.words if flag.words else not _is_flag(following[0]))
    )


def _find_flag(engine: Engine, line: CommandLine, name: str) -> tuple[bool, Flag]:
    """Return a flag by how it is typed, and whether it is negated."""
    known = engine.flags.by_name
    wanted = name.partition(".")[0] if line.keys else name
    if line.dashes and wanted.startswith("--"):
        wanted = wanted.replace("_", "-")
    negated = wanted.startswith(_NEGATIONS) or wanted in line.negations
    flag = known.get(wanted)
    if flag is None and line.negates and wanted.startswith("--no-"):
        flag = known.get(f"--{wanted[5:]}")
        flag = flag if flag is not None and flag.kind == "switch" else None
    if flag is None and line.prefixes and len(wanted) > 3 and wanted.startswith("--"):
        names = sorted(x for x in known if x.startswith(wanted))
        if len({id(known[x]) for x in names}) > 1:
            raise LlamathError(
                f"{safe(name, 60)} of {engine.title} could be {', '.join(names[:6])}"
                + (", …" if len(names) > 6 else "")
            )
        flag = known[names[0]] if names else None
    if flag is None:
        near = nearest(wanted, known, most=1)
        raise LlamathError(
            f"{engine.label} has no flag {safe(name, 60)}",
            hint=f"did you mean {near[0]}?" if near else f"its flags are those of {engine.source}",
        )
    _check_version(engine, flag, name)
    return negated and flag.kind == "switch", flag


def _check_version(engine: Engine, flag: Flag, name: str) -> None:
    if not engine.has(flag):
        has = flag.since if flag.since == flag.until else f"{flag.since} to {flag.until}"
        raise LlamathError(f"{engine.label} has no flag {safe(name, 60)}; {has} has it")


def _value(given: _Given) -> Any:
    """Read the value of a flag."""
    flag, text = given.flag, given.values[0].strip() if given.values else ""
    if flag.value == "switch":
        return not given.negated
    if flag.value == "word":
        if not given.values:
            return "on"
        if text not in flag.words:
            raise _wrong(given, f"one of {', '.join(flag.words)}")
        if flag.words[text] is None:
            raise LlamathError(f"{given.typed} {safe(text, 40)}: its size is not known")
        return flag.words[text]
    if flag.value == "text":
        return text
    read, expected = _NUMBERS[flag.value]
    try:
        return read(text)
    except (ValueError, OverflowError):
        raise _wrong(given, expected) from None


def _wrong(given: _Given, expected: str) -> LlamathError:
    found = safe(given.values[0] if given.values else "", 40)
    return LlamathError(f"{given.typed} should be {expected}, found {found!r}")


def _integer(text: str, least: int) -> int:
    if not re.fullmatch(r"[+-]?\d{1,16}", text, re.ASCII) or not least <= int(text) <= _MAX_NUMBER:
        raise ValueError
    return int(text)


def _human(text: str) -> int:
    """Read 25.6k as 25,600 and 1K as 1,024."""
    match = _HUMAN.fullmatch(text)
    if not match or (match[2] and (not match[3] or match[3].isupper())):
        raise ValueError
    whole, part, unit = match[1], match[2] or "", match[3]
    value: int = int(whole + part) * _MULTIPLES.get(unit, 1) // 10 ** len(part)
    if not 1 <= value <= _MAX_NUMBER:
        raise ValueError
    return value


def _float(text: str, most: float) -> float:
    if not re.fullmatch(r"\d{1,8}(\.\d{0,16})?|\.\d{1,16}", text, re.ASCII):
        raise ValueError
    value = float(text)
    if not 0 < value <= most:
        raise ValueError
    return value


_NUMBERS: Mapping[str, tuple[Callable[[str], int | float], str]] = {
    "count": (lambda x: _integer(x, 1), "a number from 1 on"),
    "whole": (lambda x: _integer(x, -1), "a number"),
    "tokens": (_human, "a number such as 8192, 8k (8,000) or 8K (8,192)"),
    "share": (lambda x: _float(x, 1), "a number above 0 and at most 1"),
    "number": (lambda x: _float(x, 1e6), "a number above 0"),
}


def layout_of(engine: Engine, arguments: EngineArguments) -> EngineLayout | None:
    """Return the layout that flags ask for; None if none is about it."""
    values, typed, line = arguments.settings, arguments.typed, engine.flags.command_line
    if line is None:
        return None
    if values.get("split_mode") == "none":
        return EngineLayout()
    if not {"tp", "pp", "dp", "ep", "copies", "copies_are_attention"} & set(values):
        return None
    tp, pp, dp, copies = (values.get(x, 1) for x in ("tp", "pp", "dp", "copies"))
    if not line.tp_includes_dp:
        return EngineLayout(tp, pp, dp, bool(values.get("ep", False)))
    if values.get("copies_are_attention"):
        if dp > 1 and dp != copies:
            raise LlamathError(f"{typed['dp']} contradicts {typed['copies_are_attention']}")
        dp, copies = max(dp, copies), 1
    if tp % dp:
        shown = typed.get("dp", typed.get("copies"))
        raise LlamathError(
            f"{shown}: tensor_model_parallel_size ({tp}) must be divisible by "
            f"attention_data_parallel_size ({dp})"
        )
    ep = values.get("ep", 1)
    if ep not in (1, tp):
        raise LlamathError(f"{typed['ep']}: sized are 1 and the {tp} tensor ranks")
    return EngineLayout(tp // dp, pp, dp, ep > 1, copies)


def request_of(engine: Engine, arguments: EngineArguments, layers: int) -> dict[str, Any]:
    """Return what flags ask for that llamath's own arguments also say: context, batch, dtypes."""
    values, typed, line = arguments.settings, arguments.typed, engine.flags.command_line
    found = {
        x: values[x] for x in ("context", "batch", "dtype", "kv_dtype") if values.get(x, "") != ""
    }
    if line is not None and line.one_cache_dtype:
        _check_cache_dtypes(found, values, typed, engine)
    if line is None or not line.context_of_all:
        return found
    slots = found.pop("batch", -1)
    if slots == 0 or slots < -1:
        raise LlamathError(f"{typed['batch']}: expected a number from 1 on, or -1")
    total = values.get("all_context", -1)
    if "all_context" in values and total < 0:
        raise LlamathError(f"{typed['all_context']}: expected a number from 0 on")
    shared = values.get("unified", slots < 1)
    if slots > 1 and not shared:
        found["batch"] = slots
        if total > 0 and total % slots:
            total -= total % slots
        total = total // slots if total > 0 else total
    if total >= 0:
        found["context"] = total or "max"
    where = values.get("gpu_layers", "all")
    if where not in ("all", "auto") and not (re.fullmatch(r"-?\d{1,9}", where, re.ASCII)):
        raise LlamathError(f"{typed['gpu_layers']}: expected a number, all or auto")
    if where not in ("all", "auto") and 0 <= int(where) <= layers:
        raise LlamathError(
            f"{typed['gpu_layers']}: sized is a model whose {layers + 1} layers, the output one "
            "included, are all on GPUs",
            hint=f"{Argument('ram', '64GiB')} places layers in RAM",
        )
    if (mode := values.get("split_mode", "layer")) in ("row", "tensor"):
        raise LlamathError(f"{typed['split_mode']}: {mode} is not sized, layer is")
    return found


def _check_cache_dtypes(
    found: Mapping[str, Any], values: Mapping[str, Any], typed: Mapping[str, str], engine: Engine
) -> None:
    """Refuse keys and values of two types, and quantized values without flash attention."""
    keys = found.get("kv_dtype", "fp16")
    has_two = engine.flags.meaning("value_dtype") is not None
    cached = values.get("value_dtype", "fp16") if has_two else keys
    if keys != cached:
        raise LlamathError(
            f"keys in {keys} and values in {cached}: sized is one type for both",
            hint="give the flag of the other, too",
        )
    if cached not in _PLAIN and values.get("flash_attention") == "off":
        shown = typed.get("value_dtype") or typed["kv_dtype"]
        raise LlamathError(
            f"{shown} contradicts {typed['flash_attention']}: "
            "V cache quantization requires flash_attn"
        )


def defaults_of(
    engine: Engine, types: Sequence[str], memory: int, own_context: int | None
) -> tuple[int | None, tuple[str, ...]]:
    """Return the context that an engine takes if none is given, by the memory of all GPUs, and
    what is said of it; None: llamath's own default.
    """
    if "default_context" not in engine.figures:
        return None, ()
    by_type: Mapping[str, Any] = engine.figure("default_context_of_types", {})
    name = "default_context_of_types" if any(x in by_type for x in types) else "default_context"
    rows = next((by_type[x] for x in types if x in by_type), engine.figure("default_context"))
    least, tokens = next(x for x in rows if memory >= x[0] * 2**30)
    where = f" with {least} GiB or more" if least else ""
    where = where or (f" below {min(x[0] for x in rows if x[0])} GiB" if len(rows) > 1 else "")
    source = engine.figures[name].source
    note = f"{tokens:,} tokens: the default of {engine.label}{where}, from {source}"
    if own_context is not None and own_context < tokens:
        return own_context, (f"{note}; the model has {own_context:,}",)
    return tokens, (note,)


def slots_of(engine: Engine, types: Sequence[str], batch: int) -> tuple[int, tuple[str, ...]]:
    """Return the requests at once that an engine allows for a type of model, and what it says."""
    if batch > 1 and set(types) & set(engine.figure("types_with_one_slot", ())):
        return 1, ("model architecture does not currently support parallel requests: one is sized",)
    return batch, ()


def text_alone(
    engine: Engine, arguments: EngineArguments, part: str | None, model: FamilyModel
) -> tuple[str | None, EngineArguments]:
    """Return the part of a model that an engine loads, and its flags with the one that leaves the
    towers out.
    """
    typed = arguments.settings.get("text_alone")
    if typed is not None:
        if not typed and part:
            raise ArgumentError("part", f" {part} contradicts {arguments.shown('text_alone')}")
        return part or ("text" if typed else None), arguments
    if part is None or not model.is_multimodal or engine.figure("towers_in_own_file", False):
        return part, arguments
    flag = engine.flags.meaning("text_alone")
    if flag is None or not engine.has(flag):
        raise ArgumentError(
            "part", f" {part}: {engine.label} has no flag that leaves the towers of a model out"
        )
    return part, arguments.replace(words=(*arguments.words, (flag.name,)))


_PLAIN = ("fp32", "fp16", "bf16")


def with_arguments(engine: Engine, arguments: EngineArguments) -> Engine:
    """Return an engine whose figures are those that flags set."""
    values, figures = arguments.settings, dict(engine.figures)

    def put(name: str, value: Any, means: str) -> None:
        figures[name] = EngineFigure(value=value, source=arguments.typed[means])

    if "block_tokens" in values:
        for name in ("block_tokens", "latent_block_tokens"):
            put(name, values["block_tokens"], "block_tokens")
    for means in ("batched_tokens", "sequences", "graph_sequences", "cached_tokens"):
        if means in values:
            put(f"asked_{means}", values[means], means)
    if "ubatch_tokens" in values:
        put("ubatch_tokens", values["ubatch_tokens"], "ubatch_tokens")
    if "ubatch_tokens" in figures and "batched_tokens" in values:
        least = min(figures["ubatch_tokens"].value, values["batched_tokens"])
        put("ubatch_tokens", least, "batched_tokens")
    if values.get("eager") and "graphs_gib" in figures:
        put("graphs_gib", [0, 0], "eager")
    if values.get("full_windows"):
        put("kept_whole", ["window", "chunk"], "full_windows")
    if "state_share" in values:
        put("state_pool", values["state_share"], "state_share")
    if "window_share" in values:
        pool = {**engine.figure("window_pool"), "window_tokens_per_token": values["window_share"]}
        put("window_pool", pool, "window_share")
    return engine.replace(figures=figures)
