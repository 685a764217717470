"""`parallelize`: one model over several processes. What is cut, and along which axis, its blocks declare (`Block.cuts`).

Each weight that is cut becomes a DTensor: whole to whoever asks for its shape, of which each process holds, and computes with, its part.
Heads stay in one piece; where processes are more than key/value heads, neighbours hold the same one. The order is Megatron's (Shoeybi et
al. 2019, arXiv:1909.08053): outputs cut first, inputs cut second, one sum at the end of each branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from ...analysis.parallel_layout import Layout, check_layout
from ...core import blocks
from ...core.errors import LlamathError
from ...core.tree import Block, Split, Stack, Weight
from ..attention import Attention, LatentAttention
from ..basic_layers import MLP, ClampedMLP, Embedding, Linear, Norm
from ..layers import Decoder, PerLayerEmbedding
from ..module import Module, tie_weights
from ..moe import MoE
from .collectives import GatherHooks, VocabParallelHooks, all_gather_hook, all_reduce_hook, distribute, shard_bounds

Experts = Literal["cut", "dealt"]
SHARDABLE: tuple[type[Module], ...] = (Attention, LatentAttention, MLP, ClampedMLP, Decoder, PerLayerEmbedding)
"""What computes with its part of its weights as it does with all of them."""


class RemoteExpert(nn.Module):
    """An expert that another process has; here it adds nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x)


class ParallelContext(NamedTuple):
    """The processes, and how they share the experts."""

    mesh: DeviceMesh
    expert_parallel: bool
    kv_meshes: dict[int, DeviceMesh]  # by the number of key/value heads that are fewer than processes
    moe_modules: frozenset[Module]  # parts of mixtures, whose outputs are added up further on

    @property
    def size(self) -> int:
        """How many there are."""
        return self.mesh.size()


def layout_for(n: int, experts: Experts = "cut") -> Layout:
    """What `views` call this: tensor parallelism over n, with every expert cut, or whole ones dealt out."""
    return Layout(tp=n, ep=n, etp=1) if experts == "dealt" else Layout(tp=n)


def parallelize(module: Decoder, mesh: DeviceMesh, experts: Experts = "cut") -> Decoder:
    """Let every process of a mesh of one dimension hold and compute its part of a model; to run it, not to train it.

    A model on the meta device takes no memory, and `mine` then gives what is to be loaded. One that has its numbers gives up the rest.
    """
    if mesh.ndim != 1:
        raise LlamathError(f"the mesh has {mesh.ndim} dimensions, and should have one", hint='mesh["tp"] is one of them')
    if any(hasattr(x, "to_local") for x in module.parameters()):
        raise LlamathError("the model has been cut already")
    n, tree = mesh.size(), module.spec
    if n == 1:
        return module
    check_layout(tree, layout_for(n, experts))
    for part in module.modules():
        if isinstance(part, Module) and (why := _unsupported_reason(part, n)):
            raise LlamathError(f"{why} is not computed by several processes here", hint="one process runs it")
    mixtures = [part for part in module.modules() if isinstance(part, MoE)]
    inside = frozenset(x for mixture in mixtures for x in mixture.modules() if isinstance(x, Module))
    crew = ParallelContext(mesh, experts == "dealt", {}, inside)
    module.requires_grad_(False)
    module.packed_weights = None
    for x in module.modules():
        if isinstance(x, Module):
            x.fused = None
    for part in list(_sharded_modules(module, crew)):
        for name in part.spec.cuts:
            _shard_field(part, name, crew)
        if isinstance(part, Attention):
            _adapt_attention(part, crew)
    for part in mixtures:
        part.register_forward_hook(all_reduce_hook(mesh))
    tie_weights(module, tree)
    module.mesh = mesh
    return module


def _unsupported_reason(part: Module, n: int) -> str:
    """What it is of a part that several processes cannot compute, in words; empty if they can."""
    spec: Block = part.spec
    if isinstance(part, Attention):
        s = part.spec
        return "attention with a norm for each head" if isinstance(s.q_norm, Stack) or isinstance(s.k_norm, Stack) else ""
    if spec.cuts and type(part) not in SHARDABLE:
        return type(spec).__name__
    tables = [int(x.weight.shape[0]) for name in spec.cuts if isinstance(x := getattr(spec, name), blocks.Embedding)]
    small = next((rows for rows in tables if shard_bounds(rows, n - 1, n)[0] == rows), None)
    return "" if small is None else f"a table of {small:,} rows, of which some have none,"


def _sharded_modules(part: nn.Module, crew: ParallelContext) -> Iterator[Module]:
    """The modules whose weights are cut; experts that are dealt out stay whole, in one process each."""
    if isinstance(part, Module) and part.spec.cuts:
        yield part
    for name, child in part.named_children():
        dealt = crew.expert_parallel and isinstance(part, Module) and name in part.spec.expert_parallel
        if dealt and isinstance(child, nn.ModuleList):
            _keep_local_experts(child, crew)
        else:
            yield from _sharded_modules(child, crew)


def _keep_local_experts(experts: nn.ModuleList, crew: ParallelContext) -> None:
    """Keep the experts of this process."""
    each = len(experts) // crew.size
    own = crew.mesh.get_local_rank()
    for i in range(len(experts)):
        if i // each != own:
            experts[i] = RemoteExpert()


def _adapt_attention(part: Attention, crew: ParallelContext) -> None:
    """Norms that see all heads as one vector are shown it; biases that differ from head to head are those of the heads here."""
    if part.pattern.alibi is not None:
        first, last = shard_bounds(part.spec.heads, crew.mesh.get_local_rank(), crew.size)
        part.pattern = part.pattern._replace(first_head=first, last_head=last)
    for norm, linear in ((part.q_norm, part.q), (part.k_norm, part.k)) if part.spec.qk_preprocess.across_heads else ():
        if isinstance(norm, Norm) and linear is not None:
            weight = linear.weight
            assert isinstance(weight, DTensor)
            seen = GatherHooks(weight.device_mesh, weight.placements, weight.shape[0])
            norm.register_forward_pre_hook(seen.before)
            norm.register_forward_hook(seen.after)


def _shard_field(part: Module, name: str, crew: ParallelContext) -> None:
    """Cut what lies in a field, as the block says."""
    field = getattr(part.spec, name)
    if isinstance(field, Weight):
        _shard_weight(part, name, part.spec.split(name, field), crew)
    child = getattr(part, name)
    if not isinstance(child, (Linear, Embedding, Norm)):
        return
    splits = {x: part.spec.split(name, w) for x, w in child.spec.children if isinstance(w, Weight)}
    for x, split in splits.items():
        _shard_weight(child, x, split, crew)
    if splits.get("weight") is not None:
        _add_hooks(part, child, splits, crew)


def _shard_weight(owner: Module, name: str, split: Split | None, crew: ParallelContext) -> None:
    """Put this process's part in the place of the whole."""
    x = getattr(owner, name)
    if split is None or x is None:
        return
    mesh, how = _placements(split, crew)
    setattr(owner, name, nn.Parameter(distribute(x.detach(), mesh, how), requires_grad=False))


def _placements(split: Split, crew: ParallelContext) -> tuple[DeviceMesh, list[Placement]]:
    """Over which processes, and how."""
    if split.on_indivisible != "copy" or split.parts % crew.size == 0:
        return crew.mesh, [Shard(split.axis)]
    if split.parts not in crew.kv_meshes:
        crew.kv_meshes[split.parts] = _kv_mesh(crew.mesh, split.parts)
    return crew.kv_meshes[split.parts], [Shard(split.axis), Replicate()]


def _kv_mesh(mesh: DeviceMesh, parts: int) -> DeviceMesh:
    """The same processes as rows, in each of which all hold the same."""
    if mesh.size() != dist.get_world_size():
        raise LlamathError(f"{mesh.size()} processes share {parts} key/value heads, and there are others besides them")
    return DeviceMesh(mesh.device_type, mesh.mesh.view(parts, -1), mesh_dim_names=("kv", "copy"))


def _add_hooks(part: Module, child: Module, splits: dict[str, Split | None], crew: ParallelContext) -> None:
    """See to what a linear map or a table gives: a part of a sum, rows of some ids, or columns that nothing else joins."""
    split = splits["weight"]
    assert split is not None
    if isinstance(child, Embedding):
        rows = VocabParallelHooks(crew.mesh, split.parts)
        child.register_forward_pre_hook(rows.before)
        child.register_forward_hook(rows.after)
    elif split.axis == 1 and isinstance(child, Linear):
        _bias_on_one_rank(child, crew)
        if part not in crew.moe_modules:
            child.register_forward_hook(all_reduce_hook(crew.mesh))
    elif not any(x.axis == 1 for x in part.spec.cuts.values()):
        child.register_forward_hook(all_gather_hook(crew.mesh, split.parts))


def _bias_on_one_rank(child: Linear, crew: ParallelContext) -> None:
    """Let the bias of a map whose parts are added be added by one process alone."""
    if child.bias is not None:
        child.bias = nn.Parameter(distribute(child.bias.detach(), crew.mesh, [Partial()]), requires_grad=False)
