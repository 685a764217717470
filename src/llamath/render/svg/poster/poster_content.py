"""The text, the numbers and the matrices of a poster."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from ....analysis.understand.fact_sheet import FactSheet, MixerFacts
from ....analysis.understand.model_bars import COMPONENTS, model_bars, used_copies
from ....analysis.understand.model_origin import license_name, month_of
from ....utils.errors import safe
from ....utils.number_format import group_digits, short_bytes, short_count, short_tokens
from .layer_packing import Matrix, MatrixGroup

_NAMES = {
    "embed": "Embedding",
    "attn": "Attention",
    "ffn": "FFN",
    "experts": "Experts",
    "router": "Router",
    "norm": "Norms",
    "head": "Head",
}


class Fact(NamedTuple):
    """A short value and its name."""

    value: str
    name: str
    color: str = "$ink"


class OpenLayer(NamedTuple):
    """The most frequent kind of layer, by parameters."""

    title: str
    groups: tuple[MatrixGroup, ...]


def origin_of(facts: FactSheet) -> str:
    """Return organization, month and license, or what the model is."""
    known = (facts.organization, month_of(facts.released), license_name(facts.license))
    return " · ".join(safe(x) for x in known if x) or f"{facts.model.family.name} family"


def name_of(facts: FactSheet) -> str:
    """Return the name; of a model without one, that of its family."""
    name = facts.model.name.strip()
    has_name = name and name != facts.model.source
    return safe(name, 120) if has_name else f"A model of the {facts.model.family.name} family"


def size_note(facts: FactSheet) -> str:
    """Return the line below the count."""
    if not facts.model.parameters.has_sparse_layers:
        return f"parameters ({short_count(facts.total)})"
    return f"parameters, {short_count(facts.active)} active for each token"


def source_of(facts: FactSheet) -> str:
    """Return where the numbers come from."""
    source = facts.model.source
    return safe(source.partition(": ")[2] if facts.model.preset is not None else source)


def formula_of(facts: FactSheet) -> str:
    """Return the count in letters."""
    return group_digits(facts.model.count.formula.symbols)


def letters_of(facts: FactSheet) -> str:
    """Return the values of the letters in the count."""
    letters = facts.model.count.formula.letters
    return ", ".join(f"{x}\u00a0=\u00a0{int(n):,}" for x, n in letters.items())


def facts_of(facts: FactSheet) -> Iterator[Fact]:
    """Yield the facts in one row or two; what is not known is left out."""
    yield Fact(f"{facts.layers:,}", "layers" if facts.layers != 1 else "layer")
    yield Fact(f"{facts.width:,}", "hidden size")
    attention = _attention(facts)
    if attention is not None and attention.heads is not None:
        yield Fact(f"{attention.heads:,}", "heads")
        if attention.latent_dim is not None:
            yield Fact(f"{attention.latent_dim:,}", "KV latent")
        elif attention.kv_heads is not None:
            yield Fact(f"{attention.kv_heads:,}", "KV heads")
    experts = next((x for x in facts.ffns if x.experts is not None), None)
    if experts is not None:
        yield Fact(f"{experts.active_experts:,} of {experts.experts:,}", "experts")
    yield Fact(f"{facts.vocabulary:,}", "vocabulary")
    if facts.context is not None:
        yield Fact(short_tokens(facts.context), "context")
    for first in facts.weights[:1]:  # as released, where that is known
        yield Fact(_decimal_bytes(first.bytes), f"in {first.dtype}")
    if facts.kv_per_token:
        yield Fact(short_bytes(facts.kv_per_token), "KV per token", "$c-kv")


def _attention(facts: FactSheet) -> MixerFacts | None:
    found = [x for x in facts.mixers if x.is_attention]
    return max(found, key=lambda x: x.layers, default=None)


def _decimal_bytes(n: int) -> str:
    """Return bytes to three digits: 16.1 GB."""
    for unit, name in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if n >= unit:
            value = n / unit
            return f"{value:,.0f} {name}" if value >= 99.95 else f"{value:.3g} {name}"
    return f"{n / 1000:,.1f} kB"


def shares_of(facts: FactSheet) -> list[tuple[str, str, str]]:
    """Return component, name and share of the parameters, the largest first."""
    sizes: dict[str, int] = {}
    for group, n in facts.model.count.groups.items():
        component = COMPONENTS[group]
        sizes[component] = sizes.get(component, 0) + n
    groups = [x for x, n in facts.model.count.groups.items() if n]
    names = _NAMES | {"attn": _mixer_name(facts, groups), "vision": senses_of(facts).capitalize()}
    names |= {"ffn": "Other FFN"} if sizes.get("experts") else {}
    return [
        (x, names[x], f"{n / max(1, facts.total):.1%}")
        for x, n in sorted(sizes.items(), key=lambda x: -x[1])
        if n * 1000 >= facts.total and x != "norm"
    ]


def senses_of(facts: FactSheet) -> str:
    """Return what the towers of a model are for: vision, audio, or both."""
    return " and ".join(x for x in ("vision", "audio") if x in facts.kinds) or "towers"


def part_names(facts: FactSheet) -> tuple[str, str, str]:
    """Return the names of what stands before the layers, of these, and of what follows them."""
    names = {"vision": senses_of(facts), "embed": "embedding"}
    before = dict.fromkeys(y.component for x in model_bars(facts.model).before for y in x)
    layers = f"{facts.layers:,} {'layer' if facts.layers == 1 else 'layers'}"
    pattern = "; ".join(facts.patterns)
    return (
        ", ".join(names[x] for x in before if x in names),
        f"{layers}: {pattern}" if pattern else layers,
        "" if facts.tied_head else "head",
    )


def _mixer_name(facts: FactSheet, groups: Collection[str]) -> str:
    """Return the names of what mixes tokens: attention, recurrent mixers, or both."""
    names = dict.fromkeys(x.kind for x in facts.mixers if not x.is_attention)
    found = [*names] if "mixer" in groups else []
    found += ["attention"] if "attention" in groups else []
    text = " and ".join(found)
    return text[:1].upper() + text[1:] or _NAMES["attn"]


def open_layer(facts: FactSheet) -> OpenLayer | None:
    """Return the layer that is drawn; None if a model has no layers."""
    layers = [x for x in facts.model.count.sections if x.name == "layers"]
    section = max(layers, key=lambda x: x.each * int(x.times), default=None)
    if section is None or not section.each:
        return None
    used = used_copies(facts.model)
    groups: dict[str, list[Matrix]] = {}
    shared = all(".shared." in x.pattern for x in section.rows if COMPONENTS[x.group] == "ffn")
    tiles: dict[tuple[int, int], list[tuple[int, int]]] = {}
    sizes: dict[str, int] = {}
    for row in section.rows:
        component = COMPONENTS[row.group]
        sides = [int(x) for x in row.weight.shape if int(x) != 1]
        if not row.parameters or len(sides) < 2 or component == "norm":
            continue
        copies = int(row.copies)
        key = "experts" if component == "router" else component
        sizes[key] = sizes.get(key, 0) + row.parameters
        first, *rest = sides
        other = 1
        for side in rest:
            other *= side
        if component == "experts" and copies > 1:
            some, of = used.get(row.pattern, (1, 1))
            tiles.setdefault((copies, copies * some // of), []).append((first, other))
            groups.setdefault(key, [])
        else:
            name = row.pattern.removesuffix(".weight").rpartition(".")[2]
            some, of = used.get(row.pattern, (1, 1))
            groups.setdefault(key, []).append(
                Matrix(
                    safe(name, 40),
                    component,
                    (first, other),
                    copies,
                    copies * some // of,
                    (first, other),
                )
            )
    width = facts.width
    for (copies, active), shapes in tiles.items():
        tile = Matrix("", "experts", _tile(shapes, width), copies, active)
        groups["experts"].append(tile)
    mixes = {row.group for row in section.rows}
    names = _NAMES | {"attn": _mixer_name(facts, mixes)}
    placed = tuple(
        MatrixGroup(
            _heading(names, key, groups, shared), short_count(sizes[key]), 0, tuple(matrices)
        )
        for key, matrices in sorted(groups.items(), key=lambda x: x[0] == "experts")
    )
    n = int(section.times)
    some = len(layers) > 1
    such = f"{n:,} such layers" if some else f"{n:,} layers"
    title = f"One of {such}" if n > 1 else "The largest layer" if some else "One layer"
    return OpenLayer(f"{title}: {section.each:,}", placed)


def _tile(shapes: list[tuple[int, int]], width: int) -> tuple[int, int]:
    """Return one rectangle of the area of an expert's matrices, that is nearly square."""
    area = sum(a * b for a, b in shapes)
    inner = min((x for shape in shapes for x in shape if x != width), default=width)
    sides = [(area // x, x) for x in (width, inner) if area % x == 0]
    return min(sides, key=lambda x: max(x) / max(1, min(x)), default=(area, 1))


def _heading(
    names: Mapping[str, str], key: str, groups: Mapping[str, list[Matrix]], shared: bool
) -> str:
    if key == "experts":
        experts = next((x for x in groups[key] if x.copies > 1), None)
        if experts is not None:
            return f"{experts.copies:,} experts, {experts.active:,} for each token"
    if key == "ffn" and "experts" in groups:
        return "Shared expert" if shared else "Outside the experts"
    return names.get(key, key)
