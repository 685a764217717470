"""The data of the Design view: free and derived dimensions of a family, its constraints, and its
counts as expressions of them.

The expressions are those of the tree, with letters as variables. Free dimensions and constraints
are found by loading the family with other dimensions; a dimension gets a slider only where the
expressions agree with the loaded models.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import gcd
from typing import Any

from ...analysis.understand.diff.causes import CAUSE_TITLES
from ...config_keys.key_meanings import describe_key
from ...core.expr import Expr, Json, floor_div, product, total
from ...core.parameter_count import Count
from ...core.tree import Stack, fold, iter_stacks
from ...loading import load_family
from ...model import FamilyModel
from ...utils.errors import LlamathError, safe
from ...utils.record_type import Record

_LAYER_LIST_KEYS = ("layer_types", "no_rope_layers", "layers_block_type", "hybrid_override_pattern")
"""Config keys that list the layers one by one; without them, the default order of the family
applies to any depth."""
_LETTER_ORDER = "L d H K h F Fe Fs E k S V C".split()
_MAX_CONFIG_CHARS = 60_000
"""Longer configs get no sliders."""
_NO_CLOSED_FORM = (
    "its total has no closed form in its dimensions. `llamath count --set "
    "KEY=VALUE` counts any values"
)
_MULTIMODAL = (
    "its dimensions are those of the text model alone. `llamath count --set KEY=VALUE` "
    "counts the whole model"
)


_TIED = "tie_word_embeddings"
_NUM_CHECKS, _MAX_ATTEMPTS = 4, 30
"""The number of random points that must agree, and the number of attempts."""
_MAX_DIM = 2**32 - 1
_HEAD_PAIRS = (("H", "K"), ("Hv", "Hk"), ("H", "Kg"))
"""Head counts and the KV head counts that should divide them."""

_HEAD_SIZES = ("h", "p", "hg")
"""Head sizes and rotary parts of heads, which are even where pairs of channels rotate."""

_Sizes = Mapping[str, int]


class _Rule(Record):
    """A constraint left ≤ right, with its text."""

    left: Expr
    right: Expr
    text: str
    bounds_expressions: bool = False
    """Whether the library accepts its violation, with weights that the expressions do not count."""

    def is_violated(self, dimensions: _Sizes) -> bool:
        """Whether these dimensions violate the constraint."""
        return self.left.evaluate(**dimensions) > self.right.evaluate(**dimensions)


class _DesignSpace(Record):
    """The free dimensions with their config keys, and the derived ones."""

    data: Mapping[str, Any]
    sizes: _Sizes
    keys: Mapping[str, str]
    derived: Mapping[str, Expr]
    derived_keys: Mapping[str, Expr] = {}
    """Config keys whose values are derived."""

    def config(self, dimensions: _Sizes, tied: bool | None = None) -> dict[str, Any]:
        """Return the config at other dimensions."""
        data = {**self.data, **{key: dimensions[letter] for letter, key in self.keys.items()}}
        data |= {key: form.evaluate(**dimensions) for key, form in self.derived_keys.items()}
        return data if tied is None else data | {_TIED: tied}

    def with_fixed_letters(self, x: Expr) -> Expr:
        """Return an expression whose variables are free dimensions only; the others are letters
        with their values.
        """
        return x.at(
            **{
                symbol: Expr(symbol, self.sizes[symbol])
                for symbol in x.variables - self.keys.keys()
            }
        )


class _CountForms(Record):
    """The counts of a family as expressions of its dimensions."""

    sections: tuple[tuple[Expr, Expr], ...]  # copies and parameters of each part of the model
    total: Expr
    active: Expr
    groups: Mapping[str, Expr]
    bars: tuple[tuple[bool, Expr, Mapping[str, Expr]], ...]
    """Of each part of the model whether it is layers, their number, and the groups of one."""

    def total_json(self) -> Json:
        """Return the total, part by part."""
        parts = ([x.to_expression_json() for x in section] for section in self.sections)
        return ["+", *(each if times == 1 else ["*", times, each] for times, each in parts)]


def build_design(model: FamilyModel) -> dict[str, Any]:
    """Return the sliders of a model's family, or the reason why there are none."""
    if model.tree.is_multimodal:
        return {"letters": [], "why": _MULTIMODAL}
    data = {key: value for key, value in model.config.data.items() if key not in _LAYER_LIST_KEYS}
    for config in (data, dict(model.config.data)):
        text = json.dumps(config)
        if (
            len(text) <= _MAX_CONFIG_CHARS
            and (design := _try_build_design(text, model.parameters.total)) is not None
        ):
            return design
    return {"letters": [], "why": _NO_CLOSED_FORM}


@lru_cache(maxsize=64)
def _try_build_design(text: str, expected_total: int) -> dict[str, Any] | None:
    data = json.loads(text)
    model = _try_load(data)
    if model is None or model.parameters.total != expected_total:
        return None
    space = _find_design_space(data, model)
    forms_by_tying: dict[bool | None, _CountForms] = {
        tied: _count_forms(x, space)
        for tied in (False, True)
        if (x := _try_load(space.config(space.sizes, tied)))
    }
    tying_is_irrelevant = (
        len({x.total.evaluate(**space.sizes) for x in forms_by_tying.values()}) < 2
    )
    own = _try_load(space.config(space.sizes))
    if own is None or not space.keys:
        return None
    own_forms = _count_forms(own, space)
    kept_forms: dict[bool | None, _CountForms] = (
        {None: own_forms} if tying_is_irrelevant else forms_by_tying
    )
    if not all(_agrees_everywhere(space, tied, x) for tied, x in kept_forms.items()):
        return None
    return _design_data(space, own, kept_forms, tuple(_enforced_rules(space, own_forms.total)))


def _design_data(
    space: _DesignSpace,
    model: FamilyModel,
    forms_by_tying: Mapping[bool | None, _CountForms],
    rules: Sequence[_Rule],
) -> dict[str, Any]:
    value_texts = {
        key: json.dumps(value, indent=2).replace("\n", "\n  ") for key, value in space.data.items()
    }
    by_key: dict[str, Expr] = {
        key: Expr.variable(letter, space.sizes[letter]) for letter, key in space.keys.items()
    }
    by_key |= {key: space.with_fixed_letters(form) for key, form in space.derived_keys.items()}
    if None not in forms_by_tying:
        value_texts.setdefault(_TIED, "")
    total = _count_forms(model, space).total
    letters = {**model.config.key_by_symbol, **model.count.formula.letters}
    fixed_letters = [x for x in letters if x not in space.keys and x not in space.derived]
    return {
        "why": "",
        "type": safe(str(space.data.get("model_type"))),
        "letters": [_letter(space, total, x) for x in sorted(space.keys, key=_order)],
        "follows": [
            {"letter": x, "form": space.with_fixed_letters(form).to_expression_json()}
            for x, form in space.derived.items()
        ],
        "fixed": [
            x
            for x in (
                model.config.key_by_symbol.get(x, "") for x in sorted(fixed_letters, key=_order)
            )
            if type(space.data.get(x)) is int
        ],
        "defaults": [
            {"key": key, "text": json.dumps(x)}
            for key, x in model.config.defaults_used.items()
            if isinstance(x, (bool, str))
        ],
        "neutral": sorted(
            x
            for x in {*space.data, *model.config.keys_read}
            if _has_no_effect(x, model.family.name)
        ),
        "tied": None
        if None in forms_by_tying
        else model.tree.head is None
        or model.parameters.total == forms_by_tying[True].total.evaluate(**space.sizes),
        "totals": [
            {
                "tied": tied,
                "form": x.total_json(),
                "active": {"form": x.active.to_expression_json()},
                "groups": _groups(x.groups),
                "bars": [
                    {
                        "isLayers": is_layers,
                        "times": {"form": times.to_expression_json()},
                        "groups": _groups(groups),
                    }
                    for is_layers, times, groups in x.bars
                ],
            }
            for tied, x in forms_by_tying.items()
        ],
        "rules": [
            {
                "form": x.left.to_expression_json(),
                "most": {"form": x.right.to_expression_json()},
                "says": safe(x.text),
            }
            for x in rules
        ],
        "config": [
            {
                "key": key,
                "form": by_key[key].to_expression_json() if key in by_key else None,
                "text": value_texts.get(key, ""),
                "tied": key == _TIED and None not in forms_by_tying,
            }
            for key in {**value_texts, **by_key}
        ],
    }


def _has_no_effect(key: str, family: str) -> bool:
    """Whether a key is known not to affect any weight."""
    entry = describe_key(key, family)
    return entry is not None and entry[1].partition(":")[0].split(";")[0] in (
        "cache",
        "compute",
        "nothing",
    )


def _order(letter: str) -> int:
    return _LETTER_ORDER.index(letter) if letter in _LETTER_ORDER else len(_LETTER_ORDER)


def _groups(forms: Mapping[str, Expr]) -> list[dict[str, Any]]:
    return [{"name": name, "form": form.to_expression_json()} for name, form in forms.items()]


def _letter(space: _DesignSpace, total: Expr, letter: str) -> dict[str, Any]:
    n, power_of_two = space.sizes[letter], space.sizes[letter] & -space.sizes[letter]
    default = _default_form(space, total, letter)
    step = (
        1 if letter in ("L", "H", "K", "E", "k", "S") else min(power_of_two, 128 if n >= 512 else 8)
    )
    return {
        "letter": letter,
        "key": safe(space.keys[letter]),
        "says": CAUSE_TITLES.get(letter, "experts of a token" if letter == "k" else ""),
        "value": str(n),
        "step": str(step),
        "most": str(min(max(4 * n, 16) // step * step, _MAX_DIM)),
        "absent": {"form": None if default is None else default.to_expression_json()},
    }


def _to_form(n: int, space: _DesignSpace) -> Expr:
    """Return a number as an expression of the free letters; other letters are replaced by their
    value or definition.
    """
    definitions = {x: space.with_fixed_letters(form) for x, form in space.derived.items()}
    return Expr.const(n).with_letters(
        {x: Expr.variable(x, space.sizes[x]) for x in space.keys} | definitions
    )


def _count_forms(model: FamilyModel, space: _DesignSpace) -> _CountForms:
    """Return the counts of a model of the family as expressions."""
    report: Count = model.count
    groups: dict[str, list[int]] = {name: [] for name, n in report.groups.items() if n}
    bars: list[tuple[bool, Expr, Mapping[str, Expr]]] = []
    for section in report.sections:
        each: dict[str, list[int]] = {}
        for row in section.rows:
            each.setdefault(row.group, []).append(product((row.copies, row.weight.parameters)))
            groups.setdefault(row.group, []).append(
                product((section.times, row.copies, row.weight.parameters))
            )
        if section.formula:
            forms = {name: _to_form(total(x), space) for name, x in each.items()}
            bars.append((bool(section.indices), _to_form(section.times, space), forms))
    sections = tuple(
        (_to_form(x.times, space), _to_form(x.formula, space)) for x in report.sections if x.formula
    )
    return _CountForms(
        sections=sections,
        total=total(map(product, sections)),
        active=_to_form(_active_parameters(model), space),
        groups={name: _to_form(total(x), space) for name, x in groups.items()},
        bars=tuple(bars),
    )


def _active_parameters(model: FamilyModel) -> Expr:
    """Return the active parameters as an expression."""
    stacks = (x for _, x in model.tree.children if isinstance(x, Stack))
    leaves = [y for stack in stacks for x, _ in stack.distinct() for y in fold(x)]
    # only of experts: a weight that all tokens use may occur a different number of times in
    # different layers (adapters of Zamba2)
    chosen = (x for x in leaves if Expr.const(x.active).symbol != Expr.const(x.copies).symbol)
    active_copies = {(x.pattern.replace("{l}", "{e}"), id(x.weight)): x.active for x in chosen}
    return total(
        product(
            (
                x.times,
                active_copies.get((row.pattern, id(row.weight)), row.copies),
                row.weight.active_parameters,
            )
        )
        for x in model.count.sections
        for row in x.rows
    )


def _count_at(
    space: _DesignSpace, dimensions: _Sizes, tied: bool | None = None
) -> tuple[int, int] | None:
    """Return the total and active parameters at other dimensions; None if the library rejects
    them.
    """
    if (model := _try_load(space.config(dimensions, tied))) is None:
        return None
    total_parameters = active = 0
    for x in fold(model.tree):
        total_parameters += int(x.weight.parameters) * int(x.copies)
        active += int(x.weight.active_parameters) * int(x.active)
    return total_parameters, active


def _find_design_space(data: Mapping[str, Any], model: FamilyModel) -> _DesignSpace:
    """Return the free dimensions: those with a config key along which the expressions agree with
    the tree.
    """
    letters, key_by_symbol = (
        {**_top_k(model), **model.count.formula.letters},
        model.config.key_by_symbol,
    )
    keys: dict[str, str] = {}
    for x, n in letters.items():
        key = key_by_symbol.get(x, "")
        if (
            x.isascii()
            and x.isalpha()
            and key
            and key not in keys.values()
            and 0 < n <= _MAX_DIM
            and data.get(key) in (n, None)
        ):
            keys[x] = key
    may_be_derived = (
        x for x in ("K", "F") if x not in keys and (x == "K" or x not in key_by_symbol)
    )
    derived = {x: form for x in may_be_derived if (form := derived_dimension(letters, x))}
    space = _DesignSpace(data=data, sizes=letters, keys=keys, derived=derived)
    if "h" in keys and not _agrees_along(space, _count_forms(model, space), "h"):
        keys_without_h = {x: key for x, key in keys.items() if x != "h"}
        form = derived_dimension(letters, "h")
        if form is not None:
            derived |= {"h": form}
        derived_keys = (
            {keys["h"]: form} if form is not None and data.get(keys["h"]) is not None else {}
        )
        space = space.replace(keys=keys_without_h, derived=derived, derived_keys=derived_keys)
    forms = _count_forms(model, space)
    space = space.replace(
        keys={x: key for x, key in space.keys.items() if _agrees_along(space, forms, x)}
    )
    return next(
        (x for x in _fix_dimensions(space) if _agrees_everywhere(x, None, _count_forms(model, x))),
        space,
    )


def _fix_dimensions(space: _DesignSpace) -> Iterator[_DesignSpace]:
    """Yield the space itself, then spaces with one and more dimensions fixed."""
    yield space
    for x in space.keys:
        yield space.replace(keys={y: key for y, key in space.keys.items() if y != x})
    for i in range(2, len(space.keys)):
        yield space.replace(keys=dict(list(space.keys.items())[i:]))


def _top_k(model: FamilyModel) -> dict[str, int]:
    """Return the number of active experts, which is a dimension although the total does not
    depend on it.
    """
    if type(n := model.config.data.get(model.config.key_by_symbol.get("k", ""))) is int and n > 0:
        return {"k": n}
    active = [
        int(x.active)
        for layer, _ in model.tree.layers.distinct()
        for x in iter_stacks(layer)
        if x.active is not None
    ]
    return {"k": max(active)} if active else {}


def derived_dimension(sizes: _Sizes, x: str) -> Expr | None:
    """Return how a dimension derives from others in most families, if its value agrees; else None.

    The head size and the MLP width derive from the hidden size, KV heads from heads, and the width
    of a group from the states.
    """
    d, H, Hm, m, G = (
        Expr.variable(symbol, sizes.get(symbol, 0)) for symbol in ("d", "H", "Hm", "m", "G")
    )
    n = sizes.get(x, 0)
    if x == "h" and H and d // H == n:
        return floor_div(d, H)
    if x == "K" and n and n == H:
        return H
    if x == "F" and d and n and n % d == 0:
        return n // d * d
    if x == "i" and G and n * G == Hm * m:
        return floor_div(Hm * m, G)
    return None


def _agrees_along(space: _DesignSpace, forms: _CountForms, x: str) -> bool:
    """Whether the expressions agree with the tree when only this dimension changes."""
    n, num_agreeing, rules = space.sizes[x], 0, list(_candidate_rules(space))
    for other in dict.fromkeys((2 * n, n // 2, n + 2, 3 * n, 1)):
        dimensions = {**space.sizes, x: other}
        if (
            num_agreeing == 2
            or not 1 <= other != n
            or any(rule.is_violated(dimensions) for rule in rules)
        ):
            continue
        if (counted := _count_at(space, dimensions)) is None:
            continue
        if counted != (forms.total.evaluate(**dimensions), forms.active.evaluate(**dimensions)):
            return False
        num_agreeing += 1
    return num_agreeing > 0


def _candidate_rules(space: _DesignSpace) -> Iterator[_Rule]:
    """Yield the constraints that a family may have."""
    keys, sizes = space.keys, space.sizes
    forms = {x: Expr.variable(x, n) if x in keys else Expr.const(n) for x, n in sizes.items()}
    names = {x: keys.get(x, str(n)) for x, n in sizes.items()}

    def divides(few: str, many: str) -> _Rule:
        multiple = forms[few] * floor_div(forms[many], forms[few])
        return _Rule(
            left=forms[many], right=multiple, text=f"{names[few]} should divide {names[many]}"
        )

    for many, few in _HEAD_PAIRS:
        if {many, few} <= forms.keys() and {many, few} & keys.keys() and few not in space.derived:
            yield divides(few, many)
    if "h" in space.derived and {"H", "d"} & keys.keys():
        yield divides("H", "d")
    if {"E", "k"} <= forms.keys() and {"E", "k"} & keys.keys():
        # some families build one expert as a plain MLP
        text = f"{names['k']} should be at most {names['E']}"
        yield _Rule(left=forms["k"], right=forms["E"], text=text, bounds_expressions=True)
    if {"w", "d"} <= forms.keys() and {"w", "d"} & keys.keys() and sizes["w"] < sizes["d"]:
        # embeddings of the same width have no projections
        text = f"{names['w']} should be less than {names['d']}"
        yield _Rule(left=forms["w"] + 1, right=forms["d"], text=text, bounds_expressions=True)
    for x in sorted(keys.keys() & {*_HEAD_SIZES}):
        yield _Rule(
            left=forms[x], right=2 * floor_div(forms[x], 2), text=f"{keys[x]} should be even"
        )


def _enforced_rules(space: _DesignSpace, form: Expr) -> Iterator[_Rule]:
    """Yield the constraints whose violation the library rejects, and those of the widths and the
    depth for which the expressions hold.
    """
    for rule in _candidate_rules(space):
        letters = rule.left.variables | rule.right.variables
        nearby = [
            {**space.sizes, x: n}
            for x in letters
            for n in (space.sizes[x] + 1, 2 * space.sizes[x] + 1, 1)
        ]
        violating = [at for at in nearby if rule.is_violated(at)]
        if rule.bounds_expressions or (
            violating and not any(_count_at(space, at) for at in violating)
        ):
            yield rule
    if (multiple := _multiple_of_heads(space)) > 1:
        heads = Expr.variable("H", space.sizes["H"])
        text = f"{space.keys['H']} should be a multiple of {multiple}"
        yield _Rule(left=heads, right=multiple * floor_div(heads, multiple), text=text)
    if (multiple := _multiple_of_head_size(space)) > 1:
        size = space.derived["h"]
        text = (
            f"{space.keys['d']} / {space.keys.get('H', space.sizes['H'])} should be a "
            f"multiple of {multiple}"
        )
        yield _Rule(left=size, right=multiple * floor_div(size, multiple), text=text)
    elif _width_must_be_even(space):
        width = Expr.variable("d", space.sizes["d"])
        yield _Rule(
            left=width, right=2 * floor_div(width, 2), text=f"{space.keys['d']} should be even"
        )
    if {"h", "hi"} <= space.keys.keys() and (least := _least_indexer_head(space)) > 1:
        size, indexer = (Expr.variable(x, space.sizes[x]) for x in ("h", "hi"))
        text = (
            f"{space.keys['hi']} should be at least the channels of {space.keys['h']} that rotate"
        )
        yield _Rule(left=least * size, right=space.sizes["h"] * indexer, text=text)
    if "L" in space.keys and (min_layers := _min_layers(space, form)) > 1:
        text = f"{space.keys['L']} should be at least {min_layers}"
        yield _Rule(
            left=Expr.const(min_layers), right=Expr.variable("L", space.sizes["L"]), text=text
        )


def _multiple_of_heads(space: _DesignSpace) -> int:
    """Return the power of two that the library requires to divide the number of heads; 1 if it
    accepts any number.
    """
    if "H" not in space.keys or ("h" in space.derived and "d" not in space.keys):
        return 1
    n = space.sizes["H"]

    def is_accepted(heads: int) -> bool:
        changes = {
            "H": heads,
            "K": gcd(space.sizes.get("K", 1), heads),
            "d": heads * 2 * (space.sizes.get("d", 1) // n // 2),
        }
        changed_letters = {"H", "K"} | ({"d"} if "h" in space.derived else set())
        return (
            _count_at(
                space,
                {**space.sizes, **{x: changes[x] for x in changed_letters & space.keys.keys()}},
            )
            is not None
        )

    return next((x for x in (1, 2, 4, 8) if n % x == 0 and is_accepted(n + x)), 1)


def _multiple_of_head_size(space: _DesignSpace) -> int:
    """Return the power of two that the library requires to divide a derived head size, as pairs
    of channels rotate; 1 for any size.
    """
    if "h" not in space.derived or "d" not in space.keys:
        return 1
    heads = space.sizes["H"]
    n = space.sizes["d"] // heads // 16 * 16 + 16

    def is_accepted(size: int) -> bool:
        return _count_at(space, {**space.sizes, "d": heads * size}) is not None

    return next((x for x in (1, 2, 4, 8, 16) if is_accepted(n + x) and is_accepted(n + 3 * x)), 1)


def _least_indexer_head(space: _DesignSpace) -> int:
    """Return the smallest head size of an indexer that the library accepts: its keys rotate as
    many channels as those of attention.
    """
    sizes = range(1, space.sizes["hi"])
    return next(
        (n for n in sizes if _count_at(space, {**space.sizes, "hi": n}) is not None),
        space.sizes["hi"],
    )


def _width_must_be_even(space: _DesignSpace) -> bool:
    """Whether the library rejects odd widths even with one head, as for positions of sines and
    cosines.
    """
    if "d" not in space.keys:
        return False
    even = {
        **space.sizes,
        "d": 2 * space.sizes["d"],
        **dict.fromkeys(space.keys.keys() & {"H", "K"}, 1),
    }
    return _count_at(space, even) is not None and all(
        _count_at(space, {**even, "d": even["d"] + n}) is None for n in (1, 3, 5)
    )


def _min_layers(space: _DesignSpace, form: Expr) -> int:
    """Return the minimum number of layers for which the expressions agree with the tree."""
    for n in range(1, space.sizes["L"]):
        dimensions = {**space.sizes, "L": n}
        if (counted := _count_at(space, dimensions)) is not None and counted[0] == form.evaluate(
            **dimensions
        ):
            return n
    return space.sizes["L"]


def _default_form(space: _DesignSpace, form: Expr, x: str) -> Expr | None:
    """Return the value that the library uses for a dimension missing from the config, as an
    expression; None if it is required.
    """
    d, H = (Expr.variable(symbol, space.sizes.get(symbol, 1)) for symbol in ("d", "H"))
    candidate = {"h": floor_div(d, H), "K": H, "F": 4 * d}.get(x)
    if candidate is None or not candidate.variables <= space.keys.keys():
        return None
    for n in (2, 4):
        dimensions = {**space.sizes, "d": n * 64 * space.sizes.get("H", 1)}
        dimensions[x] = candidate.evaluate(**dimensions)
        model = _try_load(
            {key: value for key, value in space.config(dimensions).items() if key != space.keys[x]}
        )
        if model is None or model.parameters.total != form.evaluate(**dimensions):
            return None
    return candidate


def _agrees_everywhere(space: _DesignSpace, tied: bool | None, forms: _CountForms) -> bool:
    """Whether the expressions agree with the tree when all dimensions change."""
    rng, num_agreeing, rules = random.Random(5), 0, tuple(_enforced_rules(space, forms.total))
    for _ in range(_MAX_ATTEMPTS):
        dimensions = _random_dimensions(space, rng)
        if any(x.is_violated(dimensions) for x in rules):
            continue
        total, groups = (
            forms.total.evaluate(**dimensions),
            sum(x.evaluate(**dimensions) for x in forms.groups.values()),
        )
        if (
            _count_at(space, dimensions, tied) != (total, forms.active.evaluate(**dimensions))
            or groups != total
        ):
            return False
        if (num_agreeing := num_agreeing + 1) == _NUM_CHECKS:
            return True
    return False


def _random_dimensions(space: _DesignSpace, rng: random.Random) -> dict[str, int]:
    """Return random dimensions, most of them plausible."""
    dimensions = {x: max(int(n * 2 ** rng.uniform(-2, 2)), 1) for x, n in space.sizes.items()}
    dimensions |= {x: dimensions[x] + dimensions[x] % 2 for x in _HEAD_SIZES if x in dimensions}
    dimensions |= {x: n for x, n in space.sizes.items() if x not in space.keys}
    for many, few in _HEAD_PAIRS[:2]:
        if many in dimensions:
            dimensions[many] = dimensions.get(few, 1) * rng.randint(1, 8)
    if "Kg" in dimensions:
        dimensions["Kg"] = gcd(dimensions["Kg"], dimensions["H"])
    if "h" in space.derived:
        dimensions["d"] = dimensions["H"] * 2 * rng.randint(1, 99)
    if "k" in dimensions:
        dimensions["k"] = min(dimensions["k"], dimensions.get("E", dimensions["k"]))
    return {x: dimensions[x] if x in space.keys else n for x, n in space.sizes.items()}


def _try_load(data: Mapping[str, Any]) -> FamilyModel | None:
    """Return the model of a config; None if the library rejects it."""
    try:
        return load_family(data)
    except LlamathError:
        return None
