"""`design`: dimensions for a target number of parameters, found exactly over a whole grid and ranked by the habits of a series."""

from __future__ import annotations

from math import log
from typing import Any

from ...core.errors import LlamathError
from ...core.record_type import Record
from ...model import Model
from .candidate import Candidate, build_candidate
from .design_ranking import HabitCosts, RankedDesign, rank_best
from .design_request import DesignRequest, FixedDims
from .design_search import SearchStats, find_ranges, search_space
from .family_shape import FamilyShape, family_shape
from .grid import Grid, build_grid
from .habits import Habits, learn_habits
from .near_misses import NearMisses, find_near_misses
from .reasons import list_reasons
from .series import Series, find_series

MAX_TARGET = 10**13

MAX_PLOTTED = 240
"""So many candidates are kept beside those shown: for the picture."""

MOE_COUNTERPARTS = {"llama": "mixtral", "mistral": "mixtral"}
"""Model type → the type of the same layers with experts in place of the feed-forward, where the keys are the same."""


class DesignReport(Record):
    """What was found."""

    request: DesignRequest
    series: Series
    habits: Habits
    grid: Grid
    family: str  # of the candidates
    searched: int  # points of the grid, each decided
    rows: int  # intervals worked out for that
    within: int  # points that meet every demand
    candidates: tuple[Candidate, ...]
    ranked: tuple[RankedDesign, ...]  # the candidates and those after them
    misses: NearMisses | None = None  # where there is no candidate
    notes: tuple[str, ...] = ()


def design(request: DesignRequest) -> DesignReport:
    """Search, rank, and read the best back through their family."""
    if not 1 <= request.target <= MAX_TARGET:
        raise LlamathError(f"{request.target:.3g} parameters are beyond what is searched, {MAX_TARGET:.0e}", hint="say 405B, 1.5e9 or 500M")
    like, made = prepare(request)
    known = learn_habits(like.members, _habit_size(request, like), made.ffn)
    admissible = build_grid(request, made, known)
    if (v := made.vocab) % request.bounds.tensor_parallel:
        n = request.bounds.tensor_parallel
        raise LlamathError(f"a vocabulary of {v:,} does not divide by {n}", hint=f"--vocab {-(-v // n) * n}")
    tally, costs = SearchStats(), HabitCosts(known)
    found = rank_best(
        find_ranges(search_space(request, made, admissible), tally), costs, request, admissible, max(MAX_PLOTTED, request.limit)
    )
    return DesignReport(
        request=request,
        series=like,
        habits=known,
        grid=admissible,
        family=str(made.data["model_type"]),
        searched=tally.points,
        rows=tally.rows,
        within=tally.within,
        candidates=tuple(_build(x, made, request, costs, like) for x in found[: request.limit]),
        ranked=tuple(found),
        misses=None if found else find_near_misses(request, made, known),
        notes=tuple(_notes(request, made, like)),
    )


def prepare(request: DesignRequest) -> tuple[Series, FamilyShape]:
    """The series, and the shape of its family with what the request fixes besides dimensions."""
    fixed = request.fixed
    sparse = fixed.experts is not None or request.bounds.active is not None
    like = find_series(request.like, request.target, sparse, request.exclude)
    changes: dict[str, Any] = {}
    if sparse and not like.sparse:
        changes |= _with_experts(like.template, fixed)
    made = family_shape(like.template, changes)
    for letter, n in (("V", fixed.vocab), ("E", fixed.experts), ("k", fixed.top_k)):
        if n is not None:
            if letter not in made.keys:
                raise LlamathError(f"the {like.template.family.name} family has no {'experts' if letter != 'V' else 'vocabulary'} to set")
            changes[made.keys[letter]] = n
    if fixed.tied is not None:
        changes["tie_word_embeddings"] = fixed.tied
    if (k := fixed.top_k or made.sizes.get("k", 0)) > (E := fixed.experts or made.sizes.get("E", k)):
        raise LlamathError(f"--top-k {k} of {E} experts: a token cannot pass through more than there are")
    return like, family_shape(like.template, changes) if changes else made


def _with_experts(template: Model, fixed: FixedDims) -> dict[str, Any]:
    kind = MOE_COUNTERPARTS.get(template.family.name)
    if kind is None or fixed.experts is None:
        hint = "--like mixtral, or another family that has them" if kind is None else "say how many: --experts 8 --top-k 2"
        raise LlamathError(f"{template.name} has no experts", hint=hint)
    return {"model_type": kind, "architectures": None, "num_local_experts": fixed.experts, "num_experts_per_tok": fixed.top_k or 2}


def _habit_size(request: DesignRequest, like: Series) -> int:
    """The size whose habits are wanted: of a dense series what a token passes through."""
    fixed = request.fixed
    if like.sparse or (fixed.experts is None and request.bounds.active is None):
        return request.target
    return request.bounds.active or max(request.target * (fixed.top_k or 2) // (fixed.experts or 1), 1)


def _build(one: RankedDesign, made: FamilyShape, request: DesignRequest, costs: HabitCosts, like: Series) -> Candidate:
    cost = costs.outer(one.outer) + costs.depth(one.outer.d, one.layers) + costs.ffn(one.outer.d, one.ffn)
    return build_candidate(one, made, request.target, cost, list_reasons(one, costs.habits, like.members))


def _notes(request: DesignRequest, made: FamilyShape, like: Series) -> list[str]:
    """What was taken from the template without being asked for."""
    said = [f"vocabulary {made.vocab:,}"] * (request.fixed.vocab is None)
    tied = bool(made.data.get("tie_word_embeddings", False))
    said += ["head tied" if tied else "head of its own"] * (request.fixed.tied is None)
    found = [f"from {like.template.name}: {', '.join([*said, 'and the keys that are no dimensions'])}"]
    if like.borrowed:
        found.append(f"no {like.name} is published: habits are those of the {len(like.members)} published sizes with the same matrices")
    sizes = [x.total for x in like.members]
    if not min(sizes) <= (size := _habit_size(request, like)) <= max(sizes) and abs(log(size / max(sizes))) > 0.05:
        found.append(f"habits are known from {min(sizes):,} to {max(sizes):,} parameters; beyond that they are held constant")
    return found
