"""The public functions: each takes a model, or anything that `load` accepts, and returns a report.

Arguments have the names and units of the command line's options: `context="128k"`, `on="2xh100"`,
`layout="tp=8,pp=2"`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from .hardware import Device
from .loading import Source, Via, load
from .model import Model
from .utils.errors import ArgumentError, LlamathError, UnknownModel, safe
from .utils.key_values import integer, parse_key_values, yes_or_no
from .utils.record_type import Record
from .utils.units import parse_bytes, parse_count, parse_quantity, parse_tokens

if TYPE_CHECKING:
    from fractions import Fraction

    from typing_extensions import TypeIs

    from .analysis.cost.cost_report import CostReport, Price
    from .analysis.count.count_report import CountReport, StoredNamesReport
    from .analysis.design.design_report import DesignReport
    from .analysis.diff.model_diff import DiffReport, MultiDiffReport
    from .analysis.explain import Explanation
    from .analysis.fact_sheet import FactSheet
    from .analysis.fit.fit_comparison import FitComparison
    from .analysis.fit.fit_report import FitReport
    from .analysis.fit.gpu_ranking import GPURanking
    from .analysis.fit.quants_report import QuantsReport
    from .analysis.flops.flops_report import FlopsReport
    from .analysis.flops.scaling_laws import ScalingLaw
    from .analysis.image_pass import Images
    from .analysis.inference.inference_memory import MemoryCalculator, MemoryReport, WeightsReport
    from .analysis.inference.weight_bytes import StoredWeights
    from .analysis.parallel_layout import Layout
    from .analysis.plan import PlanReport
    from .analysis.plan.serving_plan import ServeReport
    from .analysis.preset_list import PresetList
    from .analysis.same.same_report import SameReport
    from .analysis.same.weights_hash import HashReport
    from .analysis.serving.draft_pair import DraftKind, PairReport
    from .analysis.serving.engine_report import EngineReport
    from .analysis.serving.placement import Placement
    from .analysis.training.training_memory import TrainReport
    from .analysis.verify.check_checkpoint import VerifyReport
    from .analysis.verify.listing import Listing
    from .analysis.verify.structure_report import StructureReport
    from .analysis.verify.weight_names import NamesReport
    from .conversion.convert_checkpoint import ConversionReport
    from .conversion.edit.edit_checkpoint import EditReport
    from .generic.generic_model import GenericModel
    from .hardware import DeviceList

_ModelSource = Source
"""A model, or what `load` accepts: a preset, a path, an address, a public id, config keys,
`ModelArgs`."""
Part = Literal["text", "vision", "audio"]
"""A part of a multimodal model."""
Tokens = int | str
"""A number of tokens: `131072`, `"131,072"` or `"128k"`; as a context also `"max"`, the model's
own."""
Size = int | str
"""A number of bytes: `25769803776`, `"24GiB"` or `"24GB"`."""
Count = float | str
"""A number of parameters, tokens or operations: `405000000000`, `4.05e11` or `"405B"`."""
Range = int | tuple[int, int] | str
"""A number or a range with both ends included: `80`, `(60, 100)` or `"60:100"`."""
_Ratio = float | tuple[float, float] | str
"""A ratio or a range of ratios: `3.5`, `"8/3"`, `(2.5, 4)` or `"2.5:4"`."""
GPUs = str | Device
"""GPUs: `"h100"`, `"8xh100"`, `"4090+3060"` in one machine, `"mem=24GiB bw=1TB/s bf16=300TF"`,
or one device of `gpus()`."""
Machines = list[str] | list[Device] | tuple[GPUs, ...]
"""Several machines, each as above."""
Scheme = Literal["hf", "meta", "gguf"]
Recompute = Literal["none", "selective", "op", "full"]
AttentionKernel = Literal["flash", "eager", "flash1", "flash2", "flash3", "cudnn"]
_T = TypeVar("_T")

_MAX_PLANS = 1000
_MAX_PLACED = 64
_MAX_TRAINING_TOKENS = 10**18
_MAX_DIMENSION = 2**40
_MAX_SPEED = 1e18
_PLAN_AXES = ("tp", "pp", "cp", "ep", "dp", "microbatch", "interleave")
_LAYOUT_AXES = ("tp", "pp", "cp", "ep", "etp", "dp", "interleave", "microbatches")


def count(model: _ModelSource, *, part: Part | None = None, via: Via | None = None) -> CountReport:
    """Count the parameters of a model, weight by weight, with the formula of the total.

    `part` counts one part of a multimodal model; vision and audio are a tower with its projector. A
    checkpoint of an unknown family raises `UnknownModel`; `inspect` counts its parameters by its
    headers, and `via="transformers"` those of the class that transformers builds of its
    configuration, without a formula.
    """
    from .analysis.count.count_files import count_files
    from .analysis.count.count_report import CountReport
    from .checkpoint.open import names_checkpoint

    try:
        loaded = load(model, via=via)
        if _is_generic(loaded):
            from .analysis.generic.state_dict_count import StateDictCount

            return StateDictCount(model=loaded.part(part) if part else loaded)
        counted = loaded if isinstance(model, Model) else count_files(loaded).counted
        if isinstance(counted, Model):
            return CountReport(model=counted.part(part) if part else counted)
        raise UnknownModel(f"{safe(os.fspath(model))}: {counted.reason}")  # type: ignore[arg-type]
    except UnknownModel as error:
        if isinstance(model, str | os.PathLike) and names_checkpoint(os.fspath(model)):
            hint = "llamath.inspect(path).total.parameters counts the tensors of any checkpoint"
            raise UnknownModel(str(error), hint=hint) from None
        raise


@overload
def diff(
    a: _ModelSource,
    b: _ModelSource | None = None,
    /,
    *,
    changes: Mapping[str, Any] | None = None,
    via: Via | None = None,
) -> DiffReport: ...
@overload
def diff(
    a: _ModelSource,
    b: _ModelSource,
    c: _ModelSource,
    /,
    *more: _ModelSource,
    changes: Mapping[str, Any] | None = None,
    via: Via | None = None,
) -> MultiDiffReport: ...
def diff(
    a: _ModelSource,
    b: _ModelSource | None = None,
    /,
    *more: _ModelSource,
    changes: Mapping[str, Any] | None = None,
    via: Via | None = None,
) -> DiffReport | MultiDiffReport:
    """Explain why `b` has more or fewer parameters than `a`: causes, weights and configuration keys
    that differ.

    `changes` replaces configuration keys of the last model; with one model, it is compared with
    itself under these changes. Of three or more models, each is compared with the first.
    `via="transformers"` builds models of unknown families, which are compared by the names and
    shapes of their tensors.
    """
    from .analysis.diff.model_diff import MultiDiffReport
    from .analysis.generic.state_dict_diff import diff_models as compare

    if b is None and not changes:
        raise LlamathError(
            "diff needs a second model or changes",
            hint='diff(model, changes={"num_hidden_layers": 40})',
        )
    first = _load_or_build(a, via)
    if b is None:
        second = _load_or_build(first if a == "-" else a, via, changes)
        return compare(
            first,
            second.replace(
                name="with "
                + ", ".join(f"{key} = {value}" for key, value in (changes or {}).items())
            ),
        )
    *others, last = b, *more
    loaded = [first, *(_load_or_build(x, via) for x in others), _load_or_build(last, via, changes)]
    return (
        MultiDiffReport(differences=tuple(compare(first, x) for x in loaded[1:]))
        if more
        else compare(*loaded)
    )


def explain(number: Count, *, like: _ModelSource | None = None, all: bool = False) -> Explanation:  # noqa: A002
    """Explain a parameter count: which model has it, and what was changed, left out, added or
    packed.

    An exact number is decoded exactly; a rounded one (`"685B"`) gives the counts that round to it.
    `like` restricts the search to one model; `all` also returns far less simple explanations.
    """
    from .analysis.explain.explanation import explain_quantity

    _count("number", number)
    return explain_quantity(_count_text(number), None if like is None else load(like), all)


def design(
    target: Count | None = None,
    *,
    like: str = "llama-3",
    vocab: int | None = None,
    tied: bool | None = None,
    layers: Range | None = None,
    width: Range | None = None,
    heads: Range | None = None,
    kv_heads: Range | None = None,
    head_dim: Range | None = None,
    ffn_ratio: _Ratio | None = None,
    aspect: _Ratio | None = None,
    multiple_of: int | None = None,
    tensor_parallel: int = 1,
    experts: int | None = None,
    top_k: int | None = None,
    active: Count | None = None,
    max_kv_per_token: Size | None = None,
    max_memory: Size | None = None,
    tolerance: float | str | Fraction | None = None,
    rank: Literal["habits", "error"] | None = None,
    top: int = 10,
    tokens: Count | None = None,
    flops: Count | None = None,
    law: str | None = None,
    against: str | None = None,
) -> DesignReport:
    """Find the dimensions of a model with `target` parameters, ranked by the habits of a series of
    published models.

    Without `target`, `tokens` or `flops` and a scaling `law` give the size. `against` names a
    series whose best design is compared with the best one. The report has no candidates if nothing
    meets the demands; then `misses` says what comes nearest.
    """
    from .analysis.design.design_report import design as search
    from .analysis.design.design_report import with_budget, with_contrast
    from .analysis.design.design_request import TOLERANCE, DesignBounds, DesignRequest, FixedDims
    from .analysis.flops.scaling_laws import DEFAULT_LAW
    from .analysis.flops.scaling_laws import find_law as find_law

    budget_law = find_law(law or DEFAULT_LAW)
    training_tokens = None if tokens is None else _count("tokens", tokens)
    compute = None if flops is None else _count("flops", flops)
    parameters, exact = _design_target(target, budget_law, training_tokens, compute)
    request = DesignRequest(
        target=parameters,
        like=like,
        fixed=FixedDims(
            layers=_range("layers", layers),
            width=_range("width", width),
            heads=_range("heads", heads),
            kv_heads=_range("kv_heads", kv_heads),
            head_dim=_range("head_dim", head_dim),
            vocab=_positive("vocab", vocab),
            tied=tied,
            experts=_positive("experts", experts),
            top_k=_positive("top_k", top_k),
        ),
        bounds=DesignBounds(
            aspect=_ratio("aspect", aspect),
            ffn_ratio=_ratio("ffn_ratio", ffn_ratio),
            multiple_of=_positive("multiple_of", multiple_of),
            tensor_parallel=_positive("tensor_parallel", tensor_parallel) or 1,
            active=None if active is None else _count("active", active),
            max_kv_per_token=None
            if max_kv_per_token is None
            else _size("max_kv_per_token", max_kv_per_token),
            max_memory=None if max_memory is None else _size("max_memory", max_memory),
        ),
        tolerance=TOLERANCE if tolerance is None else _tolerance(tolerance),
        by_error=exact if rank is None else rank == "error",
        limit=_positive("top", top) or 1,
    )
    report = with_contrast(search(request), against)
    return (
        with_budget(report, budget_law, training_tokens, compute)
        if law or tokens or flops
        else report
    )


@overload
def memory(
    model: _ModelSource,
    *,
    context: Tokens | Sequence[Tokens] | None = None,
    batch: int = 1,
    dtype: str = "",
    kv_dtype: str = "",
    chunk: Tokens | Literal["all"] | None = None,
    on: GPUs | None = None,
    images: str = "",
    train: Literal[False] = False,
) -> MemoryReport: ...
@overload
def memory(model: _ModelSource, *, via: Via, dtype: str = "") -> WeightsReport: ...
@overload
def memory(
    model: _ModelSource,
    *,
    train: Literal[True],
    context: Tokens | None = None,
    batch: int = 1,
    dtype: str = "",
    on: GPUs | None = None,
    lora: str = "",
    layout: str | Layout = "",
    optimizer: str = "adamw",
    recompute: Recompute | None = None,
    attention: Literal["flash", "eager"] = "flash",
    kernels: Literal["eager", "fused"] = "eager",
    loss: str = "whole",
    fp8: str = "",
    dropout: bool = False,
    grad_dtype: str = "",
    master: bool | None = None,
    adapter_dtype: str = "fp32",
    accumulate: bool = True,
    offload: bool = False,
) -> TrainReport: ...
def memory(
    model: _ModelSource,
    *,
    context: Tokens | Sequence[Tokens] | None = None,
    batch: int = 1,
    dtype: str = "",
    kv_dtype: str = "",
    chunk: Tokens | Literal["all"] | None = None,
    on: GPUs | None = None,
    images: str = "",
    train: bool = False,
    lora: str = "",
    layout: str | Layout = "",
    optimizer: str = "adamw",
    recompute: Recompute | None = None,
    attention: Literal["flash", "eager"] = "flash",
    kernels: Literal["eager", "fused"] = "eager",
    loss: str = "whole",
    fp8: str = "",
    dropout: bool = False,
    grad_dtype: str = "",
    master: bool | None = None,
    adapter_dtype: str = "fp32",
    accumulate: bool = True,
    offload: bool = False,
    via: Via | None = None,
) -> MemoryReport | TrainReport | WeightsReport:
    """Return the memory that inference or, with `train=True`, a training step needs, line by line
    with formulas.

    The weights of a checkpoint are the bytes in its files unless `dtype` is given; GGUF mixes are
    also named `"q4_k_m:imatrix"` and `"q4_k_m:no-imatrix"`. A list as `context` gives the totals at
    each, and the lines at the longest. `on` is the GPU whose memory limits the context and the
    batch, and `images` are those of each sequence, `"2x1024"`. In training, `batch` counts the
    sequences on each GPU, `layout` spreads the model over GPUs (`"tp=8,pp=4,dp=16,zero=3"`), `lora`
    trains adapters only (`"r=16,targets=q,v"`), and `loss` is computed of all logits at once
    (`"whole"`, or `"fused"` by one kernel), of a chunk at a time (`"chunked"`, `"chunked:16"`,
    `"summed"`), or by Liger's kernel (`"liger"`). `fp8` names a recipe for products in FP8
    (`"tensorwise"`, `"mxfp8"`), `accumulate=False` says that a step has one microbatch, and
    `offload=True` that the inputs of recomputed layers wait in the memory of the host.

    Of a model without a family, such as one built `via="transformers"`, the memory of the weights
    is known, and nothing else.
    """
    loaded = found = load(model, via=via)
    if not _given(train=train, lora=lora, layout=layout):
        loaded = loaded.computable
    if _is_generic(loaded):
        used = _given(
            context=context,
            kv_dtype=kv_dtype,
            chunk=chunk,
            on=on,
            images=images,
            train=train,
            lora=lora,
            layout=layout,
        )
        if used or batch != 1:
            hint = "the memory of its weights alone is known"
            raise ArgumentError(
                used or "batch", f" needs a family: the model is counted {loaded.claim}", hint=hint
            )
        from .analysis.generic.state_dict_count import weights_memory

        return weights_memory(loaded, dtype)
    _positive("batch", batch)
    _check_text(dtype=dtype, kv_dtype=kv_dtype, lora=lora, grad_dtype=grad_dtype)
    if train:
        if unused := _given(kv_dtype=kv_dtype, chunk=chunk, images=images):
            raise ArgumentError(unused, " is for inference, not for training")
        if context is not None and not isinstance(context, int | str):
            raise ArgumentError(
                "context", " should be one number of tokens for training, found several"
            )
        from .analysis.training.training_memory import TrainRequest, training, training_dtype

        spread = _training_layout(layout, batch, recompute, attention)
        adapters = _lora(lora) if lora else _Lora(rank=0)
        request = TrainRequest(
            dtype=dtype or (_declared_dtype(loaded) if lora else training_dtype(loaded)),
            optimizer=optimizer,
            gradients=grad_dtype,
            master=master,
            context=_context(loaded, context),
            layout=spread,
            dropout=dropout,
            fused=_choice("kernels", kernels, ("eager", "fused")) == "fused",
            loss=loss,
            fp8=fp8,
            adapter_dtype=adapter_dtype,
            accumulate=accumulate,
            offload=offload,
            rank=adapters.rank,
            targets=adapters.targets,
            saved=adapters.saved,
        )
        loaded = loaded.replace(notes=tuple(dict.fromkeys((*loaded.notes, *_file_notes(loaded)))))
        return training(loaded, request, None if on is None else _gpus(on)[1].memory)
    changed = {
        "optimizer": optimizer != "adamw",
        "attention": attention != "flash",
        "kernels": kernels != "eager",
        "loss": loss != "whole",
    }
    changed |= {
        "fp8": fp8 != "",
        "adapter_dtype": adapter_dtype != "fp32",
        "accumulate": not accumulate,
        "offload": offload,
    }
    if unused := _given(
        lora=lora,
        layout=layout,
        recompute=recompute,
        dropout=dropout,
        grad_dtype=grad_dtype,
        master=master,
        **changed,
    ):
        call = (
            "memory(model, train=True, …); fit(model, on=…, layout=…) splits a model for inference"
        )
        raise ArgumentError(unused, " is for training", call=call)
    from .analysis.inference.inference_memory import MAX_TOKENS, PREFILL_CHUNK, MemoryRequest
    from .analysis.inference.inference_memory import memory as inference_memory

    if chunk is not None and loaded is not found:
        raise ArgumentError("chunk", " is for decoders: an encoder reads whole prompts")
    contexts = _contexts(loaded, context)
    name, imatrix = _imatrix(dtype)
    inference = MemoryRequest(
        dtype=name,
        kv_dtype=kv_dtype,
        batch=batch,
        chunk=PREFILL_CHUNK
        if chunk is None
        else MAX_TOKENS - 1
        if chunk == "all"
        else _tokens("chunk", chunk),
        imatrix=imatrix,
        images=_images(images),
    )
    stored = None if dtype else _stored_weights(found)
    notes = _file_notes(found) if dtype else ()
    within = None if on is None else _total_memory(on)
    return inference_memory(
        loaded, inference, stored, contexts=contexts, within=within, checkpoint_notes=notes
    )


def facts(model: _ModelSource) -> FactSheet:
    """Return what a model is, on one page: sizes, layers and their pattern, attention, positions,
    weights, KV cache, FLOPs and hardware.

    Origin, date and license are known for presets.
    """
    from .analysis.fact_sheet import fact_sheet

    return fact_sheet(load(model))


def flops(
    model: _ModelSource,
    *,
    context: Tokens | None = None,
    batch: int = 1,
    attention: Literal["causal", "full"] = "causal",
    unpacked: bool = False,
    recompute: Literal["none", "selective", "full"] = "none",
    flash: bool = False,
    dtype: str = "",
    kv_dtype: str = "",
    on: GPUs | None = None,
    tokens_per_second: float | None = None,
    tflops: float | None = None,
    counted_by: str = "exact",
    precision: str = "bf16",
    images: str = "",
) -> FlopsReport:
    """Count the FLOPs of prefill, decode and a training step, exactly, next to the formulas that
    publications use.

    `attention` counts the pairs that the causal mask lets through, or all; `unpacked` decodes
    latent attention with unpacked keys and values; `recompute` and `flash` are settings of
    training. `on` and the speed of a training run, either `tokens_per_second` or the `tflops` of
    each GPU as one convention counts them (`counted_by`), give the MFU at the GPU's peak in one
    `precision`. `images` are those of each sequence of a multimodal model, `"2x1024"` or
    `"2x1024x768"`; their tokens are part of the context.
    """
    from .analysis.flops.flops_report import FlopsRequest
    from .analysis.flops.flops_report import count_model_flops as count_flops

    loaded = load(model).computable
    _positive("batch", batch)
    _check_text(dtype=dtype, kv_dtype=kv_dtype)
    request = FlopsRequest(
        context=_context(loaded, context),
        images=_images(images),
        batch=batch,
        masked=_choice("attention", attention, ("causal", "full")) == "causal",
        unpacked=unpacked,
        recompute=_choice("recompute", recompute, ("none", "selective", "full")),
        flash=flash,
        dtype=dtype,
        kv_dtype=kv_dtype,
    )
    report = count_flops(loaded, request)
    if on is None and tokens_per_second is None and tflops is None:
        return report
    gpus = None if on is None else _gpus(on)
    if gpus is None or (tokens_per_second is None) == (tflops is None):
        raise LlamathError(
            "an MFU needs on and either tokens_per_second or tflops",
            hint='on="8xh100", tokens_per_second=90_000',
        )
    return _with_mfu(report, gpus, tokens_per_second, tflops, counted_by, precision)


@overload
def fit(
    model: _ModelSource,
    *,
    on: None = None,
    context: Tokens | None = None,
    batch: int = 1,
    dtype: str = "",
    kv_dtype: str = "",
) -> GPURanking: ...
@overload
def fit(
    model: _ModelSource,
    *,
    on: GPUs,
    context: Tokens | None = None,
    batch: int = 1,
    dtype: str = "",
    kv_dtype: str = "",
    layout: str = "",
    offload: Size = 0,
) -> FitReport: ...
@overload
def fit(
    model: _ModelSource,
    *,
    calibration: str | os.PathLike[str],
    context: Tokens | None = None,
    batch: int = 1,
    dtype: str = "",
    kv_dtype: str = "",
) -> FitReport: ...
@overload
def fit(
    model: _ModelSource,
    *,
    on: GPUs,
    engine: str,
    context: Tokens | None = None,
    batch: int = 1,
    dtype: str = "",
    kv_dtype: str = "",
    layout: str = "",
    memory_fraction: float | None = None,
    kv_memory: Size | None = None,
) -> EngineReport: ...
@overload
def fit(
    model: _ModelSource,
    *,
    on: Machines,
    context: Tokens | None = None,
    batch: int = 1,
    dtype: str = "",
    kv_dtype: str = "",
    layout: str = "",
    offload: Size = 0,
) -> FitComparison: ...
def fit(
    model: _ModelSource,
    *,
    on: GPUs | Machines | None = None,
    context: Tokens | None = None,
    batch: int = 1,
    dtype: str = "",
    kv_dtype: str = "",
    layout: str = "",
    offload: Size = 0,
    calibration: str | os.PathLike[str] | None = None,
    engine: str = "",
    memory_fraction: float | None = None,
    kv_memory: Size | None = None,
) -> FitReport | FitComparison | GPURanking | EngineReport:
    """Tell whether a model fits on GPUs, and how fast it can be at most; without `on`, rank the
    GPUs of the catalog that can run it.

    `on` names GPUs (`"rtx-4090"`, `"8xh100"`, `"4090+3060"`, `"mem=24GiB bw=1TB/s"`), or lists
    several machines to compare; `layout` is the split over them (`"tp=4,pp=2"`), chosen if not
    given; `offload` are the weights of each GPU that stay in the memory of the host (`"6GiB"`).
    `context` is 8,192 tokens by default, or the model's own if that is shorter, and `"max"` is the
    model's own. A model that does not fit is a report with `fits` False, not an error. A
    `calibration`, the file that `llamath measure` writes, stands for the machine on which it was
    measured, and adds the speed to expect there.

    `engine` (`"vllm"`, `"vllm@0.19.1"`, `"sglang"`, `"llama.cpp"`, `"transformers"`, `"trtllm"`)
    asks whether that engine starts, what it prints, and with which command; then `layout` also
    takes `dp` and `ep=yes`, `memory_fraction` is the share of the memory that it may use, and
    `kv_memory` the memory that its log prints for the cache.
    """
    from .analysis.fit.fit_report import fit as fit_on
    from .analysis.fit.gpu_ranking import rank_gpus
    from .analysis.inference.inference_memory import MemoryCalculator, MemoryRequest

    loaded = load(model)
    _positive("batch", batch)
    _check_text(dtype=dtype, kv_dtype=kv_dtype, layout=layout, engine=engine)
    request = MemoryRequest(
        dtype=dtype, kv_dtype=kv_dtype, context=_context(loaded, context), batch=batch
    )
    calculator = MemoryCalculator(
        loaded,
        request,
        None if dtype else _stored_weights(loaded),
        _file_notes(loaded) if dtype else (),
    )
    if engine:
        if isinstance(on, list | tuple):
            raise ArgumentError("on", " lists several machines; an engine is asked about one")
        return _fit_engine(calculator, engine, on, layout, memory_fraction, kv_memory)
    if memory_fraction is not None or kv_memory is not None:
        raise ArgumentError(
            "memory_fraction" if kv_memory is None else "kv_memory",
            " needs an engine",
            call='fit(model, on="h100", engine="vllm")',
        )
    if calibration is not None:
        if used := _given(on=on, layout=layout, offload=offload):
            raise ArgumentError(used, " is for other machines than the calibrated one")
        from .analysis.fit.calibration import read_calibration

        measured = read_calibration(os.fspath(calibration))
        return fit_on(calculator, measured.device, calibration=measured)
    if on is not None:
        split = parse_key_values(layout, "layout", {"tp": integer(), "pp": integer()})
        degrees: dict[str, Any] = {
            "tp": split.get("tp"),
            "pp": split.get("pp"),
            "offload": _size("offload", offload) if offload else 0,
        }
        if not isinstance(on, list | tuple):
            number, gpu = _gpus(on)
            return fit_on(calculator, gpu, number, **degrees)
        from .analysis.fit.fit_comparison import FitComparison

        if not on:
            raise ArgumentError("on", " lists no GPUs")
        machines = [_gpus(x) for x in on]
        return FitComparison(
            model=loaded,
            machines=tuple(fit_on(calculator, gpu, number, **degrees) for number, gpu in machines),
        )
    if unused := _given(layout=layout, offload=offload):
        raise ArgumentError(
            unused, " needs the GPUs that it is for", call=f'fit(model, on="2xh100", {unused}=…)'
        )
    return rank_gpus(calculator)


def _fit_engine(
    calculator: MemoryCalculator,
    engine: str,
    on: GPUs | None,
    layout: str,
    fraction: float | None,
    kv_memory: Size | None,
) -> EngineReport:
    """Return whether an engine starts on GPUs."""
    from .analysis.serving.engine_report import EngineSettings, plan_engine
    from .analysis.serving.rank_shapes import EngineLayout

    if on is None:
        raise ArgumentError(
            "engine", " needs GPUs", call=f'fit(model, on="8xh100", engine={engine!r})'
        )
    if fraction is not None and not 0 < fraction <= 1:
        raise ArgumentError("memory_fraction", f" should be above 0 and at most 1, not {fraction}")
    readers = {"tp": integer(), "pp": integer(), "dp": integer(), "ep": yes_or_no}
    split = parse_key_values(layout, "layout", readers)
    wanted = (
        EngineLayout(
            split.get("tp", 1), split.get("pp", 1), split.get("dp", 1), split.get("ep", False)
        )
        if split
        else None
    )
    number, gpu = _gpus(on)
    size = None if kv_memory is None else _size("kv_memory", kv_memory)
    return plan_engine(
        calculator,
        engine,
        gpu,
        number,
        EngineSettings(layout=wanted, fraction=fraction, kv_memory=size),
    )


@overload
def plan(
    model: _ModelSource,
    *,
    on: GPUs,
    serve: Literal[False] = False,
    context: Tokens | None = None,
    batch_tokens: Tokens | None = None,
    tokens: Count | None = None,
    layout: str = "",
    optimizer: str = "adamw",
    grad_dtype: str = "fp32",
    attention: AttentionKernel = "flash",
    kernels: Literal["eager", "fused"] = "fused",
    recompute: Recompute | None = None,
    loss: str = "whole",
    fp8: str = "",
    dtype: str = "",
    top: int = 10,
) -> PlanReport: ...
@overload
def plan(
    model: _ModelSource,
    *,
    on: GPUs,
    serve: Literal[True],
    context: Tokens | None = None,
    latency: float | str | None = None,
    dtype: str = "",
    kv_dtype: str = "",
    top: int = 10,
) -> ServeReport: ...
def plan(
    model: _ModelSource,
    *,
    on: GPUs,
    serve: bool = False,
    context: Tokens | None = None,
    batch_tokens: Tokens | None = None,
    tokens: Count | None = None,
    layout: str = "",
    optimizer: str = "adamw",
    grad_dtype: str = "fp32",
    attention: AttentionKernel = "flash",
    kernels: Literal["eager", "fused"] = "fused",
    recompute: Recompute | None = None,
    loss: str = "whole",
    fp8: str = "",
    latency: float | str | None = None,
    dtype: str = "",
    kv_dtype: str = "",
    top: int = 10,
) -> PlanReport | ServeReport:
    """Rank the ways to spread a model over a cluster: layouts with their memory and predicted MFU,
    or, with `serve=True`, replicas.

    `on` is the cluster (`"16384xh100"`), `batch_tokens` the tokens of a step, `tokens` the length
    of the training (`"15T"`), `layout` fixes some of the axes (`"tp=8,pp=16"`), `latency` the time
    between two tokens of a sequence (`"50ms"`, or seconds). `attention` names a fused kernel
    (`"flash2"`, `"flash3"`, `"cudnn"`) and `fp8` a recipe (`"tensorwise"`, `"mxfp8"`). If nothing
    fits, the report has `fits` False and says why.
    """
    loaded, cluster = load(model), _gpus(on)
    if not 1 <= top <= _MAX_PLANS:
        raise ArgumentError("top", f" should be from 1 to {_MAX_PLANS:,}, found {top:,}")
    if not cluster[1].bandwidth:
        hint = "like 8x mem=80GiB bw=2TB/s bf16=300TF"
        raise LlamathError(f"a plan needs the memory bandwidth of {cluster[1].title}", hint=hint)
    length = _context(loaded, context)
    if serve:
        changed = {
            "loss": loss != "whole",
            "attention": attention != "flash",
            "kernels": kernels != "fused",
        }
        if unused := _given(
            batch_tokens=batch_tokens,
            tokens=tokens,
            layout=layout,
            recompute=recompute,
            fp8=fp8,
            **changed,
        ):
            raise ArgumentError(unused, " is for training, not for serving")
        from .analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
        from .analysis.plan.serving_plan import plan_serving

        calculator = MemoryCalculator(
            loaded,
            MemoryRequest(dtype=dtype, kv_dtype=kv_dtype, context=length),
            None if dtype else _stored_weights(loaded),
            _file_notes(loaded) if dtype else (),
        )
        return plan_serving(
            loaded, calculator, cluster, None if latency is None else _seconds(latency)
        )
    if unused := _given(latency=latency, kv_dtype=kv_dtype):
        raise ArgumentError(unused, " is for serving", call="plan(model, on=…, serve=True, …)")
    training_tokens = None if tokens is None else _count("tokens", tokens)
    if training_tokens is not None and training_tokens >= _MAX_TRAINING_TOKENS:
        raise ArgumentError(
            "tokens", f" {safe(str(tokens), 40)}: more text than exists", hint="like 15.6T"
        )
    from .analysis.plan import PlanRequest
    from .analysis.plan import plan as plan_training

    request = PlanRequest(
        dtype=dtype,
        optimizer=optimizer,
        gradients=grad_dtype,
        context=length,
        batch_tokens=None if batch_tokens is None else _tokens("batch_tokens", batch_tokens),
        attention=attention,
        kernels=_choice("kernels", kernels, ("eager", "fused")),
        recompute=None
        if recompute is None
        else _choice("recompute", recompute, ("none", "selective", "op", "full")),
        loss=loss,
        fp8=fp8,
        fixed=parse_key_values(
            layout, "layout", {name: integer() for name in _PLAN_AXES} | {"zero": integer(0, 3)}
        ),
        top=top,
        tokens=training_tokens,
    )
    return plan_training(loaded, cluster, request)


def cost(
    model: _ModelSource,
    *,
    on: GPUs,
    price: float | str | None = None,
    context: Tokens | None = None,
    output: Tokens = 256,
    batch: int | None = None,
    dtype: str = "",
    kv_dtype: str = "",
    grid: float | None = None,
    train: Count | None = None,
) -> CostReport:
    """Estimate what a million generated tokens cost on GPUs, prompts included, and a training run:
    intervals with their assumptions.

    `price` is that of a GPU for an hour (`2.5`, `"$2.5/h"`); `output` are the generated tokens of a
    sequence, whose prompt is the rest of `context`; `batch` is as many sequences as fit by default;
    `grid` is in kg CO₂e per kWh; `train` are the tokens of a training run.
    """
    from .analysis.cost.cost_report import CostRequest
    from .analysis.cost.cost_report import cost as cost_on
    from .analysis.cost.ecologits import WORLD_GRID
    from .analysis.inference.inference_memory import MemoryCalculator, MemoryRequest

    loaded, (count, gpu) = load(model), _gpus(on)
    if batch is not None:
        _positive("batch", batch)
    if grid is not None and not 0 <= grid < 10:
        raise ArgumentError("grid", f" should be kg of CO₂e per kWh, from 0 to 10, found {grid!r}")
    _check_text(dtype=dtype, kv_dtype=kv_dtype)
    request = MemoryRequest(dtype=dtype, kv_dtype=kv_dtype, context=_context(loaded, context))
    calculator = MemoryCalculator(
        loaded,
        request,
        None if dtype else _stored_weights(loaded),
        _file_notes(loaded) if dtype else (),
    )
    tokens = None if train is None else _count("train", train)
    if tokens is not None and tokens >= _MAX_TRAINING_TOKENS:
        raise ArgumentError(
            "train", f" {safe(str(train), 40)}: more text than exists", hint="like 15.6T"
        )
    asked = CostRequest(
        output=_tokens("output", output),
        batch=batch,
        price=None if price is None else _price(price),
        grid=WORLD_GRID if grid is None else grid,
        train_tokens=tokens,
    )
    return cost_on(calculator, gpu, count, asked)


def _price(value: float | str) -> Price:
    """Parse the price of a GPU for an hour: 2.5, `2.5/h` or `$2.5/h`."""
    from .analysis.cost.cost_report import Price

    text = f"{value}" if isinstance(value, int | float) and not isinstance(value, bool) else value
    match = (
        re.fullmatch(r"([$€£¥₹]?)(\d{1,6}(?:\.\d{1,6})?)(?:/h)?", text)
        if isinstance(text, str)
        else None
    )
    if match is None or not float(match[2]):
        raise ArgumentError(
            "price",
            " should be a price for an hour of a GPU, such as 2.5/h or "
            f"$2.5/h, found {safe(repr(value), 40)}",
        )
    return Price(amount=float(match[2]), currency=match[1])


def quants(
    model: _ModelSource,
    *,
    on: GPUs | None = None,
    context: Tokens | None = None,
    batch: int = 1,
    kv_dtype: str = "",
) -> QuantsReport:
    """Return a model in each dtype and mixture of types: bytes, bits per weight, what stays
    unquantized, and what fits on GPUs.

    Of a folder or repository with GGUF files, these are listed instead, and the report's `best` is
    the one to choose.
    """
    from .analysis.fit.quants_report import list_files, list_quants
    from .analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
    from .checkpoint.folders.gguf_folder import list_gguf_models

    _positive("batch", batch)
    _check_text(kv_dtype=kv_dtype)
    count, gpu = (1, None) if on is None else _gpus(on)
    found = list_gguf_models(os.fspath(model)) if isinstance(model, str | os.PathLike) else []
    files = []
    for x in found:
        loaded = load(x.location)
        request = MemoryRequest(kv_dtype=kv_dtype, context=_context(loaded, context), batch=batch)
        files.append(
            (
                x.choice.names[0],
                x.choice.type,
                MemoryCalculator(loaded, request, _stored_weights(loaded)),
            )
        )
    if files:
        return list_files(files, gpu, count)
    loaded = load(model)
    request = MemoryRequest(kv_dtype=kv_dtype, context=_context(loaded, context), batch=batch)
    return list_quants(MemoryCalculator(loaded, request), gpu, count)


def pair(
    target: _ModelSource,
    draft: _ModelSource,
    *,
    context: Tokens | None = None,
    kv_dtype: str = "",
    engines: Sequence[str] = (),
) -> PairReport:
    """Tell whether a draft belongs to a target for speculative decoding, and how much faster it can
    be at most.

    `draft` is a model, or `"eagle"`, `"eagle3"` or `"mtp"` for a head of the target's shape;
    `engines` are those whose rules are asked, by default all.
    """
    from .analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
    from .analysis.serving.draft_pair import pair_models
    from .checkpoint.vocabulary import read_vocabulary
    from .engines import ENGINES, find_engine

    first = load(target)
    request = MemoryRequest(kv_dtype=kv_dtype, context=_context(first, context))
    sizes = MemoryCalculator(first, request, _stored_weights(first))
    asked = [find_engine(x).name for x in engines] or ENGINES
    heads: Mapping[str, DraftKind] = {"eagle": "eagle", "eagle3": "eagle3", "mtp": "mtp"}
    if isinstance(draft, str) and draft in heads:
        return pair_models(sizes, heads[draft], engines=asked)
    second = load(draft)
    vocabularies = read_vocabulary(first.location), read_vocabulary(second.location)
    return pair_models(
        sizes, MemoryCalculator(second, request, _stored_weights(second)), vocabularies, asked
    )


def place(
    model: _ModelSource,
    *,
    on: GPUs,
    ram: Size,
    ram_bandwidth: str | None = None,
    disk: str | None = None,
    context: Tokens | None = None,
    batch: int = 1,
    dtype: str = "",
    kv_dtype: str = "",
) -> Placement:
    """Tell where each weight goes on GPUs, RAM and disk, with flags for llama.cpp, transformers and
    KTransformers, and bound decode.

    `on` names the GPUs in their order (`"3060+4090"`), `ram` its size (`"64GiB"`); `ram_bandwidth`
    and `disk` are rates (`"7GB/s"`).
    """
    from .analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
    from .analysis.serving.placement import RAM_BANDWIDTH, Machine, place_model
    from .utils.units import parse_bandwidth

    loaded = load(model)
    _positive("batch", batch)
    _check_text(dtype=dtype, kv_dtype=kv_dtype)
    request = MemoryRequest(
        dtype=dtype, kv_dtype=kv_dtype, context=_context(loaded, context), batch=batch
    )
    sizes = MemoryCalculator(
        loaded,
        request,
        None if dtype else _stored_weights(loaded),
        _file_notes(loaded) if dtype else (),
    )
    count, gpu = _gpus(on)
    if count > _MAX_PLACED:
        raise ArgumentError(
            "on", f": {count:,} GPUs; at most {_MAX_PLACED} are placed on one by one"
        )
    machine = Machine(
        gpus=gpu.members or (gpu,) * count,
        ram=_size("ram", ram),
        ram_bandwidth=RAM_BANDWIDTH if ram_bandwidth is None else parse_bandwidth(ram_bandwidth),
        disk_bandwidth=0 if disk is None else parse_bandwidth(disk),
    )
    return place_model(sizes, machine)


def inspect(path: str | os.PathLike[str]) -> Listing:
    """List what is in a checkpoint by its headers alone: tensors, dtypes, shapes, bytes, and how
    values are packed.
    """
    from .analysis.verify.listing import list_checkpoint

    return list_checkpoint(os.fspath(path))


def verify(
    path: str | os.PathLike[str],
    *,
    against: _ModelSource | None = None,
    base: _ModelSource | None = None,
    changes: Mapping[str, Any] | None = None,
    full: bool = False,
    progress: Callable[[int, int], None] | None = None,
    via: Via | None = None,
) -> VerifyReport | StructureReport:
    """Check a checkpoint against its configuration, or against another model; `report.ok` is the
    verdict, `report.findings` the reasons.

    An adapter is checked against its `base` model, by default the one that it names. With `full`,
    every byte is read: the values of the tensors are checked, and the sums of the files where there
    is something to compare them with; a repository on the Hub is downloaded for it. `progress` is
    called with the numbers of processed and of all bytes. `via="transformers"` checks names and
    shapes against the class that transformers builds of the configuration.
    """
    from .analysis.verify.verify_path import verify_path

    return verify_path(
        os.fspath(path), against, changes, base, full=full, progress=progress, via=via
    )


def same(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    base: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SameReport:
    """Compare the weights of two checkpoints in any formats; `report.verdict` is identical,
    rounding or different.

    An adapter is compared as its `base` model, by default the one that it names, with the adapter
    merged.
    """
    from .analysis.same.compare_checkpoints import compare_checkpoints
    from .native.group_comparison import find_group_comparer

    found = None if base is None else os.fspath(base)
    return compare_checkpoints(
        os.fspath(a),
        os.fspath(b),
        found,
        progress or (lambda _done, _total: None),
        find_group_comparer(),
    )


def hash_weights(
    path: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> HashReport:
    """Hash the weights of a checkpoint; `report.hash` is equal for equal weights in any lossless
    format.
    """
    from .analysis.same.weights_hash import hash_checkpoint

    return hash_checkpoint(os.fspath(path), progress or (lambda _done, _total: None))


@overload
def names(
    model: _ModelSource, *, names: None = None, dtype: str = "", via: Via | None = None
) -> NamesReport: ...
@overload
def names(
    model: _ModelSource, *, names: Scheme, dtype: str = "", via: Via | None = None
) -> StoredNamesReport: ...
def names(
    model: _ModelSource, *, names: Scheme | None = None, dtype: str = "", via: Via | None = None
) -> NamesReport | StoredNamesReport:
    """Return the names of each weight in HF, Meta and GGUF files; with `names`, every tensor as
    such files have it.

    A quantized checkpoint has other tensors: their names, dtypes and shapes follow from the recipe
    in the config, or from `dtype`. `via="transformers"` gives those that transformers saves, for
    models of unknown families.
    """
    loaded = load(model, via=via)
    if _is_generic(loaded):
        from .analysis.generic.state_dict_count import state_dict_names, stored_state_dict

        if dtype:
            raise ArgumentError("dtype", f" needs a family: the model is counted {loaded.claim}")
        if names is not None:
            loaded.scheme(names)
        return state_dict_names(loaded) if names is None else stored_state_dict(loaded)
    if names is not None:
        from .analysis.inference.stored_names import stored_names

        return stored_names(loaded, names, dtype)
    from .analysis.verify.weight_names import weight_names

    return weight_names(loaded, dtype)


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    names: Literal["hf", "hf-fused", "meta", "gguf"] | None = None,
    dtype: str = "",
    with_mtp: bool = True,
    max_shard_size: Size = "5GB",
    changes: Mapping[str, Any] | None = None,
    force: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ConversionReport:
    """Write a checkpoint in another format: safetensors (`"hf"`; `"hf-fused"`: experts in stacks),
    Meta's `.pth` (`"meta"`) or GGUF.

    Without `names`, a target `NAME.gguf` is a GGUF file. `dtype` is float32, bfloat16 or float16,
    or in GGUF q8_0, q4_0, q4_k, q6_k or q4_k_m; empty, everything keeps its own. Without
    `with_mtp`, multi-token prediction layers are left out. The target appears when it is complete.
    A GGUF file that llama.cpp would not load is written with `force` only. `dry_run` checks the
    source and writes nothing; `progress` is called with the bytes done and the bytes in total.
    """
    from .conversion.convert_checkpoint import ConvertOptions, convert_checkpoint, target_format

    options = ConvertOptions(
        to=_choice(
            "names", names or target_format(os.fspath(target)), ("hf", "hf-fused", "meta", "gguf")
        ),
        dtype=dtype,
        with_mtp=with_mtp,
        max_shard_size=_size("max_shard_size", max_shard_size),
        changes=dict(changes or {}),
        force=force,
        dry_run=dry_run,
    )
    return convert_checkpoint(
        os.fspath(source), os.fspath(target), options, progress or (lambda _done, _total: None)
    )


def merge(
    base: str | os.PathLike[str],
    adapter: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    dtype: str = "",
    force: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ConversionReport:
    """Write a base model with an adapter merged: LoRA, rsLoRA, DoRA, IA³, saved modules or rows of
    embeddings.

    `dtype` is float32, bfloat16 or float16; empty, every tensor keeps its own. It is needed if the
    base model's weights are packed.
    """
    from .conversion.merge_adapter import merge_adapter

    quiet = progress or (lambda _done, _total: None)
    paths = (os.fspath(base), os.fspath(adapter), os.fspath(target))
    return merge_adapter(*paths, dtype=dtype, force=force, dry_run=dry_run, progress=quiet)


def edit(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    drop_layers: str | int | Iterable[int] | None = None,
    resize_vocab: int | None = None,
    tp_shard: str = "",
    join_shards: bool = False,
    force: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> EditReport:
    """Write an edited copy of a checkpoint, with a config that describes it; an edit that no config
    can express is refused.

    Layers are numbers, or half-open ranges: `drop_layers="20:28"` or `range(20, 28)`. New rows of a
    larger vocabulary are the mean of the others. `tp_shard="0/4"` writes the part of rank 0 of 4;
    `join_shards` joins the ranks in the subfolders of `source`. `dry_run` checks the source and
    writes nothing; `progress` is called with the bytes done and the bytes in total.
    """
    from .conversion.edit.edit_checkpoint import edit_checkpoint
    from .conversion.edit.edit_options import EditOptions

    if resize_vocab is not None:
        _positive("resize_vocab", resize_vocab)
    options = EditOptions(
        drop_layers=tuple(drop_layers)
        if isinstance(drop_layers, Iterable) and not isinstance(drop_layers, str)
        else drop_layers,
        resize_vocab=resize_vocab,
        tp_shard=tp_shard,
        join_shards=join_shards,
        force=force,
        dry_run=dry_run,
    )
    return edit_checkpoint(
        os.fspath(source), os.fspath(target), options, progress or (lambda _done, _total: None)
    )


def models(
    *words: str,
    sort: Literal["params", "active", "context", "date"] | None = None,
    kind: Literal["dense", "moe", "hybrid", "recurrent", "vision"] | None = None,
    max_size: int | str | None = None,
) -> PresetList:
    """Return the presets whose name, id or family has all these words, with their sizes; if none
    has, it is an error.

    `sort` puts the largest or newest first. `max_size` is a limit of the weights, like `"24GiB"`,
    in the dtype or with the quantization of the config.
    """
    from .analysis.preset_list import KINDS, SORT_KEYS, find_presets

    for argument, value, known in (("sort", sort, SORT_KEYS), ("kind", kind, KINDS)):
        if value is not None and value not in known:
            raise ArgumentError(
                argument, f" should be one of {', '.join(known)}, found {safe(repr(value), 60)}"
            )
    limit = (
        None
        if max_size is None
        else _parsed("max_size", max_size, parse_bytes, "a size such as '24GiB'")
    )
    return find_presets(words, sort, kind, limit)


def gpus(*words: str) -> DeviceList:
    """Return the GPUs of the catalog whose name or vendor has all these words; a name that
    matches nothing is an error.
    """
    from .hardware import find_devices

    return find_devices(words)


class _Lora(Record):
    rank: int
    targets: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()


def _is_generic(model: Model) -> TypeIs[GenericModel]:
    """Whether a model has no family, only the names and shapes of its tensors."""
    return bool(model.claim)


def _load_or_build(
    source: _ModelSource, via: Via | None, changes: Mapping[str, Any] | None = None
) -> Model:
    """Load a model; with `via`, one that no family here describes is built."""
    if via is None or isinstance(source, Model):
        return load(source, changes=changes)
    try:
        return load(source, changes=changes)
    except UnknownModel:
        return load(source, changes=changes, via=via)


def _tokens(argument: str, value: Tokens) -> int:
    return _parsed(argument, value, parse_tokens, "a number of tokens such as 8192 or '128k'")


def _context(model: Model, value: Tokens | None) -> int | None:
    """Return the tokens of a sequence; None stands for the default."""
    if value == "max":
        from .analysis.default_context import full_context

        return full_context(model.tree)
    return None if value is None else _tokens("context", value)


def _contexts(model: Model, value: Tokens | Sequence[Tokens] | None) -> list[int]:
    values = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    return [n for x in values if (n := _context(model, x)) is not None]


def _size(argument: str, value: Size) -> int:
    return _parsed(
        argument, value, parse_bytes, "a number of bytes such as 25769803776, '24GiB' or '24GB'"
    )


def _count(argument: str, value: Count) -> int:
    return _parsed(argument, value, parse_count, "a count such as 8030261248, '405B' or '1.5e9'")


def _count_text(value: Count) -> str:
    """Return a count as it is written: a float has the digits of its shortest form, so 8e9 is
    rounded and 8030261248.0 is exact.
    """
    from decimal import Decimal

    return (
        str(Decimal(float.__repr__(value)).normalize()) if isinstance(value, float) else str(value)
    )


def _parsed(argument: str, value: Any, parse: Callable[[str], int], expected: str) -> int:
    try:
        if isinstance(value, str):
            return parse(value)
        if isinstance(value, float) and parse is parse_count:
            return parse(_count_text(value))
        if not isinstance(value, bool) and (number := index(value)) > 0:
            return number
        reason = ""
    except TypeError:
        reason = ""
    except LlamathError as error:
        reason = str(error)
    raise ArgumentError(
        argument, f" should be {expected}, found {safe(repr(value), 60)}", hint=reason
    )


def _images(text: str) -> Images | None:
    """Read the images of each sequence; None without any."""
    _check_text(images=text)
    if not text:
        return None
    from .analysis.image_pass import parse_images

    return parse_images(text)


def _positive(argument: str, value: int | None) -> int | None:
    if value is not None and (
        not isinstance(value, int) or isinstance(value, bool) or not 0 < value < _MAX_DIMENSION
    ):
        raise ArgumentError(
            argument, f" should be a positive integer, found {safe(repr(value), 60)}"
        )
    return value


def _range(argument: str, value: Range | None) -> tuple[int, int] | None:
    if value is None:
        return None
    ends = (
        value.split(":")
        if isinstance(value, str)
        else [value]
        if isinstance(value, int)
        else list(value)
    )
    try:
        numbers = [int(x) for x in ends]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) not in (1, 2) or not 0 < numbers[0] <= numbers[-1] < _MAX_DIMENSION:
        raise ArgumentError(
            argument,
            " should be a positive number or a range such as (60, 100) or '60:100', "
            f"found {safe(repr(value), 60)}",
        )
    return numbers[0], numbers[-1]


def _ratio(argument: str, value: _Ratio | None) -> tuple[float, float] | None:
    from fractions import Fraction

    if value is None:
        return None
    ends = (
        value.split(":")
        if isinstance(value, str)
        else list(value)
        if isinstance(value, tuple)
        else [value]
    )
    try:
        numbers = [float(Fraction(x)) for x in ends]
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        numbers = []
    if (
        len(numbers) not in (1, 2)
        or not all(1e-3 <= x <= 1e6 for x in numbers)
        or numbers[0] > numbers[-1]
    ):
        raise ArgumentError(
            argument,
            " should be a ratio such as 3.5 or '8/3', or a range such as (2.5, 4), "
            f"found {safe(repr(value), 60)}",
        )
    return numbers[0], numbers[-1]


def _tolerance(value: float | str | Fraction) -> Fraction:
    from fractions import Fraction

    text = str(value).strip()
    try:
        share = Fraction(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not 0 <= share <= Fraction(1, 2) or (
        isinstance(value, str) and share >= Fraction(1, 10) and not text.endswith("%")
    ):
        raise ArgumentError(
            "tolerance",
            " should be a share such as 0.005 or '0.5%', at most "
            f"50%, found {safe(repr(value), 60)}",
        )
    return share


def _seconds(value: float | str) -> float:
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s)\s*", value, re.ASCII)
        seconds = float(match[1]) / (1000 if match[2] == "ms" else 1) if match else 0.0
    else:
        seconds = float(value)
    if not 0 < seconds < float("inf"):
        raise ArgumentError(
            "latency",
            f" should be a time such as '50ms' or 0.05 seconds, found {safe(repr(value), 60)}",
        )
    return seconds


def _choice(argument: str, value: _T, choices: tuple[_T, ...]) -> _T:
    if value not in choices:
        raise ArgumentError(
            argument, f" should be {' or '.join(map(repr, choices))}, found {safe(repr(value), 60)}"
        )
    return value


def _check_text(**values: object) -> None:
    """Raise an error if one of these arguments is not text."""
    examples = {"layout": "tp=8,pp=2", "lora": "r=16,targets=q,v"}
    for name, value in values.items():
        if not isinstance(value, str):
            raise LlamathError(
                f"{name} should be text such as {examples.get(name, 'bf16')!r}, "
                f"found {safe(repr(value), 60)}"
            )


def _given(**values: object) -> str:
    """Return the name of the first argument that is not left at its empty default."""
    return next((name for name, value in values.items() if value not in (None, "", False)), "")


def _training_layout(
    layout: str | Layout, batch: int, recompute: Recompute | None, attention: str
) -> Layout:
    from .analysis.parallel_layout import Layout

    flash = _choice("attention", attention, ("flash", "eager")) == "flash"
    if isinstance(layout, Layout):
        return layout.replace(
            microbatch=batch, flash=flash, recompute=recompute or layout.recompute
        )
    _check_text(layout=layout)
    readers = {name: integer() for name in _LAYOUT_AXES} | {"zero": integer(0, 3), "sp": yes_or_no}
    axes = parse_key_values(layout, "layout", readers)
    sequence_parallel = axes.pop("sp", True)
    again = _choice("recompute", recompute or "none", ("none", "selective", "op", "full"))
    return Layout(
        **axes, sequence_parallel=sequence_parallel, microbatch=batch, flash=flash, recompute=again
    )


def _lora(text: str) -> _Lora:
    """Parse `r=16,targets=q,v`; a word without `=` continues the list before it."""
    values: dict[str, list[str]] = {}
    last = ""
    for part in text.split(","):
        name, equals, value = (x.strip() for x in part.partition("="))
        last, value = (name, value) if equals else (last, name)
        if last not in ("r", "targets", "saved") or not value:
            raise ArgumentError(
                "lora", f" should be like 'r=16,targets=q,v', found {safe(repr(part.strip()), 40)}"
            )
        values.setdefault(last, []).append(value)
    rank = "=".join(values.get("r", []))
    if not (rank.isascii() and rank.isdecimal()) or not 1 <= int(rank[:11]) < 2**31:
        raise ArgumentError(
            "lora", " needs a rank r from 1 to 2,147,483,647", hint="like 'r=16,targets=q,v'"
        )
    return _Lora(
        rank=int(rank),
        targets=tuple(values.get("targets", ["all"])),
        saved=tuple(values.get("saved", ())),
    )


def _stored_weights(model: Model) -> StoredWeights | None:
    """Return the weights of the checkpoint that a model was loaded from; None if there is only a
    configuration.
    """
    if not model.location:
        return None
    from .analysis.inference.checkpoint_weights import read_stored_weights

    return read_stored_weights(model)


def _file_notes(model: Model) -> tuple[str, ...]:
    """Return notes on how the local files of a model differ from its configuration, where only
    that is used.
    """
    if not model.location:
        return ()
    from .analysis.verify.file_differences import differences_at

    found = differences_at(model)
    return found.notes if found else ()


def _imatrix(dtype: str) -> tuple[str, bool | None]:
    """Split `q4_k_m:imatrix` into the dtype and whether its GGUF types are chosen with an
    importance matrix.
    """
    name, colon, suffix = dtype.partition(":")
    if colon and suffix not in ("imatrix", "no-imatrix"):
        raise LlamathError(
            f"unknown dtype {safe(repr(dtype), 60)}",
            hint=f"{safe(name, 40)}:imatrix or {safe(name, 40)}:no-imatrix",
        )
    return name, suffix == "imatrix" if colon else None


def _declared_dtype(model: Model) -> str:
    from .analysis.inference.inference_memory import declared_dtype

    return declared_dtype(model)


def _gpus(on: GPUs) -> tuple[int, Device]:
    from .hardware import parse_devices

    if isinstance(on, Device):
        return 1, on
    if not isinstance(on, str):
        raise LlamathError(
            "on should name GPUs such as 'rtx-4090' or '8xh100', or be a Device, "
            f"found {safe(repr(on), 60)}"
        )
    return parse_devices(on)


def _total_memory(on: GPUs) -> int:
    count, device = _gpus(on)
    return count * device.memory


def _with_mfu(
    report: FlopsReport,
    on: tuple[int, Device],
    tokens_per_second: float | None,
    tflops: float | None,
    counted_by: str,
    precision: str,
) -> FlopsReport:
    from fractions import Fraction

    from .analysis.flops.mfu import Throughput, speed_of, with_mfu

    number, gpu = on
    if not 0 < (value := tokens_per_second or tflops or 0) < _MAX_SPEED:
        raise LlamathError(f"the speed should be a positive number, found {value!r}")
    if not (peak := gpu.flops.get(precision)):
        known = ", ".join(name for name, rate in gpu.flops.items() if rate)
        raise LlamathError(
            f"no {safe(repr(precision), 60)} FLOP/s figure is known for {gpu.title}",
            hint=f"precision can be {known}",
        )
    if tokens_per_second is not None:
        tokens = Fraction(tokens_per_second)
    else:
        tokens = number * speed_of(report, Fraction(tflops or 0) * 10**12, counted_by)
    return with_mfu(
        report,
        Throughput(tokens=tokens, gpus=number, peak=peak, name=gpu.title, precision=precision),
    )


def _design_target(
    target: Count | None, law: ScalingLaw, tokens: int | None, flops: int | None
) -> tuple[int, bool]:
    """Return the number of parameters, and whether it was given exactly."""
    if target is not None:
        if tokens is not None and flops is not None:
            raise LlamathError(
                "design takes two of target, tokens and flops: they determine the third"
            )
        _count("target", target)
        quantity = parse_quantity(_count_text(target))
        return quantity.value, quantity.exact
    if tokens and flops:
        return max(flops // (6 * tokens), 1), False
    if not tokens and not flops:
        raise LlamathError(
            "design needs a target such as '405B', or tokens or flops for a scaling law"
        )
    return max(round(law.for_compute(flops) if flops else law.for_tokens(tokens or 1)), 1), False
