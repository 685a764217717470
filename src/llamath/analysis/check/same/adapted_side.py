"""`AdaptedSide`: a base model with an adapter merged, computed chunk by chunk in float64."""

from __future__ import annotations

import os
from math import prod
from typing import Any, NamedTuple

from ....checkpoint.adapters import Adapter, AdapterTarget, Factor, find_adapter
from ....checkpoint.canonical_reader import CanonicalWeight, MatrixPlace, RowChunk, locate_weights
from ....checkpoint.formats.manifest import Tensor
from ....checkpoint.formats.number_arrays import StoredArray, as_array, require_numpy, to_float32
from ....checkpoint.naming.stored_layouts import group_by_stored_name
from ....checkpoint.open import cached_copy, find_repo, is_url, local_copy, open_checkpoint
from ....checkpoint.quantization.rounding_bounds import MANTISSA_BITS
from ....checkpoint.tensor_reader import MergedTensor, TensorReader
from ....utils.errors import Call, LlamathError, Name, safe
from ..kinds.adapter_check import match_adapter_names
from ..verify.verified_checkpoint import open_verified
from .compared_side import ComparedSide, SideFacts

Array = Any
"""A numpy array."""
_FLOAT32 = 2.0**-24


class _Change(NamedTuple):
    """A change of the rows of one weight."""

    target: AdapterTarget
    place: MatrixPlace
    expert: int
    is_bias: bool = False


class AdaptedSide(ComparedSide):
    """A base model and an adapter."""

    def __init__(self, adapter: Adapter, base: str) -> None:
        super().__init__(open_verified(base))
        self._adapter = adapter
        try:
            self._adapter_files = TensorReader(adapter.manifest)
            self._changes = self._find_changes()
        except BaseException:
            self.close()
            raise

    @property
    def changed_paths(self) -> frozenset[str]:
        """The canonical paths of the weights that the adapter changes."""
        return frozenset(self._changes)

    def _find_changes(self) -> dict[str, list[_Change]]:
        """Return the changes of each weight by path."""
        adapter, model = self._adapter, self.checkpoint.model
        if problems := (
            *adapter.unsupported,
            *(f"{safe(x)} has one of two factors" for x in adapter.incomplete),
        ):
            raise LlamathError(
                f"{safe(adapter.name)} cannot be merged: {problems[0]}",
                hint="merge it with peft, and compare the result",
            )
        scheme = match_adapter_names(adapter, model).scheme
        groups = group_by_stored_name(model.tree, scheme)
        if tied := self.tied.get("head.weight"):
            groups.setdefault(
                scheme.stored_name("head.weight"), list(groups[scheme.stored_name(tied)])
            )
        changes: dict[str, list[_Change]] = {}
        for target in adapter.targets:
            names = [(target.name, False)]
            if target.bias is not None or (
                target.kind == "scaling"
                and target.tensor is not None
                and target.tensor.shape[0] > 1
            ):
                names.append((f"{target.module}.bias", True))
            for name, is_bias in names:
                if name not in groups:
                    if is_bias and target.bias is None:
                        continue
                    call = Call("verify", adapter.name, against=self.checkpoint.path)
                    hint = f"{call} says what does not fit"
                    raise LlamathError(
                        f"{safe(adapter.name)} changes {safe(name)}, which "
                        f"{safe(self.checkpoint.path)} does not have",
                        hint=hint,
                    )
                leaves = groups[name]
                is_stacked = len(leaves[0].indices) > 1 and "{e}" not in scheme.stored_name(
                    leaves[0].pattern
                )
                for expert in sorted({x.indices[1:] for x in leaves}) if is_stacked else [()]:
                    mine = [x for x in leaves if x.indices[1:] == expert] if is_stacked else leaves
                    for leaf, place in zip(
                        mine, locate_weights(model.tree, scheme, mine), strict=True
                    ):
                        changes.setdefault(leaf.path, []).append(
                            _Change(target, place, expert[0] if expert else 0, is_bias)
                        )
        return changes

    def read(self, weight: CanonicalWeight, first: int, last: int) -> RowChunk:
        """Read rows of the merged weight."""
        np = require_numpy()
        chunk = super().read(weight, first, last)
        if weight.path not in self._changes:
            return chunk
        values = chunk.values.astype("f8").reshape(last - first, -1)
        error = np.zeros_like(values)
        for change in self._changes[weight.path]:
            rows = (
                np.arange(first, last) + change.place.first
                if change.place.order is None
                else change.place.order[first:last]
            )
            values, error = self._apply(change, values, error, rows, weight.dtype)
        merged = RowChunk("F64", np.ascontiguousarray(values))
        merged.error = (error + _FLOAT32 * np.abs(values)).reshape(-1)
        return merged

    def _apply(
        self, change: _Change, values: Array, error: Array, rows: Array, dtype: str
    ) -> tuple[Array, Array]:
        """Return changed rows, and how far they may be from those that another program computes."""
        np = require_numpy()
        target, place = change.target, change.place
        if change.is_bias:
            if target.bias is not None:
                return values + target.scale * self._vector(target.bias)[rows, None], error
            assert target.tensor is not None
            return values * self._vector(target.tensor)[rows, None], error
        if target.kind == "replacement":
            assert target.tensor is not None
            new = self._replaced(target.tensor, change, rows, values.shape)
            # peft stores it in the base model's dtype
            return new, _step_of(dtype, target.tensor.dtype) * np.abs(new)
        if target.kind == "rows":
            assert target.tensor is not None
            new = self._matrix(target.tensor)
            for i, row in enumerate(target.indices):
                values[rows == row] = new[i]
            return values, error
        if target.kind == "scaling":
            assert target.tensor is not None
            factor = self._vector(target.tensor)
            by_row = target.tensor.shape[0] > 1
            self._check(target, (len(factor),), (place.out if by_row else place.width,))
            return values * (factor[rows, None] if by_row else factor), error
        delta, size = self._update(change, rows)
        rank = max(1, target.rank)
        error = error + (rank + 4) * _FLOAT32 * size + _half_step(target, dtype) * np.abs(delta)
        values = values + delta
        if target.magnitude is not None:
            if target.kind != "linear":
                raise LlamathError(
                    f"{safe(target.name)}: DoRA of {target.kind} is not merged here",
                    hint="merge it with peft",
                )
            norm = np.linalg.norm(values, axis=1)
            values = values * (self._vector(target.magnitude)[rows] / norm)[:, None]
            coarse = min(MANTISSA_BITS.get(dtype, 23), MANTISSA_BITS[target.magnitude.dtype], 23)
            error = error * 2 + np.abs(values) * (
                4 * 2.0 ** -(coarse + 1) if coarse < 23 else 2.0**-18
            )
        return values, error

    def _update(self, change: _Change, rows: Array) -> tuple[Array, Array]:
        """Return the low-rank update of rows, and the same of absolute values."""
        np = require_numpy()
        target, place = change.target, change.place
        assert target.a is not None and target.b is not None
        a, b = self._factor(target.a), self._factor(target.b)
        if target.kind == "experts":
            if a.ndim == 2:
                a = a.reshape(target.experts, target.rank, -1)[change.expert]
                b = b.reshape(b.shape[0], target.rank, target.experts)[:, :, change.expert]
            else:
                a, b = a[change.expert], b[change.expert]
        shape = (b.shape[0], a.shape[1])
        direct = (place.out, place.width)
        if target.kind == "embedding" or (
            target.kind == "experts" and not place.is_flipped and shape != direct
        ):
            self._check(target, shape, direct[::-1])
            left, right = a[:, rows].T, b.T
        else:
            self._check(target, shape, direct)
            left, right = b[rows], a
        return target.scale * (left @ right), abs(target.scale) * (np.abs(left) @ np.abs(right))

    def _check(
        self, target: AdapterTarget, found: tuple[int, ...], expected: tuple[int, ...]
    ) -> None:
        if found != expected:
            message = (
                f"{safe(target.name)}: expected an update of {list(expected)}, found {list(found)}"
            )
            raise LlamathError(message, hint="the adapter belongs to another base model")

    def _replaced(self, x: Tensor, change: _Change, rows: Array, shape: tuple[int, ...]) -> Array:
        """Return rows of a tensor that replaces the base model's."""
        np = require_numpy()
        place = change.place
        if x.elements % (place.out * place.width):
            found = LlamathError(
                f"{safe(change.target.name)}: expected {place.out:,} by {place.width:,} values, "
                f"found {list(x.shape)}",
                hint="the vocabulary was resized: resize the base model first",
            )
            raise found
        if not place.is_flipped and len(x.shape) == 2:
            first, last = int(rows.min()), int(rows.max()) + 1
            part = self._read(x, first, last, (last - first, place.width))
            return np.ascontiguousarray(part[rows - first]).reshape(shape)
        whole = self._read(
            x,
            0,
            prod(x.shape) // (x.shape[-1] if len(x.shape) > 1 else 1),
            (-1, place.out * place.width),
        )[change.expert]
        matrix = (
            whole.reshape(place.width, place.out).T
            if place.is_flipped
            else whole.reshape(place.out, place.width)
        )
        return np.ascontiguousarray(matrix[rows]).reshape(shape)

    def _read(self, x: Tensor, first: int, last: int, shape: tuple[int, ...]) -> Array:
        data = self._adapter_files.read_rows(
            MergedTensor(x.name, x.dtype, x.shape, (x,)), first, last
        )
        return (
            to_float32(as_array(StoredArray(x.dtype, (-1,), data)), x.dtype)
            .astype("f8")
            .reshape(shape)
        )

    def _factor(self, x: Factor) -> Array:
        values = self._matrix(x.tensor)
        return values.swapaxes(-1, -2) if x.is_transposed else values

    def _matrix(self, x: Tensor) -> Array:
        rows = prod(x.shape) // (x.shape[-1] if len(x.shape) > 1 else 1)
        return self._read(x, 0, rows, x.shape if len(x.shape) > 1 else (1, -1))

    def _vector(self, x: Tensor) -> Array:
        return self._matrix(x).reshape(-1)

    @property
    def facts(self) -> SideFacts:
        """What a report says about it."""
        base = super().facts
        return base.replace(path=self._adapter.name, adapter=self._adapter.title, base=base.path)

    def close(self) -> None:
        """Close the files."""
        super().close()
        if (files := getattr(self, "_adapter_files", None)) is not None:
            files.close()


def _half_step(target: AdapterTarget, dtype: str) -> float:
    """Return the relative error of an update that peft rounds: to the adapter's dtype, and for
    embeddings and experts to the base's.
    """
    assert target.b is not None
    own = target.b.tensor.dtype
    return max(_step_of(own, "F32"), _step_of(dtype, own) if target.kind != "linear" else 0.0)


def _step_of(dtype: str, source: str) -> float:
    """Return the relative rounding error of a cast to a dtype; 0 if it is exact."""
    bits = MANTISSA_BITS.get(dtype, 23)
    return 2.0 ** -(bits + 1) if bits < MANTISSA_BITS.get(source, 23) else 0.0


def open_side(path: str, base: str | None = None) -> ComparedSide:
    """Open and verify a checkpoint, or an adapter with its base model: `base`, or else the one
    that the adapter names.
    """
    name, path = path, local_copy(path)
    adapter = find_adapter(open_checkpoint(path)) if os.path.exists(path) else None
    if adapter is None:
        return ComparedSide(open_verified(path), name)
    found = base or adapter.base
    named = Call("same", Name("model"), Name("b"), adapter=path)
    if not found:
        raise LlamathError(
            f"{safe(path)} is an adapter that names no base model",
            hint=f"give it: {named}",
        )
    if base is None and not os.path.exists(found) and (is_url(found) or os.path.isabs(found)):
        raise LlamathError(
            f"{safe(path)} is an adapter of {safe(found)}, which is not there",
            hint=f"give its base model: {named}",
        )
    if base is None and find_repo(found) is not None:
        if (cached := cached_copy(found)) is None:
            message = (
                f"{safe(path)} is an adapter of {safe(found)}, which is not in the Hugging "
                "Face cache"
            )
            call = Call("same", found, Name("b"), adapter=path)
            raise LlamathError(message, hint=f"{call} downloads it")
        found = cached
    return AdaptedSide(adapter, found)
