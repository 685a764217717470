"""Devices and dtypes to compute with, and checks that memory suffices for what `memory` predicts, before any is allocated."""

from __future__ import annotations

import os

import torch
from torch import nn

from ..analysis.inference.gpu_shards import ShardedModel
from ..analysis.inference.inference_memory import MemoryCalculator, MemoryRequest, memory
from ..analysis.parallel_layout import Layout
from ..checkpoint.formats import dtypes
from ..model import Model
from ..utils.errors import LlamathError, safe
from .module import Decoder, TensorOptions

_COMPUTE_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
"""Dtypes that models are computed in, by their names in `checkpoint.formats.dtypes`."""
MEMORY_DTYPES = {torch.float32: "fp32", torch.float64: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
"""Their names in a `MemoryRequest`."""
_CGROUP = "/sys/fs/cgroup/memory."
"""Prefix of the files with a container's memory limit and use."""
_SINGLE_THREAD_PARAMETERS = 1 << 25
"""Models with fewer parameters run on one thread: on a busy machine, synchronizing two threads took 30 times as long as the products."""


def limit_threads(module: nn.Module) -> None:
    """Run a small model on one thread, unless OMP_NUM_THREADS is set."""
    if "OMP_NUM_THREADS" not in os.environ and sum(x.numel() for x in module.parameters()) < _SINGLE_THREAD_PARAMETERS:
        torch.set_num_threads(1)


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return the torch dtype with this name, in any usual spelling."""
    return dtype if isinstance(dtype, torch.dtype) else _COMPUTE_DTYPES[dtypes.parse_dtype(dtype, _COMPUTE_DTYPES, "computation").name]


def resolve_device(device: str | torch.device, dtype: torch.dtype) -> TensorOptions:
    """Return the device with this dtype, after checking that it exists and computes in the dtype."""
    try:
        target = torch.device(device)
        x = torch.ones(1, 1, 2, 2, dtype=dtype, device=target)
        torch.nn.functional.scaled_dot_product_attention(x, x, x @ x, is_causal=True)
        torch.nn.functional.linear(x, x[0, 0]).softmax(-1)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise LlamathError(
            f"{safe(str(device), 60)} cannot compute in {dtype_name(dtype)} here: {safe(reason)}",
            hint="use cpu, or another dtype",
        ) from None
    return TensorOptions(dtype, target)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype without the prefix `torch.`."""
    return str(dtype).removeprefix("torch.")


def free_bytes(device: torch.device, cgroup: str = _CGROUP) -> int | None:
    """Return the bytes that can still be allocated; None where the device does not report them."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    if device.type != "cpu":
        return None
    known = [x for x in (_system_free_bytes(), _cgroup_free_bytes(cgroup)) if x is not None]
    return min(known, default=None)


def _system_free_bytes() -> int | None:
    """Return the system's available memory, file cache included."""
    kibibytes = _read_numbers("/proc/meminfo").get("MemAvailable:")
    return None if kibibytes is None else kibibytes * 1024


def _cgroup_free_bytes(cgroup: str) -> int | None:
    """Return what a container may still allocate, file cache included."""
    limit, used = (next(iter(_read_numbers(cgroup + x, alone=True).values()), None) for x in ("max", "current"))
    if limit is None or used is None:
        return None
    return max(0, limit - used + _read_numbers(cgroup + "stat").get("file", 0))


def _read_numbers(path: str, alone: bool = False) -> dict[str, int]:
    """Read lines of a name and a number, or with `alone` of a number; an unreadable file has none."""
    try:
        with open(path, encoding="ascii") as file:
            rows = [line.split() for line in file]
    except (OSError, ValueError):
        return {}
    rows = [["", *row] if alone else row for row in rows]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def ranks_per_host(module: Decoder) -> int:
    """Return the number of ranks of a sharded model that share this host's memory."""
    mesh = module.mesh
    if mesh is None or mesh.device_type != "cpu":
        return 1
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return min(int(local), mesh.size()) if local.isdigit() else int(mesh.size())


def check_memory(need: int, what: str, device: torch.device, free: int | None = None) -> None:
    """Raise an error if fewer than `need` bytes are free; `free` is by default what the device reports."""
    free = free_bytes(device) if free is None else free
    if free is not None and need > free:
        raise LlamathError(
            f"{what} need {need:,} bytes ({need / 2**30:,.1f} GiB), but {free:,} ({free / 2**30:,.1f} GiB) are free on {device}",
            hint="use a smaller dtype, context or batch; llamath.memory(path) shows the memory of each",
        )


def check_memory_for(model: Model, request: MemoryRequest, options: TensorOptions, loaded: bool = False, free: int | None = None) -> int:
    """Return the bytes that `memory` predicts, without its overhead estimate; raise an error if they are not free.

    With `loaded` the weights are in memory already and do not count. `free` is by default what the device reports.
    """
    report = memory(model, request.replace(dtype=MEMORY_DTYPES[options.dtype]))
    need = report.total - report.overhead - (report.weights if loaded else 0)
    what = "cache and activations" if loaded else "weights, cache and activations"
    check_memory(need, _describe_need(what, report.batch, report.context, options.dtype), options.device, free)
    return need


def check_memory_for_rank(model: Model, request: MemoryRequest, options: TensorOptions, module: Decoder) -> int:
    """`check_memory_for` the cache and activations of one rank of a sharded model whose weights are loaded."""
    assert module.mesh is not None
    calculator = MemoryCalculator(model, request.replace(dtype=MEMORY_DTYPES[options.dtype]))
    layout = Layout(tp=int(module.mesh.size()))
    stage = ShardedModel(calculator, layout).stage_memory(calculator.context, request.batch)[0]
    need = (stage.kv_cache + stage.activations + stage.logits) * ranks_per_host(module)
    check_memory(need, _describe_need("cache and activations", request.batch, calculator.context, options.dtype), options.device)
    return need


def _describe_need(what: str, batch: int, context: int, dtype: torch.dtype) -> str:
    sequences = f"{batch:,} sequences" if batch > 1 else "a sequence"
    return f"{what} for {sequences} of {context:,} tokens in {dtype_name(dtype)}"
