"""`process_group`: the ranks started by torchrun; only the first one prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import sleep
from types import TracebackType

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ...utils.errors import LlamathError, safe
from .collectives import translate_dist_errors

_TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that torchrun sets."""
_FAILURE_GRACE_S = 2.0
"""Seconds that other ranks wait before they exit with an error, so that the first rank can
report its own."""
_TIMEOUT_S = 300.0
"""Seconds that a rank waits for the others in a collective."""


@contextmanager
def process_group(device: str = "cpu", timeout_s: float = _TIMEOUT_S) -> Iterator[DeviceMesh]:
    """Join the ranks started by torchrun; yield their mesh, to be used as a device. Only the
    first rank prints, and unexpected errors.
    """
    if missing := [key for key in _TORCHRUN_VARIABLES if key not in os.environ]:
        raise LlamathError(
            f"{missing[0]} is not set in the environment",
            hint="torchrun sets it: torchrun --nproc-per-node 2 -m llamath run",
        )
    kind, _, number = device.partition(":")
    if number:
        n = safe(os.environ["WORLD_SIZE"])
        raise LlamathError(
            f"expected a device type for {n} ranks, found {safe(device)}",
            hint=f"use the device {safe(kind)}",
        )
    if kind not in dist.Backend.default_device_backend_map:
        raise LlamathError(
            f"device {safe(device)} does not support several ranks",
            hint="use the device cpu or cuda",
        )
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if os.environ["RANK"] != "0":
        _silence_rank()
    with translate_dist_errors():
        dist.init_process_group(
            dist.get_default_backend_for_device(kind), timeout=timedelta(seconds=timeout_s)
        )
        mesh = init_device_mesh(kind, (dist.get_world_size(),), mesh_dim_names=("tp",))
    try:
        yield mesh
    except Exception:
        if dist.get_rank():
            sleep(_FAILURE_GRACE_S)  # torchrun ends all ranks as soon as one fails
        raise
    dist.destroy_process_group()


def _silence_rank() -> None:
    """Discard this rank's output; unexpected exceptions are still printed."""
    # stays open until the process exits
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115

    def print_exception(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        sys.stderr = sys.__stderr__
        sys.__excepthook__(kind, error, trace)

    sys.excepthook = print_exception
