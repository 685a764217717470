"""`model_traits`: the architecture of a model as traits by name, in which two models differ by
changes that can be counted and said.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

from ....core.attention_facts import attention_kind
from ....core.blocks import MLP, TOWER_FIELDS, AttentionBase, Decoder, MoE
from ....core.expr import Expr, Letter
from ....core.mixers import RecurrentMixer
from ....core.multimodal import CrossAttention
from ....core.positions import Rope
from ....core.tree import Block, Stack, Weight
from ....model import FamilyModel
from ....utils.record_type import Record
from ..layer_pattern import LayerPattern, ffn_pattern, ffns_of, mixer_name, mixer_pattern, mixers_of
from .causes import CAUSE_TITLES

YES, NO, UNKNOWN = "yes", "none", "unknown"
BLOCK, RULE, SIZE = "block", "rule", "size"
"""Kinds of changes: blocks and their weights; rules of the forward pass; numbers."""
_NOT_TRAITS = frozenset({"layers", "width", "vocab", "context", "kept_logits", *TOWER_FIELDS})
"""Fields of a decoder that are sizes, or traits of their own."""
_BY_PARENT = (".class", ".pattern")
"""Ends of traits that say nothing new where what they are of differs."""
_KINDS = frozenset({"mixer", "mixer.pattern", "kinds", "kinds.pattern"})
_ROLES = frozenset({"mixer.attention", "experts", "ffn"})
"""Paths whose presence follows from the kinds of layers."""
_COMMON = frozenset(f"{x}gate" for x in ("ffn.", "experts.experts.", "experts.shared."))
"""Options that almost all blocks of their kind have."""
_WIDTHS = {"experts": "Fe", "shared": "Fs"}
"""The letters of an expert's width in families that have no dense FFN and write F."""
_ALONE = frozenset({"k", "ki"})
"""Letters that no weight has: numbers of chosen experts and keys."""

Values = frozenset[Any]

_TITLES = {
    "mixer": "attention",
    "mixer.pattern": "order of layers",
    "kinds": "FFN",
    "kinds.pattern": "order of FFNs",
    "kinds.dense": "dense layers",
    "positions": "learned positions",
    "mtp": "MTP layers",
    "head.weight.tied": "tied head",
    "softcap": "cap of the logits",
    "layer.parallel": "parallel attention and FFN",
    "layer.attn_out_norm": "norm after attention",
    "layer.mlp_out_norm": "norm after the FFN",
    "layer.attn_norm": "norm before attention",
    "layer.mlp_norm": "norm before the FFN",
    "attention.q_norm": "QK norm",
    "attention.k_norm": "QK norm",
    "attention.sinks": "attention sinks",
    "attention.gate": "gate of attention",
    "rope": "RoPE",
    "rope.class": "scaling of RoPE",
    "rope.theta": "θ of RoPE",
    "rope.interleaved": "interleaved pairs of RoPE",
    "rope.dim": "channels that RoPE rotates",
    "window.size": "window",
    "window.chunk": "chunk",
    "window.causal": "causal attention",
    "score_transform.softcap": "cap of the scores",
    "score_transform.scale": "own scale of the scores",
    "experts.top_k": "active experts",
    "experts.shared": "shared experts",
    "experts.shared_gate": "gate of shared experts",
    "experts.expert_groups": "groups of experts",
    "experts.correction": "correction of the router",
    "experts.scoring": "scoring of experts",
    "experts.routed_scaling_factor": "factor of the experts",
    "experts.norm_topk_prob": "weights of chosen experts that sum to 1",
    "eps": "ε of norms",
    "offset": "norm weights of 1 + w",
    "norm.class": "type of norms",
    "activation": "activation",
}
"""The words of traits by the last words of their paths, the longest that fit; of others they follow
from the path.
"""
_OWNERS = {"mixer": "attention", "ffn": "the FFN", "experts": "the experts", "layer": "layers"}


class Change(Record):
    """One difference of two architectures, from `a` to `b`."""

    kind: str  # BLOCK, RULE or SIZE
    trait: str
    a: str
    b: str

    @property
    def text(self) -> str:
        """The change in words, as what `b` has."""
        if self.b == YES and self.a == NO:
            return self.trait
        if self.b == YES:
            return f"{self.trait} in all layers"
        if self.b == NO:
            return f"no {self.trait}"
        return f"{self.trait} {self.a} → {self.b}" if self.a != NO else f"{self.trait} {self.b}"


class Structure:
    """Traits by path, which of them are of blocks, and which are options of their block; those of
    many models are the same object.
    """

    def __init__(
        self, values: dict[str, Values], blocks: frozenset[str], options: frozenset[str]
    ) -> None:
        self.values, self.blocks, self.options = values, blocks, options

    @property
    def key(self) -> frozenset[tuple[str, Values]]:
        """Key by which equal structures are found."""
        return frozenset(self.values.items())


class Traits(Record):
    """The traits of a model, and its sizes by letter."""

    structure: Structure
    sizes: dict[str, Values]
    keys: dict[str, str]  # the config key of each letter


class _Collector:
    """Traits that are found, with the letters of sizes."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.values: dict[str, set[Any]] = {}
        self.blocks: set[str] = set(_KINDS)
        self.options: set[str] = set()
        self.letters: dict[str, set[int]] = {}

    def add(self, path: str, value: object, *, of_block: bool = False) -> None:
        """Add a trait."""
        self.values.setdefault(path, set()).add(value)
        if of_block:
            self.blocks.add(path)

    def add_record(self, prefix: str, record: Record, skip: frozenset[str] = frozenset()) -> None:
        """Add the facts of a block, and of what is in it."""
        for name in record.fields:
            if name in skip:
                continue
            path = f"{prefix}.{name}"
            default = getattr(type(record), name, True)
            if default is None or default is False:
                self.options.add(path)
            self.add_fact(path, getattr(record, name))

    def add_layer(self, prefix: str, layer: Block) -> None:
        """Add the facts of a layer; its mixers and FFNs have paths of their own."""
        for name in layer.fields:
            value = getattr(layer, name)
            if value is None and name in ("attn", "mlp"):
                continue
            for x in (y for y, _ in value.distinct()) if isinstance(value, Stack) else (value,):
                role = _role(x) if isinstance(x, Block) else ""
                if isinstance(x, Block) and not role:
                    self.add(f"{prefix}.{name}", YES, of_block=True)
                    self.add(f"{prefix}.{name}.class", type(x).__name__, of_block=True)
                    self.add_layer(f"{prefix}.{name}", x)
                elif role or not isinstance(x, Block):
                    self.add_fact(role or f"{prefix}.{name}", x)

    def add_fact(self, path: str, value: Any) -> None:
        """Add a fact, and what is in it."""
        if isinstance(value, Stack):
            for x, _ in value.distinct():
                self.add_fact(path, x)
        elif isinstance(value, Weight):
            self.add(path, YES, of_block=True)
            self.add(f"{path}.tied", YES if value.tied else NO, of_block=True)
            self._add_letters(path, value)
        elif isinstance(value, Record):
            is_block = isinstance(value, Block)
            self.add(path, YES, of_block=is_block)
            name = value.scaling or "none" if isinstance(value, Rope) else type(value).__name__
            self.add(f"{path}.class", name, of_block=is_block)
            self.add_record(path, value)
        elif isinstance(value, bool) or value is None or value == "":
            self.add(path, YES if value else NO)
        elif path.endswith(".kv_layer"):
            self.add(path, YES)
        elif isinstance(value, tuple):
            self.add(path, YES)
            names = getattr(value, "_fields", range(len(value)))
            for name, x in zip(names, value, strict=True):
                self.add_fact(f"{path}.{name}", x)
        elif not (isinstance(value, Expr) and _is_size(value)):
            known = isinstance(value, int | float | str)
            if path == "model.embed.scale" and abs(value**2 / self.width - 1) < 0.01:
                value = "√d"
            self.add(path, value if known else type(value).__name__)

    def _add_letters(self, path: str, weight: Weight) -> None:
        words = path.split(".")
        wide = next((letter for x, letter in _WIDTHS.items() if x in words), "F")
        for size in weight.shape:
            for monomial in size.terms:
                for atom in monomial:
                    name = wide if atom.symbol == "F" else atom.symbol
                    self.letters.setdefault(name, set()).add(atom.value)


def model_traits(model: FamilyModel) -> Traits:
    """Return the traits of a model: those of its text, and which towers it has."""
    text = model.text.tree
    found = _Collector(int(text.width))
    found.letters["L"] = {int(text.layers.n)}
    found.add("model.class", type(text).__name__, of_block=True)
    found.add("model.mtp", NO if text.mtp is None else YES)
    found.add_record("model", text, _NOT_TRAITS | {"mtp"})
    for name in ("vision", "audio"):
        tower = getattr(model.tree, name)
        found.add(name, NO if tower is None else YES, of_block=True)
        if tower is not None:
            found.add(f"{name}.class", type(tower).__name__, of_block=True)
            found.add(f"{name}.parameters", int(model.parameters.parts[name]))
    _add_layers(found, text)
    values = {path: frozenset(x) for path, x in found.values.items()}
    if model.preset is not None and "rope_theta" in model.preset.unknown_keys:
        values |= {x: frozenset((UNKNOWN,)) for x in values if x.endswith(".rope.theta")}
    return Traits(
        structure=Structure(values, frozenset(found.blocks), frozenset(found.options)),
        sizes={letter: frozenset(x) for letter, x in found.letters.items()},
        keys=model.text.key_by_symbol,
    )


_known_changes: WeakKeyDictionary[Structure, dict[Structure, tuple[Change, ...]]] = (
    WeakKeyDictionary()
)
"""The changes from structures to one that still lives."""


def trait_changes(a: Traits, b: Traits) -> tuple[Change, ...]:
    """Return the changes that make a's architecture b's: of blocks, of rules, of sizes."""
    known = _known_changes.setdefault(b.structure, {})
    if a.structure not in known:
        known[a.structure] = _structure_changes(a.structure, b.structure)
    changes = {x.trait: x for x in known[a.structure]}
    kinds = {x.structure.values["mixer"] for x in (a, b) if "mixer" in x.structure.values}
    hidden = {"K"} if len(kinds) > 1 or frozenset(("MHA",)) in kinds else set()
    for letter in (a.sizes.keys() & b.sizes.keys()) - hidden:
        before, after = a.sizes[letter], b.sizes[letter]
        if before != after:
            name = CAUSE_TITLES.get(letter) or b.keys.get(letter) or a.keys.get(letter) or letter
            change = Change(kind=SIZE, trait=name, a=_text(before), b=_text(after))
            changes.setdefault(name, change)
    order = (BLOCK, RULE, SIZE)
    return tuple(sorted(changes.values(), key=lambda x: (order.index(x.kind), x.trait)))


def _structure_changes(a: Structure, b: Structure) -> tuple[Change, ...]:
    """Return the changes of traits; several of one name are one."""
    ours, theirs = a.values, b.values
    if ours == theirs:
        return ()
    differing = {x for x in ours.keys() | theirs.keys() if ours.get(x) != theirs.get(x)}
    changes: dict[str, Change] = {}
    for path in sorted(differing - _ROLES, key=lambda x: (x.count("."), x)):
        parents = _parents(path)
        is_shared = path in ours and path in theirs
        before, after = (x.get(path, frozenset((NO,))) for x in (ours, theirs))
        if before == after or UNKNOWN in before | after:
            continue
        # an option of a new block that not every block of its kind has is a change of its own
        is_option = (
            path in b.options - _COMMON
            and path not in ours
            and not _ROLES.isdisjoint(parents)
            and not any(x in b.options and x not in ours for x in parents)
            and not any(f"{x}.class" in differing for x in parents if x not in _ROLES)
        )
        if not is_option and (not is_shared or path.endswith(_BY_PARENT)):
            if any(x in differing for x in parents):
                continue
            if not is_shared and any(f"{x}.class" in differing for x in parents):
                continue
        if NO in before & after:  # some layers have none
            numbers = before - {NO}, after - {NO}
            before, after = numbers if all(numbers) else (before, after)
        is_size = all(map(_is_number, before | after))
        kind = SIZE if is_size else BLOCK if path in a.blocks | b.blocks else RULE
        change = Change(kind=kind, trait=trait_title(path), a=_text(before), b=_text(after))
        changes.setdefault(change.trait, change)
    return tuple(changes.values())


def _add_layers(found: _Collector, tree: Decoder) -> None:
    found.add("mixer.pattern", _order(mixer_pattern(tree.layers)))
    found.add("kinds.pattern", _order(ffn_pattern(tree.layers)))
    dense, has_experts = 0, False
    for layer, n in tree.layers.distinct():
        found.add("layer.class", type(layer).__name__, of_block=True)
        found.add_layer("layer", layer)
        for mixer in mixers_of(layer):
            found.add("mixer", _mixer_kind(mixer))
        kinds = [isinstance(x, MoE) for x in ffns_of(layer)]
        has_experts |= any(kinds)
        dense += int(n) if kinds and not any(kinds) else 0
        for is_mixture in kinds:
            found.add("kinds", "experts" if is_mixture else "dense")
    if has_experts:
        found.add("kinds.dense", dense)


def _order(pattern: LayerPattern) -> str:
    """Return the order of layers without numbers that grow with the model."""
    if pattern.arrangement == "cycle":
        return pattern.text
    return " + ".join(x.kind for x in pattern.runs)


def _mixer_kind(mixer: Block) -> str:
    name = mixer_name(mixer)
    heads, kv_heads = (getattr(mixer, x, None) for x in ("heads", "kv_heads"))
    if name == "attention" and heads is not None and kv_heads is not None:
        return attention_kind(heads, kv_heads)
    return name


def _role(block: Block) -> str:
    if isinstance(block, AttentionBase | CrossAttention):
        return "mixer.attention"
    if isinstance(block, RecurrentMixer):
        return f"mixer.{mixer_name(block)}"
    return "experts" if isinstance(block, MoE) else "ffn" if isinstance(block, MLP) else ""


def _is_size(value: Expr) -> bool:
    letters = {x.symbol for monomial in value.terms for x in monomial if isinstance(x, Letter)}
    return bool(letters) and not letters <= _ALONE


@cache
def _parents(path: str) -> tuple[str, ...]:
    words = path.split(".")
    return tuple(".".join(words[:i]) for i in range(1, len(words)))


def _is_number(x: object) -> TypeGuard[float]:
    return isinstance(x, int | float) and not isinstance(x, bool)


def _text(values: Values) -> str:
    # True and 1 are equal, their texts are not
    return _text_of(values, any(isinstance(x, bool) for x in values))


@cache
def _text_of(values: Values, _has_bool: bool) -> str:
    if values == {YES, NO}:
        return "in some layers"
    numbers = sorted(x for x in values if _is_number(x))
    words = sorted(str(x) for x in values if not _is_number(x))
    if len(numbers) > 3:
        return ", ".join((*words, f"{_number(numbers[0])} to {_number(numbers[-1])}"))
    return ", ".join((*words, *map(_number, numbers)))


def _number(x: float) -> str:
    return f"{int(x):,}" if x == int(x) else f"{float(x):,}"


_NOTABLE = frozenset(
    _TITLES[x]
    for x in (
        *("positions", "mtp", "head.weight.tied", "softcap", "layer.parallel", "rope"),
        *("layer.attn_out_norm", "layer.mlp_out_norm", "attention.q_norm", "attention.sinks"),
        *("attention.gate", "window.size", "score_transform.softcap", "experts.shared"),
        *("experts.expert_groups", "experts.correction"),
    )
)
_NO_NAMES = (YES, NO, "attention")
_NOTABLE_VALUES = {
    _TITLES["mixer"]: "{}",
    _TITLES["rope.class"]: "{} scaling of RoPE",
    _TITLES["norm.class"]: "{}",
}


def notable_traits(structure: Structure) -> Iterator[str]:
    """Yield what a model has that another one introduced, in words."""
    for path, values in structure.values.items():
        title = trait_title(path)
        if title in _NOTABLE and values != {NO}:
            yield title
        elif title in _NOTABLE_VALUES and path not in _ROLES:
            yield from (_NOTABLE_VALUES[title].format(x) for x in values if x not in _NO_NAMES)
        elif path == "kinds" and "experts" in values:
            yield "experts"
        elif path in ("vision", "audio") and YES in values:
            yield path


@cache
def trait_title(path: str) -> str:
    """Return the words of a trait."""
    words = path.split(".")
    for i in range(len(words)):
        if known := _TITLES.get(".".join(words[i:])):
            return known
    owner, *inner = words
    if owner == "mixer" and len(inner) > 1:
        inner = inner[1:]
    of = _OWNERS.get(owner, owner)
    if words[-1] == "bias":
        return f"biases of {of}"
    if words[-1] == "class":
        inner = inner[:-1]
        if words[-2].endswith("norm"):
            return _TITLES["norm.class"]
        return f"type of {' '.join(inner[-1:] or [of])}".replace("_", " ")
    if "rope" in inner:
        of, inner = "RoPE", inner[inner.index("rope") + 1 :]
    name = " ".join(x for x in inner if x != "weight").replace("_", " ")
    return name or of if of == "model" or not name else f"{name} of {of}"
