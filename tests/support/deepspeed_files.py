"""DeepSpeed ZeRO checkpoints with the files, keys and partitions that its `zero_to_fp32.py` expects, written by torch alone."""

from __future__ import annotations

import math
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

SHAPES = OrderedDict(
    {
        "embed.weight": (50, 16),
        "layer.0.weight": (16, 16),
        "layer.0.bias": (16,),
        "norm.weight": (7,),
    }
)


def write_zero(
    folder: Path,
    stage: int,
    ranks: int = 3,
    tag: str = "global_step10",
    shapes: Any = SHAPES,
    groups: int = 1,
) -> Path:
    """Write the folder of one step with `latest` beside it; returns the outer folder."""
    place = folder / tag
    place.mkdir(parents=True)
    (folder / "latest").write_text(tag)
    names = list(shapes)
    parts = [
        OrderedDict((x, torch.Size(shapes[x])) for x in names[i::groups]) for i in range(groups)
    ]
    model = {
        "module": OrderedDict((x, torch.zeros(shapes[x] if stage < 3 else 0, dtype=torch.bfloat16)) for x in names),
        "buffer_names": [], "param_shapes": parts, "frozen_param_shapes": None, "shared_params": {}, "frozen_param_fragments": None,
        "ds_config": {"zero_optimization": {"stage": stage}}, "ds_version": "0.18.0", "global_steps": 10, "dp_world_size": ranks,
    }  # fmt: skip
    if stage < 3:
        torch.save(model, place / "mp_rank_00_model_states.pt")
    for rank in range(ranks):
        torch.save(
            {"optimizer_state_dict": optimizer(stage, ranks, parts)},
            place / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt",
        )
        if stage == 3:
            torch.save(model, place / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
    return folder


def optimizer(stage: int, ranks: int, parts: list[Any]) -> dict[str, Any]:
    """The state of one rank's optimizer."""
    if stage == 3:
        flat = [
            torch.zeros(
                sum(math.ceil(shape.numel() / ranks) for x in parts for shape in x.values())
            )
        ]
        groups = {"fp32_flat_groups": flat}
    else:
        align = 2 * ranks
        padded = [
            align * math.ceil(sum(shape.numel() for shape in x.values()) / align) for x in parts
        ]
        groups = {"single_partition_of_fp32_groups": [torch.zeros(n // ranks) for n in padded]}
    return {
        "zero_stage": stage,
        "partition_count": [ranks] * len(parts) if stage < 3 else ranks,
        "ds_version": "0.18.0",
        "loss_scaler": None,
        **groups,
    }
