"""`CauseFinder`: the most likely cause of each difference, tested on a bounded sample of both
weights.

The tests ask for equality up to rounding: rows in the other order of rotary pairs, the values of
another weight, a transposed matrix, an added 1, another scale. What is left is a fine-tuned weight,
described by the numerical rank of the difference, or an unrelated one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ....checkpoint.canonical_reader import CanonicalWeight
from ....checkpoint.formats.number_arrays import require_numpy
from ....checkpoint.naming.scheme import half_split_order, interleaved_order
from ....checkpoint.naming.stored_layouts import layout_params_at, reorder_rows
from ....core.tree import fill_pattern
from ....utils.number_format import format_count, format_list
from .chunk_comparison import Tally
from .compared_side import ComparedSide
from .same_report import Cause, WeightDifference
from .weight_sample import WeightSample, read_sample, root_mean_square

Array = Any
"""A numpy array."""
_ROTARY_WEIGHTS = ("attn.q.weight", "attn.k.weight", "attn.q.bias", "attn.k.bias")
_MAX_EXPLAINED = 1024
"""Maximum number of weights whose cause is searched for."""
_MAX_LAYERS = 512
"""Maximum number of layers among which a stale one is searched for."""
_MIN_COSINE = 0.5
"""Weights with a smaller cosine are unrelated."""
_CLOSE = 0.95
"""Matrices with a larger cosine are in their own place, in their own order."""
_NOISE = 1.3
"""Singular values below this many times the largest one of rounding errors belong to them."""
_MAX_RANK_SHARE = 0.25
"""A rank is low up to this share of the sample's smaller side."""


class _Case(NamedTuple):
    """A weight of both checkpoints with its samples."""

    a: CanonicalWeight
    b: CanonicalWeight
    x: WeightSample
    y: WeightSample


class CauseFinder:
    """Finds the causes of differences between two checkpoints."""

    def __init__(self, a: ComparedSide, b: ComparedSide) -> None:
        self._a, self._b = a, b
        self._explained = 0
        self._causes: dict[str, str] = {}  # path → code
        self._texts: dict[str, str] = {}  # path → detail, equal for weights with one cause
        self.notes: list[str] = []

    def explain(self, difference: WeightDifference, tally: Tally | None) -> WeightDifference:
        """Return the difference with its likely cause."""
        a, b = self._a.find(difference.path), self._b.find(difference.path)
        assert a is not None and b is not None
        self._explained += 1
        if self._explained > _MAX_EXPLAINED:
            if self._explained == _MAX_EXPLAINED + 1:
                self.notes.append(
                    f"causes were searched for the first {_MAX_EXPLAINED:,} weights that differ"
                )
            return difference
        code, text, rank = self._find(difference, a, b, tally)
        self._causes[difference.path], self._texts[difference.path] = code, text
        return difference.replace(
            cause=code, rank=rank[0] if rank else None, rank_limit=rank[1] if rank else 0
        )

    def _find(
        self,
        difference: WeightDifference,
        a: CanonicalWeight,
        b: CanonicalWeight,
        tally: Tally | None,
    ) -> tuple[str, str, tuple[int, int] | None]:
        """Return the code of the cause, its text, and the rank of the difference."""
        np = require_numpy()
        if a.shape != b.shape:
            return self._explain_shapes(difference, a, b, tally)
        if tally is not None and tally.changed:
            row, column = min(tally.changed)
            return (
                "not finite",
                f"not finite in one of the two, first at [{row}, {column}]"
                if len(a.shape) > 1
                else "not finite in one",
                None,
            )
        x, y = read_sample(self._a, a), read_sample(self._b, b)
        if not (np.isfinite(x.values).all() and np.isfinite(y.values).all()):
            return "not finite", "NaN or infinity in both", None
        for name, one, other in (("B", y, x), ("A", x, y)):
            if not one.values.any() and other.values.any():
                return "zero", f"all zero in {name}: not initialized, or not saved", None
        case = _Case(a, b, x, y)
        elsewhere = (self._permutation, self._transposed, self._sibling, self._stale)
        for test in (
            self._offset,
            *(elsewhere if len(a.shape) == 1 or _cosine(x, y) < _CLOSE else ()),
            self._scaled,
        ):
            if found := test(case):
                return *found, None
        if (
            tally is not None
            and difference.rows
            and len(a.shape) == 2
            and difference.rows <= min(64, a.rows // 4)
            and difference.beyond
        ):
            return "rows", f"{format_count(difference.rows, 'row')} of {a.rows:,} differ", None
        return self._trained(a, x, y)

    def _explain_shapes(
        self,
        difference: WeightDifference,
        a: CanonicalWeight,
        b: CanonicalWeight,
        tally: Tally | None,
    ) -> tuple[str, str, tuple[int, int] | None]:
        if tally is None:
            return "shape", "another shape", None
        more, fewer = ("A", "B") if a.rows > b.rows else ("B", "A")
        same = (
            "the others are equal"
            if difference.differing == 0
            else ("the others are within rounding")
        )
        same = same if tally.is_within else "and the others differ, too"
        return (
            "shape",
            (f"{more} has {format_count(abs(a.rows - b.rows), 'row')} more than {fewer}; {same}"),
            None,
        )

    def _offset(self, case: _Case) -> tuple[str, str] | None:
        if len(case.a.shape) != 1:
            return None
        for sign, name in ((1, "B"), (-1, "A")):
            if case.y.agrees(case.x, case.x.values + sign):
                return "norm + 1", (
                    f"1 is added in {name}: norms of Gemma's kind that were "
                    "shifted twice, or not at all in the other"
                )
        return None

    def _permutation(self, case: _Case) -> tuple[str, str] | None:
        """Return which rows of heads are in the order of the other layout of rotary pairs."""
        a, b = case.a, case.b
        if not a.leaf.pattern.endswith(_ROTARY_WEIGHTS):
            return None
        size = layout_params_at(self._a.checkpoint.model.tree, a.leaf).head_dim
        if size < 4 or size % 2 or a.rows % size:
            return None
        rows = _whole_heads(a.rows, size)
        x, y = read_sample(self._a, a, rows), read_sample(self._b, b, rows)
        for direction, order in ((1, interleaved_order(size)), (-1, half_split_order(size))):
            if x.agrees(y, reorder_rows(y.values, order)):
                fault_of_b, fault_of_a = (
                    self._fault(self._b, b, direction),
                    self._fault(self._a, a, -direction),
                )
                return "permuted", (
                    "the rows of each head are in the other order of rotary "
                    f"pairs: {fault_of_b} in B, or {fault_of_a} in A"
                )
        return None

    @staticmethod
    def _fault(side: ComparedSide, weight: CanonicalWeight, direction: int) -> str:
        """Describe a side whose rows are in the wrong order: of halves (1) or of pairs (−1)."""
        stores_pairs = "rotary" in side.checkpoint.scheme.layout_of(weight.leaf.pattern)
        return "not permuted" if (direction > 0) == stores_pairs else "permuted twice"

    def _transposed(self, case: _Case) -> tuple[str, str] | None:
        np = require_numpy()
        a = case.a
        if len(a.shape) != 2 or a.rows != a.width or a.rows < 2:
            return None
        rows = case.x.rows[:: max(1, len(case.x.rows) // 256)]
        x, y = read_sample(self._a, a, rows, rows), read_sample(self._b, case.b, rows, rows)
        if not np.array_equal(x.values, x.values.T) and y.agrees(x, x.values.T):
            return "transposed", "transposed"
        return None

    def _sibling(self, case: _Case) -> tuple[str, str] | None:
        """Return the weight of the same block whose values B has in A: swapped halves of a fused
        tensor, for example.
        """
        rows, columns = case.x.rows, case.x.columns
        for path, weight in self._siblings(case.a):
            if not _first(case.y).agrees(read_sample(self._a, weight, rows[:2], columns)):
                continue
            if case.y.agrees(read_sample(self._a, weight, rows, columns)):
                own, theirs = _short(case.a.path), _short(path)
                back = self._b.find(path)
                if back is not None and read_sample(self._b, back, rows, columns).agrees(case.x):
                    first, second = sorted((own, theirs))
                    return "swapped", f"{first} and {second} are swapped"
                return "copied", f"{own} has the values of {theirs}"
        return None

    def _siblings(self, weight: CanonicalWeight) -> Iterator[tuple[str, CanonicalWeight]]:
        """Yield the other weights of the same parent block that have the same shape."""
        parent = weight.path.rsplit(".", 2)[0] if weight.path.count(".") > 1 else ""
        depth = weight.path.count(".")
        for path, other in self._near(weight, parent):
            if path != weight.path and path.count(".") == depth and other.shape == weight.shape:
                yield path, other

    def _near(self, weight: CanonicalWeight, parent: str) -> Iterator[tuple[str, CanonicalWeight]]:
        pattern_parent = weight.leaf.pattern.rsplit(".", 2)[0] if parent else ""
        for pattern in self._patterns():
            if pattern.startswith(f"{pattern_parent}.") and pattern.count(
                "{"
            ) == weight.leaf.pattern.count("{"):
                path = fill_pattern(pattern, weight.leaf.indices)
                if (other := self._a.weights.get(path)) is not None:
                    yield path, other

    def _patterns(self) -> Sequence[str]:
        if not hasattr(self, "_known_patterns"):
            self._known_patterns = tuple(
                dict.fromkeys(x.leaf.pattern for x in self._a.weights.values())
            )
        return self._known_patterns

    def _stale(self, case: _Case) -> tuple[str, str] | None:
        """Return the layer, or the expert, of A whose values B has."""
        a, x = case.a, case.x
        for axis, word in enumerate(("layer", "expert")[: len(a.leaf.indices)]):
            for i, path in self._same_pattern(a, axis):
                other = self._a.weights[path]
                if other.shape != a.shape or not _first(case.y).agrees(
                    read_sample(self._a, other, x.rows[:2], x.columns)
                ):
                    continue
                if case.y.agrees(read_sample(self._a, other, x.rows, x.columns)):
                    return "stale", (
                        f"{word} {a.leaf.indices[axis]} of B has the values of {word} {i} of A"
                    )
        return None

    def _same_pattern(self, weight: CanonicalWeight, axis: int) -> Iterator[tuple[int, str]]:
        """Yield the paths of the same weight in other layers or experts, the nearest first."""
        own = weight.leaf.indices[axis]
        for distance in range(1, _MAX_LAYERS):
            for i in (own - distance, own + distance):
                indices = (*weight.leaf.indices[:axis], i, *weight.leaf.indices[axis + 1 :])
                path = fill_pattern(weight.leaf.pattern, indices)
                if i >= 0 and path in self._a.weights:
                    yield i, path

    def _scaled(self, case: _Case) -> tuple[str, str] | None:
        x, y = case.x, case.y
        square = float((x.values * x.values).sum())
        factor = float((x.values * y.values).sum()) / square if square else 1.0
        if abs(factor - 1) > 1e-3 and abs(factor) > 1e-6 and x.values.size > 1:
            scaled = WeightSample(x.values * factor, x.rounding * abs(factor), x.rows, x.columns)
            if y.agrees(scaled):
                return "scaled", f"B is A times {factor:.6g}"
        return None

    def _trained(
        self, a: CanonicalWeight, x: WeightSample, y: WeightSample
    ) -> tuple[str, str, tuple[int, int] | None]:
        """Describe a difference without a simple cause: the rank of the difference, or unrelated
        values.
        """
        cosine = _cosine(x, y)
        if len(a.shape) != 2 or min(x.values.shape) < 8:
            return (
                ("unrelated", "unrelated values", None)
                if cosine < _MIN_COSINE
                else ("trained", "fine-tuned", None)
            )
        rank, limit = difference_rank(x, y)
        if not rank:
            share = root_mean_square(y.values - x.values) / x.size if x.size else 0.0
            text = (
                f"differs by {share:.2g} of its size, about as much as its dtypes round: "
                "another quantizer, or rounded twice"
            )
            return "rounded", text, (0, limit)
        if rank <= _MAX_RANK_SHARE * limit:
            return (
                "low rank",
                (f"fine-tuned: the difference has rank {rank}, as a merged LoRA has"),
                (rank, limit),
            )
        if cosine < _MIN_COSINE:
            return "unrelated", "unrelated values", (rank, limit)
        return "trained", "fine-tuned: the difference has full rank", (rank, limit)

    def causes(self, differences: Sequence[WeightDifference]) -> tuple[Cause, ...]:
        """Group the weights that differ by cause, the most frequent first."""
        groups: dict[tuple[str, str], list[str]] = {}
        ranks: dict[str, list[int]] = {}
        for x in differences:
            if x.path not in self._causes:
                continue
            code, text = self._causes[x.path], self._texts[x.path]
            if code == "low rank":
                ranks.setdefault(code, []).append(x.rank or 0)
                text = ""
            groups.setdefault((code, text), []).append(x.path)
        found = []
        for (code, text), paths in groups.items():
            if code == "low rank":
                low, high = min(ranks[code]), max(ranks[code])
                shown = f"rank {low}" if low == high else f"ranks {low} to {high}"
                text = f"fine-tuned: the differences have {shown}, as a merged LoRA has"
            found.append(
                Cause(code=code, message=f"{describe_paths(paths)}: {text}", paths=tuple(paths))
            )
        return tuple(sorted(found, key=lambda x: -len(x.paths)))


def _cosine(x: WeightSample, y: WeightSample) -> float:
    np = require_numpy()
    size = np.linalg.norm(x.values) * np.linalg.norm(y.values)
    return float((x.values * y.values).sum() / size) if size else 0.0


def _first(x: WeightSample) -> WeightSample:
    """Return the first two rows of a sample."""
    return x._replace(values=x.values[:2], rows=x.rows[:2])


def _whole_heads(rows: int, size: int) -> Array:
    """Return the rows of up to four heads."""
    np = require_numpy()
    heads = np.unique(np.linspace(0, rows // size - 1, 4).astype("i8"))
    return (heads[:, None] * size + np.arange(size)).reshape(-1)


def _short(path: str) -> str:
    """Return a path without its layer and the name of its leaf: `mlp.gate`."""
    parts = [x for x in path.split(".") if not x.isdigit() and x != "layers"]
    return ".".join(parts).removesuffix(".weight")


def difference_rank(x: WeightSample, y: WeightSample) -> tuple[int, int]:
    """Return the numerical rank of the difference of two samples, and the largest rank that they
    could show.

    Singular values count if they are larger than the largest one of a random matrix of rounding
    errors, σ (√m + √n), where σ² is the mean of r²/3 over the bounds r, and larger than what
    float64 and float32 leave of the values.
    """
    np = require_numpy()
    difference = y.values - x.values
    rows, columns = difference.shape
    gram = difference @ difference.T if rows <= columns else difference.T @ difference
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[::-1], 0))
    noise = np.sqrt((x.rounding**2 + y.rounding**2) / 3) * (np.sqrt(rows) + np.sqrt(columns))
    float32 = 2.0**-23 * max(x.size, y.size) * (np.sqrt(rows) + np.sqrt(columns))
    return int((singular > max(_NOISE * noise, float32, 1e-6 * singular[0])).sum()), min(
        rows, columns
    )


def describe_paths(paths: Sequence[str]) -> str:
    """Describe weights by kind and layer: `attn.q, attn.k of 32 layers`."""
    kinds: dict[str, set[str]] = {}
    for path in paths:
        parts = path.split(".")
        layer = parts[1] if parts[0] == "layers" else ""
        kinds.setdefault(_short(path), set()).add(layer)
    layers = {layer for found in kinds.values() for layer in found if layer}
    names = list(kinds)
    text = (
        format_list(names[:4])
        if len(names) <= 4
        else (f"{', '.join(names[:4])} and {len(names) - 4} more kinds of weights")
    )
    if not layers:
        return text
    if len(layers) == 1:
        return f"{text} of layer {layers.pop()}"
    return f"{text} of {len(layers)} layers"
