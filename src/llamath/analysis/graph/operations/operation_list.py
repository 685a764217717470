"""`OPERATIONS`: all rows, by name."""

from __future__ import annotations

from collections.abc import Mapping

from . import (
    attention_operations,
    elementwise_operations,
    expert_operations,
    projection_operations,
    recurrent_operations,
    shape_operations,
    tower_operations,
    window_operations,
)
from .operation import Operation

OPERATIONS: Mapping[str, Operation] = {
    row.name: row
    for module in (
        shape_operations,
        elementwise_operations,
        projection_operations,
        attention_operations,
        window_operations,
        recurrent_operations,
        tower_operations,
        expert_operations,
    )
    for row in vars(module).values()
    if isinstance(row, Operation)
}
