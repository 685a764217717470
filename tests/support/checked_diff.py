"""A comparison of two models whose sums are checked."""

from __future__ import annotations

import llamath
from llamath.analysis.understand.diff.model_diff import DiffReport, diff


def checked_diff(a: llamath.Model, b: llamath.Model) -> DiffReport:
    """Compare two models; causes and weights sum to the difference of the totals."""
    report = diff(a, b)
    delta = b.parameters.total - a.parameters.total
    assert (
        report.delta
        == delta
        == sum(x.delta for x in report.causes)
        == sum(x.delta for x in report.weights)
    )
    assert all(x.parts and all(part.delta for part in x.parts) for x in report.causes)
    assert (
        report.same.parameters + sum(x.a.parameters for x in report.weights if x.a)
        == a.parameters.total
    )
    return report
