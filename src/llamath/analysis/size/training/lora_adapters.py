"""LoRA adapters on a model (Hu et al. 2021, arXiv:2106.09685): the adapted matrices, and the
trainable parameters.

A matrix `[out, in]` stays frozen and B·A is added to it, with A `[r, in]` and B `[out, r]`: r·(in +
out) trainable parameters.

peft adapts the modules that transformers has in memory. `all-linear` is every `nn.Linear` but the
head; the experts of a layer are two parameters there, `gate_up_proj` and `down_proj`, no linear
layers. Of some families peft still knows the old names of experts' matrices and of the router, and
means the parameters by them, those of the dense layers left out (`ModuleNames.renames_experts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ....checkpoint.naming.peft_targets import ALL_LINEAR
from ....checkpoint.naming.scheme import Scheme, UnnamedWeight, fused_scheme
from ....core.blocks import Decoder
from ....core.tree import Folded, Stack, fold, fold_field
from ....model import FamilyModel
from ....utils.errors import LlamathError, nearest, safe
from ....utils.record_type import Record

_GATE_UP = "gate_up_proj"
_TARGET_SETS = {
    "qv": ("q", "v"),
    "attention": ("q", "k", "v", "o"),
    "mlp": ("gate", "up", "down"),
    "all": (),
}
"""Common sets of targets, of the matrices in files; `all` means each of them in the layers except
routers (Dettmers et al. 2023, arXiv:2305.14314)."""


class ModuleNames(Record):
    """The names by which targets choose matrices: those in files, and those of modules and
    parameters in the memory of transformers.
    """

    files: Scheme
    memory: Scheme
    # what `Family.has_linear_routers` and `Family.renames_experts` say
    has_linear_routers: bool = False
    renames_experts: bool = False


def module_names(model: FamilyModel) -> ModuleNames:
    """Return the names of a model's modules; experts of a family without a class in transformers
    are those of its files.
    """
    family = model.family
    kind = model.wrapper or model.config.data.get("model_type")
    is_known = bool(family.causal_class or model.wrapper)
    return ModuleNames(
        files=family.hf,
        memory=(fused_scheme(family.hf) if is_known else None) or family.hf,
        has_linear_routers=family.has_linear_routers,
        renames_experts=kind in family.renames_experts,
    )


class LinearMatrix(Record):
    """A linear layer or embedding table as checkpoints store it; fused matrices are one."""

    name: str  # the stored name without `.weight`; the canonical path without a scheme
    paths: tuple[str, ...]
    group: str
    out_features: int
    in_features: int
    copies: int
    elements: int  # of one copy, without biases
    parameter: str = ""  # the whole stored name
    is_linear: bool = True  # a linear layer of its own, no experts in one tensor
    ranks: int = 1  # how many times the rank of the adapters its own has

    def adapter_parameters(self, rank: int) -> int:
        """Return the parameters that adapters of this rank add, over all copies."""
        return self.ranks * rank * (self.out_features + self.in_features) * self.copies


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
    names: ModuleNames | None = None,
    saved: Iterable[str] = (),
) -> LoraAdapters:
    """Build adapters on the matrices that the targets name: a common set, `all-linear`, names of
    modules or parameters in memory, canonical names, or names in files.

    A canonical name selects one matrix of the tree, a stored name the matrix as stored (GPT-2's
    `c_attn` fuses q, k and v), and a set selects every stored matrix that contains one of its
    members.
    """
    if rank < 1:
        raise LlamathError(f"the LoRA rank should be a positive integer, found {rank}")
    known = _Matrices(tree, names)
    adapted = known.adapted(list(targets))
    if not adapted:
        raise LlamathError(
            "adapters need at least one target",
            hint=f"sets of targets: {', '.join((*_TARGET_SETS, ALL_LINEAR))}",
        )
    fully_trained = [x for target in saved for x in known.matching(target)]
    return LoraAdapters(rank=rank, targets=_unique(adapted), modules_to_save=_unique(fully_trained))


def all_linear(tree: Decoder, names: ModuleNames) -> tuple[LinearMatrix, ...]:
    """Return the matrices that peft adapts with `target_modules="all-linear"`."""
    return _unique(_Matrices(tree, names).adapted([ALL_LINEAR]))


def list_matrices(tree: Decoder, scheme: Scheme | None = None) -> tuple[LinearMatrix, ...]:
    """List every linear layer and embedding table as the scheme stores them, or as the tree has
    them without a scheme.
    """
    kinds: dict[tuple[object, ...], LinearMatrix] = {}
    for leaves in _leaves_by_block(tree):
        groups: list[tuple[str, list[Folded]]] = []
        last: dict[str, list[Folded]] = {}
        for x in leaves:
            if (
                x.weight.role not in ("matmul", "lookup")
                or len(x.weight.shape) != 2
                or x.pattern.endswith("conv.weight")
            ):
                continue
            name = _stored(x.pattern, scheme)
            if name in last and all(y.pattern != x.pattern for y in last[name]):
                last[name].append(x)
            else:
                last[name] = [x]
                groups.append((name, last[name]))
        for name, parts in groups:
            layout = scheme.layout_of(parts[0].pattern) if scheme else ""
            matrix = _matrix(name, parts, layout)
            key = (matrix.name, matrix.paths, matrix.out_features, matrix.in_features)
            copies = matrix.copies + (kinds[key].copies if key in kinds else 0)
            kinds[key] = matrix.replace(copies=copies)
    return tuple(kinds.values())


def _leaves_by_block(tree: Decoder) -> Iterator[Sequence[Folded]]:
    """Yield the leaves of each field, and of each kind of layer, whose names may be those of other
    matrices in another kind.
    """
    for name, child in tree.children:
        leaves, start = fold_field(tree, name), 0
        for block, *_ in child.uses() if isinstance(child, Stack) else ():
            end = start + len(fold(block, 1))
            yield leaves[start:end]
            start = end
        yield leaves[start:]


def _stored(pattern: str, scheme: Scheme | None) -> str:
    try:
        return scheme.stored_name(pattern) if scheme else pattern
    except UnnamedWeight:
        return pattern


def _matrix(parameter: str, parts: Sequence[Folded], layout: str) -> LinearMatrix:
    """Fuse matrices that read the same input; the rows of a lookup table are its inputs."""
    rows, columns = sum(int(x.weight.shape[0]) for x in parts), int(parts[0].weight.shape[1])
    table = parts[0].weight.role == "lookup"
    is_stacked = "{e}" in parts[0].pattern and "{e}" not in parameter
    is_convolution = "unit" in layout.split()
    return LinearMatrix(
        name=parameter.removesuffix(".weight"),
        parameter=parameter,
        is_linear=parameter.endswith(".weight") and not (is_stacked or is_convolution or table),
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


class _Matrices:
    """The matrices of a model under each of their names, and what targets select of them."""

    def __init__(self, tree: Decoder, names: ModuleNames | None) -> None:
        self._names = names
        self._canonical = list_matrices(tree)
        self._stored = list_matrices(tree, names.files) if names else self._canonical
        self._memory = list_matrices(tree, names.memory) if names else self._canonical
        text = list_matrices(tree.text, names.memory if names else None)
        self._linear = [x for x in text if self._is_linear(x)]
        self._renamed = self._old_names()

    def _is_linear(self, x: LinearMatrix) -> bool:
        """Whether a matrix is an `nn.Linear` other than the head of the text model, or of layers
        for multi-token prediction, which transformers does not have.
        """
        has_routers = self._names is not None and self._names.has_linear_routers
        return (
            x.is_linear
            and x.paths[0] != "head"
            and not x.paths[0].startswith("mtp.")
            and (x.group != "router" or has_routers)
        )

    def _old_names(self) -> dict[str, str]:
        """Return the names of experts' matrices and of the router for which peft takes others →
        the parameters that it adapts; as `_convert_peft_config_moe` in its
        utils/transformers_weight_conversion.py.
        """
        if self._names is None or not self._names.renames_experts:
            return {}
        new = {"gate": _GATE_UP, "up": _GATE_UP, "down": "down_proj"}
        experts = [x for x in self._names.files.inside.items() if "{e}" in x[1]]
        old = {_last(name): new[_last(path)] for path, name in experts if _last(path) in new}
        return {"gate": "gate.weight", **old}

    def adapted(self, targets: Sequence[str]) -> list[LinearMatrix]:
        """Return the matrices that all of the targets name together."""
        found: list[LinearMatrix] = []
        parameters: dict[str, set[str]] = {}
        for target in targets:
            is_all = target.lower() == ALL_LINEAR
            names = [*self._renamed] if is_all else [target]
            old = [x for name in names for x in self._renamed if _ends_with(name, x)]
            for name in old:
                parameters.setdefault(self._renamed[name], set()).add(name)
            if is_all:
                found += [x for x in self._linear if _last(x.name) not in self._renamed]
            elif not old:
                found += self.matching(target)
        for parameter, given in parameters.items():
            fused = [x for x, new in self._renamed.items() if new == parameter]
            if missing := [x for x in fused if x not in given]:
                raise LlamathError(
                    f"the LoRA target {', '.join(sorted(given))} alone is none of peft's: the "
                    f"experts' {' and '.join(fused)} are one parameter in transformers 5",
                    hint=f"give {', '.join(missing)}, too, or {parameter}",
                )
            found += [x.replace(ranks=len(fused)) for x in self._parameters(parameter)]
        return found

    def _parameters(self, target: str) -> list[LinearMatrix]:
        return [x for x in self._memory if _ends_with(x.parameter, target)]

    def matching(self, target: str) -> list[LinearMatrix]:
        """Return the matrices that one target names."""
        if target in _TARGET_SETS:
            matches = [x for x in self._stored if _in_set(target, x)]
        else:
            choices = (self._memory, self._canonical, self._stored)
            modules = [x for x in self._memory if x.is_linear and _ends_with(x.name, target)]
            matches = (
                modules
                or self._parameters(target)
                or next((y for x in choices if (y := _ending(x, target))), [])
            )
        if not matches:
            names = self._target_names()
            near = nearest(target, names)
            raise LlamathError(
                f"unknown LoRA target {safe(repr(target), 60)}: no matrix of this model has that "
                "name",
                hint=f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names)}",
            )
        return matches

    def _target_names(self) -> list[str]:
        """The possible names of targets: the last parts of all names, and the sets."""
        matrices = (*self._memory, *self._stored, *self._canonical)
        return list(dict.fromkeys((*(_last(x.name) for x in matrices), *_TARGET_SETS, ALL_LINEAR)))


def _ending(matrices: Iterable[LinearMatrix], target: str) -> list[LinearMatrix]:
    return [x for x in matrices if _ends_with(x.name, target)]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


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


def split_targets(names: Iterable[str]) -> Iterator[str]:
    """Split targets at commas: `q_proj,v_proj`."""
    return (word for name in names for x in name.split(",") if (word := x.strip()))
