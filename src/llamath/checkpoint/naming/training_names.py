"""What training adds to the tensors of a checkpoint: prefixes of wrapper modules, and the state of
the optimizer.

DistributedDataParallel, torch.compile, FSDP and others put the model into a module of their own,
whose name is then part of each tensor's name, in the order in which they were applied and, for
layers that were wrapped one by one, also inside of the names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...utils.number_format import format_count
from ..formats.manifest import Manifest, TensorColumns, TensorTable

WRAPPERS = {
    "module": "DistributedDataParallel",
    "_orig_mod": "torch.compile",
    "_fsdp_wrapped_module": "FullyShardedDataParallel",
    "_checkpoint_wrapped_module": "activation checkpointing",
    "_forward_module": "Lightning Fabric",
}
"""Part of a name → what added it; `module` only counts at the beginning."""
_CONTAINERS = (
    "model",
    "state_dict",
    "model_state_dict",
    "model_state",
    "net",
    "network",
    "app",
    "weights",
    "params",
)
"""Keys under which training programs save the weights of a model."""
_OPTIMIZERS = frozenset(
    "optimizer optimizers optimizer_state optimizer_states optimizer_state_dict optim "
    "optim_state optim_state_dict opt opt_state "
    "base_optimizer_state".split()
)
"""Keys under which training programs save the state of an optimizer."""
_OTHER_STATE = frozenset(
    "scheduler lr_scheduler lr_schedulers lr_scheduler_state_dict scheduler_state_dict scaler "
    "grad_scaler amp rng_state rng_states random_rng_state torch_rng_state cuda_rng_state "
    "cpu_rng_state np_rng_state loops callbacks".split()
)
"""Keys of other state of a training run."""
_OPTIMIZER_VALUES = (".exp_avg", ".exp_avg_sq", ".max_exp_avg_sq", ".momentum_buffer", ".step")
"""Ends of the names of torch's optimizers' values."""
_MAX_CONTAINERS = 4
"""The most containers around a model, and wrappers in a row."""


class ModelTensors(NamedTuple):
    """The tensors of a model in a checkpoint, under the names that the model itself gives them."""

    manifest: Manifest
    prefix: str = ""  # that was removed from the beginnings of all names
    wrappers: tuple[str, ...] = ()  # parts of names that were removed
    state: tuple[str, ...] = ()  # names of the tensors that are state of the training run

    @property
    def description(self) -> str:
        """Say what was removed from the names and what adds it; empty if nothing was."""
        added = [WRAPPERS[x] for x in self.wrappers]
        if key := "".join(f"{x}." for x in self.prefix.split(".") if x and x not in WRAPPERS):
            added.append(f"a training checkpoint, whose key `{key[:-1]}` holds the weights")
        if not added:
            return ""
        who = f"{', '.join(added[:-1])} and {added[-1]}" if len(added) > 1 else added[0]
        inside = [f"`{x}`" for x in self.wrappers if f"{x}." not in self.prefix]
        where = [f"begin with `{self.prefix}`"] * bool(self.prefix) + [
            f"contain {', '.join(inside)}"
        ] * bool(inside)
        return f"the names of the tensors {' and '.join(where)}, from {who}"


def is_training_state(name: str) -> bool:
    """Whether a tensor's name says that it is state of an optimizer or of a training run."""
    return _is_state(name, ()) or name.endswith(_OPTIMIZER_VALUES)


def training_state(manifest: Manifest) -> frozenset[int]:
    """Return the indices of the tensors that are state of an optimizer or of a training run, not
    weights.
    """
    if manifest.format != "torch":
        return frozenset()
    optimizers = _optimizer_prefixes(manifest)
    return frozenset(
        i for i, name in enumerate(manifest.columns.name) if _is_state(name, optimizers)
    )


class TrainingState(NamedTuple):
    """The state of a training run in a checkpoint."""

    tensors: int
    elements: int
    bytes: int

    @property
    def description(self) -> str:
        """Say how much it is."""
        sizes = f"{format_count(self.elements, 'element')}, {self.bytes:,} bytes"
        is_or_are = "is" if self.tensors == 1 else "are"
        return (
            f"{format_count(self.tensors, 'tensor')} ({sizes}) {is_or_are} state of the "
            "optimizer or the training run, not of the model"
        )


def training_state_totals(manifest: Manifest) -> TrainingState:
    """Return the totals of the tensors that are state of a training run."""
    found = [manifest.tensors[i] for i in sorted(training_state(manifest))]
    return TrainingState(len(found), sum(x.elements for x in found), sum(x.bytes for x in found))


def _optimizer_prefixes(manifest: Manifest) -> tuple[str, ...]:
    """Return the beginnings of the names in optimizers' state dictionaries, which have a `state`
    next to their `param_groups`.
    """
    values = manifest.metadata.get("values")
    keys = values if isinstance(values, Mapping) else {}
    found = {
        f"{key.partition('param_groups.')[0]}state."
        for key in keys
        if key.startswith("param_groups.") or ".param_groups." in key
    }
    return tuple(sorted(found))


def _is_state(name: str, optimizers: tuple[str, ...]) -> bool:
    first = name.partition(".")[0]
    return (
        first in _OPTIMIZERS
        or first in _OTHER_STATE
        or (bool(optimizers) and name.startswith(optimizers))
    )


def find_wrappers(names: Iterable[str]) -> tuple[str, ...]:
    """Return the wrappers that are parts of these names, outermost first."""
    found: dict[str, None] = {}
    for name in names:
        parts = name.split(".")
        for i, part in enumerate(parts):
            if part in WRAPPERS and (
                part != "module" or all(x in WRAPPERS or x in _CONTAINERS for x in parts[:i])
            ):
                found.setdefault(part)
    return tuple(found)


def describe_wrappers(names: Sequence[str]) -> str:
    """Say which wrappers are parts of these names; empty if none is."""
    text = "\n".join(names)
    if not any(f"{part}." in text for part in WRAPPERS):
        return ""
    wrapped = [x for x in names if any(f"{part}." in x for part in WRAPPERS)]
    found = find_wrappers(wrapped)
    return (
        ModelTensors(
            Manifest(format="", files=(), tensors=()), _common_wrappers(wrapped), found
        ).description
        if found
        else ""
    )


def without_wrappers(name: str) -> str:
    """Return a tensor's name without the parts that wrappers added."""
    kept: list[str] = []
    for part in name.split("."):
        if part not in WRAPPERS or (part == "module" and kept):
            kept.append(part)
    return ".".join(kept) or name


def fold_numbers(name: str) -> str:
    """Return a name, or a pattern of names, with `#` for the numbers of layers and experts."""
    return re.sub(r"(?<![^.])(?:\d+|\{[le]\})(?![^.])", "#", name)


def model_tensors(manifest: Manifest, expected: Sequence[frozenset[str]]) -> ModelTensors:
    """Return the tensors of a model without training state, wrappers and containers.

    `expected` are the names that the model may have, one set for each naming scheme, with their
    numbers folded. A prefix is only removed if more names are among them without it.
    """
    state, names = training_state(manifest), manifest.columns.name
    own = [x for i, x in enumerate(names) if i not in state] if state else list(names)
    found = _best_prefix(own, expected)
    if found is None and not state:
        return ModelTensors(manifest)
    prefix, raw = found or ("", own)
    best = own if found is None else list(map(without_wrappers, raw))
    columns = manifest.columns
    weights = [i for i in range(len(names)) if i not in state]
    picked: list[Any] = [[column[i] for i in weights] for column in columns]
    kept = TensorColumns(*picked)._replace(name=best)
    index = manifest.index
    if index is not None and found is not None:
        renamed = dict(zip(own, best, strict=True))
        index = index.replace(
            weight_map={
                renamed.get(x) or without_wrappers(x.removeprefix(prefix)): y
                for x, y in index.weight_map.items()
            }
        )
    return ModelTensors(
        manifest.replace(tensors=TensorTable(kept), index=index),
        prefix,
        () if found is None else _wrappers(prefix, raw),
        tuple(names[i] for i in sorted(state)),
    )


def _wrappers(prefix: str, raw: Iterable[str]) -> tuple[str, ...]:
    """Return the wrappers in a prefix and in the names after it."""
    outside = (x for x in prefix.split(".") if x in WRAPPERS)
    return tuple(dict.fromkeys((*outside, *find_wrappers(raw))))


def _best_prefix(
    own: list[str], expected: Sequence[frozenset[str]]
) -> tuple[str, list[str]] | None:
    """Return the prefix without which most names are expected, and the names after it; None if
    they are best as they are.
    """
    best, best_overlap = None, -1
    for prefix, raw in _prefixes(own):
        if best_overlap < 0:
            best_overlap = _overlap(own, expected)
        if (overlap := _overlap(map(without_wrappers, raw), expected)) > best_overlap:
            best, best_overlap = (prefix, raw), overlap
    return best


def _prefixes(own: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield prefixes of wrappers and containers that all names have, and the names without them."""
    if not own:
        return
    text, raw, prefix = "\n".join(own), own, ""
    wrapped = any(f"{x}." in text for x in WRAPPERS)
    for _ in range(_MAX_CONTAINERS):
        if wrapped and (wrappers := _common_wrappers(raw)):
            prefix, raw = prefix + wrappers, [x[len(wrappers) :] for x in raw]
        if prefix or wrapped:
            yield prefix, raw
        part = f"{raw[0].partition('.')[0]}."
        if part[:-1] not in _CONTAINERS or not all(
            x.startswith(part) and len(x) > len(part) for x in raw
        ):
            return
        prefix, raw = prefix + part, [x[len(part) :] for x in raw]
    yield prefix, raw


def _common_wrappers(names: Sequence[str]) -> str:
    """Return the wrappers at the beginning of all names: `module._orig_mod.`."""
    prefix = ""
    for part in names[0].split(".", _MAX_CONTAINERS)[:_MAX_CONTAINERS]:
        if part not in WRAPPERS or not all(x.startswith(f"{prefix}{part}.") for x in names):
            break
        prefix += f"{part}."
    return prefix


def _overlap(names: Iterable[str], expected: Sequence[frozenset[str]]) -> int:
    found = set(map(fold_numbers, names))
    return max((len(found & x) for x in expected), default=0)
