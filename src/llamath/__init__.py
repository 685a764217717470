"""Know a Llama down to its last weight, understand it, and run it.

>>> import llamath
>>> llamath.count("llama-3-8b").total
8030261248
>>> llamath.memory("llama-3.1-70b", context="128k", dtype="q4_k_m")
<MemoryReport: Llama 3.1 70B in Q4_K_M, 1 sequence of 131,072 tokens: 86.69 GB (80.73 GiB)>

A model is a preset ("llama-3-8b"), the path of a config or checkpoint, a public id, a mapping, a
module in memory, or what `load` returned. `help(llamath.fit)` explains the arguments of a function.

    load              a model: its tree of weights, names, totals

Understand a model
    count             parameters, weight by weight, with the formula
    facts             what a model is, on one page
    config            every config key explained
    diff              why one model has more parameters than another
    trace             a forward pass step by step: shapes, FLOPs, KV cache
    code              one readable PyTorch file that is the model
    explain           which model, with which change, has this many parameters
    design            dimensions for a number of parameters
    models            the presets
    lesson            a lesson about a model, with questions made from its tree; or all lessons
    check             an answer to a question of a lesson, and the mistake behind a wrong one
    walk              every weight of a tree, streamed

Check files
    ls                tensors, dtypes, shapes and bytes of a checkpoint
    verify            does a checkpoint match its config?
    names             tensor names in HF, Meta and GGUF files
    stored_names      every tensor as files of one kind have it
    convert           write a checkpoint as safetensors, .pth or GGUF, or as shards of ranks
    merge             write a base model with an adapter merged
    same              do two checkpoints hold the same weights?
    hash_weights      the hash of weights, equal in any lossless format

Size hardware
    memory            memory for inference, line by line
    training_memory   memory of a training step, line by line
    fit               does it fit on these GPUs, and how fast can it be at most?
    rank_gpus         which GPUs can run it
    compare_machines  on which of several machines it fits
    fit_engine        does an engine such as vLLM start?
    compare_engines   which engines or versions start, and what changed between them
    place             which weights go to GPUs, RAM and disk
    pair              does a draft model belong to it?
    cost              what tokens and a training run cost
    quants            sizes in each dtype, and which GGUF file to choose
    flops             FLOPs of prefill, decode and training, and the MFU
    plan              rank the ways to train a model on a cluster
    plan_serving      rank the ways to serve it
    gpus              memory, bandwidth and FLOP/s of GPUs

Run
    run               generate text
    watch             a pass over a text, with every number that it computes

Look
    serve             the interactive page in the browser
    export            the page as one HTML file, or a site of all presets
    show              the page in a notebook

Each function returns a report, which is frozen: `print(report)` prints what the command of the same
name prints, `report.to_json()` is its JSON, `pandas.DataFrame(report.rows())` a data frame of its
first table. A report iterates and indexes, and `bool(report)` is its verdict. Wrong input raises a
`LlamathError`, whose `hint` says what to try. `dir(llamath)` also lists the types of arguments and
reports, and `llamath.torch` has models as PyTorch modules.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .analysis.check.same.same_report import SameReport as SameReport
    from .analysis.check.same.weights_hash import HashReport as HashReport
    from .analysis.check.verify.check_checkpoint import VerifyReport as VerifyReport
    from .analysis.check.verify.structure_report import StructureReport as StructureReport
    from .analysis.code.code_report import CodeReport as CodeReport
    from .analysis.learn.diagnosis import Checked as Checked
    from .analysis.learn.exercise import Exercise as Exercise
    from .analysis.learn.worksheet import LessonList as LessonList
    from .analysis.learn.worksheet import Worksheet as Worksheet
    from .analysis.size.cost.cost_report import CostReport as CostReport
    from .analysis.size.fit.fit_comparison import FitComparison as FitComparison
    from .analysis.size.fit.fit_report import FitReport as FitReport
    from .analysis.size.fit.gpu_ranking import GPURanking as GPURanking
    from .analysis.size.fit.quants_report import QuantsReport as QuantsReport
    from .analysis.size.flops.flops_report import FlopsReport as FlopsReport
    from .analysis.size.memory.inference_memory import MemoryReport as MemoryReport
    from .analysis.size.memory.inference_memory import WeightsReport as WeightsReport
    from .analysis.size.placement.placement import Placement as Placement
    from .analysis.size.plan.plan_ranking import PlanReport as PlanReport
    from .analysis.size.plan.serving_plan import ServeReport as ServeReport
    from .analysis.size.serving.draft_pair import PairReport as PairReport
    from .analysis.size.serving.engine_comparison import EngineComparison as EngineComparison
    from .analysis.size.serving.engine_report import EngineReport as EngineReport
    from .analysis.size.training.training_memory import TrainReport as TrainReport
    from .analysis.storage.listing import Listing as Listing
    from .analysis.understand.config_report import ConfigReport as ConfigReport
    from .analysis.understand.count.count_report import CountReport as CountReport
    from .analysis.understand.count.count_report import StoredNamesReport as StoredNamesReport
    from .analysis.understand.count.state_dict_count import TensorCountReport as TensorCountReport
    from .analysis.understand.count.weight_names import NamesReport as NamesReport
    from .analysis.understand.design.design_report import DesignReport as DesignReport
    from .analysis.understand.diff.model_diff import DiffReport as DiffReport
    from .analysis.understand.diff.model_diff import MultiDiffReport as MultiDiffReport
    from .analysis.understand.explain.explanation import Explanation as Explanation
    from .analysis.understand.fact_sheet import FactSheet as FactSheet
    from .analysis.understand.preset_list import PresetList as PresetList
    from .api import check as check
    from .api import code as code
    from .api import compare_engines as compare_engines
    from .api import compare_machines as compare_machines
    from .api import config as config
    from .api import convert as convert
    from .api import cost as cost
    from .api import count as count
    from .api import design as design
    from .api import diff as diff
    from .api import explain as explain
    from .api import facts as facts
    from .api import fit as fit
    from .api import fit_engine as fit_engine
    from .api import flops as flops
    from .api import gpus as gpus
    from .api import hash_weights as hash_weights
    from .api import lesson as lesson
    from .api import ls as ls
    from .api import memory as memory
    from .api import merge as merge
    from .api import models as models
    from .api import names as names
    from .api import pair as pair
    from .api import place as place
    from .api import plan as plan
    from .api import plan_serving as plan_serving
    from .api import quants as quants
    from .api import rank_gpus as rank_gpus
    from .api import run as run
    from .api import same as same
    from .api import stored_names as stored_names
    from .api import trace as trace
    from .api import training_memory as training_memory
    from .api import verify as verify
    from .checkpoint.meta_args import ModelArgs as ModelArgs
    from .cli.serve import serve as serve
    from .conversion.convert_checkpoint import ConversionReport as ConversionReport
    from .core.blocks import Decoder as Decoder
    from .core.expr import Expr as Expr
    from .core.parameter_count import Parameters as Parameters
    from .core.tree import Block as Block
    from .core.tree import Leaf as Leaf
    from .core.tree import Stack as Stack
    from .core.tree import Weight as Weight
    from .core.tree import walk as walk
    from .generation.sampling_parameters import Sampling as Sampling
    from .hardware import Device as Device
    from .hardware import DeviceList as DeviceList
    from .loading import load as load
    from .model import FamilyModel as FamilyModel
    from .model import Model as Model
    from .model import TensorModel as TensorModel
    from .native.watched_pass import WatchedPass as WatchedPass
    from .native.watched_pass import watch as watch
    from .questions.design_question import Budget as Budget
    from .questions.design_question import DesignBounds as DesignBounds
    from .questions.edit_settings import Edit as Edit
    from .questions.fit_questions import EngineRanks as EngineRanks
    from .questions.layout import Layout as Layout
    from .questions.memory_questions import Lora as Lora
    from .questions.memory_questions import Training as Training
    from .questions.pass_questions import MeasuredSpeed as MeasuredSpeed
    from .questions.plan_questions import PlanTraining as PlanTraining
    from .render.report import Report as Report
    from .runtime.reply import Reply as Reply
    from .utils.errors import ConfigError as ConfigError
    from .utils.errors import ConvertError as ConvertError
    from .utils.errors import FormatError as FormatError
    from .utils.errors import LlamathError as LlamathError
    from .utils.errors import MissingExtra as MissingExtra
    from .utils.errors import RemoteError as RemoteError
    from .utils.errors import UnknownModel as UnknownModel
    from .web.gallery.site_files import GallerySite as GallerySite
    from .web.notebook import NotebookPage as NotebookPage
    from .web.notebook import show as show
    from .web.page_export import ExportedPage as ExportedPage
    from .web.page_export import export as export

__version__ = "0.1.0"

_MODULES = {
    "cli.serve": "serve",
    "api": "code count facts config diff trace explain design memory training_memory flops fit "
    "compare_machines rank_gpus fit_engine compare_engines cost pair place plan plan_serving "
    "quants ls verify names stored_names convert merge models gpus same hash_weights run lesson "
    "check",
    "loading": "load",
    "model": "FamilyModel Model TensorModel",
    "checkpoint.meta_args": "ModelArgs",
    "core.blocks": "Decoder",
    "core.tree": "Block Leaf Stack Weight walk",
    "core.expr": "Expr",
    "core.parameter_count": "Parameters",
    "native.watched_pass": "WatchedPass watch",
    "render.report": "Report",
    "runtime.reply": "Reply",
    "analysis.code.code_report": "CodeReport",
    "analysis.understand.count.count_report": "CountReport StoredNamesReport",
    "analysis.understand.count.state_dict_count": "TensorCountReport",
    "analysis.understand.diff.model_diff": "DiffReport MultiDiffReport",
    "analysis.understand.explain.explanation": "Explanation",
    "analysis.understand.design.design_report": "DesignReport",
    "analysis.size.memory.inference_memory": "MemoryReport WeightsReport",
    "analysis.size.training.training_memory": "TrainReport",
    "questions.design_question": "Budget DesignBounds",
    "questions.edit_settings": "Edit",
    "questions.fit_questions": "EngineRanks",
    "questions.pass_questions": "MeasuredSpeed",
    "questions.layout": "Layout",
    "questions.plan_questions": "PlanTraining",
    "questions.memory_questions": "Lora Training",
    "analysis.size.flops.flops_report": "FlopsReport",
    "analysis.understand.fact_sheet": "FactSheet",
    "analysis.size.fit.fit_comparison": "FitComparison",
    "analysis.size.fit.fit_report": "FitReport",
    "analysis.size.fit.gpu_ranking": "GPURanking",
    "analysis.understand.config_report": "ConfigReport",
    "analysis.size.cost.cost_report": "CostReport",
    "analysis.size.fit.quants_report": "QuantsReport",
    "analysis.size.plan.plan_ranking": "PlanReport",
    "analysis.size.plan.serving_plan": "ServeReport",
    "analysis.check.same.same_report": "SameReport",
    "analysis.check.same.weights_hash": "HashReport",
    "analysis.size.serving.draft_pair": "PairReport",
    "analysis.size.serving.engine_comparison": "EngineComparison",
    "analysis.size.serving.engine_report": "EngineReport",
    "analysis.size.placement.placement": "Placement",
    "analysis.storage.listing": "Listing",
    "analysis.check.verify.check_checkpoint": "VerifyReport",
    "analysis.check.verify.structure_report": "StructureReport",
    "analysis.understand.count.weight_names": "NamesReport",
    "analysis.understand.preset_list": "PresetList",
    "analysis.learn.diagnosis": "Checked",
    "analysis.learn.exercise": "Exercise",
    "analysis.learn.worksheet": "LessonList Worksheet",
    "generation.sampling_parameters": "Sampling",
    "hardware": "Device DeviceList",
    "conversion.convert_checkpoint": "ConversionReport",
    "web.gallery.site_files": "GallerySite",
    "web.notebook": "NotebookPage show",
    "web.page_export": "ExportedPage export",
    "utils.errors": "ConfigError ConvertError FormatError LlamathError MissingExtra RemoteError "
    "UnknownModel",
}
"""Module → its public names, imported when they are first used: a command needs few of them.

There is no `__all__`: `help(llamath)` would print every function in full after the map above."""


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names.split():
            globals()[name] = value = getattr(import_module(f"{__name__}.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(name for names in _MODULES.values() for name in names.split())
