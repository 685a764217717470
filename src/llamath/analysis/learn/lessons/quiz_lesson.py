"""Count it yourself: a question for each part of a model's picture, and ten beyond it that other
lessons ask, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from ....core.parameter_count import Section, WeightRow
from ....utils.number_format import format_list
from ....utils.record_type import Record
from ..account import Account
from ..diagnosis import spoken_path
from ..exercise import Exercise
from ..lesson import Asker, Lesson
from ..study import ModelStudy
from .size_lessons import SIZE_LESSONS
from .special_lessons import SPECIAL_LESSONS
from .weight_lessons import WEIGHT_LESSONS

QUESTIONS = 10
_ORDER = (
    *("latent/cached", "attention/group", "attention/saved", "experts/one", "experts/active"),
    *("windows/kept", "recurrence/state", "embedding/if-tied", "total/tied-twice"),
    *("total/without-embeddings", "context/double", "bytes/bf16", "bytes/q4_0", "cache/token"),
    *("cache/context", "cache/batch", "flops/token", "design/depth", "bytes/fits", "norms/all"),
    *("layer/matrices", "total/blocks", "embedding/both", "mlp/up"),
)
"""The questions beyond the picture in their order; of a name with several endings, the last."""
_SPARE = (
    *("mlp/up", "embedding/both", "total/blocks", "layer/matrices", "norms/all", "bytes/fits"),
    *("context/double", "cache/batch", "total/tied-twice", "bytes/q4_0", "embedding/if-tied"),
)
"""Those left out first where a model has more than ten."""

_REASONS = {
    "latent/cached": "A layer keeps the latent vector, and one rotary key that all heads share.",
    "attention/group": "The query heads are shared out equally among the heads of keys and values.",
    "attention/saved": "k and v have outputs for as many more heads, each with a weight for each "
    "input.",
    "experts/one": "An expert is an MLP: its matrices, and biases if it has some.",
    "experts/active": "All is counted but the experts that a router does not choose.",
    "windows/kept": "A layer with a window keeps its tokens, the others keep all.",
    "recurrence/state": "A state does not depend on the number of tokens.",
    "embedding/if-tied": "The table of the head goes, and all else stays.",
    "total/tied-twice": "The table that both use is counted once more.",
    "total/without-embeddings": "The tables that are looked up go, and all else stays.",
    "context/double": "No weight has a side as long as the context.",
    "bytes/bf16": "A byte has 8 bits.",
    "bytes/q4_0": "Each block stores a scale as well: 4.5 bits for each weight, not 4.",
    "cache/token": "Each layer keeps keys and values of its KV heads, two bytes for each number.",
    "cache/context": "Each token has a cache of its own, up to the window where a layer has one.",
    "cache/batch": "Each sequence has a cache of its own.",
    "flops/token": "Each weight of a matrix is multiplied and added once; the embedding is looked "
    "up, and norms are left out.",
    "design/depth": "What is outside of the layers stays; the layers share the rest.",
    "bytes/fits": "A GiB has 2³⁰ bytes, and each parameter takes two of them.",
    "norms/all": "Each layer has its norms, and one more follows the last layer.",
    "layer/matrices": "Vectors are left out: norms and biases.",
    "total/blocks": "Embedding and head are left out.",
    "embedding/both": "Each table has a row for each token of the vocabulary.",
    "mlp/up": "Each of its outputs has a weight for each input.",
}
"""Why the answer is right, of questions whose hint is a formula."""

_MOST_SIZES = 3
"""The sizes of one module, and the kinds of layers, that are asked for."""


class PlatePart(Record):
    """A part of the picture: the question about one layer, and what it adds to the total."""

    exercise: Exercise
    name: str
    layer: str  # one that has it, or embedding or head; empty: the whole model
    layers: tuple[str, ...] = ()  # the first of each kind of layers that has it in this size
    paths: tuple[str, ...]  # of its weights in that layer; empty: the layer, or the whole model
    adds: Account  # in all layers; nothing for a layer or the whole model, whose parts add


def quiz_exercises(study: ModelStudy) -> tuple[Exercise, ...]:
    """Return the ten questions about a model; all that it has, if these are fewer."""
    found: dict[str, Exercise] = {}
    for lesson in (*WEIGHT_LESSONS, *SIZE_LESSONS, *SPECIAL_LESSONS):
        if any(x.startswith(f"{lesson.name}/") for x in _ORDER) and not lesson.lacks(study):
            found |= {x.id: x for x in lesson.exercises(study)}
    asked: dict[str, Exercise] = {}
    for name in _ORDER:
        x = _named(found, name)
        if x is not None and x.answer > 1 and x.answer not in map(_answer, asked.values()):
            asked[name] = x
    for spare in _SPARE:
        if len(asked) > QUESTIONS:
            asked.pop(spare, None)
    chosen = list(asked.items())[:QUESTIONS]
    return tuple(
        x.replace(id=f"quiz/{i}", core=True, why=_reason(name, study, x.why))
        for i, (name, x) in enumerate(chosen, 1)
    )


def _reason(name: str, study: ModelStudy, why: str) -> str:
    if name == "cache/token" and study.latent is not None:
        name = "latent/cached"
    return _REASONS.get(name, why)


def _answer(x: Exercise) -> int:
    return int(x.answer)


def _named(found: Mapping[str, Exercise], name: str) -> Exercise | None:
    longer = [y for x, y in found.items() if x.startswith(f"{name}-") and x[-1].isdigit()]
    return found.get(name) or (longer[-1] if longer else None)


def plate_parts(study: ModelStudy) -> Sequence[PlatePart]:
    """Return the parts of a model's picture in the order of its weights, then its layers and the
    whole.
    """
    return (*_weight_parts(study), *_layer_parts(study), _whole(study))


def _weight_parts(study: ModelStudy) -> Iterator[PlatePart]:
    """Yield a part for each module; those of equal size in several kinds of layers are one, so are
    the norms of a layer, and the last of many sizes stands for all others.
    """
    asker = Asker("plate", study)
    for name, places in _places(study).items():
        for i, alike in enumerate(_by_size(study, places)):
            section, rows = alike[0]
            chosen = {id(x): {y.pattern for y in own} for x, own in alike}
            yield PlatePart(
                exercise=asker.ask(
                    f"{name} {_layer(section)}" if i else name,
                    _text(section, name, rows),
                    _account(study, section, rows),
                    hint="rows × columns of each matrix, and the numbers of each vector",
                    why=_why(name, rows),
                ),
                name=_spoken(name),
                layer=_layer(section),
                layers=tuple(
                    _layer(x)
                    for x, own in alike
                    if _account(study, x, own).value == _account(study, section, rows).value
                ),
                paths=tuple(x.pattern for x in rows),
                adds=study.weights(partial(_is_chosen, chosen)),
            )


_Place = tuple[Section, Sequence[WeightRow]]


def _places(study: ModelStudy) -> Mapping[str, Sequence[_Place]]:
    """Return the sections of each module, with its weights there."""
    found: dict[str, list[_Place]] = {}
    for section in study.sections:
        for name, rows in _modules(section).items():
            found.setdefault(name, []).append((section, rows))
    return found


def _by_size(study: ModelStudy, places: Sequence[_Place]) -> Sequence[Sequence[_Place]]:
    found: dict[int, list[_Place]] = {}
    for section, rows in places:
        size = int(_account(study, section, rows).value)
        if size not in found and len(found) == _MOST_SIZES:
            size = next(reversed(found))
        found.setdefault(size, []).append((section, rows))
    return list(found.values())


def _is_chosen(chosen: Mapping[int, set[str]], section: Section, row: WeightRow) -> bool:
    return row.pattern in chosen.get(id(section), ())


def _modules(section: Section) -> Mapping[str, Sequence[WeightRow]]:
    """Return the weights of a section by module, its norms as one."""
    found: dict[str, list[WeightRow]] = {}
    for x in section.rows:
        is_of_layer = section.name == "layers"
        name = "norms" if x.group == "norm" and is_of_layer else _module(x.pattern)
        found.setdefault(name, []).append(x)
    return found


def _module(path: str) -> str:
    ends = (".weight", ".bias")
    return next((path.removesuffix(x) for x in ends if path.endswith(x)), path)


def _account(study: ModelStudy, section: Section, rows: Sequence[WeightRow]) -> Account:
    paths = {x.pattern for x in rows}
    return study.layer_weights(lambda x: x in paths, section)


def _layer(section: Section) -> str:
    if section.name == "layers":
        return str(section.indices[0][0] if section.indices else 0)
    return "embedding" if section.name in ("embed", "positions") else "head"


def _spoken(name: str) -> str:
    return spoken_path(name).removeprefix("the ")


def _text(section: Section, name: str, rows: Sequence[WeightRow]) -> str:
    spoken = spoken_path(name).removeprefix("experts ")
    if name == "norms":
        names = format_list(dict.fromkeys(spoken_path(_module(x.pattern)) for x in rows))
        return f"How many parameters do the norms of this layer have: {names}?"
    where = " of one layer" if section.name == "layers" else ""
    copies = max(int(x.copies) for x in rows)
    together = f" have, for all {copies:,} experts together" if copies > 1 else " have"
    bias = ", with its bias" if any(x.pattern.endswith(".bias") for x in rows) else ""
    if any(x.weight.tied for x in rows):
        return f"How many parameters does {spoken} add? It is tied to the embedding."
    return f"How many parameters does {spoken}{where}{together}{bias}?"


def _why(name: str, rows: Sequence[WeightRow]) -> str:
    """Return why a module has as many parameters as it has."""
    first = rows[0]
    if first.weight.tied:
        return "The head reads the table of the embedding, which is counted there."
    if name == "norms":
        return "A norm has one number for each channel that it scales."
    shape = [x.symbol for x in first.weight.shape]
    if len(shape) == len(rows) == 1:
        return f"It is a vector of {shape[0]} numbers."
    if len(shape) != 2 or len(rows) > 2:
        return (
            f"It has {format_list([' × '.join(x.symbol for x in y.weight.shape) for y in rows])}."
        )
    out, read = shape
    if first.weight.role == "lookup":
        return f"Each of its {out} rows has {read} numbers."
    bias = ", and each output has a bias" if len(rows) == 2 else ""
    its = "its" if int(first.copies) == 1 else "an expert's"
    return f"Each of {its} {out} outputs has a weight for each of {read} inputs{bias}."


def _layer_parts(study: ModelStudy) -> Iterator[PlatePart]:
    asker = Asker("plate", study)
    kinds = [x for x in study.sections if x.name == "layers"]
    for x in kinds[:_MOST_SIZES]:
        which = "a layer" if len(kinds) == 1 else f"layer {_layer(x)}, one of {int(x.times):,},"
        yield PlatePart(
            exercise=asker.ask(
                f"layer {_layer(x)}",
                f"How many parameters does {which} have in all?",
                study.layer_weights(section=x),
                hint="the sum of its parts",
                why="A layer has nothing but its norms and matrices.",
            ),
            name="one layer" if len(kinds) == 1 else f"layer {_layer(x)}",
            layer=_layer(x),
            paths=(),
            adds=Account(products=()),
        )


def _whole(study: ModelStudy) -> PlatePart:
    return PlatePart(
        exercise=Asker("plate", study).ask(
            "total",
            f"How many parameters does {study.name} have in all?",
            study.weights(),
            hint="embedding + layers + final norm + head",
        ),
        name="total",
        layer="",
        paths=(),
        adds=Account(products=()),
    )


def quiz_text(study: ModelStudy) -> Iterator[str]:
    """Yield what the questions are about."""
    asked = len(quiz_exercises(study))
    yield f"{asked} questions about the sizes of {study.name}, its bytes, its cache and its FLOPs."
    yield (
        "The page of the model has these exercises under the same numbers, and a question for each "
        "part of the picture."
    )
    if note := part_note(study):
        yield note


def part_note(study: ModelStudy) -> str:
    """Return a note that only the text model is counted, or an empty text."""
    is_whole = study.model.text is study.model
    return "" if is_whole else f"All questions are about the text model of {study.name}."


QUIZ_LESSON = Lesson(
    name="quiz",
    title="Count it yourself",
    model="llama-3-8b",
    lacks=lambda _study: "",
    explain=quiz_text,
    exercises=quiz_exercises,
)
