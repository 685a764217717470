"""`tour_of`: the tour of a model along the path of one token, stop by stop."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ....core.expr import Expr
from ....core.parameter_count import Formula, Section, WeightRow, formula_of
from ....core.tree import LETTERS
from ....model import FamilyModel
from ....utils.errors import LlamathError
from ....utils.number_format import group_digits
from ....utils.number_marks import own_text, unmarked
from ....utils.record_type import Record
from ...code.code_file import FileLine
from ...code.code_report import write_code
from ...graph.recorder import record
from ...graph.steps import Step
from ...graph.walkthrough import WalkthroughStage, walkthrough
from ..study import ModelStudy
from .stop_places import OTHER, Placed, place_steps, place_weight
from .stop_text import StopText, TourFacts
from .stop_texts import STOP_TEXTS

_TOKENS = 3
"""The tokens of the recorded pass; its shapes hold for any number T."""
_MAX_LINES = 24
"""The most lines of code of a stop: its functions are whole."""
_MAX_SHAPES = 8
_MAX_FORMULA = 240
_PARTS = {
    "layers": "weights in some layers",
    "vision": "a vision tower",
    "audio": "an audio tower",
    "projector": "a projector",
    "audio_projector": "a projector for sound",
}


class StepShape(Record):
    """The result of a step, for one sequence of T tokens."""

    name: str
    letters: str
    numbers: str


class CodeLine(Record):
    """A line of the file that `llamath code` writes, without shapes in numbers."""

    line: int
    text: str


class Stop(Record):
    """A stop of the tour."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *("name", "title", "what", "why", "formula", "place", "steps", "shapes", "code"),
        "symbols",
        "numbers",
        "adds=adds.value",
        "so_far",
    )

    name: str
    title: str
    what: str
    why: str
    formula: str  # empty if there is none
    place: str  # the layer that shows it, or embedding or head; empty: no part of a text's path
    steps: tuple[str, ...]  # of that layer, by their names in `trace`
    shapes: tuple[StepShape, ...]
    code: tuple[CodeLine, ...]  # empty if the model cannot be written as code
    adds: Formula  # the parameters that the stop adds to the count
    so_far: int  # and those of all stops up to it

    @property
    def symbols(self) -> str:
        """What the stop adds, in letters; empty if that is too long to be read."""
        symbols = self.adds.symbols
        return symbols if len(own_text(symbols)) <= _MAX_FORMULA else ""

    @property
    def numbers(self) -> str:
        """What the stop adds, in numbers; empty if that is too long to be read."""
        numbers = group_digits(self.adds.numbers)
        return numbers if len(own_text(numbers)) <= _MAX_FORMULA else ""

    @property
    def sum(self) -> str:
        """What it adds, in words."""
        if not self.adds.value:
            return "adds no parameters"
        value = f"{self.adds.value:,}"
        terms = dict.fromkeys(x for x in (self.symbols, self.numbers, value) if x)
        return f"adds {' = '.join(terms)} parameters"


class Tour(Record):
    """The stops of a model, in the order in which a token passes them."""

    model: FamilyModel
    stops: tuple[Stop, ...]
    weights: Mapping[str, frozenset[tuple[str, str]]]  # stop → sections and paths of its weights

    def adds(self, stop: str, section: Section, row: WeightRow) -> bool:
        """Whether a stop adds a weight to the count."""
        return (_key(section), row.pattern) in self.weights.get(stop, ())

    def to_json(self) -> dict[str, Any]:
        """Return the stops as an object."""
        return {"stops": [x.to_json() for x in self.stops]}


def tour_of(model: FamilyModel, *, code: bool = True) -> Tour:
    """Return the tour of a model, with its lines of code unless `code` is false; a model without
    a known forward pass is an error.
    """
    study = ModelStudy.of(model)
    tree = study.tree
    tokens = Expr.variable("T", _TOKENS)
    graph = record(tree, batch=1, new_tokens=tokens, past_tokens=Expr.const(0))
    all_steps = tuple(place_steps(walkthrough(graph)))
    placed = _with_remarks(all_steps, tree.layers)
    rows = _rows_by_stop(model.count.sections, all_steps)
    apart = [_PARTS.get(x.name, x.name) for x in rows.get("apart", ())]
    facts = TourFacts(
        study=study,
        placed=placed,
        layers=Expr.const(tree.layers.n),
        apart=list(dict.fromkeys(apart)),
    )
    lines = _lines_of(model) if code else ()
    stops, so_far = [], 0
    for name, write in STOP_TEXTS.items():
        if not placed.get(name) and name not in rows:
            continue
        words = write if isinstance(write, StopText) else write(facts)
        adds = formula_of(_merged(rows.get(name, ())))
        so_far += adds.value
        here = _shown(placed.get(name, ()))
        stops.append(
            Stop(
                name=name,
                **words._asdict(),
                place=_place(here),
                steps=tuple(x.step.name for x in here),
                shapes=tuple(_shapes(here)),
                code=tuple(_code(lines, name, here, _patterns(rows.get(name, ())))),
                adds=adds,
                so_far=so_far,
            )
        )
    return Tour(
        model=model,
        stops=tuple(stops),
        weights={
            name: frozenset((_key(x), y.pattern) for x in sections for y in x.rows)
            for name, sections in rows.items()
        },
    )


def _key(section: Section) -> str:
    return f"{section.name} {section.indices}"


# the steps of a stop


def _with_remarks(steps: Sequence[Placed], layers: Sequence[Any]) -> dict[str, list[Placed]]:
    """Return the steps of each stop, with the stops that are about a fact of other stops' steps."""
    found: dict[str, list[Placed]] = {}
    for x in steps:
        for name in (x.stop, *_remarks(x, steps, layers)):
            found.setdefault(name, []).append(x)
    if "positions" in found:
        found.pop("no_positions", None)
    if not any(x.step.weights for x in found.get(OTHER, ())):
        found.pop(OTHER, None)
    later = {"router", "post_norm", "parallel", OTHER, "per_layer"}
    if "down" in found and not later & found.keys():
        found["down"] += found.pop("next_layer", [])
    return found


def _remarks(x: Placed, steps: Sequence[Placed], layers: Sequence[Any]) -> Iterator[str]:
    step, node = x.step, x.step.node
    if x.stage.name != "layers" or node is None:
        return
    if any(place_weight(x, use) == "biases" for use in step.weights):
        yield "biases"
    if x.stop == "softmax" and step.weights:
        yield "sinks"
    if x.stop == "softmax" and node.attributes["window"].max_lookback is not None:
        yield "window"
    if x.stop == "scores" and step.kind == "scores":
        if node.attributes["transform"].alibi is not None:
            yield "alibi"
        elif not _has_positions(x.stage, steps):
            yield "no_positions"
    if x.stop == "next_layer" and getattr(layers[x.stage.layer or 0], "parallel", False):
        yield "parallel"


def _has_positions(stage: WalkthroughStage, steps: Sequence[Placed]) -> bool:
    return any(
        x.stage is stage and (x.step.kind == "rope" or "distance" in x.step.description)
        for x in steps
    )


def _shown(placed: Iterable[Placed]) -> list[Placed]:
    """Return the steps of the first stage that has some."""
    found = list(placed)
    return [x for x in found if x.stage is found[0].stage]


def _place(here: Sequence[Placed]) -> str:
    if not here:
        return ""
    stage = here[0].stage
    return str(stage.layer) if stage.name == "layers" else stage.name


def _shapes(here: Sequence[Placed]) -> Iterator[StepShape]:
    for x in here[:_MAX_SHAPES]:
        dims = x.step.shape[1:] if x.step.shape and x.step.shape[0] == 1 else x.step.shape
        yield StepShape(
            name=x.step.name,
            letters=", ".join(_of_one_sequence(y.symbol) for y in dims),
            numbers=", ".join(
                _of_one_sequence(y.symbol) if y.variables else f"{y:,}" for y in dims
            ),
        )


def _of_one_sequence(symbol: str) -> str:
    return symbol.removeprefix("B·")


# the weights of a stop


def _rows_by_stop(
    sections: Iterable[Section], steps: Sequence[Placed]
) -> dict[str, tuple[Section, ...]]:
    """Return the sections of the count with the rows of each stop: every row is of one."""
    found: dict[str, list[Section]] = {}
    for section in sections:
        stops = _stops_of(section, steps)
        rows: dict[str, list[WeightRow]] = {}
        for row in section.rows:
            rows.setdefault(stops.get(row.pattern, "apart"), []).append(row)
        for name, own in rows.items():
            part = section.replace(rows=tuple(own))
            if name != "apart" or part.each:
                found.setdefault(name, []).append(part)
    return {name: tuple(x) for name, x in found.items()}


def _merged(sections: Iterable[Section]) -> list[Section]:
    """Return the sections, those with one formula joined: 3 and L − 3 layers are L."""
    found: dict[str, Section] = {}
    for x in sections:
        other = found.get(key := f"{x.name} {x.formula.symbol} {x.each}")
        found[key] = x if other is None else other.replace(times=other.times + x.times)
    return list(found.values())


def _stops_of(section: Section, steps: Sequence[Placed]) -> dict[str, str]:
    """Return the stops of the weights of a section by their paths; the first use counts."""
    of_layers = section.name == "layers"
    found: dict[str, str] = {}
    for x in steps:
        if (x.stage.name == "layers") != of_layers:
            continue
        if of_layers and not _contains(section, x.stage.layer):
            continue
        for use in x.step.weights:
            found.setdefault(_path(x, use.path), place_weight(x, use))
    return found


def _path(x: Placed, path: str) -> str:
    inside = x.stage.name == "encoder layers"
    return f"encoder.layers.{LETTERS[0]}.{path}" if inside else path


def _contains(section: Section, layer: int | None) -> bool:
    return (
        layer is None
        or not section.indices
        or any(a <= layer <= b and (layer - a) % step == 0 for a, b, step in section.indices)
    )


def _patterns(sections: Iterable[Section]) -> set[str]:
    return {
        f"layers.{LETTERS[0]}.{x.pattern}" if section.name == "layers" else x.pattern
        for section in sections
        for x in section.rows
    }


# its lines of code


def _lines_of(model: FamilyModel) -> tuple[FileLine, ...]:
    try:
        with unmarked():
            return write_code(model).code
    except LlamathError:
        return ()


_SIZES = re.compile(  # shapes in numbers, and numbers of parameters
    r" = [(\[][^)\]]*[)\]]|(?:, )?(?<![\d,])(?<![×+] )\d[\d,]*(?: [×+] \d[\d,]*)* parameters",
)


def _without_sizes(text: str) -> str:
    """Return a line whose comment has shapes in letters alone, as the stop has them in numbers."""
    code, mark, comment = text.partition("  # ")
    comment = _SIZES.sub("", comment)
    return f"{code.rstrip()}{mark}{comment}" if comment else code.rstrip()


def _code(
    lines: Sequence[FileLine], stop: str, here: Sequence[Placed], patterns: set[str]
) -> Iterator[CodeLine]:
    """Yield the lines of a stop: those of its weights and operations in one class, and the function
    that computes its operation.
    """
    if stop == "next_token":
        chosen = _function(lines, "def generate")
    else:
        steps = [x.step for x in here]
        chosen = _class_lines(lines, here, patterns) + _support_lines(lines, stop, steps)
    shown = sorted(set(chosen))
    left_out = shown[1 : 2 + len(shown) - _MAX_LINES] if len(shown) > _MAX_LINES else []
    for i in shown:
        if i not in left_out:
            yield CodeLine(line=i + 1, text=_without_sizes(lines[i].text))
        elif i == left_out[0]:
            text = lines[i].text
            yield CodeLine(line=i + 1, text=f"{text[: len(text) - len(text.lstrip())]}…")


def _function(lines: Sequence[FileLine], start: str) -> list[int]:
    """Return the lines of a function, without its docstring."""
    first = next((i for i, x in enumerate(lines) if x.text.startswith(start)), None)
    if first is None:
        return []
    found, is_docstring = [first], False
    for i in range(first + 1, len(lines)):
        text = lines[i].text
        if text and not text.startswith(" "):
            break
        quotes = text.count('"""')
        if text and not is_docstring and not quotes:
            found.append(i)
        is_docstring ^= quotes == 1
    return found


_WITHOUT_LINES = {"view", "sum", "multiply", "ids"}
"""Kinds of steps that are parts of other lines."""


def _class_lines(
    lines: Sequence[FileLine], here: Sequence[Placed], patterns: set[str]
) -> list[int]:
    """Return the lines in one class: the first that has weights of the stop, else one whose weights
    have the same parent as a result of its steps. Many classes act, add and multiply.
    """
    operations = {
        x.node.op.name
        for x in (y.step for y in here)
        if x.node is not None and not x.weights and x.kind not in _WITHOUT_LINES
    }
    chosen = [
        i
        for i, x in enumerate(lines)
        if patterns.intersection(x.weights) or operations.intersection(x.operations)
    ]
    siblings = _sibling_classes(lines, here)
    own = (
        [i for i in chosen if patterns.intersection(lines[i].weights)]
        or [i for i in chosen if lines[i].block in siblings]
        or chosen
    )
    first = next((lines[i].block for i in own), "")
    return [i for i in chosen if lines[i].block == first]


def _sibling_classes(lines: Iterable[FileLine], here: Iterable[Placed]) -> set[str]:
    """Return the classes with a weight whose path has the same parent as the result of a step."""
    parents = {
        ".".join(
            [f"layers.{LETTERS[0]}"] * (x.stage.name == "layers") + [*x.step.name.split(".")[:-1]]
        )
        for x in here
    }
    return {
        x.block
        for x in lines
        for path in x.weights
        if re.sub(r"\.(weight|bias)$", "", path).rpartition(".")[0] in parents
    }


def _support_lines(lines: Sequence[FileLine], stop: str, steps: Sequence[Step]) -> list[int]:
    names = {x.node.op.name for x in steps if x.node is not None}
    if stop != "rope":
        names.discard("rope")
    found: list[int] = []
    for name in sorted(names):
        body = _function(lines, f"def {name}(")
        if stop == "softmax":
            body = [i for i in body if "mask" in lines[i].text]
        elif stop in ("window", "sinks", "alibi", "no_positions", "mix"):
            body = [i for i in body if stop in lines[i].text]
        found += body
    return found
