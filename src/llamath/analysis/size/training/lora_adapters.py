"""LoRA adapters on a model (Hu et al. 2021, arXiv:2106.09685): the adapted matrices, and the
trainable parameters.

A matrix `[out, in]` stays frozen and B·A is added to it, with A `[r, in]` and B `[out, r]`: r·(in +
out) trainable parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ....checkpoint.naming.scheme import Scheme, UnnamedWeight
from ....core.blocks import Decoder
from ....core.tree import Folded, fold
from ....utils.errors import LlamathError, nearest, safe
from ....utils.record_type import Record

_TARGET_SETS = {
    "qv": ("q", "v"),
    "attention": ("q", "k", "v", "o"),
    "mlp": ("gate", "up", "down"),
    "all": (),
    "all-linear": (),
}
"""Common sets of targets; `all`, like peft's `all-linear`, means every linear layer except routers
(Dettmers et al. 2023, arXiv:2305.14314)."""


class LinearMatrix(Record):
    """A linear layer or embedding table as checkpoints store it; fused matrices are one."""

    name: str  # the stored name without `.weight`; the canonical path without a scheme
    paths: tuple[str, ...]
    group: str
    out_features: int
    in_features: int
    copies: int
    elements: int  # of one copy, without biases

    def adapter_parameters(self, rank: int) -> int:
        """Return the parameters that adapters of this rank add, over all copies."""
        return rank * (self.out_features + self.in_features) * self.copies


class LoraAdapters(Record):
    """LoRA adapters of one rank, and the matrices that are fully trained."""

    rank: int
    targets: tuple[LinearMatrix, ...]
    modules_to_save: tuple[LinearMatrix, ...] = ()

    @property
    def adapters(self) -> int:
        """The parameters of all A and B."""
        return sum(x.adapter_parameters(self.rank) for x in self.targets)

    @property
    def parameters(self) -> int:
        """All trainable parameters; fully trained matrices are copies, as in peft."""
        return self.adapters + sum(x.elements * x.copies for x in self.modules_to_save)


def build_adapters(
    tree: Decoder,
    rank: int,
    targets: Iterable[str],
    scheme: Scheme | None = None,
    saved: Iterable[str] = (),
) -> LoraAdapters:
    """Build adapters on the matrices that the targets name: canonical names, names of `scheme`, or
    a common set.

    A canonical name selects one matrix of the tree, a stored name the matrix as stored (GPT-2's
    `c_attn` fuses q, k and v), and a set selects every stored matrix that contains one of its
    members.
    """
    if rank < 1:
        raise LlamathError(f"the LoRA rank should be a positive integer, found {rank}")
    canonical, stored = list_matrices(tree), list_matrices(tree, scheme)
    adapted = [x for target in targets for x in _matching(target, canonical, stored)]
    if not adapted:
        raise LlamathError(
            "adapters need at least one target", hint=f"sets of targets: {', '.join(_TARGET_SETS)}"
        )
    fully_trained = [x for target in saved for x in _matching(target, canonical, stored)]
    return LoraAdapters(rank=rank, targets=_unique(adapted), modules_to_save=_unique(fully_trained))


def list_matrices(tree: Decoder, scheme: Scheme | None = None) -> tuple[LinearMatrix, ...]:
    """List every linear layer and embedding table as the scheme stores them, or as the tree has
    them without a scheme.
    """
    groups: list[list[Folded]] = []
    last: dict[str, int] = {}
    for x in fold(tree):
        if (
            x.weight.role not in ("matmul", "lookup")
            or len(x.weight.shape) != 2
            or x.pattern.endswith("conv.weight")
        ):
            continue
        name = _stored(x.pattern, scheme)
        if name in last and all(y.pattern != x.pattern for y in groups[last[name]]):
            groups[last[name]].append(x)
        else:
            last[name] = len(groups)
            groups.append([x])
    kinds: dict[tuple[object, ...], LinearMatrix] = {}
    for parts in groups:
        matrix = _matrix(_stored(parts[0].pattern, scheme), parts)
        previous = kinds.get(
            key := (matrix.name, matrix.paths, matrix.out_features, matrix.in_features)
        )
        kinds[key] = (
            matrix if previous is None else previous.replace(copies=previous.copies + matrix.copies)
        )
    return tuple(kinds.values())


def _stored(pattern: str, scheme: Scheme | None) -> str:
    try:
        return (scheme.stored_name(pattern) if scheme else pattern).removesuffix(".weight")
    except UnnamedWeight:
        return pattern.removesuffix(".weight")


def _matrix(name: str, parts: Sequence[Folded]) -> LinearMatrix:
    """Fuse matrices that read the same input; the rows of a lookup table are its inputs."""
    rows, columns = sum(int(x.weight.shape[0]) for x in parts), int(parts[0].weight.shape[1])
    table = parts[0].weight.role == "lookup"
    return LinearMatrix(
        name=name,
        paths=tuple(x.pattern.removesuffix(".weight") for x in parts),
        group=parts[0].group,
        out_features=columns if table else rows,
        in_features=rows if table else columns,
        copies=int(parts[0].copies),
        elements=rows * columns,
    )


def _unique(matrices: Iterable[LinearMatrix]) -> tuple[LinearMatrix, ...]:
    """Drop duplicates, and matrices that are part of a selected fused matrix."""
    distinct = {(x.paths, x.out_features, x.in_features): x for x in matrices}
    return tuple(
        x
        for x in distinct.values()
        if not any(set(x.paths) < set(y.paths) for y in distinct.values())
    )


def _matching(
    target: str, canonical: Sequence[LinearMatrix], stored: Sequence[LinearMatrix]
) -> list[LinearMatrix]:
    """Return the matrices that a target names."""
    if target in _TARGET_SETS:
        matches = [x for x in stored if _in_set(target, x)]
    else:
        matches = [x for x in canonical if _ends_with(x.name, target)] or [
            x for x in stored if _ends_with(x.name, target)
        ]
    if not matches:
        near = nearest(target, _target_names(canonical, stored))
        raise LlamathError(
            f"unknown LoRA target {safe(repr(target), 60)}: no matrix of this model has that name",
            hint=f"did you mean {' or '.join(near)}?"
            if near
            else f"it has {', '.join(_target_names(canonical, stored))}",
        )
    return matches


def _in_set(name: str, x: LinearMatrix) -> bool:
    inside = x.paths[0].startswith("layers.") and x.group != "router"
    return inside and (
        not _TARGET_SETS[name]
        or any(
            path.rpartition(".")[2] in _TARGET_SETS[name] and _belongs(name, path)
            for path in x.paths
        )
    )


def _belongs(name: str, path: str) -> bool:
    """Return whether a path belongs to the set's part of the layer: an attention gate is not an
    MLP gate.
    """
    return (".attn." in path) == (name != "mlp")


def _ends_with(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def _target_names(canonical: Sequence[LinearMatrix], stored: Sequence[LinearMatrix]) -> list[str]:
    """The possible names of targets: the last parts of all names, and the sets."""
    return list(
        dict.fromkeys((*(x.name.rpartition(".")[2] for x in (*stored, *canonical)), *_TARGET_SETS))
    )


def split_targets(names: Iterable[str]) -> Iterator[str]:
    """Split targets at commas: `q_proj,v_proj`."""
    return (word for name in names for x in name.split(",") if (word := x.strip()))
