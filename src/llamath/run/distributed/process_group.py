"""`group`: the processes that torchrun has started, of which the first speaks for all."""

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

from ...core.errors import LlamathError, safe
from .collectives import translate_dist_errors

TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells the processes that it starts."""
FAILURE_GRACE_S = 2.0
"""Seconds that the first process has for saying what is wrong."""
TIMEOUT_S = 300.0
"""Seconds that a process waits for the others before it gives up."""


@contextmanager
def process_group(device: str = "cpu", timeout_s: float = TIMEOUT_S) -> Iterator[DeviceMesh]:
    """The mesh of all processes, to be given as a device. All but the first say nothing more, but for what nobody has foreseen."""
    if missing := [key for key in TORCHRUN_VARIABLES if key not in os.environ]:
        raise LlamathError(
            f"{missing[0]} is not set in the environment", hint="torchrun sets it: torchrun --nproc-per-node 2 -m llamath run"
        )
    kind, _, number = device.partition(":")
    if number:
        n = safe(os.environ["WORLD_SIZE"])
        raise LlamathError(f"{safe(device)} is one device, and there are {n} processes", hint=f"--device {safe(kind)}")
    if kind not in dist.Backend.default_device_backend_map:
        raise LlamathError(f"several processes do not compute on {safe(device)} together", hint="--device cpu or cuda")
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if os.environ["RANK"] != "0":
        silence_rank()
    with translate_dist_errors():
        dist.init_process_group(dist.get_default_backend_for_device(kind), timeout=timedelta(seconds=timeout_s))
        mesh = init_device_mesh(kind, (dist.get_world_size(),), mesh_dim_names=("tp",))
    try:
        yield mesh
    except Exception:
        if dist.get_rank():
            sleep(FAILURE_GRACE_S)  # when one process ends badly, torchrun ends the others at once
        raise
    dist.destroy_process_group()


def silence_rank() -> None:
    """Say nothing more, here and in what is said at the end, but for what nobody has foreseen."""
    nobody = open(os.devnull, "w")  # noqa: SIM115  it is for as long as the process lives
    sys.stdout = sys.stderr = nobody

    def speak(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.stderr = sys.__stderr__
        sys.__excepthook__(kind, error, trace)

    sys.excepthook = speak
