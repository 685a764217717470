"""`design`: search a whole grid of dimensions for a target number of parameters, and rank the
results by the habits of a series.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import exp, log
from typing import Any, ClassVar

from ....loading import load_family
from ....model import FamilyModel
from ....questions.design_question import DesignBounds
from ....render.report import Report
from ....render.tables import Part
from ....utils.errors import Argument, ArgumentError, LlamathError
from ....utils.number_format import format_count, short_count
from ....utils.record_type import Record
from ...size.flops.scaling_laws import ScalingLaw, TrainingBudget, training_budget
from ..diff.model_diff import DiffReport, diff
from .candidate import Candidate, build_candidate
from .design_ranking import HabitCosts, RankedDesign, rank_best
from .design_request import KEYS, DesignRequest, FixedDims
from .design_search import SearchStats, find_ranges, search_space
from .design_tables import design_head, design_tables, grid_text, search_notes
from .family_shape import LAYER_ORDER_KEYS, FamilyShape, family_shape
from .grid import Grid, build_grid
from .habits import Choice, Habits, divides, learn_habits
from .series import Member, Series, find_series

_AS_EXPECTED = 0.03
"""Ratios within this relative difference count as expected."""


def _reasons(ranked: RankedDesign, habits: Habits, members: Sequence[Member]) -> Iterator[str]:
    """Compare a design with the habits of its series."""
    outer = ranked.outer
    if twin := next((m for m in members if _same(ranked, m)), None):
        yield f"same dimensions as {twin.model.name}"
    yield _ratio("width/layers", outer.d / ranked.layers, exp(habits.aspect.value), 0)
    yield _ratio("ffn/width", ranked.ffn / outer.d, exp(habits.ffn.value), 2)
    if not habits.square:
        yield _ratio("heads/width", outer.H * outer.h / outer.d, exp(habits.heads.value), 2)
    yield f"heads of {outer.h}" + _usual(
        outer.h, habits.head_dims, {m.head_dim: m.model.name for m in members}
    )
    if habits.has_kv_heads and habits.multi_head:
        yield (
            "as many KV heads as heads"
            if outer.K == outer.H
            else (f"{outer.K} KV heads: the series has as many as heads")
        )
    elif habits.has_kv_heads:
        names = {m.kv_heads: m.model.name for m in members}
        yield f"{outer.K} KV head{'s' * (outer.K > 1)}" + _usual(outer.K, habits.kv_heads, names)
    yield f"width {factor_out_twos(outer.d)}"
    yield f"ffn {factor_out_twos(ranked.ffn)}"
    if habits.multiples_of_8 and not divides(8, outer.d, outer.H, ranked.ffn):
        yield "not all multiples of 8, unlike the series"
    if habits.even and ranked.layers % 2:
        yield "an odd number of layers, unlike the series"


def _same(ranked: RankedDesign, member: Member) -> bool:
    letters, outer = member.letters, ranked.outer
    sizes = (letters["L"], letters["d"], letters["H"], member.kv_heads, member.head_dim)
    return sizes == (ranked.layers, outer.d, outer.H, outer.K, outer.h) and ranked.ffn in (
        letters.get("F"),
        letters.get("Fe"),
    )


def _ratio(what: str, value: float, expected: float, digits: int) -> str:
    deviation = value / expected - 1
    if abs(deviation) < _AS_EXPECTED:
        return f"{what} {value:.{digits}f} as expected"
    return (
        f"{what} {value:.{digits}f}, {abs(deviation):.0%} "
        f"{'above' if deviation > 0 else 'below'} {expected:.{digits}f}"
    )


def _usual(n: int, choice: Choice, names: Mapping[int, str]) -> str:
    if n in choice.usual:
        return " as usual"
    return f" as in {names[n]}" if n in names else ", unlike the series"


def factor_out_twos(n: int) -> str:
    """Write a number as an odd factor times a power of two, such as 13·2¹²."""
    twos = (n & -n).bit_length() - 1
    odd = n >> twos
    if not twos:
        return str(n)
    raised = "2" + (
        "" if twos == 1 else str(twos).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    )
    return raised if odd == 1 else f"{odd}·{raised}"


_MAX_TOLERANCE = Fraction(16)


class _BindingConstraint(Record):
    """A constraint whose removal would leave candidates."""

    option: str
    within: int


class _NearMisses(Record):
    """The nearest designs, and the binding constraints."""

    nearest: tuple[RankedDesign, ...]
    binding: tuple[_BindingConstraint, ...]


def _find_near_misses(
    request: DesignRequest, shape: FamilyShape, habits: Habits, limit: int = 3
) -> _NearMisses:
    """Find the nearest totals under the same constraints, and the constraints that bind."""
    tolerance, nearest = request.tolerance, list[RankedDesign]()
    while not nearest and tolerance < _MAX_TOLERANCE:
        tolerance = max(4 * tolerance, Fraction(1, 1000))
        nearest = _search(
            request.replace(tolerance=tolerance, by_error=True), shape, habits, limit
        )[0]
    return _NearMisses(nearest=tuple(nearest), binding=tuple(_binding(request, shape, habits)))


def _binding(
    request: DesignRequest, shape: FamilyShape, habits: Habits
) -> Iterator[_BindingConstraint]:
    for part, default in (("fixed", FixedDims()), ("bounds", DesignBounds())):
        constraints: Any = getattr(request, part)
        for name in constraints.fields:
            if getattr(constraints, name) == getattr(default, name) or name in (
                "vocab",
                "tied",
                "experts",
                "top_k",
                "others",
            ):
                continue
            relaxed = request.replace(
                **{part: constraints.replace(**{name: getattr(default, name)})}
            )
            if within := _search(relaxed, shape, habits, 1)[1].within:
                yield _BindingConstraint(option=KEYS.get(name, name), within=within)
    if request.active is not None and (
        within := _search(request.replace(active=None), shape, habits, 1)[1].within
    ):
        yield _BindingConstraint(option="active", within=within)


def _search(
    request: DesignRequest, shape: FamilyShape, habits: Habits, keep: int
) -> tuple[list[RankedDesign], SearchStats]:
    stats, grid = SearchStats(), build_grid(request, shape, habits)
    ranked = rank_best(
        find_ranges(search_space(request, shape, grid), stats),
        HabitCosts(habits),
        request,
        grid,
        keep,
    )
    return ranked, stats


_MAX_TARGET = 10**13

_MAX_PLOTTED = 240
"""The number of ranked designs that are kept for the plot."""

_MOE_COUNTERPARTS = {"llama": "mixtral", "mistral": "mixtral"}
"""Model type → its MoE counterpart with the same config keys."""


class _NearestDesign(Record):
    """A design that misses the target by more than the tolerance."""

    parameters: int
    error_ppm: float
    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int


class DesignContrast(Record):
    """The best design with the habits of another series, and how it differs from the best one."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "like",
        "config",
        "parameters",
        "delta",
        "causes=causes_of_delta",
    )

    like: str
    config: Mapping[str, Any]
    other: FamilyModel
    difference: DiffReport

    @property
    def parameters(self) -> int:
        """The parameters of the other design."""
        return self.difference.total.b

    @property
    def delta(self) -> int:
        """The difference in parameters."""
        return self.difference.delta

    @property
    def causes_of_delta(self) -> tuple[Mapping[str, Any], ...]:
        """The causes of the difference."""
        return tuple({"cause": x.cause, "delta": x.delta} for x in self.difference.causes)


class DesignReport(Report):
    """The best designs, or the constraints that rule out all of them."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=best.model.name",
            "target=request.target",
            "like=series.name",
            "tolerance=request.tolerance",
            "rank",
            "searched",
        ),
        *(
            "rows=intervals",
            "within",
            "candidates",
            "nearest",
            "binding",
            "notes",
            "compute=budget",
            "contrast",
        ),
    )

    request: DesignRequest
    series: Series
    habits: Habits
    grid: Grid
    family: str  # of the candidates
    searched: int  # grid points decided
    intervals: int  # intervals computed to decide them
    within: int  # grid points that meet every constraint
    candidates: tuple[Candidate, ...]
    ranked: tuple[RankedDesign, ...]  # the candidates and the designs ranked after them
    misses: _NearMisses | None = None  # the nearest designs, if there is no candidate
    notes: tuple[str, ...] = ()
    # the training compute of the best design, if a law, tokens or FLOPs are given
    budget: TrainingBudget | None = None
    contrast: DesignContrast | None = None

    @property
    def best(self) -> Candidate | None:
        """The first candidate."""
        return self.candidates[0] if self.candidates else None

    @property
    def rank(self) -> str:
        """The ranking of the candidates: `error` or `habits`."""
        return "error" if self.request.by_error else "habits"

    @property
    def nearest(self) -> tuple[_NearestDesign, ...]:
        """The designs that come nearest to the target, if there is no candidate."""
        return (
            tuple(_nearest(x, self.request.target) for x in self.misses.nearest)
            if self.misses
            else ()
        )

    @property
    def binding(self) -> tuple[_BindingConstraint, ...]:
        """The constraints that rule every candidate out."""
        return self.misses.binding if self.misses else ()

    @property
    def summary(self) -> str:
        """The best candidate."""
        target = f"{short_count(self.request.target)} like {self.series.name}"
        if not self.candidates:
            return f"{target}: no design meets the constraints"
        best = self.candidates[0]
        heads = f"{format_count(best.heads, 'head')}, {format_count(best.kv_heads, 'KV head')}"
        return (
            f"{target}: {best.layers} layers of {best.width:,}, {heads}, FFN {best.ffn:,}, "
            f"{best.total:,} parameters"
        )

    @property
    def headline(self) -> str:
        """The target, and how many candidates there are."""
        return design_head(self)

    @property
    def setting(self) -> str:
        """The family and the grid of dimensions."""
        return grid_text(self)

    @property
    def entries(self) -> Sequence[Candidate]:
        """The candidates, the best first."""
        return self.candidates

    @property
    def stated_notes(self) -> tuple[str, ...]:
        """How the grid was searched, and the notes."""
        return (*search_notes(self), *self.notes)

    def tables(self) -> Iterable[Part]:
        """The candidates or the nearest designs, the contrast, and the training compute."""
        return design_tables(self)

    def __bool__(self) -> bool:
        return bool(self.candidates)


def with_budget(
    report: DesignReport, law: ScalingLaw, tokens: int | None, flops: int | None
) -> DesignReport:
    """Return the report with the training compute of its best design."""
    if not report.candidates:
        return report
    return report.replace(
        budget=training_budget(report.candidates[0].active, law, tokens, None if tokens else flops)
    )


def with_contrast(report: DesignReport, against: str | None) -> DesignReport:
    """Return the report with the best design of another series; a model with learned positions
    is compared with Llama 3's by default.
    """
    if not report.candidates:
        return report
    best = report.candidates[0].model
    like = against or ("llama-3" if best.tree.positions is not None else None)
    if like is None:
        return report
    other = design(DesignRequest(target=report.request.target, like=like, limit=1)).candidates
    if not other:
        return report
    contrast = DesignContrast(
        like=like,
        config=other[0].config,
        other=other[0].model,
        difference=diff(best, other[0].model),
    )
    return report.replace(contrast=contrast)


def _nearest(x: RankedDesign, target: int) -> _NearestDesign:
    return _NearestDesign(
        parameters=x.total,
        error_ppm=round((x.total - target) * 10**6 / target, 1),
        layers=x.layers,
        width=x.outer.d,
        ffn=x.ffn,
        heads=x.outer.H,
        kv_heads=x.outer.K,
        head_dim=x.outer.h,
    )


def design(request: DesignRequest) -> DesignReport:
    """Search the grid, rank the designs, and build the best ones through their family."""
    if not 1 <= request.target <= _MAX_TARGET:
        raise LlamathError(
            f"the target {request.target:.3g} exceeds the limit of {_MAX_TARGET:.0e} parameters",
            hint="such as 405B or 500M",
        )
    series, shape = prepare(request)
    habits = learn_habits(series.members, _habit_size(request, series), shape.ffn)
    grid = build_grid(request, shape, habits)
    if (vocab := shape.vocab) % request.bounds.tp:
        n = request.bounds.tp
        raise LlamathError(
            f"the vocabulary size {vocab:,} is not divisible by {n}",
            hint=f"give {Argument('changes', {'vocab_size': -(-vocab // n) * n})}",
        )
    stats, costs = SearchStats(), HabitCosts(habits)
    ranked = rank_best(
        find_ranges(search_space(request, shape, grid), stats),
        costs,
        request,
        grid,
        max(_MAX_PLOTTED, request.limit),
    )
    return DesignReport(
        request=request,
        series=series,
        habits=habits,
        grid=grid,
        family=str(shape.data["model_type"]),
        searched=stats.points,
        intervals=stats.rows,
        within=stats.within,
        candidates=tuple(_build(x, shape, request, costs, series) for x in ranked[: request.limit]),
        ranked=tuple(ranked),
        misses=None if ranked else _find_near_misses(request, shape, habits),
        notes=tuple(_notes(request, shape, series)),
    )


def prepare(request: DesignRequest) -> tuple[Series, FamilyShape]:
    """Return the series of a request, and the shape of its family with the request's vocabulary,
    experts and tying.
    """
    fixed = request.fixed
    use_moe = fixed.experts is not None or request.active is not None
    series = find_series(request.like, request.target, use_moe, request.exclude)
    if fixed.others:
        series = series.replace(template=_with_keys(series.template, fixed.others))
    changes: dict[str, Any] = {}
    if use_moe and not series.sparse:
        changes |= _with_experts(series.template, fixed)
    shape = family_shape(series.template, changes)
    for letter, n in (("V", fixed.vocab), ("E", fixed.experts), ("k", fixed.top_k)):
        if n is not None:
            if letter not in shape.keys:
                raise LlamathError(
                    f"the {series.template.family.name} family has no "
                    f"{'experts' if letter != 'V' else 'vocabulary'} to set"
                )
            changes[shape.keys[letter]] = n
    if fixed.tied is not None:
        changes["tie_word_embeddings"] = fixed.tied
    unused = "ffn" if shape.has_expert_key else "expert_ffn"
    if getattr(fixed, unused) is not None:
        problem = (
            f": {KEYS[unused]} is no searched dimension of the {shape.data['model_type']} family"
        )
        raise ArgumentError("changes", problem, hint=f"it has {shape.keys[shape.ffn]}")
    if (k := fixed.top_k or shape.sizes.get("k", 0)) > (
        E := fixed.experts or shape.sizes.get("E", k)
    ):
        raise LlamathError(f"num_experts_per_tok {k} exceeds the number of experts, {E}")
    return series, family_shape(series.template, changes) if changes else shape


def _with_keys(template: FamilyModel, keys: Mapping[str, Any]) -> FamilyModel:
    """Return a template with other config keys, which every design has."""
    if listed := [x for x in keys if x in LAYER_ORDER_KEYS]:
        problem = f": {listed[0]} lists layers, whose number is searched"
        raise ArgumentError("changes", problem)
    changed = load_family(dict(template.config.data), changes=keys)
    return changed.replace(name=template.name)


def _with_experts(template: FamilyModel, fixed: FixedDims) -> dict[str, Any]:
    model_type = _MOE_COUNTERPARTS.get(template.family.name)
    if model_type is None or fixed.experts is None:
        number = Argument("changes", {"num_experts": 8, "num_experts_per_tok": 2})
        hint = (
            "like mixtral, or another MoE series"
            if model_type is None
            else f"give their number: {number}"
        )
        raise LlamathError(f"{template.name} has no experts", hint=hint)
    return {
        "model_type": model_type,
        "architectures": None,
        "num_local_experts": fixed.experts,
        "num_experts_per_tok": fixed.top_k or 2,
    }


def _habit_size(request: DesignRequest, series: Series) -> int:
    """The size at which habits are looked up: the active parameters if an MoE design follows a
    dense series.
    """
    fixed = request.fixed
    if series.sparse or (fixed.experts is None and request.active is None):
        return request.target
    return request.active or max(request.target * (fixed.top_k or 2) // (fixed.experts or 1), 1)


def _build(
    ranked: RankedDesign,
    shape: FamilyShape,
    request: DesignRequest,
    costs: HabitCosts,
    series: Series,
) -> Candidate:
    cost = (
        costs.outer(ranked.outer)
        + costs.depth(ranked.outer.d, ranked.layers)
        + costs.ffn(ranked.outer.d, ranked.ffn)
    )
    return build_candidate(
        ranked, shape, request.target, cost, tuple(_reasons(ranked, costs.habits, series.members))
    )


def _notes(request: DesignRequest, shape: FamilyShape, series: Series) -> list[str]:
    """Return notes on the defaults from the template model."""
    defaults = [f"vocabulary {shape.vocab:,}"] * (request.fixed.vocab is None)
    tied = bool(shape.data.get("tie_word_embeddings", False))
    defaults += ["tied head" if tied else "untied head"] * (request.fixed.tied is None)
    notes = [f"from {series.template.name}: {', '.join([*defaults, 'and all other config keys'])}"]
    if series.borrowed:
        notes.append(
            f"no {series.name} model is published: habits come from "
            f"{len(series.members)} published models with the same matrices"
        )
    sizes = [x.total for x in series.members]
    if (
        not min(sizes) <= (size := _habit_size(request, series)) <= max(sizes)
        and abs(log(size / max(sizes))) > 0.05
    ):
        notes.append(
            f"habits are known from {min(sizes):,} to {max(sizes):,} parameters and "
            "kept constant beyond"
        )
    return notes
