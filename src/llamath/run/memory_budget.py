"""Where numbers go: devices and types as they are asked for, and whether there is memory for what `memory` predicts."""

from __future__ import annotations

import os

import torch
from torch import nn

from ..analysis.inference.gpu_shards import ShardedModel
from ..analysis.inference.inference_memory import MemoryCalculator, MemoryRequest, memory
from ..analysis.parallel_layout import Layout
from ..core.errors import LlamathError, nearest, safe
from ..model import Model
from .module import TensorOptions

DTYPES = {
    **dict.fromkeys(("fp32", "f32", "float32", "float"), torch.float32),
    **dict.fromkeys(("fp16", "f16", "float16", "half"), torch.float16),
    **dict.fromkeys(("bf16", "bfloat16"), torch.bfloat16),
    **dict.fromkeys(("fp64", "f64", "float64", "double"), torch.float64),
}
"""Types that can be computed in, by the words for them."""
MEMORY_DTYPES = {torch.float32: "fp32", torch.float64: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
"""What `memory` calls them."""
CGROUP = "/sys/fs/cgroup/memory."


SINGLE_THREAD_PARAMETERS = 1 << 25
"""Parameters of a model whose products are over before threads have met: 2 threads took 30 times as long as one on a busy machine."""


def limit_threads(module: nn.Module) -> None:
    """Let a small model compute on one thread, unless OMP_NUM_THREADS says how many there are to be."""
    if "OMP_NUM_THREADS" not in os.environ and sum(x.numel() for x in module.parameters()) < SINGLE_THREAD_PARAMETERS:
        torch.set_num_threads(1)


def parse_dtype(word: str | torch.dtype) -> torch.dtype:
    """The type of this name."""
    if isinstance(word, torch.dtype):
        return word
    if (found := DTYPES.get(word.lower().removeprefix("torch."))) is None:
        near = nearest(word.lower(), DTYPES)
        hint = f"did you mean {' or '.join(near)}?" if near else "bfloat16, float16, float32 or float64"
        raise LlamathError(f"{safe(repr(word), 60)} is no type that is computed in", hint=hint)
    return found


def resolve_device(device: str | torch.device, kind: torch.dtype) -> TensorOptions:
    """A device that is there and computes in this type."""
    try:
        there = torch.device(device)
        x = torch.ones(1, 1, 2, 2, dtype=kind, device=there)
        torch.nn.functional.scaled_dot_product_attention(x, x, x @ x, is_causal=True)
        torch.nn.functional.linear(x, x[0, 0]).softmax(-1)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise LlamathError(
            f"{safe(str(device), 60)} cannot compute in {dtype_name(kind)} here: {safe(reason)}", hint="--device cpu, or another --dtype"
        ) from None
    return TensorOptions(kind, there)


def dtype_name(kind: torch.dtype) -> str:
    """A type's name without torch's."""
    return str(kind).removeprefix("torch.")


def free_bytes(device: torch.device) -> int | None:
    """How many bytes there are for more; None where nobody says."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    if device.type != "cpu":
        return None
    known = [x for x in (_system_free_bytes(), _cgroup_free_bytes()) if x is not None]
    return min(known, default=None)


def _system_free_bytes() -> int | None:
    """What the system could give, the cache of files included."""
    found = _read_numbers("/proc/meminfo").get("MemAvailable:")
    return None if found is None else found * 1024


def _cgroup_free_bytes() -> int | None:
    """What a container may still take, the cache of files included."""
    most, taken = (next(iter(_read_numbers(CGROUP + x, alone=True).values()), None) for x in ("max", "current"))
    if most is None or taken is None:
        return None
    return max(0, most - taken + _read_numbers(CGROUP + "stat").get("file", 0))


def _read_numbers(path: str, alone: bool = False) -> dict[str, int]:
    """The numbers in one of the system's lists, each by the word before it."""
    try:
        with open(path, encoding="ascii") as file:
            rows = [line.split() for line in file]
    except (OSError, ValueError):
        return {}
    rows = [["", *row] if alone else row for row in rows]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def ranks_per_host(module: nn.Module) -> int:
    """How many processes take memory from where this one does, for a model that is cut."""
    mesh = getattr(module, "mesh", None)
    if mesh is None or mesh.device_type != "cpu":
        return 1
    said = os.environ.get("LOCAL_WORLD_SIZE", "")
    return min(int(said), mesh.size()) if said.isdigit() else int(mesh.size())


def check_memory(need: int, what: str, device: torch.device) -> None:
    """Refuse what there is no memory for, before any of it is taken."""
    have = free_bytes(device)
    if have is not None and need > have:
        raise LlamathError(
            f"{what} takes {need:,} bytes ({need / 2**30:,.1f} GiB), and {have:,} ({have / 2**30:,.1f} GiB) are free on {device}",
            hint="llamath memory says what would fit; a smaller --dtype, context or batch takes less",
        )


def check_memory_for(model: Model, request: MemoryRequest, place: TensorOptions, loaded: bool = False) -> int:
    """How many bytes `memory` predicts for this, the estimate of its overhead left out; refused if so many are not free.

    With `loaded` the weights are there already and do not count.
    """
    found = memory(model, request.replace(dtype=MEMORY_DTYPES[place.dtype]))
    need = found.total - found.overhead - (found.weights if loaded else 0)
    what = "cache and activations" if loaded else "the model"
    of = f"{found.batch:,} sequences" if found.batch > 1 else "a sequence"
    check_memory(need, f"{what} for {of} of {found.context:,} tokens in {dtype_name(place.dtype)}", place.device)
    return need


def check_memory_for_rank(model: Model, request: MemoryRequest, place: TensorOptions, module: nn.Module) -> int:
    """The same for what one process of several has of cache and activations, the weights being there already."""
    mesh = getattr(module, "mesh", None)
    assert mesh is not None
    sizes = MemoryCalculator(model, request.replace(dtype=MEMORY_DTYPES[place.dtype]))
    share = ShardedModel(sizes, Layout(tp=int(mesh.size()))).stage_memory(sizes.context, request.batch)[0]
    need = (share.kv_cache + share.activations + share.logits) * ranks_per_host(module)
    of = f"{request.batch:,} sequences" if request.batch > 1 else "a sequence"
    check_memory(need, f"cache and activations for {of} of {sizes.context:,} tokens in {dtype_name(place.dtype)}", place.device)
    return need
