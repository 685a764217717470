"""The dimensions of a family: which are free, which are derived, which rules hold, and the counts as expressions of them.

The expressions are those of the tree, with letters as variables. Free dimensions and rules are determined by loading the family at other
dimensions; sliders are offered only where the expressions agree with the loaded models.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ...analysis.diff.causes import CAUSE_TITLES
from ...config_keys import describe_key
from ...core.errors import LlamathError, safe
from ...core.expr import Expr, product, total
from ...core.parameter_count import Count
from ...core.tree import Stack, fold
from ...loading import load
from ...model import Model
from .forms import Form, evaluate, number, sum_of, times_of

ORDERS = ("layer_types", "no_rope_layers", "layers_block_type", "hybrid_override_pattern")
"""Config keys that list the layers one by one; without them, the family's own order applies to any depth."""
ORDER = "L d H K h F Fe Fs E k S V C".split()
LONGEST = 60_000
"""Longer configs get no sliders."""
NOT_SO = "its total is no form of its dimensions that the library bears out: `llamath count --set KEY=VALUE` counts any of them"


def design(model: Model) -> dict[str, Any]:
    """Return the sliders of a model's family, or the reason why there are none."""
    data = {key: value for key, value in model.config.data.items() if key not in ORDERS}
    for one in (data, dict(model.config.data)):
        text = json.dumps(one)
        if len(text) <= LONGEST and (found := _design(text, model.parameters.total)) is not None:
            return found
    return {"letters": [], "why": NOT_SO}


@lru_cache(maxsize=64)
def _design(text: str, parameters: int) -> dict[str, Any] | None:
    data = json.loads(text)
    model = loaded(data)
    if model is None or model.parameters.total != parameters:
        return None
    family = family_of(data, model)
    forms: dict[bool | None, Forms] = {
        tied: forms_of(x, family) for tied in (False, True) if (x := loaded(family.config(family.values, tied)))
    }
    same = len({evaluate(x.total, family.values) for x in forms.values()}) < 2
    own = loaded(family.config(family.values))
    if own is None or not family.keys:
        return None
    own_forms = forms_of(own, family)
    kept: dict[bool | None, Forms] = {None: own_forms} if same else forms
    if not all(borne_out(family, tied, x) for tied, x in kept.items()):
        return None
    return _told(family, own, kept, tuple(rules_of(family, own_forms.total)))


def _told(family: Family, own: Model, forms: Mapping[bool | None, Forms], rules: Sequence[Rule]) -> dict[str, Any]:
    texts = {key: json.dumps(value, indent=2).replace("\n", "\n  ") for key, value in family.data.items()}
    by_key: dict[str, Form] = {**{key: letter for letter, key in family.keys.items()}, **family.bound}
    if None not in forms:
        texts.setdefault(TIED, "")
    total = forms_of(own, family).total
    moved = {**own.config.key_by_symbol, **own.count.formula.letters}.keys() - family.keys.keys() - family.follows.keys()
    return {
        "why": "",
        "type": safe(str(family.data.get("model_type"))),
        "letters": [_letter(family, total, x) for x in sorted(family.keys, key=_order)],
        "follows": [{"letter": x, "form": form} for x, form in family.follows.items()],
        "fixed": [x for x in (own.config.key_by_symbol.get(x, "") for x in sorted(moved, key=_order)) if type(family.data.get(x)) is int],
        "defaults": [{"key": key, "text": json.dumps(x)} for key, x in own.config.defaults_used.items() if isinstance(x, (bool, str))],
        "neutral": sorted(x for x in {*family.data, *own.config.keys_read} if _neutral(x, own.family.name)),
        "tied": None if None in forms else own.tree.head is None or own.parameters.total == evaluate(forms[True].total, family.values),
        "totals": [{"tied": tied, "form": x.total, "active": {"form": x.active}, "groups": _groups(x)} for tied, x in forms.items()],
        "rules": [{"form": left, "most": {"form": right}, "says": safe(says)} for left, right, says in rules],
        "config": [
            {"key": key, "form": by_key.get(key), "text": texts.get(key, ""), "tied": key == TIED and None not in forms}
            for key in {**texts, **by_key}
        ],
    }


def _neutral(key: str, family: str) -> bool:
    """Whether a key is known not to affect any weight."""
    found = describe_key(key, family)
    return found is not None and found[1].partition(":")[0].split(";")[0] in ("cache", "compute", "nothing")


def _order(letter: str) -> int:
    return ORDER.index(letter) if letter in ORDER else len(ORDER)


def _groups(found: Forms) -> list[dict[str, Any]]:
    return [{"name": name, "form": form} for name, form in found.groups.items()]


def _letter(family: Family, total: Form, letter: str) -> dict[str, Any]:
    n, twos = family.values[letter], family.values[letter] & -family.values[letter]
    step = 1 if letter in ("L", "H", "K", "E", "k", "S") else min(twos, 128 if n >= 512 else 8)
    return {
        "letter": letter,
        "key": safe(family.keys[letter]),
        "says": CAUSE_TITLES.get(letter, "experts of a token" if letter == "k" else ""),
        "value": str(n),
        "step": str(step),
        "most": str(min(max(4 * n, 16) // step * step, MOST)),
        "absent": {"form": absent(family, total, letter)},
    }


TIED = "tie_word_embeddings"
AGREED, TRIED = 4, 30
"""The number of random points that must agree, and the number of attempts."""
MOST = 2**32 - 1
DIVIDED = (("H", "K"), ("Hv", "Hk"))
"""Head counts and the KV head counts that should divide them."""

Values = Mapping[str, int]
Rule = tuple[Form, Form, str]
"""Rules left ≤ right, with their text."""


class Family(NamedTuple):
    """The free dimensions with their config keys, and the dependent ones."""

    data: Mapping[str, Any]
    values: Values
    keys: Mapping[str, str]
    follows: Mapping[str, Form]
    bound: Mapping[str, Form]  # keys that the configuration has and that follow too

    def config(self, at: Values, tied: bool | None = None) -> dict[str, Any]:
        """Return the config at other dimensions."""
        made = {**self.data, **{key: at[letter] for letter, key in self.keys.items()}}
        made |= {key: evaluate(form, at) for key, form in self.bound.items()}
        return made if tied is None else made | {TIED: tied}


class Forms(NamedTuple):
    """The counts of a family as expressions of its dimensions."""

    total: Form
    active: Form
    groups: Mapping[str, Form]


def form_of(n: int, family: Family) -> Form:
    """Return a number as an expression of the free letters; other letters are replaced by their value or definition."""
    return number(n, {x: x for x in family.keys} | dict(family.follows))


def forms_of(model: Model, family: Family) -> Forms:
    """Return the counts of a model of the family as expressions."""
    report: Count = model.count
    groups: dict[str, list[int]] = {name: [] for name, n in report.groups.items() if n}
    for section in report.sections:
        for row in section.rows:
            groups.setdefault(row.group, []).append(product((section.times, row.copies, row.weight.parameters)))
    parts = [times_of(form_of(x.times, family), form_of(x.formula, family)) for x in report.sections if x.formula]
    return Forms(sum_of(*parts), form_of(_live(model), family), {name: form_of(total(x), family) for name, x in groups.items()})


def _live(model: Model) -> Expr:
    """Return the active parameters as an expression."""
    stacks = (x for _, x in model.tree.children if isinstance(x, Stack))
    shares = {id(y.weight): y.active for stack in stacks for x, _ in stack.distinct() for y in fold(x)}
    return total(
        product((x.times, shares.get(id(row.weight), row.copies), row.weight.parameters)) for x in model.count.sections for row in x.rows
    )


def _counted(family: Family, at: Values, tied: bool | None = None) -> tuple[int, int] | None:
    """Return (total, active) of a config; None if it is refused."""
    if (model := loaded(family.config(at, tied))) is None:
        return None
    whole = active = 0
    for x in fold(model.tree):
        n = int(x.weight.parameters)
        whole, active = whole + n * int(x.copies), active + n * int(x.active)
    return whole, active


def family_of(data: Mapping[str, Any], model: Model) -> Family:
    """Return the free letters: those with a config key whose expressions agree with the tree."""
    letters, named = {**_others(model), **model.count.formula.letters}, model.config.key_by_symbol
    keys: dict[str, str] = {}
    for x, n in letters.items():
        key = named.get(x, "")
        if x.isascii() and x.isalpha() and key and key not in keys.values() and n <= MOST and data.get(key) in (n, None):
            keys[x] = key
    found = Family(
        data,
        letters,
        keys,
        {x: form for x in ("K", "F") if x not in keys and (x == "K" or x not in named) and (form := source(letters, x))},
        {},
    )
    if "h" in keys and not _moves(found, forms_of(model, found), "h"):
        rest = {x: key for x, key in keys.items() if x != "h"}
        follows = {x: form for x in ("h",) if (form := source(letters, x))}
        bound = {keys[x]: form for x, form in follows.items() if data.get(keys[x]) is not None}
        found = found._replace(keys=rest, follows={**found.follows, **follows}, bound=bound)
    forms = forms_of(model, found)
    found = found._replace(keys={x: key for x, key in found.keys.items() if _moves(found, forms, x)})
    return next((x for x in _fewer(found) if borne_out(x, None, forms_of(model, x))), found)


def _fewer(family: Family) -> Iterator[Family]:
    """Yield the letters, then subsets with one and more letters fixed."""
    yield family
    for x in family.keys:
        yield family._replace(keys={y: key for y, key in family.keys.items() if y != x})
    for i in range(2, len(family.keys)):
        yield family._replace(keys=dict(list(family.keys.items())[i:]))


def _others(model: Model) -> dict[str, int]:
    """Whether top_k, which does not affect the total, is a dimension."""
    k = model.config.key_by_symbol.get("k", "")
    return {"k": n} if type(n := model.config.data.get(k)) is int and n > 0 else {}


def source(values: Values, x: str) -> Form | None:
    """What a letter may follow from, as families have it: a head's size and the feed-forward from the width, KV heads
    from heads, a group's width from the states.
    """
    d, H, n = values.get("d", 0), values.get("H", 0), values.get(x, 0)
    form: Form | None = None
    if x == "h" and H and d // H == n:
        form = ["floor", "d", "H"]
    elif x == "K" and n and n == H:
        form = "H"
    elif x == "F" and d and n and n % d == 0:
        form = times_of(str(n // d), "d")
    elif x == "i" and values.get("G") and n * values["G"] == values.get("Hm", 0) * values.get("m", 0):
        form = ["floor", ["*", "Hm", "m"], "G"]
    return form


def _inside(form: Form) -> set[str]:
    if isinstance(form, str):
        return set() if form.isdigit() else {form}
    return {y for x in form[1:] for y in _inside(x)}


def _moves(family: Family, forms: Forms, x: str) -> bool:
    """Whether the expression agrees with the tree when only this letter changes."""
    n, seen, rules = family.values[x], 0, list(_possible(family))
    for other in dict.fromkeys((2 * n, n // 2, n + 2, 3 * n, 1)):
        at = {**family.values, x: other}
        if seen == 2 or not 1 <= other != n or any(broken(rule, at) for rule in rules) or (found := _counted(family, at)) is None:
            continue
        if found != (evaluate(forms.total, at), evaluate(forms.active, at)):
            return False
        seen += 1
    return seen > 0


def broken(rule: Rule, at: Values) -> bool:
    """Whether these dimensions violate a rule."""
    return evaluate(rule[0], at) > evaluate(rule[1], at)


def _possible(family: Family) -> Iterator[Rule]:
    """Yield the rules that a family may have, as (left, right, text) with left ≤ right."""
    keys, v = family.keys, family.values
    of = {x: x if x in keys else str(n) for x, n in v.items()}
    name = {x: keys.get(x, str(n)) for x, n in v.items()}
    for many, few in DIVIDED:
        if {many, few} <= of.keys() and {many, few} & keys.keys() and few not in family.follows:
            yield of[many], times_of(of[few], ["floor", of[many], of[few]]), f"{name[few]} should divide {name[many]}"
    if "h" in family.follows and {"H", "d"} & keys.keys():
        yield of["d"], times_of(of["H"], ["floor", of["d"], of["H"]]), f"{name['H']} should divide {name['d']}"
    if {"E", "k"} <= of.keys() and {"E", "k"} & keys.keys():
        yield of["k"], of["E"], f"{name['k']} should be at most {name['E']}"
    for x in keys.keys() & {"h", "p"}:
        yield x, times_of("2", ["floor", x, "2"]), f"{keys[x]} should be even"


def rules_of(family: Family, form: Form) -> Iterator[Rule]:
    """Return the rules whose violation is refused, and the smallest depth for which the expressions hold."""
    for rule in _possible(family):
        letters = _inside(rule[0]) | _inside(rule[1])
        around = [{**family.values, x: n} for x in letters for n in (family.values[x] + 1, 2 * family.values[x] + 1, 1)]
        wrong = [at for at in around if broken(rule, at)]
        if wrong and not any(_counted(family, at) for at in wrong):
            yield rule
    if "L" in family.keys and (least := _least(family, form)) > 1:
        yield str(least), "L", f"{family.keys['L']} should be at least {least}"


def _least(family: Family, form: Form) -> int:
    """Return the smallest depth from which the expressions agree with the tree."""
    for n in range(1, family.values["L"]):
        at = {**family.values, "L": n}
        if (found := _counted(family, at)) is not None and found[0] == evaluate(form, at):
            return n
    return family.values["L"]


def absent(family: Family, form: Form, x: str) -> Form | None:
    """Return the value of a letter that the config leaves out."""
    sources: dict[str, Form] = {"h": ["floor", "d", "H"], "K": "H", "F": ["*", "4", "d"]}
    candidate = sources.get(x)
    if candidate is None or not _inside(candidate) <= family.keys.keys():
        return None
    for n in (2, 4):
        at = {**family.values, "d": n * 64 * family.values.get("H", 1)}
        at[x] = evaluate(candidate, at)
        model = loaded({key: value for key, value in family.config(at).items() if key != family.keys[x]})
        if model is None or model.parameters.total != evaluate(form, at):
            return None
    return candidate


def borne_out(family: Family, tied: bool | None, forms: Forms) -> bool:
    """Whether the expressions agree with the tree when all dimensions change."""
    draw, seen, rules = random.Random(5), 0, tuple(rules_of(family, forms.total))
    for _ in range(TRIED):
        at = drawn(family, draw)
        if any(broken(x, at) for x in rules):
            continue
        total, groups = evaluate(forms.total, at), sum(evaluate(x, at) for x in forms.groups.values())
        if _counted(family, at, tied) != (total, evaluate(forms.active, at)) or groups != total:
            return False
        if (seen := seen + 1) == AGREED:
            return True
    return False


def drawn(family: Family, draw: random.Random) -> dict[str, int]:
    """Return random dimensions, most of them plausible."""
    at = {x: max(int(n * 2 ** draw.uniform(-2, 2)), 1) for x, n in family.values.items()}
    at |= {x: at[x] + at[x] % 2 for x in ("h", "p") if x in at}
    at |= {x: n for x, n in family.values.items() if x not in family.keys}
    for many, few in DIVIDED:
        if many in at:
            at[many] = at.get(few, 1) * draw.randint(1, 8)
    if "h" in family.follows:
        at["d"] = at["H"] * 2 * draw.randint(1, 99)
    if "k" in at:
        at["k"] = min(at["k"], at.get("E", at["k"]))
    return {x: at[x] if x in family.keys else n for x, n in family.values.items()}


def loaded(data: Mapping[str, Any]) -> Model | None:
    """Load the model of a config; None if it is refused."""
    try:
        return load(data)
    except LlamathError:
        return None
