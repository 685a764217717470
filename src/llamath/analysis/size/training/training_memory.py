"""The memory of a training step on each GPU: weights, gradients, master copy, optimizer states,
activations, logits and loss.

Mixed precision with AdamW takes 16 bytes per parameter before any activation: weights 2, gradients
2, master copy 4, two moments 4 each. ZeRO shards these over data-parallel ranks, one kind after the
other (Rajbhandari et al. 2019, arXiv:1910.02054).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from ....checkpoint.formats.dtypes import DTYPES
from ....checkpoint.naming.scheme import UnnamedWeight
from ....core.expr import Expr, as_number, maximum, total
from ....core.tree import Stack
from ....questions.layout import Layout
from ....questions.memory_questions import Lora, Training
from ....render.report import Report
from ....render.tables import Part
from ....utils.errors import Argument, LlamathError, nearest, safe
from ....utils.number_format import format_bytes, format_count
from ....utils.record_type import Record
from ...graph.operations.saved_tensors import Kernels
from ...storage.choose_storage import find_format, model_format, weight_storage
from ...storage.memory_line import MemoryLine, letters_of, overhead_line
from ...storage.parallel_layout import (
    PipelineStage,
    WeightShard,
    check_layout,
    pipeline_stages,
    slice_layers,
    weight_shards,
)
from ..default_context import default_context
from ..memory.inference_memory import MAX_TOKENS, largest_fitting
from .fp8_recipes import Fp8Recipe, find_recipe
from .lora_adapters import LoraAdapters, build_adapters, module_names
from .loss_memory import HeadSizes, Loss, LossPart, loss_parts, parse_loss
from .optimizers import OPTIMIZERS, Optimizer
from .pipeline_schedule import (
    StageActivations,
    activation_lines,
    recomputed_bytes,
    stage_activations,
    total_bytes,
)
from .saved_activations import SavedActivations, is_compared
from .training_tables import training_setting, training_tables
from .zero_states import (
    ADAPTER_BYTES,
    PersistentState,
    adapter_shards,
    persistent_lines,
    zero3_gather_buffers,
)

if TYPE_CHECKING:
    from ....model import FamilyModel

PARTS = (
    "weights",
    "gradients",
    "master",
    "optimizer",
    "activations",
    "logits",
    "overhead",
    "total",
)
MAX_BATCH = 2**40
OFFLOADED = "inputs of layers"
"""The activations that can wait on the host."""
_QLORA_HINT = "lora r=16 trains adapters on them (QLoRA)"


class TrainRequest(Record):
    """The options of a training step; all are optional."""

    dtype: str = "bf16"  # of weights and activations; with adapters also a quantization scheme
    optimizer: str = Training.optimizer
    gradients: str = Training.grad_dtype  # their dtype; empty: that of the weights
    master: bool | None = Training.master  # a float32 copy of the weights; None: for 16-bit weights
    context: int | None = None
    layout: Layout = Layout()
    dropout: bool = Training.dropout
    fused: bool = False
    loss: str = Training.loss  # or another of LOSSES
    fp8: str = Training.fp8  # a recipe of RECIPES; empty: none
    rank: int = 0  # of LoRA adapters; 0: every weight is trained
    targets: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()  # fully trained matrices, as peft's modules_to_save
    adapter_dtype: str = Lora.dtype  # as peft keeps them; bf16 as torchtune
    # gradients of earlier microbatches are held beside the activations
    accumulate: bool = Training.accumulate
    # the inputs of recomputed layers wait in the memory of the host
    offload: bool = Training.offload


class StageReport(Record):
    """The bytes that one GPU of one pipeline stage needs."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "stage=stage.index",
        "layers=stage.layers",
        "*parts",
        "host",
    )

    stage: PipelineStage
    weights: int
    gradients: int
    master: int
    optimizer: int
    activations: int
    logits: int
    overhead: int
    host: int  # bytes of offloaded activations, in the memory of the host
    lines: tuple[MemoryLine, ...]
    activation_lines: tuple[MemoryLine, ...]  # the lines of the activations among them
    letters: Mapping[str, int]  # of their formulas

    @property
    def total(self) -> int:
        """The sum of the lines."""
        return sum(x.bytes for x in self.lines)

    @property
    def parts(self) -> Mapping[str, int]:
        """The bytes of each part, and their sum."""
        return {name: getattr(self, name) for name in PARTS}


class AdapterTotals(Record):
    """The trainable parameters of LoRA adapters."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "trainable",
        "share",
        "bytes",
        "rank=lora.rank",
        "targets",
    )

    lora: LoraAdapters
    trainable: int
    all_parameters: int  # of the model and the adapters, as peft counts them
    bytes: int  # of the adapters

    @property
    def share(self) -> float:
        """The share of the parameters that is trained."""
        return self.trainable / self.all_parameters

    @property
    def targets(self) -> tuple[str, ...]:
        """The matrices with adapters."""
        return tuple(x.name for x in self.lora.targets)


class _TrainingLimit(Record):
    """The largest microbatch and sequence length that fit in the memory of a GPU."""

    within: int  # bytes
    fits: bool
    max_batch: int | None  # sequences at a time on each GPU: None stands for any number, 0 for none


class TrainingChange(Record):
    """An argument with which a step needs less, and the bytes on a GPU with it."""

    argument: str
    value: str
    total: int
    more: Mapping[str, str] = MappingProxyType({})  # arguments that belong to it

    @property
    def text(self) -> str:
        """The arguments, as the caller types them."""
        return " ".join(
            str(Argument(*x)) for x in ((self.argument, self.value), *self.more.items())
        )


class TrainReport(Report):
    """The memory of every pipeline stage of a training step."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "family=model.family.name",
            "source=model.source",
            "context",
            "gpus=request.layout.gpus",
        ),
        *(
            "layout=request.layout",
            "*largest_stage.parts",
            "kv_cache",
            "kv_per_token=kv_cache",
            "lines=largest_stage.lines",
            "letters=largest_stage.letters",
        ),
        *("stages", "lora=adapter_totals", "*limit", "instead", "notes"),
    )

    model: FamilyModel
    request: TrainRequest
    context: int
    parameters: int
    stages: tuple[StageReport, ...]
    adapter_totals: AdapterTotals | None = None
    limit: _TrainingLimit | None = None
    instead: tuple[TrainingChange, ...] = ()  # what fits, if this does not

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes on the model, and on activations that are estimates."""
        if is_compared(self.model.family.name, self.request.layout.flash, self.request.fused):
            return self.model.notes
        what = (
            f"what the {self.model.family.name} class of transformers saves was not compared; "
            "it may differ by a third"
        )
        return (*self.model.notes, f"activations are estimates: {what}")

    @property
    def kv_cache(self) -> int:
        """Training has no KV cache."""
        return 0

    @property
    def total(self) -> int:
        """The bytes on a GPU of the largest stage."""
        return self.largest_stage.total

    @property
    def summary(self) -> str:
        """The bytes on the most loaded GPU, and whether they fit."""
        request = self.request
        what = (
            f"adapters of rank {request.rank} on {request.dtype}"
            if self.adapter_totals
            else f"training in {request.dtype}"
        )
        gpus = format_count(request.layout.gpus, "GPU")
        verdict = (
            (
                f", {'fits' if self.limit.fits else 'does not fit'} in "
                f"{format_bytes(self.limit.within)}"
            )
            if self.limit
            else ""
        )
        sequences = (
            f"{format_count(request.layout.microbatch, 'sequence')} of "
            f"{format_count(self.context, 'token')}"
        )
        return (
            f"{self.model.name}, {what} on {gpus}, {sequences}: {format_bytes(self.total)} "
            f"per GPU{verdict}"
        )

    @property
    def headline(self) -> str:
        """The bytes on each GPU of the largest stage."""
        request = self.request
        each = "each GPU" if request.layout.gpus > 1 else "one GPU"
        where = "each GPU of the largest stage" if request.layout.pp > 1 else each
        what = (
            f"adapters of rank {request.rank} on {request.dtype}"
            if self.adapter_totals
            else f"training in {request.dtype}"
        )
        optimizer = OPTIMIZERS[request.optimizer.lower()].title
        return f"{self.model.name}, {what} with {optimizer}: {format_bytes(self.total)} on {where}"

    @property
    def setting(self) -> str:
        """The source, the microbatch, the layout, and how the step is computed."""
        family = f"{self.model.family.name} family, from {self.model.source}"
        return f"{family}\n{training_setting(self)}"

    def tables(self) -> Iterable[Part]:
        """The memory of the largest stage, the saved activations, the stages and the adapters."""
        return training_tables(self)

    def __bool__(self) -> bool:
        return self.limit is None or self.limit.fits

    @property
    def largest_stage(self) -> StageReport:
        """The stage whose GPUs need the most memory."""
        return max(self.stages, key=lambda x: x.total)


def training(
    model: FamilyModel,
    request: TrainRequest | None = None,
    within: int | None = None,
    gpu: str = "",
) -> TrainReport:
    """Return the memory that each stage's GPUs need for a step; `within` is the memory of a GPU,
    in bytes. More of a `gpu`, by its name, are offered where a step does not fit.
    """
    job = TrainingJob(model, request or TrainRequest())
    report = job.report()
    if within is None:
        return report
    instead = () if report.total <= within else tuple(_fitting_changes(job, within, gpu))
    return report.replace(limit=job.limit(within, report.total), instead=instead)


_CHANGES: tuple[tuple[str, ...], ...] = (
    ("kernels",),
    ("recompute",),
    ("kernels", "recompute"),
    ("loss",),
    ("kernels", "recompute", "loss"),
    ("kernels", "recompute", "loss", "optimizer"),
)
_MOST_CHANGES = 2
_LEAST_CONTEXT = 512
"""The shortest context that is offered."""
_MOST_GPUS = 1024
_RANK = 16
"""The rank of adapters that are offered."""


def _fitting_changes(job: TrainingJob, within: int, gpu: str) -> Iterator[TrainingChange]:
    """Yield the settings with which a step fits: fused kernels, then recomputation, which costs a
    third more time, then a loss without all logits and an optimizer of 8 bits; if none does,
    adapters; then shorter sequences, and last more GPUs.
    """
    request = job.request
    settings: dict[str, tuple[str, dict[str, Any]]] = {
        "kernels": ("fused", {"fused": True}),
        "recompute": ("full", {"layout": request.layout.replace(recompute="full")}),
        "loss": ("liger", {"loss": "liger"}),
        "optimizer": ("adamw8bit", {"optimizer": "adamw8bit"}),
    }
    new = {name for name, (_, x) in settings.items() if any(getattr(request, k) != x[k] for k in x)}
    found: list[set[str]] = []
    for names in _CHANGES:
        changed = new & {*names}
        if not changed or any(x <= changed for x in found) or len(found) == _MOST_CHANGES:
            continue
        total = _total_with(job, {key: x for y in changed for key, x in settings[y][1].items()})
        if total is not None and total <= within:
            found.append(changed)
            value = ",".join(f"{x}={settings[x][0]}" for x in names if x in changed)
            yield TrainingChange(argument="training", value=value, total=total)
    if not found and not request.rank:
        recomputed = settings["recompute"][1]["layout"]
        adapters = {"rank": _RANK, "targets": Lora.targets, "layout": recomputed}
        quantized = {"dtype": "bnb-nf4", "training": "loss=liger"}
        for more, values in (({}, {}), (quantized, {"dtype": "bnb-nf4", "loss": "liger"})):
            total = _total_with(job, {**adapters, **values})
            if total is not None and total <= within:
                found.append({"lora"})
                value = f"r={_RANK}"
                yield TrainingChange(argument="lora", value=value, total=total, more=more)
                break
    if len(found) == _MOST_CHANGES:
        return
    longest = 1 << (job.context - 1).bit_length() - 1
    for n in (longest >> i for i in range(longest.bit_length())):
        total = _total_with(job, {"context": n}) if n >= _LEAST_CONTEXT else None
        if total is not None and total <= within:
            yield TrainingChange(argument="context", value=str(n), total=total)
            return
    layout = settings["recompute"][1]["layout"]
    if not gpu or layout.gpus != layout.dp or request.rank:
        return
    for n in (layout.dp << i for i in range(1, _MOST_GPUS.bit_length())):
        total = _total_with(job, {"layout": layout.replace(dp=n, zero=3)})
        if total is not None and total <= within:
            more = {"on": f"{n}x{gpu}"}
            yield TrainingChange(
                argument="training", value="recompute=full", total=total, more=more
            )
            return


def _total_with(job: TrainingJob, values: Mapping[str, Any]) -> int | None:
    """Return the bytes on a GPU with other settings; None if they contradict each other."""
    try:
        return TrainingJob(job.model, job.request.replace(**values)).report().total
    except LlamathError:
        return None


class TrainingJob:
    """A model with one training request; everything that does not depend on the stage is
    computed once.
    """

    def __init__(self, model: FamilyModel, request: TrainRequest) -> None:
        self.model, self.tree, self.request, self.layout = (
            model,
            model.tree,
            request,
            request.layout,
        )
        self.context = request.context or default_context(model.tree)
        _check_request(request)
        self.packer, self.optimizer = (
            model_format(model, request.dtype),
            _find_optimizer(request.optimizer),
        )
        if not request.rank and (self.packer.is_packed or self.packer.gguf_file_type):
            hint = (
                "training fp8=current computes in FP8 with 16-bit weights"
                if self.packer.name == "fp8"
                else _QLORA_HINT
            )
            raise LlamathError(
                f"weights in {self.packer.name} cannot be trained directly", hint=hint
            )
        self.size = DTYPES[self.packer.compute_dtype].bytes
        self.loss, self.recipe = parse_loss(request.loss), find_recipe(request.fp8)
        _check_fp8(self.recipe, request)
        _check_loss(self.loss, self.layout, self.lora)
        self.kernels = Kernels(
            flash=self.layout.flash,
            fused=request.fused,
            dropout=request.dropout,
            width=self.size,
            context=self.context,
            fused_qkv=has_fused_qkv(self.model),
            compared=is_compared(self.model.family.name, self.layout.flash, request.fused),
            adapter_paths=frozenset(path for x in self.lora.targets for path in x.paths)
            if self.lora
            else frozenset(),
            rank=request.rank,
            adapter_width=self.adapter_bytes,
            fp8_scales=(self.recipe.scale_block, self.recipe.scale_bytes)
            if self.recipe and self.recipe.keeps_copy
            else None,
        )

    @property
    def adapter_bytes(self) -> int:
        """Bytes per element of an adapter."""
        return DTYPES[find_format(self.request.adapter_dtype).unpacked_dtype].bytes

    def with_layout(self, layout: Layout) -> TrainingJob:
        """Return the same job with another layout."""
        job = TrainingJob(self.model, self.request.replace(layout=layout))
        job.weight_sizes = self.weight_sizes
        job.saved = self.saved.with_kernels(job.kernels)
        return job

    def limit(self, within: int, total: int) -> _TrainingLimit:
        """Return whether `total` bytes fit within the memory of a GPU, and the largest batch on
        each GPU that does.
        """

        def fits(n: int) -> bool:
            return (
                self.with_layout(self.layout.replace(microbatch=n)).report(every=False).total
                <= within
            )

        return _TrainingLimit(
            within=within, fits=total <= within, max_batch=largest_fitting(fits, MAX_BATCH)
        )

    def report(self, every: bool = True) -> TrainReport:
        """Return the report of all stages, or with `every=False` only of the stages that can be
        the largest.
        """
        check_layout(self.tree, self.layout, self.context)
        stages = pipeline_stages(self.tree, self.layout)
        return TrainReport(
            model=self.model,
            request=self.request,
            context=self.context,
            parameters=self.model.parameters.total,
            stages=tuple(
                self.stage(x) for x in (stages if every else self._distinct_stages(stages))
            ),
            adapter_totals=self.adapter_totals,
        )

    def _distinct_stages(self, stages: list[PipelineStage]) -> list[PipelineStage]:
        distinct: dict[tuple[tuple[int, int], ...], PipelineStage] = {}
        for x in stages:
            kinds = tuple(
                (id(block), n)
                for run in x.runs
                for block, n in slice_layers(self.tree.layers, *run)
            )
            distinct.setdefault((*kinds, (x.first, x.last)), x)
        return list(distinct.values())

    @cached_property
    def saved(self) -> SavedActivations:
        """What a forward pass saves."""
        return SavedActivations(self.tree, self.kernels)

    @cached_property
    def lora(self) -> LoraAdapters | None:
        """The LoRA adapters, if there are any."""
        request = self.request
        return (
            build_adapters(
                self.tree, request.rank, request.targets, module_names(self.model), request.saved
            )
            if request.rank
            else None
        )

    @property
    def adapter_totals(self) -> AdapterTotals | None:
        """The totals of the adapters."""
        if self.lora is None:
            return None
        n = self.lora.parameters
        return AdapterTotals(
            lora=self.lora,
            trainable=n,
            all_parameters=self.model.parameters.total + n,
            bytes=n * self.adapter_bytes,
        )

    @cached_property
    def weight_sizes(self) -> dict[str, tuple[int, int]]:
        """Pattern → (bytes, elements) of one copy of each weight; of all copies, where a recipe
        stores them differently.
        """
        storage = weight_storage(self.tree, self.packer, names=self.model.family.schemes.get("hf"))
        if self.packer.recipe is None:
            return {
                x.leaf.pattern: (x.bytes, as_number(x.leaf.weight.size)) for x in storage.weights
            }
        return storage.sizes_by_pattern

    def persistent_state(self, stage: PipelineStage) -> PersistentState:
        """Return the weights that a GPU of this stage stores and trains."""
        shards = weight_shards(self.tree, stage, self.layout)
        gradient = (
            self.adapter_bytes
            if self.lora
            else DTYPES[find_format(self.request.gradients).unpacked_dtype].bytes
            if self.request.gradients
            else self.size
        )
        has_master = (
            self.size < ADAPTER_BYTES if self.request.master is None else self.request.master
        )
        return PersistentState(
            shards=shards,
            adapters=adapter_shards(self.lora, shards) if self.lora else None,
            weight_sizes=self.weight_sizes,
            gradient_bytes=gradient,
            master=has_master and not self.lora,
            optimizer=self.optimizer,
            state_bytes=self.adapter_bytes
            if self.lora
            else ADAPTER_BYTES
            if has_master
            else self.size,
            adapter_bytes=self.adapter_bytes,
            recipe=self.recipe,
        )

    def stage(self, stage: PipelineStage) -> StageReport:
        """Return the report of one stage."""
        resident, flow = (
            self.persistent_state(stage),
            stage_activations(self.saved, stage, self.layout),
        )
        groups = persistent_lines(resident, self.layout)
        groups |= {
            "logits": list(self.loss_lines(flow)),
            "activations": list(self.activation_lines(flow)),
        }
        offloaded = (
            [x for x in groups["activations"] if x.what == OFFLOADED]
            if self.request.offload
            else []
        )
        groups["activations"] = [x for x in groups["activations"] if x not in offloaded]
        if not self.request.accumulate:
            groups["gradients"] = self._late_gradients(groups, flow)
        groups["overhead"] = zero3_gather_buffers(resident, self.layers(stage), self.layout)
        dynamic = {"activations": "activations", "logits": "logits", "gathered weights": "overhead"}
        groups["overhead"].append(
            overhead_line(
                {what: total(x.bytes for x in groups[name]) for what, name in dynamic.items()}
            )
        )
        groups = {name: [x for x in lines if x.bytes] for name, lines in groups.items()}
        sums = {name: int(sum(x.bytes for x in lines)) for name, lines in groups.items()}
        everything = tuple(x for lines in groups.values() for x in lines)
        letters = letters_of((*groups["logits"], *groups["activations"]))
        activations, host = tuple(groups["activations"]), int(sum(x.bytes for x in offloaded))
        return StageReport(
            stage=stage,
            lines=everything,
            activation_lines=activations,
            letters=letters,
            host=host,
            **sums,
        )

    def _late_gradients(
        self, groups: Mapping[str, list[MemoryLine]], flow: StageActivations
    ) -> list[MemoryLine]:
        """The gradients of a single microbatch, which are there when the activations and what
        the loss has freed are gone.
        """
        held = sum(
            int(x.bytes) for x in self._loss_parts(flow, self.layout, self.context) if not x.freed
        )
        gone = int(sum(x.bytes for name in ("activations", "logits") for x in groups[name])) - held
        size = Expr.const(int(sum(x.bytes for x in groups["gradients"]))).alias("gradients")
        extra = maximum(size - Expr.const(gone).alias("freed by then"), 0)
        return [
            MemoryLine(
                what="gradients",
                bytes=extra,
                note="beyond the activations, which are freed as gradients come",
                exact=False,
            )
        ]

    def layers(self, stage: PipelineStage) -> list[list[WeightShard]]:
        """Return the weight shards of one layer of each kind."""
        layers = []
        for block in {
            id(x): x for run in stage.runs for x, _ in slice_layers(self.tree.layers, *run)
        }.values():
            single = self.tree.replace(layers=Stack(((block,), 1)))
            layers.append(
                [
                    x
                    for x in weight_shards(single, stage.replace(runs=((0, 1),)), self.layout)
                    if x.pattern.startswith("layers.")
                ]
            )
        return layers

    @cached_property
    def _written(self) -> tuple[Layout, Expr]:
        """The layout with the variable B for the microbatch, and the variable T for the context:
        what formulas are written with.
        """
        if isinstance(self.context, Expr):
            return self.layout, self.context
        return self.layout.replace(
            microbatch=Expr.variable("B", self.layout.microbatch)
        ), Expr.variable("T", self.context)

    def activation_lines(self, flow: StageActivations) -> Iterator[MemoryLine]:
        """The saved activations; a recomputed layer reuses the memory that the loss has freed by
        then.
        """
        yield from activation_lines(flow.kept, *self._written)
        size, freed = (
            recomputed_bytes(flow, *self._written),
            total(x.bytes for x in self._loss_parts(flow, *self._written) if x.freed),
        )
        layer = Expr.const(size).alias("largest layer")
        extra = maximum(layer - freed.alias("freed by the loss"), 0) if freed.terms else layer
        yield MemoryLine(what="recomputed layer", bytes=extra)

    def activation_bytes(self, stage: PipelineStage) -> int:
        """Return the bytes of activations, logits and loss without building the lines."""
        flow, at = stage_activations(self.saved, stage, self.layout), (self.layout, self.context)
        saved, working = total_bytes(flow.kept, *at), recomputed_bytes(flow, *at)
        freed, held = 0, 0
        for x in self._loss_parts(flow, *at):
            freed, held = (freed + int(x.bytes), held) if x.freed else (freed, held + int(x.bytes))
        return saved + maximum(working, freed) + held

    def _loss_parts(
        self, flow: StageActivations, layout: Layout, context: int
    ) -> Iterator[LossPart]:
        """Yield what the loss holds."""
        return loss_parts(self.loss, flow, self._head_sizes, layout, context)

    @cached_property
    def _head_sizes(self) -> HeadSizes:
        """What the loss needs to know of the head; a fused loss computes the gradients of the
        logits in place.
        """
        trained = self.lora is None or any(
            "head" in path.split(".") for x in self.lora.modules_to_save for path in x.paths
        )
        return HeadSizes(
            as_number(self.tree.width), self.size, trained, 4 if self.request.fused else 8
        )

    def loss_lines(self, flow: StageActivations) -> Iterator[MemoryLine]:
        """The logits, the tensors that cross-entropy saves, and the gradients of the logits."""
        for x in self._loss_parts(flow, *self._written):
            yield MemoryLine(what=x.what, bytes=x.bytes, note=x.note, exact=x.exact)


def has_fused_qkv(model: FamilyModel) -> bool:
    """Return whether the reference implementation stores queries, keys and values as one matrix."""
    try:
        q, v = (model.family.hf.stored_name(f"layers.{{l}}.attn.{x}.weight") for x in "qv")
    except UnnamedWeight:
        return False
    return q == v


def training_dtype(model: FamilyModel) -> str:
    """Return the dtype that a model is trained in: the config's dtype, or the compute dtype of
    packed weights.
    """
    return {"F32": "fp32", "F16": "fp16"}.get(model.weight_format.compute_dtype, "bf16")


def _find_optimizer(name: str) -> Optimizer:
    if (optimizer := OPTIMIZERS.get(name.lower())) is None:
        near = nearest(name, OPTIMIZERS)
        raise LlamathError(
            f"unknown optimizer {safe(repr(name), 40)}",
            hint=f"known: {', '.join(near or OPTIMIZERS)}",
        )
    return optimizer


def _check_loss(loss: Loss, layout: Layout, lora: LoraAdapters | None) -> None:
    """Refuse Liger's loss where its kernel does not apply: it reads the whole weight of the
    head, and nothing else of it.
    """
    if loss.kind == "liger" and layout.tp > 1:
        raise LlamathError(
            f"Liger's loss needs the whole vocabulary on each GPU, found TP {layout.tp}",
            hint=f"{Argument('training', 'loss=chunked')}, or TP 1",
        )
    if (
        loss.kind == "liger"
        and lora is not None
        and any("head" in path.split(".") for x in lora.targets for path in x.paths)
    ):
        raise LlamathError(
            "Liger's loss reads the head's weight alone: an adapter on the head "
            "would not be trained",
            hint=str(Argument("training", "loss=chunked")),
        )


def _check_fp8(recipe: Fp8Recipe | None, request: TrainRequest) -> None:
    if recipe is not None and request.rank:
        raise LlamathError(
            "FP8 recipes train all weights: adapters are not modeled", hint="leave fp8 or lora out"
        )
    if recipe is not None and request.dtype not in ("bf16", "fp16", "fp32"):
        raise LlamathError(
            f"an FP8 recipe converts 16-bit weights, found weights in {safe(request.dtype, 40)}",
            hint=str(Argument("dtype", "bf16")),
        )


def _check_request(request: TrainRequest) -> None:
    layout = request.layout
    counts = {
        "context": request.context,
        "batch": layout.microbatch,
        "microbatches": layout.microbatches,
    }
    for name, n in counts.items():
        if n is not None and not 1 <= n < MAX_TOKENS:
            raise LlamathError(f"{name} {n:,} is too {'small' if n < 1 else 'large'}")
    if request.gradients and (
        find_format(request.gradients).is_packed or find_format(request.gradients).gguf_file_type
    ):
        raise LlamathError(
            f"gradients cannot be stored in {request.gradients}", hint="bf16, fp16 or fp32"
        )
    if (
        find_format(request.adapter_dtype).is_packed
        or find_format(request.adapter_dtype).gguf_file_type
    ):
        raise LlamathError(
            f"adapters cannot be trained in {request.adapter_dtype}", hint="fp32, bf16 or fp16"
        )
    if request.offload and layout.recompute != "full":
        raise LlamathError(
            "offloading keeps the inputs of recomputed layers on the host",
            hint=str(Argument("training", "recompute=full")),
        )
    if not request.accumulate and layout.count > 1:
        raise LlamathError(
            f"{Argument('training', 'accumulate=no')} is for one microbatch per step, found "
            f"{layout.count}",
            hint=str(Argument("layout", "microbatches=1")),
        )
    if layout.zero not in range(4):
        raise LlamathError(f"the ZeRO stage should be 0 to 3, found {layout.zero}")
    if request.rank < 0:
        raise LlamathError(f"the LoRA rank should be a positive integer, found {request.rank}")
