"""llamath: know a Llama down to its last weight, and run it.

>>> import llamath
>>> llamath.count("llama-3-8b").total
8030261248
>>> llamath.memory("llama-3.1-70b", context="128k", dtype="q4_k_m")
<MemoryReport: Llama 3.1 70B in Q4_K_M, 1 sequence of 131,072 tokens: 86.69 GB (80.73 GiB)>
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .analysis.cost.cost_report import CostReport as CostReport
    from .analysis.count.count_report import CountReport as CountReport
    from .analysis.count.count_report import StoredNamesReport as StoredNamesReport
    from .analysis.design.design_report import DesignReport as DesignReport
    from .analysis.diff.model_diff import DiffReport as DiffReport
    from .analysis.diff.model_diff import MultiDiffReport as MultiDiffReport
    from .analysis.explain.explanation import Explanation as Explanation
    from .analysis.fact_sheet import FactSheet as FactSheet
    from .analysis.fit.fit_comparison import FitComparison as FitComparison
    from .analysis.fit.fit_report import FitReport as FitReport
    from .analysis.fit.gpu_ranking import GPURanking as GPURanking
    from .analysis.fit.quants_report import QuantsReport as QuantsReport
    from .analysis.flops.flops_report import FlopsReport as FlopsReport
    from .analysis.inference.inference_memory import MemoryReport as MemoryReport
    from .analysis.plan.plan_ranking import PlanReport as PlanReport
    from .analysis.plan.serving_plan import ServeReport as ServeReport
    from .analysis.preset_list import PresetList as PresetList
    from .analysis.same.same_report import SameReport as SameReport
    from .analysis.same.weights_hash import HashReport as HashReport
    from .analysis.serving.draft_pair import PairReport as PairReport
    from .analysis.serving.engine_report import EngineReport as EngineReport
    from .analysis.serving.placement import Placement as Placement
    from .analysis.training.training_memory import TrainReport as TrainReport
    from .analysis.verify.check_checkpoint import VerifyReport as VerifyReport
    from .analysis.verify.listing import Listing as Listing
    from .analysis.verify.structure_report import StructureReport as StructureReport
    from .analysis.verify.weight_names import NamesReport as NamesReport
    from .api import (
        compare_machines,
        convert,
        cost,
        count,
        design,
        diff,
        explain,
        facts,
        fit,
        fit_engine,
        flops,
        gpus,
        hash_weights,
        ls,
        memory,
        merge,
        models,
        names,
        pair,
        place,
        plan,
        plan_serving,
        quants,
        rank_gpus,
        same,
        stored_names,
        training_memory,
        verify,
    )
    from .checkpoint.meta_args import ModelArgs as ModelArgs
    from .conversion.convert_checkpoint import ConversionReport as ConversionReport
    from .core.blocks import Decoder as Decoder
    from .core.expr import Expr as Expr
    from .core.parameter_count import Parameters as Parameters
    from .core.tree import Block as Block
    from .core.tree import Leaf as Leaf
    from .core.tree import Stack as Stack
    from .core.tree import Weight as Weight
    from .core.tree import walk
    from .hardware import Device as Device
    from .hardware import DeviceList as DeviceList
    from .loading import load
    from .model import Model as Model
    from .questions.design_question import Budget as Budget
    from .questions.design_question import DesignBounds as DesignBounds
    from .questions.design_question import FixedDims as FixedDims
    from .questions.edit_settings import Edit as Edit
    from .questions.fit_questions import EngineRanks as EngineRanks
    from .questions.flops_question import MeasuredSpeed as MeasuredSpeed
    from .questions.layout import Layout as Layout
    from .questions.memory_questions import Lora as Lora
    from .questions.memory_questions import Training as Training
    from .questions.plan_questions import PlanTraining as PlanTraining
    from .render.report import Report as Report
    from .utils.errors import ConfigError as ConfigError
    from .utils.errors import ConvertError as ConvertError
    from .utils.errors import FormatError as FormatError
    from .utils.errors import LlamathError as LlamathError
    from .utils.errors import MissingExtra as MissingExtra
    from .utils.errors import RemoteError as RemoteError
    from .utils.errors import UnknownModel as UnknownModel
    from .web.notebook import NotebookPage as NotebookPage
    from .web.notebook import show

__version__ = "0.1.0"

__all__ = [
    "compare_machines",
    "convert",
    "cost",
    "count",
    "design",
    "diff",
    "explain",
    "facts",
    "fit",
    "fit_engine",
    "flops",
    "gpus",
    "hash_weights",
    "load",
    "ls",
    "memory",
    "merge",
    "models",
    "names",
    "pair",
    "place",
    "plan",
    "plan_serving",
    "quants",
    "rank_gpus",
    "same",
    "show",
    "stored_names",
    "training_memory",
    "verify",
    "walk",
]
"""The functions. The types of their arguments and results are attributes, too: `dir(llamath)`
lists them, and `help(llamath.CountReport)` explains one."""

_MODULES = {
    "api": "count facts diff explain design memory training_memory flops fit compare_machines "
    "rank_gpus fit_engine cost pair place plan plan_serving quants ls verify names "
    "stored_names convert merge models gpus same hash_weights",
    "loading": "load",
    "model": "Model",
    "checkpoint.meta_args": "ModelArgs",
    "core.blocks": "Decoder",
    "core.tree": "Block Leaf Stack Weight walk",
    "core.expr": "Expr",
    "core.parameter_count": "Parameters",
    "render.report": "Report",
    "analysis.count.count_report": "CountReport StoredNamesReport",
    "analysis.diff.model_diff": "DiffReport MultiDiffReport",
    "analysis.explain.explanation": "Explanation",
    "analysis.design.design_report": "DesignReport",
    "analysis.inference.inference_memory": "MemoryReport",
    "analysis.training.training_memory": "TrainReport",
    "questions.design_question": "Budget DesignBounds FixedDims",
    "questions.edit_settings": "Edit",
    "questions.fit_questions": "EngineRanks",
    "questions.flops_question": "MeasuredSpeed",
    "questions.layout": "Layout",
    "questions.plan_questions": "PlanTraining",
    "questions.memory_questions": "Lora Training",
    "analysis.flops.flops_report": "FlopsReport",
    "analysis.fact_sheet": "FactSheet",
    "analysis.fit.fit_comparison": "FitComparison",
    "analysis.fit.fit_report": "FitReport",
    "analysis.fit.gpu_ranking": "GPURanking",
    "analysis.cost.cost_report": "CostReport",
    "analysis.fit.quants_report": "QuantsReport",
    "analysis.plan.plan_ranking": "PlanReport",
    "analysis.plan.serving_plan": "ServeReport",
    "analysis.same.same_report": "SameReport",
    "analysis.same.weights_hash": "HashReport",
    "analysis.serving.draft_pair": "PairReport",
    "analysis.serving.engine_report": "EngineReport",
    "analysis.serving.placement": "Placement",
    "analysis.verify.listing": "Listing",
    "analysis.verify.check_checkpoint": "VerifyReport",
    "analysis.verify.structure_report": "StructureReport",
    "analysis.verify.weight_names": "NamesReport",
    "analysis.preset_list": "PresetList",
    "hardware": "Device DeviceList",
    "conversion.convert_checkpoint": "ConversionReport",
    "web.notebook": "NotebookPage show",
    "utils.errors": "ConfigError ConvertError FormatError LlamathError MissingExtra RemoteError "
    "UnknownModel",
}
"""Module → its public names, imported when they are first used: a command needs few of them."""


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names.split():
            globals()[name] = value = getattr(import_module(f"{__name__}.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(name for names in _MODULES.values() for name in names.split())
