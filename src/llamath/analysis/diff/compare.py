"""`compare`: two loaded models → their difference."""

from __future__ import annotations

from ...model import Model
from ..config_report import Configuration, configuration
from .causes import Side
from .model_diff import Difference, diff


def compare(a: Model, b: Model) -> Difference:
    """What differs between two models, and why their totals do."""
    return diff(_side(a), _side(b), (_configuration(a), _configuration(b)))


def _side(model: Model) -> Side:
    return Side(sections=model.count.sections, layers=int(model.tree.layers.n), keys=model.config.key_by_symbol)


def _configuration(model: Model) -> Configuration:
    return configuration(model.config, model.family.name, model.family.build, False)
