"""A forward pass for programs: the contract of `trace --json`, and of the steps of a walkthrough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...analysis.graph import Operation
from ...analysis.graph.walkthrough import Walkthrough, WalkthroughStage
from ...core.number_format import format_ranges
from ...model import Model
from .trace_text import Words, notes

if TYPE_CHECKING:
    from ...run.debug.trace_run import Trace, TracedPass


def trace_json(model: Model, found: Trace, words: Words) -> dict[str, Any]:
    """Return the output of `llamath trace --json`."""
    return {
        "model": model.name,
        "family": model.family.name,
        "source": model.source,
        "numbers": found.has_values,
        "dtype": found.dtype,
        "device": found.device,
        "tokens": [{"id": x, "text": words.texts.get(x)} for x in found.ids],
        "prompt": _seen(found.first),
        "next": None if found.following is None else _seen(found.following),
        "cached": {"tokens": found.cache.tokens, "numbers": found.cache.elements, "bytes": found.cache.nbytes},
        "likely": [{"id": x, "text": words.texts.get(x), "probability": share} for x, share in found.top_tokens],
        "notes": list(notes(model, found)),
    }


def _seen(found: TracedPass) -> dict[str, Any]:
    return _walk_json(found.walk, found.shapes)


def _walk_json(walk: Walkthrough, shapes: tuple[Mapping[str, tuple[int, ...]], ...] = ()) -> dict[str, Any]:
    """A pass as stages of steps; `tensor` is the shape of the tensor that a step's result was met as."""
    seen = shapes or ({},) * len(walk.stages)
    return {
        "new": walk.at.tokens,
        "context": walk.at.context,
        "batch": walk.batch,
        "parameters": walk.parameters,
        "flops": walk.flops,
        "kept": walk.cached,
        "stages": [_stage(x, own) for x, own in zip(walk.stages, seen, strict=True)],
    }


def _stage(stage: WalkthroughStage, seen: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    return {
        "name": stage.name,
        "times": stage.times,
        "layers": format_ranges(stage.indices),
        "layer": stage.layer,
        "parameters": stage.parameters,
        "flops": stage.flops,
        "kept": stage.cached,
        "steps": [_step_json(x) | {"tensor": list(seen[x.name]) if x.name in seen else None} for x in stage.steps],
    }


def _step_json(x: Operation) -> dict[str, Any]:
    """One step; `takes` names the steps that it reads, x being the stream."""
    return {
        "name": x.name,
        "kind": x.kind,
        "does": x.description,
        "takes": list(x.inputs),
        "dims": [d.symbol for d in x.shape],
        "shape": [int(d) for d in x.shape],
        "weights": [
            {
                "path": y.path,
                "dims": [d.symbol for d in y.weight.shape],
                "shape": [int(d) for d in y.weight.shape],
                "copies": int(y.copies),
                "live": int(y.live),
                "group": y.group,
                "tied": y.weight.tied or None,
                "parameters": y.parameters,
            }
            for y in x.weights
        ],
        "parameters": x.parameters,
        "flops": int(x.flops),
        "formula": x.flops.symbol,
        "kept": int(x.cached),
    }
