"""`parallelize`: tensor parallelism. Blocks declare which weights are sharded, and along which axis
(`Block.cuts`).

A sharded weight becomes a DTensor: it has the full shape, and each rank holds and computes with its
shard. Heads are never divided; where there are more ranks than key/value heads, neighboring ranks
hold the same ones. The scheme is Megatron's (Shoeybi et al. 2019, arXiv:1909.08053):
column-parallel, then row-parallel linear layers, with one all-reduce at the end of each branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from ...analysis.storage.parallel_layout import check_layout
from ...core import blocks
from ...core.tree import Block, Split, Stack, Weight
from ...questions.layout import Layout
from ...utils.errors import LlamathError
from ..forward_context import shared_pattern
from ..module import Decoder, Module, tie_weights
from .collectives import (
    GatherHooks,
    VocabParallelHooks,
    all_gather_hook,
    all_reduce_hook,
    distribute,
    shard_bounds,
)


class _RemoteExpert(nn.Module):
    """An expert on another rank; here its output is zero."""

    def forward(self, _machine: object, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x)


class _ParallelContext(NamedTuple):
    """The ranks, and how they share key/value heads and experts."""

    mesh: DeviceMesh
    expert_parallel: bool
    # by number of key/value heads, where these are fewer than the ranks
    kv_meshes: dict[int, DeviceMesh]
    # modules inside mixtures of experts, whose outputs are summed at the mixture
    moe_modules: frozenset[Module]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.mesh.size()


def layout_for(ranks: int, expert_parallel: bool = False) -> Layout:
    """Return the layout in the terms of `analysis`: tensor parallelism, with whole experts per
    rank under expert parallelism.
    """
    return Layout(tp=ranks, ep=ranks, etp=1) if expert_parallel else Layout(tp=ranks)


def parallelize(module: Decoder, mesh: DeviceMesh, expert_parallel: bool = False) -> Decoder:
    """Shard a model for inference over the ranks of a one-dimensional mesh; with `expert_parallel`
    each rank holds whole experts.

    For a model on the meta device, `iter_local_shards` then yields the weights to load; one with
    weights frees those of other ranks.
    """
    if mesh.ndim != 1:
        raise LlamathError(
            f"expected a mesh of one dimension, found {mesh.ndim}", hint='mesh["tp"] selects one'
        )
    if any(hasattr(x, "to_local") for x in module.parameters()):
        raise LlamathError("the model is sharded already")
    ranks, tree = mesh.size(), module.spec
    if ranks == 1:
        return module
    check_layout(tree, layout_for(ranks, expert_parallel))
    for child in module.modules():
        if isinstance(child, Module) and (what := _unsupported(child, ranks)):
            raise LlamathError(
                f"tensor parallelism is not supported for {what}", hint="run it on one rank"
            )
    mixtures = [
        child
        for child in module.modules()
        if isinstance(child, Module) and isinstance(child.spec, blocks.MoE)
    ]
    moe_modules = frozenset(
        x for mixture in mixtures for x in mixture.modules() if isinstance(x, Module)
    )
    ctx = _ParallelContext(mesh, expert_parallel, {}, moe_modules)
    module.requires_grad_(False)
    for sharded in list(_sharded_modules(module, ctx)):
        for name in sharded.spec.cuts:
            _shard_field(sharded, name, ctx)
        if isinstance(sharded.spec, blocks.Attention):
            _adapt_attention(sharded, ctx)
    for mixture in mixtures:
        mixture.register_forward_hook(all_reduce_hook(mesh))
    tie_weights(module, tree)
    module.mesh = mesh
    return module


def _computes_on_shards(spec: Block) -> bool:
    return "computes_on_shards" in vars(type(spec))


def _unsupported(module: Module, ranks: int) -> str:
    """Describe what of a module cannot be sharded over these ranks; empty if all can."""
    spec: Block = module.spec
    if isinstance(spec, blocks.Attention) and not _computes_on_shards(spec):
        return type(spec).__name__
    if isinstance(spec, blocks.Attention) and spec.indexer is not None:
        return "attention to blocks of keys that differ from head to head"
    if isinstance(spec, blocks.Attention):
        return (
            "per-head norms"
            if isinstance(spec.q_norm, Stack) or isinstance(spec.k_norm, Stack)
            else ""
        )
    if isinstance(spec, blocks.NormedLinear):
        return "a norm of all channels between column- and row-parallel matrices"
    if spec.cuts and not _computes_on_shards(spec):
        return type(spec).__name__
    tables = [
        int(x.weight.shape[0])
        for name in spec.cuts
        if isinstance(x := getattr(spec, name), blocks.Embedding)
    ]
    small = next((rows for rows in tables if shard_bounds(rows, ranks - 1, ranks)[0] == rows), None)
    return (
        ""
        if small is None
        else (f"a table of {small:,} rows on {ranks} ranks: some ranks would have no rows")
    )


def _sharded_modules(module: nn.Module, ctx: _ParallelContext) -> Iterator[Module]:
    """Yield the modules with sharded weights; under expert parallelism, experts stay whole."""
    if isinstance(module, Module) and module.spec.cuts:
        yield module
    for name, child in module.named_children():
        is_expert_list = (
            ctx.expert_parallel
            and isinstance(module, Module)
            and name in module.spec.expert_parallel
        )
        if is_expert_list and isinstance(child, nn.ModuleList):
            _keep_local_experts(child, ctx)
        else:
            yield from _sharded_modules(child, ctx)


def _keep_local_experts(experts: nn.ModuleList, ctx: _ParallelContext) -> None:
    """Replace the experts of other ranks."""
    per_rank = len(experts) // ctx.size
    rank = ctx.mesh.get_local_rank()
    for i in range(len(experts)):
        if i // per_rank != rank:
            experts[i] = _RemoteExpert()


def _adapt_attention(attn: Module, ctx: _ParallelContext) -> None:
    """Gather the input of norms over all heads, and select the ALiBi slopes of the local heads."""
    if attn.pattern.alibi is not None:
        first, last = shard_bounds(attn.spec.heads, ctx.mesh.get_local_rank(), ctx.size)
        attn.pattern = shared_pattern(attn.pattern._replace(first_head=first, last_head=last))
    for norm, linear in (
        ((attn.q_norm, attn.q), (attn.k_norm, attn.k))
        if attn.spec.qk_preprocess.across_heads
        else ()
    ):
        if isinstance(norm, Module) and linear is not None:
            weight = linear.weight
            assert isinstance(weight, DTensor)
            hooks = GatherHooks(weight.device_mesh, weight.placements, weight.shape[0])
            norm.register_forward_pre_hook(hooks.before)
            norm.register_forward_hook(hooks.after)


def _shard_field(module: Module, name: str, ctx: _ParallelContext) -> None:
    """Shard a weight, or the weights of a child, as the block declares."""
    field = getattr(module.spec, name)
    if isinstance(field, Weight):
        _shard_weight(module, name, module.spec.split(name, field), ctx)
    child = getattr(module, name)
    if not isinstance(child, Module):
        return
    splits = {
        x: module.spec.split(name, w) for x, w in child.spec.children if isinstance(w, Weight)
    }
    for x, split in splits.items():
        _shard_weight(child, x, split, ctx)
    if (split := splits.get("weight")) is not None:
        _add_hooks(module, child, split, ctx)


def _shard_weight(owner: Module, name: str, split: Split | None, ctx: _ParallelContext) -> None:
    """Replace a weight by this rank's shard."""
    x = getattr(owner, name)
    if split is None or x is None:
        return
    mesh, placements = _placements(split, ctx)
    setattr(
        owner, name, nn.Parameter(distribute(x.detach(), mesh, placements), requires_grad=False)
    )


def _placements(split: Split, ctx: _ParallelContext) -> tuple[DeviceMesh, list[Placement]]:
    """Return the mesh that a weight is sharded over, and its placements."""
    if split.on_indivisible != "copy" or split.parts % ctx.size == 0:
        return ctx.mesh, [Shard(split.axis)]
    if split.parts not in ctx.kv_meshes:
        ctx.kv_meshes[split.parts] = _kv_mesh(ctx.mesh, split.parts)
    return ctx.kv_meshes[split.parts], [Shard(split.axis), Replicate()]


def _kv_mesh(mesh: DeviceMesh, kv_heads: int) -> DeviceMesh:
    """Return the ranks as a mesh with one row per key/value head."""
    if mesh.size() != dist.get_world_size():
        raise LlamathError(
            f"{mesh.size()} ranks share {kv_heads} key/value heads, which needs a "
            f"mesh of all {dist.get_world_size()} ranks"
        )
    return DeviceMesh(mesh.device_type, mesh.mesh.view(kv_heads, -1), mesh_dim_names=("kv", "copy"))


def _add_hooks(module: Module, child: Module, split: Split, ctx: _ParallelContext) -> None:
    """Combine the outputs of ranks: rows of a table, partial sums, or channels that no later
    linear layer reduces.
    """
    if isinstance(child.spec, blocks.Embedding):
        hooks = VocabParallelHooks(ctx.mesh, split.parts)
        child.register_forward_pre_hook(hooks.before)
        child.register_forward_hook(hooks.after)
    elif split.axis == 1 and isinstance(child.spec, blocks.Linear):
        _bias_on_one_rank(child, ctx)
        if module not in ctx.moe_modules:
            child.register_forward_hook(all_reduce_hook(ctx.mesh))
    elif not any(x.axis == 1 for x in module.spec.cuts.values()):
        child.register_forward_hook(all_gather_hook(ctx.mesh, split.parts))


def _bias_on_one_rank(child: Module, ctx: _ParallelContext) -> None:
    """Keep the bias of a row-parallel layer on one rank, so that it is added once."""
    if child.bias is not None:
        child.bias = nn.Parameter(
            distribute(child.bias.detach(), ctx.mesh, [Partial()]), requires_grad=False
        )
