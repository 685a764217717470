"""`plan_engine`: will an engine start with a model on these GPUs, what will it print, and with
which command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from ....engines import ENGINES, Engine, find_engine
from ....hardware import Device
from ....render.report import Report
from ....render.tables import Code, Column, Part, Table, Text
from ....utils.errors import Argument, LlamathError, safe
from ....utils.number_format import format_count, format_giga
from ....utils.record_type import Record
from ...storage.parallel_layout import layout_problems
from ..fit.fit_rules import rounded_context
from ..fit.fit_words import gpus_option
from ..fit.format_support import supported_formats
from ..memory.gpu_shards import ShardedModel
from ..memory.inference_memory import MemoryCalculator
from .device_rules import configs, device_facts, model_types, run_as_on
from .engine_arguments import EngineArguments, with_arguments
from .engine_layouts import (
    BrokenRule,
    CheckedLayout,
    candidate_layouts,
    check_engine_layout,
    rule_source,
)
from .engine_memory import EngineMemory, batched_tokens, engine_memory, shard_layout
from .launch_command import checkpoint_address, launch_command
from .llama_cpp_cache import LlamaCppCache, llama_cpp_cache
from .paged_cache import CacheCapacity, PagedCache, layer_caches, page_layers, sparse_rows
from .rank_shapes import EngineLayout, model_facts
from .token_pools import TokenPools, pool_layers

if TYPE_CHECKING:
    from ....model import FamilyModel

Verdict = Literal["starts", "may start", "does not start"]
_MAX_NEAREST = 3
"""Layouts that are offered."""


class EngineSettings(Record):
    """The user's settings: the layout, the share of memory, the memory of the cache, and the
    engine's own flags.
    """

    layout: EngineLayout | None = None
    fraction: float | None = None
    kv_memory: int | None = None
    arguments: EngineArguments = EngineArguments()


class EngineRemedy(Record):
    """An argument with which an engine starts, and with which layout, if that is another."""

    argument: str
    value: str
    layout: str = ""


class EngineReport(Report):
    """Whether an engine starts, with what it prints."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "engine=engine.name",
            "version=version_text",
            "gpu=gpu.name",
            "count",
            "context",
            "verdict",
            "starts",
            "layout",
        ),
        *(
            "why",
            "warnings",
            "older",
            "weights",
            "own_memory",
            "kv_memory",
            "least",
            "most",
            "prints",
            "command",
            "nearest",
            "instead",
            "notes",
        ),
    )

    model: FamilyModel
    engine: Engine
    gpu: Device
    count: int
    context: int
    verdict: Verdict
    layout: str
    asked: CheckedLayout
    memory: EngineMemory | None
    least: CacheCapacity | None  # with the most memory of the engine's own
    most: CacheCapacity | None
    cache: PagedCache | None
    prints: tuple[str, ...]
    why: tuple[BrokenRule, ...]
    warnings: tuple[BrokenRule, ...]
    older: tuple[BrokenRule, ...]
    command: str
    nearest: tuple[str, ...]
    instead: tuple[EngineRemedy, ...]  # with which it may start, if no layout does
    notes: tuple[str, ...]

    @property
    def starts(self) -> bool:
        """Whether the engine may start."""
        return self.verdict != "does not start"

    @property
    def version_text(self) -> str:
        """The engine's version."""
        return ".".join(map(str, self.engine.version))

    @property
    def weights(self) -> int | None:
        """The bytes of the weights on the fullest GPU."""
        return self.memory.weights if self.memory is not None else None

    @property
    def own_memory(self) -> tuple[int, int] | None:
        """The least and the most bytes that the engine needs for itself."""
        return self.memory.own if self.memory is not None else None

    @property
    def kv_memory(self) -> tuple[int, int] | None:
        """The least and the most bytes for the cache on each GPU."""
        return self.memory.available if self.memory is not None else None

    @property
    def summary(self) -> str:
        """The verdict in one line."""
        where = (
            f"{self.engine.label} {self.verdict} with {self.model.name} on "
            f"{gpus_option(self.count, self.gpu)}, {self.layout}"
        )
        if self.why:
            return f"{where}: {self.why[0].says}"
        if self.verdict == "does not start" and self.prints:
            return f"{where}: {self.prints[-1]}"
        return where + (f": {self.prints[-1]}" if self.prints else "")

    @property
    def headline(self) -> str:
        """The verdict in the engine's words."""
        count = f"{self.count:,} ×" if self.count > 1 else "one"
        return (
            f"{self.engine.label} {self.verdict} with {self.model.name} on {count} "
            f"{self.gpu.title}, {self.layout}"
        )

    @property
    def setting(self) -> str:
        """The length of requests and the source of the rules."""
        requests = format_count(self.context, "token")
        return f"requests of {requests}; rules from {self.engine.source}"

    def __bool__(self) -> bool:
        return self.starts

    def tables(self) -> Iterable[Part]:
        """The rules against it, the memory, what it prints as it starts, and the command line to
        paste.
        """
        for title, rules in (
            ("because", self.why),
            ("with a warning", self.warnings),
            ("older versions do not start", self.older),
        ):
            if rules:
                rows = tuple(map(_rule_cells, rules))
                yield Table(title=title, columns=_RULES, rows=rows)
        if self.memory is not None:
            yield from self._memory(self.memory)
        if self.prints:
            yield Table(
                title="it prints",
                columns=(Column("", key="prints", wrap=True),),
                rows=tuple((x,) for x in self.prints),
            )
        if starting := (*self.nearest, *map(_remedy_text, self.instead)):
            yield Code("\n".join(f"  {x}" for x in starting), "starts instead")
        if self.command:
            yield Code(self.command, "to paste")

    def _memory(self, memory: EngineMemory) -> Iterator[Part]:
        own = " to ".join(dict.fromkeys(format_giga(x, 2**30) for x in memory.own))
        limit, all_of_it, weights = (
            format_giga(x, 2**30) for x in (memory.limit, self.gpu.memory, memory.weights)
        )
        yield Text(
            f"may use {limit} of {all_of_it} GiB on each GPU: {weights} GiB of weights, {own} GiB "
            "of its own",
            apart=True,
        )
        for x in memory.terms:
            yield Text(x, "dim", indent="  ", hanging="    ")


def _remedy_text(x: EngineRemedy) -> str:
    return f"{Argument(x.argument, x.value)}" + (f" ({x.layout})" if x.layout else "")


_RULES = (Column("", key="says", wrap=True), Column("source", below=True))


def _rule_cells(x: BrokenRule) -> tuple[str, str]:
    where = f" ({safe(x.where, 100)})" if x.where else ""
    return f"{x.says}{where}", rule_source(x.source, x.workaround)


def plan_engine(
    calculator: MemoryCalculator,
    engine_name: str,
    gpu: Device,
    count: int,
    settings: EngineSettings,
) -> EngineReport:
    """Return whether an engine starts on GPUs, what it prints, and the command line."""
    engine = with_arguments(find_engine(engine_name), settings.arguments)
    has_experts = bool(model_facts(calculator, EngineLayout())["experts"])
    if settings.layout is not None and settings.layout.gpus != count:
        raise LlamathError(
            f"the layout {settings.layout.label} needs {settings.layout.gpus:,} GPUs, not "
            f"{count:,}",
            hint=f"such as {Argument('on', gpus_option(settings.layout.gpus, gpu))}",
        )
    usual = candidate_layouts(engine, count, gpu.node, has_experts)
    asked = settings.layout or usual[0]
    first = try_layout(engine, calculator, asked, gpu, settings)
    others = [x for x in usual if x != asked]
    tried = first
    if first.verdict == "does not start" and settings.layout is None:
        better = (try_layout(engine, calculator, x, gpu, settings) for x in others)
        tried = next((x for x in better if x.verdict != "does not start"), first)
    nearest = (
        tuple(_nearest(engine, calculator, others, gpu, settings, tried))
        if first.verdict == "does not start"
        else ()
    )
    starts = tried.verdict != "does not start"
    instead = (
        ()
        if starts
        else tuple(_instead(engine, calculator, asked, gpu, settings, first, has_experts))
    )
    stand_in = checkpoint_address(calculator, engine.runner).note if starts else ""
    return EngineReport(
        model=calculator.model,
        engine=engine,
        gpu=gpu,
        count=count,
        context=calculator.context,
        verdict=first.verdict,
        layout=asked.label,
        asked=first.checked,
        memory=first.memory,
        least=first.least,
        most=first.most,
        cache=first.cache,
        prints=first.prints,
        why=first.checked.broken,
        warnings=first.checked.warnings,
        older=first.checked.older,
        command=launch_command(
            engine,
            run_as_on(engine, calculator, gpu),
            tried.layout,
            settings.fraction,
            settings.arguments.words,
            node=gpu.node,
        )
        if starts
        else "",
        nearest=nearest,
        instead=instead,
        notes=(
            *([stand_in] if stand_in else []),
            *settings.arguments.notes,
            *first.notes,
            *engine.notes,
            *calculator.notes,
        ),
    )


class EngineTrial(Record):
    """One layout on the GPUs."""

    layout: EngineLayout
    checked: CheckedLayout
    verdict: Verdict
    memory: EngineMemory | None = None
    least: CacheCapacity | None = None
    most: CacheCapacity | None = None
    cache: PagedCache | None = None
    prints: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _nearest(
    engine: Engine,
    calculator: MemoryCalculator,
    layouts: list[EngineLayout],
    gpu: Device,
    settings: EngineSettings,
    tried: EngineTrial,
) -> Iterator[str]:
    """Yield the layouts that start, the one of the command first."""
    found = [tried.layout.label] if tried.verdict != "does not start" else []
    for x in layouts:
        if (
            len(found) < _MAX_NEAREST
            and x.label not in found
            and try_layout(engine, calculator, x, gpu, settings).verdict != "does not start"
        ):
            found.append(x.label)
    yield from found


def _instead(
    engine: Engine,
    calculator: MemoryCalculator,
    layout: EngineLayout,
    gpu: Device,
    settings: EngineSettings,
    first: EngineTrial,
    has_experts: bool,
) -> Iterator[EngineRemedy]:
    """Yield arguments with which an engine starts: a shorter context, smaller weights, more GPUs;
    of a device that it does not run on, the engines that do.
    """

    def starts(sizes: MemoryCalculator, ranks: EngineLayout = layout) -> bool:
        return try_layout(engine, sizes, ranks, gpu, settings).verdict != "does not start"

    if not _runs_on_device(first.checked):
        for name in ENGINES:
            other = find_engine(name)
            facts = device_facts(other, calculator, gpu)
            if _runs_on_device(check_engine_layout(other, calculator, layout, facts)):
                yield EngineRemedy(argument="engine", value=name)
        return
    request = calculator.request
    lengths = [device_facts(engine, calculator, gpu)["longest"], _longest_that_fits(first)]
    for length in (rounded_context(x) for x in lengths if x and x < calculator.context):
        if length and starts(
            MemoryCalculator(calculator.model, request.replace(context=length), calculator.stored)
        ):
            yield EngineRemedy(argument="context", value=str(int(length)))
            break
    for name in supported_formats(gpu):
        try:
            smaller = MemoryCalculator(calculator.model, request.replace(dtype=name))
            is_smaller = _weight_bytes(smaller) < _weight_bytes(calculator)
            if is_smaller and starts(smaller):
                yield EngineRemedy(argument="dtype", value=name)
                break
        except LlamathError:
            continue
    if settings.layout is None:
        for times in _MORE_GPUS:
            count = layout.gpus * times
            usual = candidate_layouts(engine, count, gpu.node, has_experts)
            if ranks := next((x for x in usual if starts(calculator, x)), None):
                more = gpus_option(count, gpu)
                yield EngineRemedy(argument="on", value=more, layout=ranks.label)
                return


def _runs_on_device(checked: CheckedLayout) -> bool:
    """Return whether an engine has kernels for a device, whatever the model."""
    return not any(x.rule.startswith(("platform", "compute-capability")) for x in checked.broken)


_MORE_GPUS = (2, 4, 8)
"""Multiples of the number of GPUs that are tried."""


def _weight_bytes(calculator: MemoryCalculator) -> int:
    return sum(x.bytes for x in calculator.weights)


def _longest_that_fits(trial: EngineTrial) -> int | None:
    return trial.most.longest if trial.most is not None else None


def try_layout(
    engine: Engine,
    calculator: MemoryCalculator,
    layout: EngineLayout,
    gpu: Device,
    settings: EngineSettings,
) -> EngineTrial:
    """Return what an engine does with one layout on GPUs."""
    checked = check_engine_layout(engine, calculator, layout, device_facts(engine, calculator, gpu))
    if not checked.starts:
        return EngineTrial(layout=layout, checked=checked, verdict="does not start")
    calculator = run_as_on(engine, calculator, gpu)
    split = shard_layout(layout)
    if problems := layout_problems(calculator.tree, split):
        broken = BrokenRule(
            rule="shape", says="; ".join(problems), where="", source="the shapes of the model"
        )
        return EngineTrial(
            layout=layout, checked=checked.replace(broken=(broken,)), verdict="does not start"
        )
    shards = ShardedModel(calculator, split)
    memory = engine_memory(engine, calculator, shards, gpu, settings.fraction)
    if (fixed := settings.kv_memory) is not None:
        memory = memory._replace(available=(fixed, fixed))
        if _needed(memory, 0) > gpu.memory:
            short = BrokenRule(
                rule="memory",
                says=f"{memory.weights / 2**30:.2f} GiB of weights, {memory.own[0] / 2**30:.2f} "
                f"of its own and {fixed / 2**30:.2f} for the cache are more than the "
                f"{gpu.memory / 2**30:.2f} GiB of the device: CUDA out of memory",
                where="",
                source="the sizes of the model and of the device",
            )
            return EngineTrial(
                layout=layout,
                checked=checked.replace(broken=(short,)),
                verdict="does not start",
                memory=memory,
            )
    trial = EngineTrial(layout=layout, checked=checked, verdict="starts", memory=memory)
    if engine.runner == "llama.cpp":
        cache = llama_cpp_cache(engine, calculator, shards)
        return _with_llama_cpp_cache(trial, engine, cache, memory)
    if engine.name == "transformers":
        return _with_needed_cache(trial, calculator, shards, memory)
    return _with_pages(trial, engine, calculator, shards, gpu)


def _needed(memory: EngineMemory, side: int) -> int:
    """Return the least or the most bytes on a GPU with a cache of a fixed size."""
    return memory.weights + memory.own[side] + memory.available[side]


def _with_llama_cpp_cache(
    trial: EngineTrial, engine: Engine, cache: LlamaCppCache, memory: EngineMemory
) -> EngineTrial:
    verdict, notes = _verdict(cache.bytes_of_fullest, memory), cache.notes
    prints = cache.prints if engine.figure("prints_cache", default=True) else ()
    if not prints:
        notes += (f"the cache is that of llama.cpp: {engine.figures['prints_cache'].source}",)
    if engine.name != engine.runner and verdict == "does not start":
        notes += (f"{engine.title} itself starts, with some layers in RAM",)
    return trial.replace(verdict=verdict, prints=prints, notes=notes)


def _with_needed_cache(
    trial: EngineTrial, calculator: MemoryCalculator, shards: ShardedModel, memory: EngineMemory
) -> EngineTrial:
    needed = max(
        shards.kv_cache(i, calculator.context, calculator.request.batch)
        for i in range(len(shards.stages))
    )
    return trial.replace(
        verdict=_verdict(needed, memory),
        notes=("a dynamic cache grows with the tokens: nothing is printed at start",),
    )


def _verdict(needed: int, memory: EngineMemory) -> Verdict:
    low, high = memory.available
    return "starts" if needed <= low else "may start" if needed <= high else "does not start"


def _with_pages(
    trial: EngineTrial,
    engine: Engine,
    calculator: MemoryCalculator,
    shards: ShardedModel,
    gpu: Device,
) -> EngineTrial:
    memory = trial.memory
    assert memory is not None
    cache = _engine_cache(trial.layout, engine, calculator, shards, gpu)
    if isinstance(cache, str):
        needed = max(shards.kv_cache(i, calculator.context, 1) for i in range(len(shards.stages)))
        note = (
            f"what {engine.title} prints is not known for {cache}; the verdict counts the "
            f"cache itself, {needed / 2**30:.2f} GiB"
        )
        return trial.replace(verdict=_verdict(needed, memory), notes=(note,))
    least, most = (max(x, 0) for x in memory.available)
    low, high = cache.capacity(least, calculator.context), cache.capacity(most, calculator.context)
    verdict: Verdict = "starts" if low.starts else "may start" if high.starts else "does not start"
    if verdict == "starts" and _needed(memory, 1) > gpu.memory:
        verdict = "may start"
    lines = tuple(_printed_lines(engine, calculator, memory, low, high, cache))
    pages = cache if isinstance(cache, PagedCache) else None
    short = isinstance(cache, TokenPools) and verdict == "does not start" and high.tokens > 0
    notes = (
        (f"{engine.title} itself starts, and refuses requests that its pool cannot hold",)
        if short
        else ()
    )
    return trial.replace(
        verdict=verdict, least=low, most=high, cache=pages, prints=lines, notes=notes
    )


def _engine_cache(
    layout: EngineLayout,
    engine: Engine,
    calculator: MemoryCalculator,
    shards: ShardedModel,
    gpu: Device,
) -> PagedCache | TokenPools | str:
    """Return the cache of an engine, or the reason why it is not known."""
    state_bytes, rows = state_element_bytes(engine, calculator), sparse_rows(engine, gpu.name)
    caches = layer_caches(
        calculator.decode, layout.tp, calculator.kv_dtype, state_bytes, sparse=rows
    )
    if isinstance(caches, str):
        return caches
    stages = [x.runs for x in shards.stages]
    if "window_pool" in engine.figures:
        return pool_layers(calculator.tree, caches, engine, set(model_types(calculator)), stages)
    tokens, _ = batched_tokens(engine, gpu)
    batches = engine.figure("batches_in_flight", 1) if layout.pp == 1 else layout.pp
    cache = page_layers(calculator.tree, caches, engine, in_flight=tokens * batches, stages=stages)
    several = isinstance(cache, PagedCache) and engine.name != "vllm" and len(cache.groups) > 1
    return "a cache of several kinds of layers" if several else cache


def state_element_bytes(engine: Engine, calculator: MemoryCalculator) -> int:
    """Return the bytes of an element of a recurrent state: those that the config, the type of
    the model, or its dtype say.
    """
    if "state_dtype_keys" not in engine.figures:
        return 4
    sources = configs(calculator)
    names = [
        str(x[key]) for x in sources for key in engine.figure("state_dtype_keys") if x.get(key)
    ]
    names += [
        engine.figure("state_dtype_of_types")[kind]
        for x in sources
        if (kind := x.get("model_type")) in engine.figure("state_dtype_of_types")
    ]
    return (
        4
        if (names[0].endswith("float32") if names else calculator.packer.compute_dtype == "F32")
        else 2
    )


def _printed_lines(
    engine: Engine,
    calculator: MemoryCalculator,
    memory: EngineMemory,
    low: CacheCapacity,
    high: CacheCapacity,
    cache: PagedCache | TokenPools,
) -> Iterator[str]:
    """Yield the lines that an engine prints as it starts, with intervals where its own memory is
    one.
    """
    length = calculator.context
    if isinstance(cache, TokenPools) and high.tokens <= 0:
        yield "Not enough memory. Please try to increase --mem-fraction-static."
        return
    yield from (
        cache.lines(low.available, high.available) if isinstance(cache, TokenPools) else cache.notes
    )
    if engine.name != "vllm":
        yield (
            f"{_span(low.tokens, high.tokens)} tokens in the KV cache, "
            f"{_span_gib(*memory.available)} GiB"
        )
        return
    yield f"Model loading took {memory.weights / 2**30:.2f} GiB memory"
    yield f"Available KV cache memory: {_span_gib(*memory.available)} GiB"
    if not high.starts:
        yield _too_long(length, high)
        return
    yield f"GPU KV cache size: {_span(low.tokens, high.tokens)} tokens"
    times = (
        f"{low.concurrency:.2f}x"
        if low.concurrency == high.concurrency
        else f"{low.concurrency:.2f}x to {high.concurrency:.2f}x"
    )
    yield f"Maximum concurrency for {length:,} tokens per request: {times}"


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _span_gib(low: int, high: int) -> str:
    texts = [f"{x / 2**30:.2f}" for x in (low, high)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _too_long(length: int, found: CacheCapacity) -> str:
    """Return vLLM's words for a request that does not fit."""
    if found.available <= 0:
        return (
            "No available memory for the cache blocks. Try increasing "
            "`gpu_memory_utilization` when initializing the engine."
        )
    estimate = (
        (f" Based on the available memory, the estimated maximum model length is {found.longest}.")
        if found.longest
        else ""
    )
    return (
        f"To serve at least one request with the model's max seq len ({length}), "
        f"({found.needed / 2**30:.2f} GiB KV cache is needed, "
        f"which is larger than the available KV cache memory ({found.available / 2**30:.2f} "
        f"GiB).{estimate} "
        "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing "
        "the engine."
    )
