"""Devices and dtypes to compute with, and checks that memory suffices for what `memory`
predicts, before any is allocated.
"""

from __future__ import annotations

import os

import torch
from torch import nn

from ..analysis.size.memory.gpu_shards import ShardedModel
from ..analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest, memory
from ..checkpoint.formats import dtypes
from ..generation.free_memory import CGROUP, check_free_memory, free_host_bytes
from ..model import FamilyModel
from ..questions.layout import Layout
from ..utils.errors import LlamathError, safe
from .module import Decoder, TensorOptions

_COMPUTE_DTYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F64": torch.float64,
}
"""Dtypes that models are computed in, by their names in `checkpoint.formats.dtypes`."""
MEMORY_DTYPES = {
    torch.float32: "fp32",
    torch.float64: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
}
"""Their names in a `MemoryRequest`."""
_SINGLE_THREAD_PARAMETERS = 1 << 25
"""Models with fewer parameters run on one thread: on a busy machine, synchronizing two threads
took 30 times as long as the products."""


def limit_threads(module: nn.Module) -> None:
    """Run a small model on one thread, unless OMP_NUM_THREADS is set."""
    if (
        "OMP_NUM_THREADS" not in os.environ
        and sum(x.numel() for x in module.parameters()) < _SINGLE_THREAD_PARAMETERS
    ):
        torch.set_num_threads(1)


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return the torch dtype with this name, in any usual spelling."""
    return (
        dtype
        if isinstance(dtype, torch.dtype)
        else _COMPUTE_DTYPES[dtypes.parse_dtype(dtype, _COMPUTE_DTYPES, "computation").name]
    )


def resolve_device(device: str | torch.device, dtype: torch.dtype) -> TensorOptions:
    """Return the device with this dtype, after checking that it exists and computes in the
    dtype.
    """
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


def free_bytes(device: torch.device, cgroup: str = CGROUP) -> int | None:
    """Return the bytes that can still be allocated; None where the device does not report them."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    if device.type != "cpu":
        return None
    return free_host_bytes(cgroup)


def ranks_per_host(module: Decoder) -> int:
    """Return the number of ranks of a sharded model that share this host's memory."""
    mesh = module.mesh
    if mesh is None or mesh.device_type != "cpu":
        return 1
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    return min(int(local), mesh.size()) if local.isdigit() else int(mesh.size())


def check_memory(need: int, what: str, device: torch.device, free: int | None = None) -> None:
    """Raise an error if fewer than `need` bytes are free; `free` is by default what the device
    reports.
    """
    check_free_memory(need, what, free_bytes(device) if free is None else free, str(device))


def check_memory_for(
    model: FamilyModel,
    request: MemoryRequest,
    options: TensorOptions,
    loaded: bool = False,
    free: int | None = None,
) -> int:
    """Return the bytes that `memory` predicts, without its overhead estimate; raise an error if
    they are not free.

    With `loaded` the weights are in memory already and do not count. `free` is by default what the
    device reports.
    """
    report = memory(model, request.replace(dtype=MEMORY_DTYPES[options.dtype]))
    need = report.total - report.overhead - (report.weights if loaded else 0)
    what = "cache and activations" if loaded else "weights, cache and activations"
    check_memory(
        need,
        _describe_need(what, report.batch, report.context, options.dtype),
        options.device,
        free,
    )
    return need


def check_memory_for_rank(
    model: FamilyModel, request: MemoryRequest, options: TensorOptions, module: Decoder
) -> int:
    """`check_memory_for` the cache and activations of one rank of a sharded model whose weights
    are loaded.
    """
    assert module.mesh is not None
    calculator = MemoryCalculator(model, request.replace(dtype=MEMORY_DTYPES[options.dtype]))
    layout = Layout(tp=int(module.mesh.size()))
    stage = ShardedModel(calculator, layout).stage_memory(calculator.context, request.batch)[0]
    need = (stage.kv_cache + stage.activations + stage.logits) * ranks_per_host(module)
    check_memory(
        need,
        _describe_need("cache and activations", request.batch, calculator.context, options.dtype),
        options.device,
    )
    return need


def _describe_need(what: str, batch: int, context: int, dtype: torch.dtype) -> str:
    sequences = f"{batch:,} sequences" if batch > 1 else "a sequence"
    return f"{what} for {sequences} of {context:,} tokens in {dtype_name(dtype)}"
