"""The public functions: each takes a model, or anything that `load` accepts, and returns a report.

Arguments have the names and units of the command line's options: `context="128k"`, `on="2xh100"`,
`layout="tp=8,pp=2"`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from .generation.sampling_parameters import DEFAULT_MAX_TOKENS
from .hardware import Device, unknown_bandwidth
from .loading import NamedSource, Source, Via, load, load_family
from .model import FamilyModel, Model, TensorModel, with_passes
from .utils.errors import Argument, ArgumentError, Call, LlamathError, Name, UnknownModel, safe

if TYPE_CHECKING:
    from fractions import Fraction

    from .analysis.check.same.same_report import SameReport
    from .analysis.check.same.weights_hash import HashReport
    from .analysis.check.verify.check_checkpoint import VerifyReport
    from .analysis.check.verify.structure_report import StructureReport
    from .analysis.code.code_report import CodeReport
    from .analysis.graph.image_pass import Images
    from .analysis.learn.diagnosis import Checked
    from .analysis.learn.exercise import Exercise
    from .analysis.learn.worksheet import LessonList, Worksheet
    from .analysis.size.cost.cost_report import CostReport
    from .analysis.size.fit.fit_comparison import FitComparison
    from .analysis.size.fit.fit_report import FitReport
    from .analysis.size.fit.gpu_ranking import GPURanking
    from .analysis.size.fit.quants_report import QuantsReport
    from .analysis.size.flops.flops_report import FlopsReport
    from .analysis.size.flops.scaling_laws import ScalingLaw
    from .analysis.size.memory.inference_memory import MemoryCalculator, MemoryReport, WeightsReport
    from .analysis.size.placement.placement import Placement
    from .analysis.size.plan import PlanReport
    from .analysis.size.plan.serving_plan import ServeReport
    from .analysis.size.serving.draft_pair import DraftKind, PairReport
    from .analysis.size.serving.engine_comparison import EngineComparison
    from .analysis.size.serving.engine_report import EngineReport, EngineSettings
    from .analysis.size.training.training_memory import TrainReport
    from .analysis.storage.listing import Listing
    from .analysis.storage.weight_bytes import StoredWeights
    from .analysis.understand.config_report import ConfigReport
    from .analysis.understand.count.count_report import CountReport, StoredNamesReport
    from .analysis.understand.count.state_dict_count import TensorCountReport
    from .analysis.understand.count.weight_names import NamesReport
    from .analysis.understand.design.design_report import DesignReport
    from .analysis.understand.diff.kinship import KinshipReport
    from .analysis.understand.diff.model_diff import DiffReport, MultiDiffReport
    from .analysis.understand.explain import Explanation
    from .analysis.understand.fact_sheet import FactSheet
    from .analysis.understand.preset_list import PresetList
    from .conversion.convert_checkpoint import ConversionReport
    from .generation.sampling_parameters import Sampling
    from .hardware import DeviceList
    from .questions.design_question import Budget, DesignBounds, DesignQuestion
    from .questions.edit_settings import Edit
    from .questions.file_questions import (
        NamesQuestion,
        SameQuestion,
        StoredNamesQuestion,
        VerifyQuestion,
    )
    from .questions.fit_questions import (
        EngineQuestion,
        EngineRanks,
        EnginesQuestion,
        FitQuestion,
        MachinesQuestion,
        QuantsQuestion,
        RankQuestion,
    )
    from .questions.layout import Layout
    from .questions.memory_questions import Lora, MemoryQuestion, Training, TrainingQuestion
    from .questions.parameter_questions import (
        CountQuestion,
        ExplainQuestion,
        LessonQuestion,
        ModelsQuestion,
    )
    from .questions.pass_questions import CodeQuestion, FlopsQuestion, MeasuredSpeed, TraceQuestion
    from .questions.plan_questions import PlanQuestion, PlanTraining, ServingPlanQuestion
    from .questions.serving_questions import CostQuestion, PairQuestion, PlaceQuestion, Price, Ram
    from .runtime.reply import Reply
    from .torch.debug.trace_run import Trace

    _Sized = (
        FitQuestion
        | MachinesQuestion
        | RankQuestion
        | EngineQuestion
        | EnginesQuestion
        | PlaceQuestion
    )

Part = Literal["text", "vision", "audio"]
"""A part of a multimodal model."""
Tokens = int | str
"""A number of tokens: `131072`, `"131,072"` or `"128k"`; as a context also `"max"`, the model's
own."""
Size = int | str
"""A number of bytes: `25769803776`, `"24GiB"` or `"24GB"`."""
Count = float | str
"""A number of parameters, tokens or operations: `405000000000`, `4.05e11` or `"405B"`."""
Rate = int | str
"""Bytes per second: `7_000_000_000` or `"7GB/s"`."""
GPUs = str | Device
"""GPUs: `"h100"`, `"8xh100"`, `"4090+3090"` in one machine, `"mem=24GiB bw=1TB/s bf16=300TF"`,
or one device of `gpus()`."""
Scheme = Literal["hf", "meta", "gguf"]

_MAX_PLACED = 64


@overload
def diff(
    a: Source,
    /,
    *,
    changes: Mapping[str, Any] | None = None,
    via: Via | None = None,
    nearest: Literal[True],
) -> KinshipReport: ...
@overload
def diff(
    a: Source,
    b: Source | None = None,
    /,
    *,
    changes: Mapping[str, Any] | None = None,
    via: Via | None = None,
) -> DiffReport: ...
@overload
def diff(
    a: Source,
    b: Source,
    c: Source,
    /,
    *more: Source,
    changes: Mapping[str, Any] | None = None,
    via: Via | None = None,
) -> MultiDiffReport: ...
def diff(
    a: Source,
    b: Source | None = None,
    /,
    *more: Source,
    changes: Mapping[str, Any] | None = None,
    via: Via | None = None,
    nearest: bool = False,
) -> DiffReport | MultiDiffReport | KinshipReport:
    """Explain why `b` has more or fewer parameters than `a`: causes, weights and configuration keys
    that differ.

    `changes` replaces configuration keys of the last model; with one model, it is compared with
    itself under these changes. Of three or more models, each is compared with the first.
    `via="transformers"` builds models of unknown families, which are compared by the names and
    shapes of their tensors. `nearest` compares one model with every preset by architecture, and
    returns those from which the fewest changes make it.
    """
    from .analysis.understand.diff.model_diff import MultiDiffReport
    from .analysis.understand.diff.state_dict_diff import diff_models as compare

    if nearest:
        from .analysis.understand.diff.kinship import nearest_presets

        model = _load_or_build(a, via, changes)
        if b is not None or isinstance(model, TensorModel):
            what = "two models" if b is not None else f"{model.name}, whose family is not known"
            raise LlamathError(f"the nearest presets are those of one known model, found {what}")
        return nearest_presets(model)
    if b is None and not changes:
        raise LlamathError(
            "diff needs a second model or changes",
            hint=f"such as {Call('diff', Name('model'), changes={'num_hidden_layers': 40})}",
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


# Written by tools/signatures.py from the questions: change them there.


@overload
def count(
    model: FamilyModel,
    *,
    part: Literal["text", "vision", "audio"] | None = None,
    via: Via | None = None,
) -> CountReport: ...
@overload
def count(
    model: Source,
    *,
    part: Literal["text", "vision", "audio"] | None = None,
    via: Via | None = None,
) -> CountReport | TensorCountReport: ...
def count(
    model: Source,
    *,
    part: Literal["text", "vision", "audio"] | None = None,
    via: Via | None = None,
) -> CountReport | TensorCountReport:
    """Count the parameters of a model, weight by weight, with the formula of the total.

    A checkpoint of an unknown family raises `UnknownModel`; `ls` counts its parameters by its
    headers, and `via="transformers"` those of the class that transformers builds of its
    configuration, without a formula.

    part: Only this part of a multimodal model; a tower has its projector.
    """
    from .questions.parameter_questions import CountQuestion

    question = CountQuestion.parse(part=part)
    return answer_count(model, question, via=via)


def explain(
    number: Count,
    *,
    like: Source | None = None,
    all: bool = False,  # noqa: A002
) -> Explanation:
    """Explain a parameter count: which model has it, and what was changed, left out, added or
    packed.

    An exact number is decoded exactly; a rounded one (`"685B"`) gives the counts that round to
    it.

    number: Number of parameters, in full (8030261248), rounded (685B) or a product (4096*4096).
    like: Consider this model only.
    all: Show unlikely explanations, too.
    """
    from .questions.parameter_questions import ExplainQuestion

    question = ExplainQuestion.parse(number=number, like=like, all=all)
    return answer_explain(question)


def code(
    model: Source,
    *,
    kind: Literal["torch", "math", "latex"] = "torch",
    names: Literal["llamath", "hf"] = "llamath",
    part: str = "",
) -> CodeReport:
    """Write the code of a model: one readable PyTorch file that is the model, with its sizes, its
    names in files, `load` and `generate`.

    Of a multimodal model it is the text model. `report.text` is the code, and each of
    `report.lines` has the operations and the weights that the line stands for.

    kind: PyTorch, or the same statements as formulas in Unicode or LaTeX.
    names: hf: Hugging Face's names for the attributes of the classes.
    part: One class or function of the file: Attention, rope.
    """
    from .questions.pass_questions import CodeQuestion

    question = CodeQuestion.parse(kind=kind, names=names, part=part)
    return answer_code(load_family(model), question)


@overload
def lesson() -> LessonList: ...
@overload
def lesson(
    name: str,
    model: Source | None = None,
    *,
    questions: int | None = None,
    seed: int | None = None,
) -> Worksheet: ...
def lesson(
    name: str | None = None,
    model: Source | None = None,
    *,
    questions: int | None = None,
    seed: int | None = None,
) -> Worksheet | LessonList:
    """Return a lesson about a model, with questions whose answers are numbers of its tree; it
    iterates over them, and `check` tells what is wrong with an answer.

    Without a name, return the list of lessons. Without a number and a seed, the questions are
    those that `llamath learn` asks, in order.

    model: Model to ask about, if not the lesson's own.
    questions: Number of questions, chosen at random.
    seed: Choose the same questions again: the same number.
    """
    from .questions.parameter_questions import LessonQuestion

    question = LessonQuestion.parse(model=model, questions=questions, seed=seed)
    return answer_lesson(name, question)


def design(
    target: Count | None = None,
    *,
    like: str | Sequence[str] | None = None,
    bounds: str | DesignBounds | None = None,
    tolerance: float | str | Fraction | None = None,
    sort: Literal["habits", "error"] | None = None,
    top: int = 10,
    budget: str | Budget | None = None,
    changes: Mapping[str, Any] | None = None,
) -> DesignReport:
    """Find the dimensions of a model with `target` parameters, ranked by the habits of a series of
    published models; `47B-A13B` has 13 billion active ones.

    Without `target`, the `tokens` or `flops` of a `budget` and its scaling `law` give the size.
    `changes` fixes config keys of the designs, dimensions as a number or a range:
    `{"num_hidden_layers": (60, 100), "vocab_size": 32000}`. The report has no candidates if nothing
    meets the demands; then `misses` says what comes nearest.

    target: Number of parameters: 405B, 1.5e9, 8030261248, or with the active ones 47B-A13B; may be
        left out with a scaling law.
    like: A series (llama-3), family or model to follow; a second one is compared with it.
    bounds: Constraints to meet: ffn_ratio=3.5, aspect=100:140, tp=8, max_kv_per_token=320KiB.
    tolerance: Allowed difference from the target.
    sort: Order of designs.
    top: Number of designs to show.
    budget: Tokens or compute of the training, for a scaling law: tokens=15T, flops=3.8e25,
        law=besiroglu.
    """
    from .questions.design_question import DesignQuestion

    question = DesignQuestion.parse(
        target=target,
        like=like,
        bounds=bounds,
        tolerance=tolerance,
        sort=sort,
        top=top,
        budget=budget,
    )
    return answer_design(question, changes=changes)


@overload
def memory(
    model: NamedSource,
    *,
    on: GPUs | None = None,
    dtype: str = "",
    kv_dtype: str = "",
    context: Tokens | Sequence[Tokens] | None = None,
    batch: int = 1,
    images: str = "",
    batch_tokens: Tokens = 2048,
    part: Literal["text", "main"] | None = None,
) -> MemoryReport: ...
@overload
def memory(
    model: Source,
    *,
    on: GPUs | None = None,
    dtype: str = "",
    kv_dtype: str = "",
    context: Tokens | Sequence[Tokens] | None = None,
    batch: int = 1,
    images: str = "",
    batch_tokens: Tokens = 2048,
    part: Literal["text", "main"] | None = None,
) -> MemoryReport | WeightsReport: ...
def memory(
    model: Source,
    *,
    on: GPUs | None = None,
    dtype: str = "",
    kv_dtype: str = "",
    context: Tokens | Sequence[Tokens] | None = None,
    batch: int = 1,
    images: str = "",
    batch_tokens: Tokens = 2048,
    part: Literal["text", "main"] | None = None,
) -> MemoryReport | WeightsReport:
    """Compute the memory that inference needs, line by line with formulas.

    The weights of a checkpoint are the bytes in its files unless `dtype` is given. Several
    contexts give the totals at each, and the lines at the longest. Of a model without a family,
    such as one that is loaded `via="transformers"`, the memory of the weights is known, and nothing
    else.

    on: What fits on this GPU: the longest context, the largest batch. Names or 'mem=24GiB'.
    dtype: Dtype of the weights, if not the model's own. GGUF mixes also as q4_k_m:imatrix or
        q4_k_m:no-imatrix.
    kv_dtype: Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …
    context: Tokens of each sequence: 8192, 128k, max; several for a table.
    batch: Number of sequences.
    images: Images of each sequence, COUNTxSIDE or COUNTxWIDTHxHEIGHT in pixels: 2x1024.
    batch_tokens: Prompt tokens per forward pass, or all.
    part: text: without towers, as GGUF has them in a file of their own (mmproj); main: without MTP
        layers, too.
    """
    from .questions.memory_questions import MemoryQuestion

    question = MemoryQuestion.parse(
        on=on,
        dtype=dtype,
        kv_dtype=kv_dtype,
        context=context,
        batch=batch,
        images=images,
        batch_tokens=batch_tokens,
        part=part,
    )
    return answer_memory(load(model), question)


def training_memory(
    model: Source,
    *,
    on: GPUs | None = None,
    dtype: str = "",
    context: Tokens | None = None,
    batch: int = 1,
    lora: str | Lora | None = None,
    layout: str | Layout | None = None,
    training: str | Training | None = None,
) -> TrainReport:
    """Compute the memory that a training step needs on each GPU, line by line with formulas.

    on: What fits on this GPU: the longest context, the largest batch. Names or 'mem=24GiB'.
    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    context: Tokens of each sequence: 8192, 128k, max.
    batch: Sequences on each GPU.
    lora: Train adapters only; targets are also attention, mlp, all, all-linear: r=16, targets=q,v,
        saved=embed, dtype=bf16.
    layout: Training over GPUs; of several GPUs all, with ZeRO-3, or copies for adapters: tp=8,
        pp=4, dp=16, zero=3, cp, ep, etp, interleave, microbatches, sp.
    training: Settings of a training step with batch sequences on each GPU: optimizer=adamw8bit,
        recompute=full, attention=eager, kernels=fused, loss=chunked, dropout=yes, grad_dtype=fp32,
        master=no, fp8=tensorwise, accumulate=no, offload=yes.
    """
    from .questions.memory_questions import TrainingQuestion

    question = TrainingQuestion.parse(
        on=on,
        dtype=dtype,
        context=context,
        batch=batch,
        lora=lora,
        layout=layout,
        training=training,
    )
    return answer_training_memory(load_family(model), question)


def flops(
    model: Source,
    *,
    context: Tokens | None = None,
    batch: int = 1,
    images: str = "",
    on: GPUs | None = None,
    mfu: str | MeasuredSpeed | None = None,
    attention: str | Sequence[str] | None = None,
    recompute: Literal["none", "selective", "full"] = "none",
    dtype: str = "",
    kv_dtype: str = "",
) -> FlopsReport:
    """Count the FLOPs of prefill, decode and a training step, exactly, next to the formulas that
    publications use.

    `on` and the `mfu`, which is the speed of a training run, give the share of the peak that the
    GPUs reach. The tokens of `images` are part of the context.

    context: Tokens of each sequence: 8192, 128k, max.
    batch: Number of sequences.
    images: Images of each sequence, COUNTxSIDE or COUNTxWIDTHxHEIGHT in pixels: 2x1024.
    on: GPUs for an MFU: h100, 16384xh100, or 'mem=80GiB bf16=989TF'.
    mfu: Throughput for an MFU, of all GPUs in tokens or of each in FLOPs: 600000tok/s or
        150TFLOP/s, counted_by=palm, dtype=fp8.
    attention: full: no causal skip; flash: scores recomputed in training; unpacked: MLA not
        absorbed.
    recompute: Activation checkpointing in training.
    dtype: Dtype of the weights, for FLOPs per byte.
    kv_dtype: Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …
    """
    from .questions.pass_questions import FlopsQuestion

    question = FlopsQuestion.parse(
        context=context,
        batch=batch,
        images=images,
        on=on,
        mfu=mfu,
        attention=attention,
        recompute=recompute,
        dtype=dtype,
        kv_dtype=kv_dtype,
    )
    return answer_flops(load(model), question)


def fit(
    model: Source,
    *,
    on: GPUs | os.PathLike[str] | None = None,
    dtype: str = "",
    kv_dtype: str = "",
    context: Tokens | None = None,
    batch: int = 1,
    layout: str | Layout | None = None,
    offload: Size = 0,
    part: Literal["text", "main"] | None = None,
) -> FitReport:
    """Tell whether a model fits on GPUs, and how fast it can be at most.

    A model that does not fit is a report with `fits` False, not an error. If `on` is the file
    that `llamath gpus this` wrote of a machine, the report also has the speed to expect there.

    on: GPUs: rtx-4090, 8xh100, 4090+3090 in one machine, 'mem=24GiB bw=1TB/s', or the file that
        `llamath gpus this` wrote.
    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    kv_dtype: Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …
    context: Tokens of each sequence: 8192, 128k, max.
    batch: Number of sequences.
    layout: Tensor and pipeline parallelism; chosen if not given: tp=8, pp=4.
    offload: Weights of each GPU that stay in the memory of the host: 6GiB.
    part: text: without towers, as GGUF has them in a file of their own (mmproj); main: without MTP
        layers, too.
    """
    from .questions.fit_questions import FitQuestion

    question = FitQuestion.parse(
        on=on,
        dtype=dtype,
        kv_dtype=kv_dtype,
        context=context,
        batch=batch,
        layout=layout,
        offload=offload,
        part=part,
    )
    return answer_fit(load_family(model), question)


def compare_machines(
    model: Source,
    *,
    on: GPUs | Sequence[GPUs],
    dtype: str = "",
    kv_dtype: str = "",
    context: Tokens | None = None,
    batch: int = 1,
    layout: str | Layout | None = None,
    offload: Size = 0,
    part: Literal["text", "main"] | None = None,
) -> FitComparison:
    """Tell on which of several machines a model fits, and how fast it can be at most on each.

    on: The GPUs of each machine: ['3090', '2x4090'].
    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    kv_dtype: Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …
    context: Tokens of each sequence: 8192, 128k, max.
    batch: Number of sequences.
    layout: Tensor and pipeline parallelism; chosen if not given: tp=8, pp=4.
    offload: Weights of each GPU that stay in the memory of the host: 6GiB.
    part: text: without towers, as GGUF has them in a file of their own (mmproj); main: without MTP
        layers, too.
    """
    from .questions.fit_questions import MachinesQuestion

    question = MachinesQuestion.parse(
        on=on,
        dtype=dtype,
        kv_dtype=kv_dtype,
        context=context,
        batch=batch,
        layout=layout,
        offload=offload,
        part=part,
    )
    return answer_compare_machines(load_family(model), question)


def rank_gpus(
    model: Source,
    *,
    dtype: str = "",
    kv_dtype: str = "",
    context: Tokens | None = None,
    batch: int = 1,
    part: Literal["text", "main"] | None = None,
) -> GPURanking:
    """Rank the GPUs of the catalog that can run a model, the smallest first.

    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    kv_dtype: Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …
    context: Tokens of each sequence: 8192, 128k, max.
    batch: Number of sequences.
    part: text: without towers, as GGUF has them in a file of their own (mmproj); main: without MTP
        layers, too.
    """
    from .questions.fit_questions import RankQuestion

    question = RankQuestion.parse(
        dtype=dtype, kv_dtype=kv_dtype, context=context, batch=batch, part=part
    )
    return answer_rank_gpus(load_family(model), question)


def fit_engine(
    model: Source,
    *,
    engine: str,
    on: GPUs,
    dtype: str = "",
    kv_dtype: str = "",
    context: Tokens | None = None,
    batch: int = 1,
    layout: str | EngineRanks | None = None,
    engine_args: str = "",
    part: Literal["text", "main"] | None = None,
) -> EngineReport:
    """Tell whether an engine starts with a model on GPUs, what it prints, and with which command.

    engine: Will vllm, vllm@0.19.1, sglang, llama.cpp, ollama, transformers or trtllm start?
        Several, with a comma between them, are compared.
    on: The GPUs: rtx-4090 or 8xh100.
    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    kv_dtype: Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …
    context: Tokens of each sequence: 8192, 128k, max.
    batch: Number of sequences.
    layout: Ranks; chosen if not given: tp=8, ep=yes, pp, dp.
    engine_args: Flags of the engine's command line, as it spells them: '-tp 8 -dp 2'.
    part: text: without towers, as GGUF has them in a file of their own (mmproj); main: without MTP
        layers, too.
    """
    from .questions.fit_questions import EngineQuestion

    question = EngineQuestion.parse(
        engine=engine,
        on=on,
        dtype=dtype,
        kv_dtype=kv_dtype,
        context=context,
        batch=batch,
        layout=layout,
        engine_args=engine_args,
        part=part,
    )
    return answer_fit_engine(load_family(model), question)


def compare_engines(
    model: Source,
    *,
    engine: str | Sequence[str],
    on: GPUs,
    dtype: str = "",
    kv_dtype: str = "",
    context: Tokens | None = None,
    batch: int = 1,
    layout: str | EngineRanks | None = None,
    engine_args: str = "",
    part: Literal["text", "main"] | None = None,
) -> EngineComparison:
    """Compare engines, or versions of one: which start with a model on GPUs, and what changed for
    it from one version to the next.

    engine: Engines or versions: ['vllm@0.25.1', 'vllm@0.26.0'].
    on: The GPUs: rtx-4090 or 8xh100.
    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    kv_dtype: Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …
    context: Tokens of each sequence: 8192, 128k, max.
    batch: Number of sequences.
    layout: Ranks; chosen if not given: tp=8, ep=yes, pp, dp.
    engine_args: Flags of the engine's command line, as it spells them: '-tp 8 -dp 2'.
    part: text: without towers, as GGUF has them in a file of their own (mmproj); main: without MTP
        layers, too.
    """
    from .questions.fit_questions import EnginesQuestion

    question = EnginesQuestion.parse(
        engine=engine,
        on=on,
        dtype=dtype,
        kv_dtype=kv_dtype,
        context=context,
        batch=batch,
        layout=layout,
        engine_args=engine_args,
        part=part,
    )
    return answer_compare_engines(load_family(model), question)


def quants(
    model: Source,
    *,
    on: GPUs | None = None,
    kv_dtype: str = "",
    context: Tokens | None = None,
    batch: int = 1,
    part: Literal["text", "main"] | None = None,
) -> QuantsReport:
    """Return a model in each dtype and mixture of types: bytes, bits per weight, what stays
    unquantized, and what fits on GPUs.

    Of a folder or repository with GGUF files, these are listed instead, and the report's `best`
    is the one to choose.

    on: GPUs: rtx-4090, 2x3090, 4090+3090 in one machine, or 'mem=24GiB bw=1TB/s'.
    kv_dtype: Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …
    context: Tokens of each sequence: 8192, 128k, max.
    batch: Number of sequences.
    part: text: without towers, as GGUF has them in a file of their own (mmproj); main: without MTP
        layers, too.
    """
    from .questions.fit_questions import QuantsQuestion

    question = QuantsQuestion.parse(
        on=on, kv_dtype=kv_dtype, context=context, batch=batch, part=part
    )
    return answer_quants(model, question)


def place(
    model: Source,
    *,
    on: GPUs,
    ram: Size | Ram,
    context: Tokens | None = None,
    batch: int = 1,
    dtype: str = "",
    kv_dtype: str = "",
    part: Literal["text", "main"] | None = None,
) -> Placement:
    """Tell where each weight goes on GPUs, RAM and disk, with flags for llama.cpp, transformers and
    KTransformers, and bound decode.

    on: GPUs of the machine: rtx-3060-12gb, 2xrtx-4090, 3090+4090.
    ram: RAM of the machine: 64GiB, or with its bandwidth and that of a disk, on which what does not
        fit may stay: '64GiB bw=89.6GB/s disk=7GB/s'.
    context: Tokens of each sequence: 8192, 128k, max.
    batch: Number of sequences.
    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    kv_dtype: Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …
    part: text: without towers, as GGUF has them in a file of their own (mmproj); main: without MTP
        layers, too.
    """
    from .questions.serving_questions import PlaceQuestion

    question = PlaceQuestion.parse(
        on=on, ram=ram, context=context, batch=batch, dtype=dtype, kv_dtype=kv_dtype, part=part
    )
    return answer_place(load_family(model), question)


def pair(
    target: Source,
    draft: Source,
    *,
    engine: str | Sequence[str] | None = None,
    context: Tokens | None = None,
    kv_dtype: str = "",
) -> PairReport:
    """Tell whether a draft belongs to a target for speculative decoding, and how much faster it can
    be at most.

    `draft` is a model, or `"eagle"`, `"eagle3"` or `"mtp"` for a head of the target's shape.

    engine: Engines whose rules are asked: vllm, sglang, llama.cpp, transformers, trtllm.
    context: Tokens of each sequence: 8192, 128k, max.
    kv_dtype: Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …
    """
    from .questions.serving_questions import PairQuestion

    question = PairQuestion.parse(engine=engine, context=context, kv_dtype=kv_dtype)
    return answer_pair(target, draft, question)


def cost(
    model: Source,
    *,
    on: GPUs,
    price: float | str | Price | None = None,
    max_tokens: Tokens = 256,
    batch: int | None = None,
    tokens: Count | None = None,
    dtype: str = "",
    kv_dtype: str = "",
    context: Tokens | None = None,
    part: Literal["text", "main"] | None = None,
) -> CostReport:
    """Estimate what a million generated tokens cost on GPUs, prompts included, and a training run:
    intervals with their assumptions.

    on: GPUs: 8xh100, rtx-4090, or '8x mem=80GiB bw=2TB/s bf16=300TF power=700W'.
    price: Price of a GPU for an hour: 2.5/h, $2.5/h.
    max_tokens: Generated tokens of a sequence; the rest of context is its prompt.
    batch: Sequences at once.
    tokens: Also the cost of training on this many tokens: 15T.
    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    kv_dtype: Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …
    context: Tokens of each sequence: 8192, 128k, max.
    part: text: without towers, as GGUF has them in a file of their own (mmproj); main: without MTP
        layers, too.
    """
    from .questions.serving_questions import CostQuestion

    question = CostQuestion.parse(
        on=on,
        price=price,
        max_tokens=max_tokens,
        batch=batch,
        tokens=tokens,
        dtype=dtype,
        kv_dtype=kv_dtype,
        context=context,
        part=part,
    )
    return answer_cost(load_family(model), question)


def plan(
    model: Source,
    *,
    on: GPUs,
    context: Tokens | None = None,
    batch: int | None = None,
    batch_tokens: Tokens | None = None,
    tokens: Count | None = None,
    layout: str | Layout | None = None,
    training: str | PlanTraining | None = None,
    dtype: str = "",
    top: int = 10,
) -> PlanReport:
    """Rank the ways to spread the training of a model over a cluster: layouts with their memory and
    predicted MFU.

    If nothing fits, the report has `fits` False and says why.

    on: GPUs: 16384xh100, or '8x mem=80GiB bw=2TB/s bf16=300TF'.
    context: Tokens of each sequence: 8192, 128k, max.
    batch: Sequences in a microbatch of a GPU.
    batch_tokens: Training tokens per step: 16M is 16·2²⁰.
    tokens: Training tokens in all, for the duration: 15.6T.
    layout: Keep these fixed: tp=8, pp=4, dp=16, zero=3, cp, ep, interleave.
    training: Settings of the training: optimizer=adamw8bit, grad_dtype=bf16, attention=flash3,
        kernels=eager, recompute=op, loss=chunked, fp8=tensorwise.
    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    top: Number of plans to show.
    """
    from .questions.plan_questions import PlanQuestion

    question = PlanQuestion.parse(
        on=on,
        context=context,
        batch=batch,
        batch_tokens=batch_tokens,
        tokens=tokens,
        layout=layout,
        training=training,
        dtype=dtype,
        top=top,
    )
    return answer_plan(load_family(model), question)


def plan_serving(
    model: Source,
    *,
    on: GPUs,
    context: Tokens | None = None,
    latency: float | str | None = None,
    dtype: str = "",
    kv_dtype: str = "",
    top: int = 10,
) -> ServeReport:
    """Rank the ways to serve a model on a cluster: replicas, with their batches and rates.

    If nothing fits, the report has `fits` False and says why.

    on: GPUs: 16384xh100, or '8x mem=80GiB bw=2TB/s bf16=300TF'.
    context: Tokens of each sequence: 8192, 128k, max.
    latency: Maximum time per token, such as 50ms.
    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    kv_dtype: Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …
    top: Number of plans to show.
    """
    from .questions.plan_questions import ServingPlanQuestion

    question = ServingPlanQuestion.parse(
        on=on, context=context, latency=latency, dtype=dtype, kv_dtype=kv_dtype, top=top
    )
    return answer_plan_serving(load_family(model), question)


def verify(
    path: str | os.PathLike[str],
    against: Source | None = None,
    *,
    full: bool = False,
    changes: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
    via: Via | None = None,
) -> VerifyReport | StructureReport:
    """Check a checkpoint against its configuration, or against another model; `report.ok` is the
    verdict, `report.findings` the reasons.

    With `full`, a repository on the Hub is downloaded. `progress` is called with the numbers of
    processed and of all bytes. `via="transformers"` checks names and shapes against the class that
    transformers builds of the configuration.

    against: The expected model, if not that of the config next to the files; of an adapter, its
        base model.
    full: Read every byte: NaN, zero rows, duplicates, norms, and the sums of the files.
    """
    from .questions.file_questions import VerifyQuestion

    question = VerifyQuestion.parse(against=against, full=full)
    return answer_verify(path, question, changes=changes, progress=progress, via=via)


def same(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    adapter: Source | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SameReport:
    """Compare the weights of two checkpoints in any formats; `report.verdict` is identical,
    rounding or different.

    An adapter is compared as the base model that it names with the adapter merged; `adapter` is
    merged into `a`.

    adapter: Merge this adapter into A.
    """
    from .questions.file_questions import SameQuestion

    question = SameQuestion.parse(adapter=adapter)
    return answer_same(a, b, question, progress=progress)


def names(
    model: Source,
    *,
    dtype: str = "",
    via: Via | None = None,
) -> NamesReport:
    """Return the names of each weight in HF, Meta and GGUF files.

    A quantized checkpoint has other tensors: their names follow from the recipe in the config,
    or from `dtype`. `via="transformers"` gives those that transformers saves, for models of unknown
    families.

    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    """
    from .questions.file_questions import NamesQuestion

    question = NamesQuestion.parse(dtype=dtype)
    return answer_names(model, question, via=via)


def stored_names(
    model: Source,
    *,
    names: Literal["hf", "meta", "gguf"],
    dtype: str = "",
    via: Via | None = None,
) -> StoredNamesReport:
    """Return every tensor of a model as files of one format have it: names, shapes and dtypes.

    names: List every tensor under these names.
    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    """
    from .questions.file_questions import StoredNamesQuestion

    question = StoredNamesQuestion.parse(names=names, dtype=dtype)
    return answer_stored_names(model, question, via=via)


def models(
    *words: str,
    sort: Literal["params", "active", "context", "date"] | None = None,
    on: GPUs | None = None,
    dtype: str = "",
    context: Tokens | None = None,
) -> PresetList:
    """Return the presets whose name, id or family has all these words, with their sizes; if none
    has, it is an error.

    The words dense, moe, hybrid, recurrent and vision choose a kind of models.

    With `on`, those that fit on these GPUs, the largest first, each with what `fit` says of it;
    those that are slower than one reads come last. Unless `dtype` is given, the weights are those
    of each config, or in the largest format of at least 4 bits that fits.

    words: Words that must all occur in the name; dense, moe, hybrid, recurrent and vision choose a
        kind.
    sort: Sort, the largest or newest first.
    on: Only models that fit on these GPUs: rtx-4090, 8xh100, 'mem=24GiB bw=1TB/s'.
    dtype: Dtype of the weights, if not the model's own: fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4,
        awq, gptq, mxfp4, q4_k_m, iq3_xs, …
    context: Tokens of each sequence: 8192, 128k, max.
    """
    from .questions.parameter_questions import ModelsQuestion

    question = ModelsQuestion.parse(words=words, sort=sort, on=on, dtype=dtype, context=context)
    return answer_models(question)


# End of what tools/signatures.py writes.


def answer_count(
    model: Source, question: CountQuestion, *, via: Via | None
) -> CountReport | TensorCountReport:
    """Count the parameters of a model."""
    from .analysis.understand.count.count_files import count_files
    from .analysis.understand.count.count_report import CountReport
    from .checkpoint.open import names_checkpoint

    part = question.part
    try:
        loaded = load(model, via=via)
        if isinstance(loaded, TensorModel):
            from .analysis.understand.count.state_dict_count import count_tensors

            return count_tensors(loaded, part)
        counted = loaded if isinstance(model, FamilyModel) else count_files(loaded).counted
        if isinstance(counted, FamilyModel):
            return CountReport(model=counted.part(part) if part else counted)
        raise UnknownModel(f"{safe(os.fspath(model))}: {counted.reason}")  # type: ignore[arg-type]
    except UnknownModel as error:
        if isinstance(model, str | os.PathLike) and names_checkpoint(os.fspath(model)):
            hint = f"{Call('ls', os.fspath(model))} counts the tensors of any checkpoint"
            raise UnknownModel(str(error), hint=hint) from None
        raise


def answer_explain(question: ExplainQuestion) -> Explanation:
    """Explain a number of parameters."""
    from .analysis.understand.explain.explanation import explain_quantity

    like = None if question.like is None else load_family(question.like)
    return explain_quantity(question.number, like, question.all)


def answer_code(model: FamilyModel, question: CodeQuestion) -> CodeReport:
    """Write the code of a model."""
    from .analysis.code.code_report import write_code

    return write_code(model, question.kind, question.names, question.part)


def answer_lesson(name: str | None, question: LessonQuestion) -> Worksheet | LessonList:
    """Return a lesson about a model; without a name the list of lessons, with what the learner has
    done.
    """
    from .analysis.learn.worksheet import list_lessons, make_worksheet

    if name is not None:
        return make_worksheet(name, question.model, question.questions, question.seed)
    if (question.model, question.questions, question.seed) != (None, None, None):
        raise ArgumentError(
            "name", " is missing: which lesson?", hint=f"{Call('lesson')} lists them"
        )
    return list_lessons()


def check(question: Exercise, answer: str | int) -> Checked:
    """Check an answer to a question of `lesson`; of a wrong one, the report has the mistakes that
    give exactly its number, most likely first. It is true if the answer is right.

    question: A question of `lesson(...)`.
    answer: A number as one writes it: 16777216, "16.8M", "4096*4096", "d*H*h".
    """
    from .analysis.learn.diagnosis import check_answer

    return check_answer(question, str(answer))


def answer_names(model: Source, question: NamesQuestion, *, via: Via | None) -> NamesReport:
    """Return the names of each weight."""
    from .analysis.understand.count.weight_names import weight_names

    loaded = _named_model(model, question.dtype, via)
    if isinstance(loaded, TensorModel):
        from .analysis.understand.count.state_dict_count import state_dict_names

        return state_dict_names(loaded)
    return weight_names(loaded, question.dtype)


def answer_stored_names(
    model: Source, question: StoredNamesQuestion, *, via: Via | None
) -> StoredNamesReport:
    """Return every tensor as files of one format have it."""
    from .analysis.understand.count.stored_names import stored_names

    loaded = _named_model(model, question.dtype, via)
    if isinstance(loaded, TensorModel):
        from .analysis.understand.count.state_dict_count import stored_state_dict

        if question.names != "hf":
            raise ArgumentError(
                "names",
                f": {question.names} needs a family: the model is counted {loaded.claim}",
                hint="its HF names are known",
            )
        return stored_state_dict(loaded)
    return stored_names(loaded, question.names, question.dtype)


def _named_model(model: Source, dtype: str, via: Via | None) -> Model:
    loaded = load(model, via=via)
    if dtype and isinstance(loaded, TensorModel):
        raise ArgumentError("dtype", f" needs a family: the model is counted {loaded.claim}")
    return loaded


def answer_verify(
    path: str | os.PathLike[str],
    question: VerifyQuestion,
    *,
    changes: Mapping[str, Any] | None,
    progress: Callable[[int, int], None] | None,
    via: Via | None,
) -> VerifyReport | StructureReport:
    """Check a checkpoint."""
    from .analysis.check.verify_path import verify_path

    return verify_path(
        os.fspath(path),
        question.against,
        changes,
        full=question.full,
        progress=progress,
        via=via,
    )


def answer_models(question: ModelsQuestion) -> PresetList:
    """List presets, or those that fit on GPUs."""
    from .analysis.understand.preset_list import find_presets

    if question.on is None:
        if used := next((x for x in ("dtype", "context") if x in question.changed), ""):
            raise ArgumentError(used, " is for models that fit on GPUs, and needs these")
        return find_presets(question.words, question.sort)
    from .analysis.understand.preset_fits import best_first, fitting_presets

    last: dict[str, FamilyModel] = {}

    def sizes(preset: str, dtype: str) -> MemoryCalculator:
        if preset not in last:
            last.clear()
            last[preset] = load_family(preset)
        model = last[preset]
        return _calculator(model, dtype, context=_context(model, question.context))

    number, gpu = question.on
    asked = question.context if isinstance(question.context, int) else None
    presets = find_presets(question.words, question.sort)
    found = fitting_presets(presets, sizes, gpu, number, asked, question.dtype)
    return found if question.sort else best_first(found)


def answer_design(
    question: DesignQuestion, changes: Mapping[str, Any] | None = None
) -> DesignReport:
    """Search a design whose config has these keys."""
    from .analysis.size.flops.scaling_laws import DEFAULT_LAW, find_law
    from .analysis.understand.design.design_report import design as search
    from .analysis.understand.design.design_report import with_budget, with_contrast
    from .analysis.understand.design.design_request import DesignRequest, read_fixed

    budget = question.budget
    law = find_law(budget.law or DEFAULT_LAW)
    if len(question.like) not in (1, 2):
        raise ArgumentError("like", f" takes one series or two, found {len(question.like)}")
    parameters, exact = _design_target(question, law)
    request = DesignRequest(
        target=parameters,
        active=None if question.target is None else question.target.active,
        like=question.like[0],
        fixed=read_fixed(changes or {}),
        bounds=question.bounds,
        tolerance=question.tolerance,
        by_error=exact if question.sort is None else question.sort == "error",
        limit=question.top,
    )
    report = with_contrast(search(request), next(iter(question.like[1:]), None))
    if not budget.changed:
        return report
    return with_budget(report, law, budget.tokens, budget.flops)


def _design_target(question: DesignQuestion, law: ScalingLaw) -> tuple[int, bool]:
    """Return the number of parameters, and whether it was given exactly."""
    target, tokens, flops = question.target, question.budget.tokens, question.budget.flops
    if target is not None:
        if tokens is not None and flops is not None:
            raise LlamathError(
                "design takes two of target, tokens and flops: they determine the third"
            )
        return target.total.value, target.total.exact
    if tokens and flops:
        return max(flops // (6 * tokens), 1), False
    if not tokens and not flops:
        raise LlamathError(
            "design needs a target such as '405B', or tokens or flops for a scaling law"
        )
    return max(round(law.for_compute(flops) if flops else law.for_tokens(tokens or 1)), 1), False


def answer_memory(model: Model, question: MemoryQuestion) -> MemoryReport | WeightsReport:
    """Answer a question about the memory of inference."""
    from .analysis.size.memory.inference_memory import MAX_TOKENS, MemoryRequest
    from .analysis.size.memory.inference_memory import memory as inference_memory
    from .questions.memory_questions import PREFILL_CHUNK

    if isinstance(model, TensorModel) and model.computed is None:
        return _memory_of_weights(model, question)
    loaded = with_passes(model)
    if question.batch_tokens != PREFILL_CHUNK and loaded is not model:
        raise ArgumentError("batch_tokens", " is for decoders: an encoder reads whole prompts")
    loaded = _part(loaded, question.part)
    name, imatrix = _imatrix(question.dtype)
    inference = MemoryRequest(
        dtype=name,
        kv_dtype=question.kv_dtype,
        batch=question.batch,
        chunk=MAX_TOKENS - 1 if question.batch_tokens == "all" else int(question.batch_tokens),
        imatrix=imatrix,
        images=_images(question.images),
    )
    contexts = [_context(loaded, x) for x in question.context]
    return inference_memory(
        loaded,
        inference,
        None if question.dtype else _stored_weights(model, question.part),
        contexts=[x for x in contexts if x is not None],
        within=None if question.on is None else question.on[0] * question.on[1].memory,
        checkpoint_notes=_file_notes(model) if question.dtype else (),
    )


def _part(model: FamilyModel, part: str | None) -> FamilyModel:
    """Return the text model, or without layers for multi-token prediction the main model."""
    return {None: model, "text": model.text, "main": model.main}[part]


def _calculator(
    model: FamilyModel, dtype: str, part: str | None = None, **request: Any
) -> MemoryCalculator:
    """Return what computes the memory of a model: with its stored weights, unless they are asked
    for in another dtype.
    """
    from .analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest

    return MemoryCalculator(
        _part(model, part),
        MemoryRequest(dtype=dtype, **request),
        None if dtype else _stored_weights(model, part),
        _file_notes(model) if dtype else (),
    )


def _sizes(model: FamilyModel, question: _Sized) -> MemoryCalculator:
    """Return what computes the memory that a question is about."""
    context = _context(model, question.context)
    return _calculator(
        model,
        question.dtype,
        question.part,
        kv_dtype=question.kv_dtype,
        context=context,
        batch=question.batch,
    )


def answer_fit(model: FamilyModel, question: FitQuestion) -> FitReport:
    """Tell whether a model fits on GPUs."""
    from .analysis.size.fit.fit_report import fit

    if question.on is None:
        raise ArgumentError(
            "on",
            " is missing: the GPUs",
            hint=f"{Call('rank_gpus', Name('model'))} ranks all that are known",
        )
    calculator = _sizes(model, question)
    if not isinstance(question.on, str):
        number, gpu = question.on
        return fit(calculator, gpu, number, offload=question.offload, **_degrees(question.layout))
    if used := next((x for x in ("layout", "offload") if x in question.changed), ""):
        raise ArgumentError(used, " is for GPUs, and the file is of one measured machine")
    from .analysis.size.fit.calibration import read_calibration

    measured = read_calibration(question.on)
    return fit(calculator, measured.device, calibration=measured)


def _degrees(layout: Mapping[str, int]) -> dict[str, Any]:
    return {x: layout.get(x) for x in ("tp", "pp")}


def answer_compare_machines(model: FamilyModel, question: MachinesQuestion) -> FitComparison:
    """Tell on which machines a model fits."""
    from .analysis.size.fit.fit_comparison import FitComparison
    from .analysis.size.fit.fit_report import fit

    if not question.on:
        raise ArgumentError("on", " lists no GPUs")
    calculator, degrees = _sizes(model, question), _degrees(question.layout)
    return FitComparison(
        model=model,
        machines=tuple(
            fit(calculator, gpu, number, offload=question.offload, **degrees)
            for number, gpu in question.on
        ),
    )


def answer_rank_gpus(model: FamilyModel, question: RankQuestion) -> GPURanking:
    """Rank the GPUs that can run a model."""
    from .analysis.size.fit.gpu_ranking import rank_gpus

    return rank_gpus(_sizes(model, question))


def answer_fit_engine(model: FamilyModel, question: EngineQuestion) -> EngineReport:
    """Tell whether an engine starts on GPUs."""
    from .analysis.size.serving.engine_report import plan_engine

    number, gpu = question.on
    sizes, settings = _in_engine(model, question, question.engine)
    return plan_engine(sizes, question.engine, gpu, number, settings)


def answer_compare_engines(model: FamilyModel, question: EnginesQuestion) -> EngineComparison:
    """Compare engines, or versions of one."""
    from .analysis.size.serving.engine_comparison import compare_engines

    if not question.engine:
        raise ArgumentError("engine", " lists no engines")
    number, gpu = question.on
    asked = [(x, *_in_engine(model, question, x)) for x in question.engine]
    return compare_engines(asked, gpu, number)


def _in_engine(
    model: FamilyModel, question: EngineQuestion | EnginesQuestion, name: str
) -> tuple[MemoryCalculator, EngineSettings]:
    """Return the sizes of a model and the settings of an engine, from arguments and flags."""
    from .analysis.size.serving.device_rules import model_types
    from .analysis.size.serving.engine_arguments import (
        defaults_of,
        layout_of,
        read_engine_arguments,
        request_of,
        slots_of,
        text_alone,
    )
    from .analysis.size.serving.engine_report import EngineSettings
    from .analysis.size.serving.rank_shapes import EngineLayout
    from .engines import find_engine
    from .questions.fit_questions import EngineRanks

    engine = find_engine(name)
    arguments = read_engine_arguments(engine, question.engine_args)
    ranks = EngineRanks(**question.layout)
    layout = EngineLayout(ranks.tp, ranks.pp, ranks.dp, ranks.ep) if question.layout else None
    asked = layout_of(engine, arguments)
    if layout is not None and asked not in (None, layout):
        raise ArgumentError("layout", f" {layout.label} contradicts the flags: {asked.label}")
    part, arguments = text_alone(engine, arguments, question.part, model)
    question = question.replace(part=part)
    first = _sizes(model, question)
    wanted = request_of(engine, arguments, int(model.tree.layers.n))
    if first.packer.is_packed:
        wanted.pop("dtype", "")  # of the activations
    for field, value in wanted.items():
        if field in question.changed and getattr(question, field) != value:
            raise ArgumentError(
                field, f" {getattr(question, field)} contradicts {arguments.shown(field)}"
            )
    types, (count, gpu) = model_types(first), question.on
    wanted["batch"], remarks = slots_of(engine, types, wanted.get("batch", question.batch))
    if question.context is None and "context" not in wanted:
        own = model.tree.context
        longest = None if own is None else int(own)
        wanted["context"], more = defaults_of(engine, types, count * gpu.memory, longest)
        remarks += more
    settings = EngineSettings(
        layout=asked or layout,
        fraction=arguments.settings.get("memory_fraction"),
        kv_memory=arguments.settings.get("kv_memory"),
        arguments=arguments.replace(remarks=remarks),
    )
    return _sizes(model, question.replace(**wanted)), settings


def answer_flops(model: Model, question: FlopsQuestion) -> FlopsReport:
    """Count FLOPs."""
    from .analysis.size.flops.flops_report import FlopsRequest
    from .analysis.size.flops.flops_report import count_model_flops as count_flops

    loaded = with_passes(model)
    if (question.on is None) != (question.mfu is None) or (
        question.mfu is not None
        and (question.mfu.tokens_per_second is None) == (question.mfu.tflops is None)
    ):
        raise ArgumentError(
            "mfu",
            " needs GPUs and one speed, tokens per second or TFLOP/s",
            hint=f"{Argument('on', '8xh100')}, {Argument('mfu', '90000tok/s')}",
        )
    request = FlopsRequest(
        context=_context(loaded, question.context),
        images=_images(question.images),
        batch=question.batch,
        masked="full" not in question.attention,
        unpacked="unpacked" in question.attention,
        recompute=question.recompute,
        flash="flash" in question.attention,
        dtype=question.dtype,
        kv_dtype=question.kv_dtype,
    )
    report = count_flops(loaded, request)
    if question.on is None or question.mfu is None:
        return report
    return _with_mfu(report, question.on, question.mfu)


def _with_mfu(report: FlopsReport, on: tuple[int, Device], measured: MeasuredSpeed) -> FlopsReport:
    from fractions import Fraction

    from .analysis.size.flops.mfu import Throughput, speed_of, with_mfu

    (gpus, gpu), precision = on, measured.precision
    if not (peak := gpu.flops.get(precision)):
        known = ", ".join(name for name, rate in gpu.flops.items() if rate)
        raise LlamathError(
            f"no {safe(repr(precision), 60)} FLOP/s figure is known for {gpu.title}",
            hint=f"dtype can be {known}",
        )
    if measured.tokens_per_second is not None:
        tokens = Fraction(measured.tokens_per_second)
    else:
        rate = Fraction(measured.tflops or 0) * 10**12
        tokens = gpus * speed_of(report, rate, measured.counted_by)
    return with_mfu(
        report,
        Throughput(tokens=tokens, gpus=gpus, peak=peak, name=gpu.title, precision=precision),
    )


def answer_plan(model: FamilyModel, question: PlanQuestion) -> PlanReport:
    """Rank the layouts of a training."""
    from .analysis.size.plan import PlanRequest
    from .analysis.size.plan import plan as plan_training

    _check_cluster(question.on)
    asked = question.training
    request = PlanRequest(
        dtype=question.dtype,
        optimizer=asked.optimizer,
        gradients=asked.grad_dtype,
        context=_context(model, question.context),
        batch_tokens=question.batch_tokens,
        attention=asked.attention,
        kernels=asked.kernels,
        recompute=asked.recompute,
        loss=asked.loss,
        fp8=asked.fp8,
        fixed={
            **question.layout,
            **({} if question.batch is None else {"microbatch": question.batch}),
        },
        top=question.top,
        tokens=question.tokens,
    )
    return plan_training(model, question.on, request)


def answer_plan_serving(model: FamilyModel, question: ServingPlanQuestion) -> ServeReport:
    """Rank the ways to serve a model."""
    from .analysis.size.plan.serving_plan import plan_serving

    _check_cluster(question.on)
    context = _context(model, question.context)
    calculator = _calculator(model, question.dtype, kv_dtype=question.kv_dtype, context=context)
    report = plan_serving(model, calculator, question.on, question.latency)
    return report.replace(top=question.top)


def _check_cluster(on: tuple[int, Device]) -> None:
    if not on[1].bandwidth:
        raise unknown_bandwidth("a plan", on[1])


def answer_cost(model: FamilyModel, question: CostQuestion) -> CostReport:
    """Estimate the cost of tokens and of training."""
    from .analysis.size.cost.cost_report import CostRequest
    from .analysis.size.cost.cost_report import cost as cost_on

    count, gpu = question.on
    context = _context(model, question.context)
    calculator = _calculator(
        model, question.dtype, question.part, kv_dtype=question.kv_dtype, context=context
    )
    request = CostRequest(
        output=question.max_tokens,
        batch=question.batch,
        price=question.price,
        train_tokens=question.tokens,
    )
    return cost_on(calculator, gpu, count, request)


def answer_quants(model: Source, question: QuantsQuestion) -> QuantsReport:
    """List a model in each dtype, or its GGUF files."""
    from .analysis.size.fit.quants_report import list_files, list_quants
    from .analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
    from .checkpoint.folders.gguf_folder import list_gguf_models

    def request(loaded: FamilyModel) -> MemoryRequest:
        context = _context(loaded, question.context)
        return MemoryRequest(kv_dtype=question.kv_dtype, context=context, batch=question.batch)

    count, gpu = question.on or (1, None)
    found = list_gguf_models(os.fspath(model)) if isinstance(model, str | os.PathLike) else []
    files = []
    for x in found:
        loaded = load_family(x.location)
        stored = _stored_weights(loaded, question.part)
        sizes = MemoryCalculator(_part(loaded, question.part), request(loaded), stored)
        files.append((x.choice.names[0], x.choice.type, sizes))
    if files:
        return list_files(files, gpu, count)
    loaded = _part(load_family(model), question.part)
    return list_quants(MemoryCalculator(loaded, request(loaded)), gpu, count)


def answer_pair(target: Source, draft: Source, question: PairQuestion) -> PairReport:
    """Tell whether a draft belongs to a target."""
    from .analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
    from .analysis.size.serving.draft_pair import pair_models
    from .checkpoint.vocabulary import read_vocabulary
    from .engines import ENGINES, find_engine

    first = load_family(target)
    request = MemoryRequest(kv_dtype=question.kv_dtype, context=_context(first, question.context))
    sizes = MemoryCalculator(first, request, _stored_weights(first))
    asked = [find_engine(x).runner for x in question.engine] or [
        x for x in ENGINES if find_engine(x).runner == x
    ]
    heads: Mapping[str, DraftKind] = {"eagle": "eagle", "eagle3": "eagle3", "mtp": "mtp"}
    if isinstance(draft, str) and draft in heads:
        return pair_models(sizes, heads[draft], engines=asked)
    second = load_family(draft)
    vocabularies = read_vocabulary(first.location), read_vocabulary(second.location)
    return pair_models(
        sizes, MemoryCalculator(second, request, _stored_weights(second)), vocabularies, asked
    )


def answer_place(model: FamilyModel, question: PlaceQuestion) -> Placement:
    """Tell where each weight goes."""
    from .analysis.size.placement.placement import Machine, place_model

    sizes = _sizes(model, question)
    count, gpu = question.on
    if count > _MAX_PLACED:
        raise ArgumentError(
            "on", f": {count:,} GPUs; at most {_MAX_PLACED} are placed on one by one"
        )
    machine = Machine(
        gpus=gpu.members or (gpu,) * count,
        ram=question.ram.memory,
        ram_bandwidth=question.ram.bandwidth,
        disk_bandwidth=question.ram.disk,
    )
    return place_model(sizes, machine)


def _memory_of_weights(model: TensorModel, question: MemoryQuestion) -> WeightsReport:
    """Return the memory of the weights of a model without a family; more cannot be asked."""
    from .analysis.understand.count.state_dict_count import weights_memory

    if used := next((x for x in question.changed if x != "dtype"), ""):
        raise ArgumentError(
            used,
            f" needs a family: the model is counted {model.claim}",
            hint="the memory of its weights alone is known",
        )
    return weights_memory(model, question.dtype)


def _training_layout(question: TrainingQuestion) -> Layout:
    """Return the layout that is asked for; else all of the GPUs hold parts of the states (ZeRO-3,
    as FSDP's default), or copies, if adapters alone are trained (DDP).
    """
    from .questions.layout import Layout

    number = 1 if question.on is None else question.on[0]
    if question.layout != Layout() or number == 1:
        return question.layout
    return Layout(dp=number, zero=3 if question.lora is None else 0)


def answer_training_memory(model: FamilyModel, question: TrainingQuestion) -> TrainReport:
    """Answer a question about the memory of a training step."""
    from .analysis.size.training.training_memory import TrainRequest, training, training_dtype
    from .questions.layout import Layout
    from .questions.memory_questions import Lora

    asked, lora, layout = question.training, question.lora, _training_layout(question)
    request = TrainRequest(
        dtype=question.dtype or (training_dtype(model) if lora is None else _declared_dtype(model)),
        optimizer=asked.optimizer,
        gradients=asked.grad_dtype,
        master=asked.master,
        context=_context(model, question.context),
        layout=layout.replace(
            microbatch=question.batch,
            flash=asked.attention == "flash",
            recompute=asked.recompute or (layout.recompute if lora is None else "full"),
        ),
        dropout=asked.dropout,
        fused=asked.kernels == "fused",
        loss=asked.loss,
        fp8=asked.fp8,
        adapter_dtype=Lora.dtype if lora is None else lora.dtype,
        accumulate=asked.accumulate,
        offload=asked.offload,
        rank=0 if lora is None else lora.r,
        targets=() if lora is None else lora.targets,
        saved=() if lora is None else lora.saved,
    )
    model = model.replace(notes=tuple(dict.fromkeys((*model.notes, *_file_notes(model)))))
    if question.on is None:
        return training(model, request)
    of_gpus = question.on[1].name if question.layout == Layout() else ""
    return training(model, request, question.on[1].memory, of_gpus)


def facts(model: Source) -> FactSheet:
    """Return what a model is, on one page: sizes, layers and their pattern, attention, positions,
    weights, KV cache, FLOPs and hardware.

    Origin, date and license are known for presets.
    """
    from .analysis.understand.fact_sheet import fact_sheet

    return fact_sheet(load_family(model))


def config(model: Source) -> ConfigReport:
    """Explain every key of a model's configuration, as Hugging Face has it and as Meta's
    `ModelArgs`.
    """
    from .analysis.understand.config_report import config_report

    return config_report(load_family(model))


def trace(
    model: Source,
    prompt: str | None = None,
    *,
    context: Tokens | None = None,
    layer: int | None = None,
    images: str = "",
    decode: bool = False,
    device: str = "cpu",
    changes: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Trace:
    """Follow a forward pass step by step, and one over the token after it: shapes, weights, FLOPs
    and KV cache, each shape compared with that of a tensor of PyTorch.

    Without a `prompt`, the shapes of `context` tokens (None: a few), and of `images` before them.
    With one, the model is a path or a repository: its weights process the prompt on `device`, in
    the dtype of the files, and the likely next tokens are part of the report. It shows all layers,
    or one `layer`; with `decode`, the pass over the next token. `changes` replaces configuration
    keys; `progress` is called with the bytes of weights that are read, and of all.
    """
    from .questions.pass_questions import TraceQuestion

    given = {} if context is None else {"context": context}
    question = TraceQuestion.parse(layer=layer, images=images, decode=decode, **given)
    return answer_trace(
        model, prompt, question, device=device, changes=changes or {}, progress=progress
    )


def answer_trace(
    model: Source,
    prompt: str | None,
    question: TraceQuestion,
    *,
    device: str = "cpu",
    changes: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Trace:
    """Trace a pass over a number of tokens, or over a prompt."""
    from .torch.debug.trace_prompt import trace_prompt, trace_tokens

    layer, images = question.layer, question.images
    if prompt is None:
        loaded = with_passes(load(model, changes=changes))
        report = trace_tokens(loaded, question.context, layer, _images(images))
    elif images:
        problem = " traces shapes, without a prompt: the text model alone is run"
        raise ArgumentError("images", problem)
    elif not isinstance(model, str | os.PathLike):
        raise ArgumentError("model", " should be a path or a repository, where there is a prompt")
    else:
        quiet = progress or (lambda _done, _total: None)
        report = trace_prompt(os.fspath(model), prompt, layer, device, changes or {}, quiet)
    return report.replace(layer=layer, shows_next=question.decode)


@overload
def run(
    model: str | os.PathLike[str],
    prompt: str,
    *,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    sampling: str | Sampling = "",
    chat: bool | None = None,
    system: str = "",
    stop: str | Sequence[str] = (),
    logprobs: int | None = None,
    dtype: str = "",
    device: str = "cpu",
) -> Reply: ...
@overload
def run(
    model: str | os.PathLike[str],
    prompt: list[str] | tuple[str, ...],
    *,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    sampling: str | Sampling = "",
    chat: bool | None = None,
    system: str = "",
    stop: str | Sequence[str] = (),
    logprobs: int | None = None,
    dtype: str = "",
    device: str = "cpu",
) -> list[Reply]: ...
def run(
    model: str | os.PathLike[str],
    prompt: str | list[str] | tuple[str, ...],
    *,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    sampling: str | Sampling = "",
    chat: bool | None = None,
    system: str = "",
    stop: str | Sequence[str] = (),
    logprobs: int | None = None,
    dtype: str = "",
    device: str = "cpu",
) -> Reply | list[Reply]:
    """Generate text with a folder, a file, a repository on the Hub or `"embedded"`; several prompts
    are one batch.

    An instruction-tuned model answers the prompt, a base model continues it; `chat` chooses, and a
    `system` prompt is for answers. `sampling` is text such as `"temperature=0.7,top_p=0.9,seed=1"`
    or a `Sampling`; empty: the publisher's, else greedy. Generation ends before a `stop` text.
    `logprobs=5` adds the log probability of each token and of the 5 most likely. `dtype` is bf16,
    fp16, fp32 or int8; empty: as stored. The native engine computes on `device="cpu"` if it can run
    the model, else PyTorch. `llamath.torch.Llama` keeps a model open, and chats.
    """
    from .generation.generation import GenerationLimits
    from .generation.sampling_parameters import Sampling
    from .questions.sampling_settings import SamplingSettings
    from .questions.settings import SomeKeys
    from .questions.value_kinds import integer
    from .runtime.open_llama import open_llama
    from .runtime.prompt_job import PromptJob, choose_sampling

    typed = isinstance(sampling, Sampling)
    settings = {} if typed else SomeKeys(SamplingSettings).parse("sampling", sampling)
    if logprobs is not None:
        integer(0, 100).parse("logprobs", logprobs)
    limits = GenerationLimits(
        max_tokens=integer().parse("max_tokens", max_tokens),
        stop_strings=(stop,) if isinstance(stop, str) else tuple(stop),
        logprobs=logprobs,
    )
    llama = open_llama(
        os.fspath(model), dtype or None, device, changes={}, will_chat=chat is not False
    )
    chosen = sampling if isinstance(sampling, Sampling) else choose_sampling(llama, settings)
    job = PromptJob(llama, chosen, limits, chat=chat, system=system)
    prompts = [prompt] if isinstance(prompt, str) else list(prompt)
    replies = job.complete(job.begin(prompts), prompts)
    return replies[0] if isinstance(prompt, str) else replies


def ls(path: str | os.PathLike[str]) -> Listing:
    """List what is in a checkpoint by its headers alone: tensors, dtypes, shapes, bytes, and how
    values are packed.
    """
    from .analysis.storage.listing import list_checkpoint

    return list_checkpoint(os.fspath(path))


def answer_same(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    question: SameQuestion,
    *,
    progress: Callable[[int, int], None] | None,
) -> SameReport:
    """Compare the weights of two checkpoints."""
    from .analysis.check.same.compare_checkpoints import compare_checkpoints
    from .native.group_comparison import find_group_comparer

    adapted = question.adapter is not None
    return compare_checkpoints(
        os.fspath(question.adapter if adapted else a),
        os.fspath(b),
        os.fspath(a) if adapted else None,
        progress or (lambda _done, _total: None),
        find_group_comparer(),
    )


def hash_weights(
    path: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> HashReport:
    """Hash the weights of a checkpoint; `report.hash` is equal for equal weights in any lossless
    format.
    """
    from .analysis.check.same.weights_hash import hash_checkpoint

    return hash_checkpoint(os.fspath(path), progress or (lambda _done, _total: None))


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    names: Literal["hf", "hf-fused", "meta", "gguf"] | None = None,
    dtype: str = "",
    edit: str | Edit | None = None,
    max_shard_size: Size = "5GB",
    changes: Mapping[str, Any] | None = None,
    force: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ConversionReport:
    """Write a checkpoint in another format: safetensors (`"hf"`; `"hf-fused"`: experts in stacks),
    Meta's `.pth` (`"meta"`) or GGUF.

    Without `names`, a target `NAME.gguf` is a GGUF file. `dtype` is float32, bfloat16 or float16,
    or in GGUF q8_0, q4_0, q4_k, q6_k or q4_k_m; empty, everything keeps its own. The target appears
    when it is complete. A GGUF file that llama.cpp would not load is written with `force` only.

    `edit` changes the source first: `"layers=0:16,20:32,vocab_size=152064"` keeps these layers and
    rows, `"join_shards=yes"` joins the ranks in its subfolders, `"tp_shards=4"` cuts 4 ranks and
    `"part=main"` leaves out multi-token prediction layers. Without `names` and `dtype`, an edited
    checkpoint keeps its names, dtypes and packed weights; an edit that no config can express is
    refused. `dry_run` checks the source and writes nothing; `progress` is called with the bytes
    done and the bytes in total.
    """
    from .conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
    from .questions.edit_settings import Edit
    from .questions.settings import Spec
    from .questions.value_kinds import SIZE, choice

    options = ConvertOptions(
        to=choice("hf", "hf-fused", "meta", "gguf").parse("names", names) if names else "",
        edit=Spec(Edit).parse("edit", edit or Edit()),
        dtype=dtype,
        max_shard_size=SIZE.parse("max_shard_size", max_shard_size),
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


def gpus(*words: str) -> DeviceList:
    """Return the GPUs of the catalog whose name or vendor has all these words; a name that
    matches nothing is an error.
    """
    from .hardware import find_devices

    return find_devices(words)


def _load_or_build(
    source: Source, via: Via | None, changes: Mapping[str, Any] | None = None
) -> Model:
    """Load a model; with `via`, one that no family here describes is built."""
    if via is None or isinstance(source, Model):
        return load(source, changes=changes)
    try:
        return load(source, changes=changes)
    except UnknownModel:
        return load(source, changes=changes, via=via)


def _context(model: FamilyModel, value: int | str | None) -> int | None:
    """Return the tokens of a sequence, whose text is `max`; None stands for the default."""
    if value == "max":
        from .analysis.size.default_context import full_context

        return full_context(model.tree)
    return None if value is None else int(value)


def _images(text: str) -> Images | None:
    """Read the images of each sequence; None without any."""
    if not text:
        return None
    from .analysis.graph.image_pass import parse_images

    return parse_images(text)


def _stored_weights(model: Model, part: str | None = None) -> StoredWeights | None:
    """Return the weights of the checkpoint that a model was loaded from, or of a part of it; None
    if there is only a configuration.
    """
    if not model.location:
        return None
    from .analysis.check.checkpoint_weights import read_stored_weights

    return read_stored_weights(model, part)


def _file_notes(model: Model) -> tuple[str, ...]:
    """Return notes on how the local files of a model differ from its configuration, where only
    that is used.
    """
    if not model.location:
        return ()
    from .analysis.check.file_differences import differences_at

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


def _declared_dtype(model: FamilyModel) -> str:
    from .analysis.size.memory.inference_memory import declared_dtype

    return declared_dtype(model)
