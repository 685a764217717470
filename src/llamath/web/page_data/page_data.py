"""The page's data for one or two models: exact integers as text, each with its derivation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from importlib.metadata import version
from typing import Any

from ...analysis.learn.exercise import Exercise
from ...analysis.learn.lessons.quiz_lesson import part_note, plate_parts, quiz_exercises
from ...analysis.learn.study import ModelStudy
from ...analysis.learn.tour.stop_questions import COUNT_SO_FAR, named_mistakes, stop_exercises
from ...analysis.learn.tour.tour import CodeLine, tour_of
from ...analysis.understand.diff.causes import METHOD, Cause, CausePart
from ...analysis.understand.diff.diff_tables import format_setting
from ...analysis.understand.diff.model_diff import DiffReport, WeightEntry, diff
from ...analysis.understand.fact_sheet import fact_sheet
from ...checkpoint.naming.scheme import Scheme, UnnamedWeight
from ...config_keys.dimension_words import dimension_words
from ...core.expr import Expr, as_number, product, total
from ...core.parameter_count import Section, WeightRow, formula_of
from ...core.tree import Folded, fold, fold_field
from ...model import FamilyModel
from ...render.svg.poster.poster_svg import FORMATS, poster_drawing
from ...utils.errors import safe
from ...utils.number_format import format_percent, format_ranges, format_signed, short_count
from ...utils.number_marks import Marks, mark, marked, own_text, unmarked
from ..forms.arranged_layers import LayerRule, arranged, find_layer_rule
from ..forms.design_data import build_design
from ..forms.family_form import derived_dimensions
from ..forms.followed_keys import followed_keys, scalings, with_key_letters
from .attention_data import build_attention
from .block_data import build_block_diagrams, written_numbers
from .checkpoint_data import checkpoint_findings
from .clipboard_texts import diff_texts, model_texts
from .experts_data import build_experts
from .facts_data import facts_data
from .file_formats import file_formats
from .fixed_letters import fixed_letters
from .live.live_data import LiveParts
from .live.tour_example import examples_of, is_bundled_example
from .page_settings import page_settings
from .parameters_data import build_parameters
from .plate_data import build_plate
from .sizing.inference_data import (
    ROOF,
    blocks_by_dtype,
    fit_rules,
    gpu_data,
    hardware_of_all,
    kept_as,
    sizes,
)
from .sizing.layouts_data import layouts
from .sizing.training_data import start_of_training, training
from .template_variants import changes_between, mixture_of, template_variants
from .tower_data import build_towers
from .ui_strings import UI_STRINGS


def causes_of(a: FamilyModel, b: FamilyModel, report: DiffReport) -> dict[str, Any]:
    """Return why the second of two models has another size."""
    formulas = [x.count.formula for x in (a, b)]
    return {
        "totals": [str(report.total.a), str(report.total.b)],
        "delta": str(report.delta),
        "formulas": [[x.symbols, x.numbers] for x in formulas],
        "method": METHOD,
        "causes": [
            {
                "kind": x.kind,
                "cause": safe(x.cause),
                "label": safe(x.label),
                "where": x.where,
                "delta": str(x.delta),
                "groups": _deltas_by_group(x),
                "of": list(_cause_formulas(x)),
            }
            for x in report.causes
        ],
    }


def _diff_data(report: DiffReport) -> dict[str, Any]:
    """Return what else differs."""
    return {
        "weights": [
            {
                "path": x.path,
                "group": x.group or "other",
                "a": _weight_entry(x.a),
                "b": _weight_entry(x.b),
                "delta": str(x.delta),
            }
            for x in report.weights
        ],
        "shared": {
            "weights": [safe(x) for x in report.same.weights],
            "parameters": str(report.same.parameters),
        },
        "config": [
            {
                "key": safe(x.key),
                "a": safe(format_setting(x, 0), 500),
                "b": safe(format_setting(x, 1), 500),
                "moves": x.moves,
            }
            for x in report.config
        ],
        "agreed": [safe(x) for x in report.same.config],
    }


def _deltas_by_group(cause: Cause) -> list[list[str]]:
    """Return what a cause adds to each group of weights."""
    deltas: dict[str, int] = {}
    for x in cause.parts:
        deltas[x.group or "other"] = deltas.get(x.group or "other", 0) + x.delta
    return [[group, str(n)] for group, n in deltas.items() if n]


def _cause_formulas(cause: Cause) -> Iterator[list[str]]:
    """Yield the formulas of a cause: its dimension, its layers, its difference per weight, and
    its total.
    """
    if cause.a is not None and cause.b is not None:
        yield [safe(cause.cause), f"{cause.a:,} → {cause.b:,}"]
    for n in sorted({x.layers for x in cause.parts if x.layers}):
        yield ["affected layers", f"{n:,}"]
    groups: dict[str, list[CausePart]] = {}
    for x in cause.parts:
        groups.setdefault(x.group, []).append(x)
    for parts in groups.values() if len(groups) > 1 else ():
        yield _sum_formula(parts)
    yield _sum_formula(cause.parts)


def _sum_formula(parts: Sequence[CausePart]) -> list[str]:
    names = (x.path if x.layers is None else f"{x.path} of {x.layers} layers" for x in parts)
    return [
        " + ".join(names),
        " ".join(format_signed(x.delta) for x in parts),
        format_signed(sum(x.delta for x in parts)),
    ]


def _weight_entry(x: WeightEntry | None) -> dict[str, Any] | None:
    if x is None:
        return None
    return {
        "shape": [str(n) for n in x.shape],
        "dims": list(x.dims),
        "copies": str(x.copies),
        "parameters": str(x.parameters),
        "tied": x.tied,
        "lookup": x.lookup,
    }


_FROM_CONFIG, _FAMILY_DEFAULT = "from the config", "the default of the family"
_MOST_MISTAKES = 5
"""Named for the parameters of a stop, which says the count so far itself."""
_ANSWER = "answer"
"""The variable of a mistake's expression that stands for the right answer."""
_MAX_FORMULA_CHARS = 20_000
"""Longer formulas are truncated."""


def build_page_data(models: Sequence[FamilyModel], live: LiveParts | None = None) -> dict[str, Any]:
    """Return all data of the page; `live` is of the first model."""
    model_data, known_gpus = [_model(x) for x in models], gpu_data()
    if live is not None:
        for x in (model_data[0], model_data[0]["template"]):
            x |= {"live": live.data, "name": live.data["title"] or x["name"]}
            # the page computes in numbers what pages without a live model take from the bundled one
            for stop in x["tour"]:
                stop |= {"example": None} if is_bundled_example(stop) else {}
    hardware = hardware_of_all(models) if len(models) > 1 else ("", "")
    # the models last, after what they have words in common with: see `_model`
    return {
        "gpus": known_gpus,
        "settings": page_settings(model_data, known_gpus, hardware),
        "roof": ROOF,
        "fit": fit_rules(),
        "difference": _comparison(*models) if len(models) == 2 else None,
        "words": UI_STRINGS,
        "version": version("llamath"),
        "files": file_formats(),
        "scalings": scalings(),
        "models": model_data,
    }


def _comparison(a: FamilyModel, b: FamilyModel) -> dict[str, Any]:
    report = diff(a, b)
    return causes_of(a, b, report) | _diff_data(report) | {"copy": diff_texts(report)}


def _model(model: FamilyModel) -> dict[str, Any]:
    """Return the data of a model, and as its `template` the same with marks in place of the
    numbers that follow from its dimensions.
    """
    facts = fact_sheet(model)
    unmarked_data: dict[
        str, Any
    ] = {  # columns as wide as their numbers, wrong numbers, and what was searched for
        "design": build_design(model),
        "followed": followed_keys(model),
        "copy": model_texts(model),
        "posters": {
            name: [poster_drawing(facts, name), *form.pixels] for name, form in FORMATS.items()
        },
    }
    rule, others = find_layer_rule(model), dict(template_variants(model, unmarked_data["design"]))
    with marked() as marks:
        # without its count, which is kept
        arranged_model = arranged(with_key_letters(model).replace(), rule)
        data = _marked_data(arranged_model, unmarked_data)
        data["checkpoint"] = checkpoint_findings(model)
        with unmarked():
            data["parallel"] = _layouts(arranged_model, data["sizes"])
        own: dict[str, Any] = marks.own_data({x: y for x, y in data.items() if x != "blocks"})
        data["fixed"] = _fixed_letters(model, others.values())
        made = {name: _variant_data(x, rule, data) for name, x in others.items()}
        encoded = _encoded(marks, data, made) | mixture_of(model, others)
        return own | {"template": encoded}


def _encoded(
    marks: Marks, data: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the template of data, with what variants change in it."""
    template = marks.encode({"own data": data, **others})
    encoded: dict[str, Any] = template.pop("own data")
    changes = {
        name: changes_between({x: encoded[x] for x in y}, template.pop(name))
        for name, y in others.items()
    }
    # the variants repeat texts of the tour and the quiz: compression looks back 32 kB
    first = {x: encoded[x] for x in ("tour", "quiz")}
    return first | {"variants": changes} | encoded | template


def _fixed_letters(model: FamilyModel, variants: Iterable[FamilyModel]) -> list[str]:
    """Return the letters that an edit may not change: also those that variants alone have."""
    own, *others = ({*x.count.formula.letters, *x.config.key_by_symbol} for x in (model, *variants))
    return fixed_letters(model) + sorted(set[str]().union(*others) - own)


def _variant_data(
    model: FamilyModel, rule: LayerRule | None, own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what of the data a variant may change: not what is left out of edited models."""
    arranged_model = arranged(with_key_letters(model).replace(), rule)
    data = _marked_data(arranged_model, {}, own)
    return data | {"fixed": fixed_letters(model)}


def _layouts(model: FamilyModel, sizes: dict[str, Any]) -> dict[str, Any] | None:
    """Return the layouts of a model, by which its training starts."""
    start = sizes["training"]["start"]
    own_format = next(kept_as(model))[1]
    found = layouts(model, own_format, int(sizes["start"]), int(start["trainers"]))
    sizes["training"]["start"] = start_of_training(model, start, found["training"])
    return found


def _marked_data(
    model: FamilyModel, unmarked_data: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the data of a model with numbers that follow from its dimensions, and others; `own`
    is that of the model whose variant it is.
    """
    counts, facts = model.count, fact_sheet(model)
    memory_by_dtype, passes = dict(kept_as(model)), build_block_diagrams(model)
    parameters = build_parameters(model, memory_by_dtype)
    spine = parameters.pop("spine")
    sized, trained = sizes(model, memory_by_dtype), training(model)
    # what names the same weights stands together: compression looks back 32 kB
    return {
        "blocks": blocks_by_dtype(model, memory_by_dtype),
        "letters": list(_letters(model)),
        "everyday": short_count(counts.parameters.total),
        **unmarked_data,
        "tour": list(_tour(model, own)),
        "quiz": _quiz(model),
        "plate": build_plate(model, passes["prompt"]),
        "sections": [_section(model, x) for x in counts.sections],
        **parameters,
        "passes": passes,
        "family": model.family.name,
        "attention": build_attention(model),
        "counts": list(_counts(model)),
        "source": safe(model.source),
        "facts": facts_data(facts),
        "groups": [{"name": name, "parameters": str(n)} for name, n in counts.groups.items()],
        "name": safe(model.name),
        "notes": [safe(x, 500) for x in model.notes],
        "experts": build_experts(model, memory_by_dtype),
        "sizes": sized | {"training": trained, "spine": spine},
        "towers": build_towers(model),
    }


def _tour(model: FamilyModel, own: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield the stops of the tour, with an example and what is asked there; those of a variant
    with the examples of the model's own data.
    """
    tour = tour_of(model)
    asked = stop_exercises(tour)
    examples = examples_of(tour, own["tour"] if own else ())
    for x in tour.stops:
        yield x.to_json() | {
            "adds": f"{x.adds.value:,}",
            "so_far": f"{x.so_far:,}",
            "example": examples.get(x.name),
            "code": list(_code_runs(x.code)),
            "questions": [
                # that of the parameters without the words that name the stop
                _question(model, y, y.text.rpartition(". ")[2], _MOST_MISTAKES)
                if y.kind == "weights"
                else _question(model, y, y.text)
                for y in asked[x.name]
            ],
        }


def _code_runs(lines: Iterable[CodeLine]) -> Iterator[list[int | str]]:
    """Yield the number of a line and its text with those of the lines that follow it at once."""
    run: list[int | str] = []
    for x in lines:
        if not run or run[0] != x.line - len(run) + 1:
            yield from (run,) if run else ()
            run = [x.line]
        run.append(x.text)
    yield from (run,) if run else ()


def _question(model: FamilyModel, x: Exercise, text: str, most: int = 0) -> dict[str, Any]:
    """Return a question, its answer and its mistakes as expressions in letters; those that the
    model has not are given.
    """
    known = model.count.formula.letters
    answer = _in_letters(x.answer, x)
    with unmarked():  # some mistakes are other values of letters
        mistakes = [
            (_beside(answer, _in_letters(wrong, x)), mistake)
            for wrong, mistake in named_mistakes(x, most)
            if mistake.name != COUNT_SO_FAR
        ]
    used = set(x.given).union(answer.variables, *(wrong.variables for wrong, _ in mistakes))
    return {
        "kind": x.kind,
        "text": text,
        "why": x.reason,
        "off": [x.below, x.above] if x.below else None,
        "form": answer.to_expression_json(),
        "given": {
            y: str(n if y in x.given else Expr(y, n))
            for y, n in x.letters.items()
            if y in used and known.get(y) != n
        },
        "mistakes": [
            [
                wrong.to_expression_json(),
                "" if y.name == (says := safe(y.explain(x.study), 500)) else safe(y.name),
                says,
            ]
            for wrong, y in mistakes
        ],
    }


def _in_letters(number: Expr, x: Exercise) -> Expr:
    """Return a number with its letters as variables, which other values can take; with values in
    the place of letters that mean another dimension in the question.
    """
    found = number.with_letters(
        {
            letter: Expr.variable(letter, n) if x.letters.get(letter) == n else Expr.const(n)
            for letter, n in number.letters.items()
        }
    )
    is_known = found == number and found.variables <= x.letters.keys()
    return found if is_known else Expr.const(int(number))


def _quiz_id(model: FamilyModel) -> str:
    """Return the model as an address names it: its preset, or its name in small letters."""
    if model.preset is not None:
        return model.preset.slug
    return "-".join(re.findall(r"[a-z0-9.]+", model.name.lower()))[:80] or "model"


def _beside(answer: Expr, wrong: Expr) -> Expr:
    """Return a wrong number by its difference from the answer, where that is shorter."""
    off = Expr.const(wrong - answer)
    if len(off.terms) + 1 >= len(wrong.terms):
        return wrong
    return Expr.variable(_ANSWER, int(answer)) + off


def _quiz(model: FamilyModel) -> dict[str, Any]:
    """Return what "Count it yourself" asks: of the parts of the picture, and beyond it."""
    study = ModelStudy.of(model)

    def question(x: Exercise) -> dict[str, Any]:
        return _question(model, x, safe(x.text, 500)) | {"unit": x.unit}

    return {
        "id": _quiz_id(model),
        "note": safe(part_note(study)),
        "elsewhere": {x: str(n) for x, n in study.other_values.items()},
        "exercises": [question(x) for x in quiz_exercises(study)],
        "parts": [
            {
                "name": safe(x.name),
                "layer": x.layer,
                "layers": list(x.layers),
                "paths": list(x.paths),
                "adds": _in_letters(x.adds.value, x.exercise).to_expression_json(),
            }
            | question(x.exercise)
            for x in plate_parts(study)
        ],
    }


def _letters(model: FamilyModel) -> Iterator[dict[str, Any]]:
    """Yield the dimensions, each with its origin: a config key, other dimensions, or a default
    of the family.
    """
    derived, values = derived_dimensions(model), model.count.formula.letters
    for letter, value in values.items():
        own = Expr(letter, value)
        key, form = model.config.key_by_symbol.get(letter, ""), derived.get(letter)
        in_config = key in model.config.data
        lines = (
            [key]
            if in_config
            else [_FAMILY_DEFAULT]
            if form is None
            else [form.symbol, _in_numbers(form, values)]
        )
        description = {
            "says": dimension_words(letter, key),
            "key": safe(key),
            "from": _FROM_CONFIG if in_config else "",
        }
        yield {
            "letter": letter,
            "value": str(own),
            "of": [letter, *map(safe, lines), f"{own:,}"],
        } | description


def _in_numbers(form: Expr, values: Mapping[str, int]) -> str:
    """Return an expression of letters in numbers, which follow the letters if weights have them."""
    if not set(re.findall("[A-Za-z]+", form.symbol)) <= values.keys():
        return form.numbers
    text = re.sub("[A-Za-z]+", lambda x: str(Expr(x[0], values[x[0]])), form.symbol)
    return text if own_text(text) == form.numbers else form.numbers


def _counts(model: FamilyModel) -> Iterator[dict[str, str]]:
    p, formula, groups = model.parameters, formula_of(model.count.sections), model.count.groups
    yield _count(
        "total",
        p.total,
        "every weight; a tied matrix counts once",
        formula.symbols,
        formula.numbers,
    )
    leaves = fold(model.tree)
    if p.active != p.total:
        active = total(product((x.active, x.weight.active_parameters)) for x in leaves)
        yield _count(
            "active",
            p.active,
            "the parameters that one token uses, with the whole embedding",
            active.symbol,
            active.numbers,
        )
    if p.has_sparse_layers:
        yield _count(
            "active without embeddings",
            p.active_without_embeddings,
            "as some publishers count: a token reads one row of the embedding",
            "active − embedding",
            f"{p.active} − {p.active - p.active_without_embeddings}",
        )
    if p.tied_counted_twice != p.total:
        tied = p.tied_counted_twice - p.total
        yield _count(
            "tied counted twice",
            p.tied_counted_twice,
            "the sum over the list of tensors",
            "total + tied",
            f"{p.total} + {tied}",
        )
    for name, n, subtracted in (
        ("without embeddings", p.without_embeddings, ("embedding",)),
        ("without head", p.without_head, ("head",)),
        ("layers and norms", p.blocks, ("embedding", "head")),
    ):
        yield _count(
            name,
            n,
            "",
            " − ".join(("total", *subtracted)),
            " − ".join(str(x) for x in (p.total, *(groups[y] for y in subtracted))),
        )
    if p.per_layer is not None:
        layer = next(x for x in model.count.sections if x.name == "layers")
        yield _count("one layer", p.per_layer, "", layer.formula.symbol, layer.formula.numbers)
    if p.buffers:
        buffers = _total_parameters(x for x in leaves if x.weight.buffer)
        yield _count(
            "buffers",
            p.buffers,
            "included in the total; buffers in the reference implementation",
            buffers.symbol,
            buffers.numbers,
        )
    for name, n in p.extras.items():
        extra = _total_parameters(fold_field(model.tree, name))
        yield _count(
            f"additional: {name}",
            n,
            "part of the checkpoint, not of the total",
            extra.symbol,
            extra.numbers,
        )


def _total_parameters(leaves: Iterable[Folded]) -> Expr:
    return total(product((x.copies, x.weight.parameters)) for x in leaves)


def _count(name: str, n: int, says: str, symbols: str, numbers: str) -> dict[str, str]:
    return {
        "name": name,
        "value": str(n),
        "everyday": short_count(n),
        "says": says,
        "symbols": safe(symbols, _MAX_FORMULA_CHARS),
        "numbers": safe(numbers, _MAX_FORMULA_CHARS),
    }


def _section(model: FamilyModel, section: Section) -> dict[str, Any]:
    layers, num_layers = (
        bool(section.indices) or section.name == "layers",
        Expr.const(section.times),
    )
    where = f"layers {format_ranges(section.indices)}" if section.indices else section.name
    section_total = section.each * as_number(section.times)
    return {
        "where": where,
        "layers": layers,
        "times": str(num_layers),
        "letter": num_layers.symbol,
        "each": str(section.each),
        "symbols": section.formula.symbol,
        "numbers": section.formula.numbers,
        "of": _of_section(section, num_layers, section_total),
        "total": str(section_total),
        "share": _share(section_total, model),
        "rows": [_row(model, section, x, layers) for x in section.rows],
    }


def _of_section(section: Section, num_layers: Expr, section_total: int) -> list[list[str]]:
    """Return the formulas of the size, the copies and the total of a section."""
    symbols, numbers = (
        (section.formula.symbol, section.formula.numbers)
        if int(section.each)
        else ("no weights of its own", "0")
    )
    letter = num_layers.symbol if num_layers.atoms else "layers of this kind"
    num_text = f"{num_layers:,}"
    copies_formula = ["from the builder", num_text] if int(num_layers) == 1 else [letter, num_text]
    total_formula = (
        [symbols, numbers]
        if int(num_layers) == 1
        else [f"{letter}·({symbols})", f"{num_text}·({numbers})"]
    )
    return [
        [symbols, numbers, f"{section.each:,}"],
        copies_formula,
        [*total_formula, f"{section_total:,}"],
    ]


def _row(model: FamilyModel, section: Section, row: WeightRow, layers: bool) -> dict[str, Any]:
    path = f"layers.{{l}}.{row.pattern}" if layers else row.pattern
    row_total = row.parameters * as_number(section.times)
    return {
        "path": path,
        "names": {
            name: _name(model.family.schemes.get(name), path) for name in ("hf", "meta", "gguf")
        },
        "group": row.group or "other",
        "dims": [x.symbol for x in row.weight.shape],
        "numbers": list(map(written_numbers, row.weight.shape)),
        "shape": [str(x) for x in row.weight.shape],
        "lookup": row.weight.role == "lookup",
        "each": str(row.weight.size),
        "copies": str(row.copies),
        "times": str(section.times),
        "tied": row.weight.tied,
        "total": str(row_total),
        "share": "tied" if row.weight.tied else _share(row_total, model),
    }


def _share(n: int, model: FamilyModel) -> str:
    whole = model.parameters.total or 1
    share = Fraction(n, whole)
    text = "<0.01%" if 0 < share < Fraction(1, 20_000) else format_percent(share)
    return mark(text, "%", n, whole)


def _name(scheme: Scheme | None, path: str) -> str:
    try:
        return scheme.stored_name(path) if scheme else ""
    except UnnamedWeight:
        return ""
