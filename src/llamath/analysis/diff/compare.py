"""`compare`: two loaded models → their difference."""

from __future__ import annotations

from ...model import Model
from ..config_report import ConfigReport, config_report
from .causes import CountedModel
from .model_diff import ModelDiff, diff


def compare(a: Model, b: Model) -> ModelDiff:
    """What differs between two models, and why their totals do."""
    return diff(_side(a), _side(b), (_configuration(a), _configuration(b)))


def _side(model: Model) -> CountedModel:
    return CountedModel(sections=model.count.sections, layers=int(model.tree.layers.n), keys=model.config.key_by_symbol)


def _configuration(model: Model) -> ConfigReport:
    return config_report(model.config, model.family.name, model.family.build, False)
