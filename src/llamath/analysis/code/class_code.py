"""`ClassCode`: one class of the written file, for all blocks of a type that compute the same.

The syntax trees of its variants are merged: what differs between them, a size, a number or a part,
becomes a parameter of the class (anti-unification).
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from ...core.tree import Block
from ...utils.named_tuple import NamedTuple
from .forward_code import Line
from .recorded_code import Body
from .symbols import DIM, SYMBOL, is_dimension, is_number, outline_of, tag_of
from .syntax.trees import changed, is_same, named, parse, unparse, walk

if TYPE_CHECKING:
    from collections.abc import Callable


class Attribute(NamedTuple):
    """A module or parameter that a class makes: its name, its expression, and what it is."""

    name: str
    tree: ast.expr
    note: str
    weights: tuple[str, ...] = ()


class Variant:
    """The class that one block would be by itself."""

    def __init__(
        self, body: Body, attributes: list[Attribute], inputs: list[str], lines: list[Line]
    ) -> None:
        self.block = body.block
        self.body = body
        self.attributes = attributes
        self.inputs = inputs
        self.lines = lines

    @property
    def skeleton(self) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """Its statements without numbers and dimensions, which variants of one class share."""
        return tuple([x.name for x in self.attributes]), tuple([x.outline for x in self.lines])


class ClassCode:
    """A class, and the arguments that each of its blocks is made with."""

    def __init__(self, name: str, variants: list[Variant]) -> None:
        self.name = name
        self.variants = variants
        self.block = variants[0].block
        self.body = variants[0].body
        self.inputs = variants[0].inputs
        self._merge_variants(frozenset())
        letters = frozenset([x.removeprefix(DIM) for x in self.kept_symbols])
        if not letters.isdisjoint(self.parameters):  # both would be self.d
            self._merge_variants(letters)

    def _merge_variants(self, taken: frozenset[str]) -> None:
        """Make what the variants have in common, with parameters that have none of these names."""
        self._taken = taken
        self.parameters: list[str] = []
        self.numeric: set[str] = set()  # parameters that are numbers, given by name
        self.arguments: dict[int, list[ast.expr]] = {id(x.block): [] for x in self.variants}
        self._holes: dict[tuple[str, ...], str] = {}
        self.attributes = [
            self._merged_attribute(list(found))
            for found in zip(*[x.attributes for x in self.variants], strict=True)
        ]
        self.lines = [
            self._merged_line(list(found))
            for found in zip(*[x.lines for x in self.variants], strict=True)
        ]
        self._sort_parameters()
        self._find_names()

    def _merged_attribute(self, found: list[Attribute]) -> Attribute:
        if len(found) == 1:
            return found[0]
        name = found[0].name
        weights = tuple(dict.fromkeys(y for x in found for y in x.weights))
        tree = self._merge([x.tree for x in found], name, in_forward=False)
        notes = {x.note for x in found}
        first = found[0].note
        if len(notes) > 1:
            first = first.split(" = ")[0] if " = " in first else ""
            first = first if len({x.note.split(" = ")[0] for x in found}) == 1 else ""
        return Attribute(name, tree, first, weights)

    def _merged_line(self, found: list[Line]) -> Line:
        if len(found) == 1:
            return found[0]
        tree = self._merge([x.tree for x in found], "value", in_forward=True)
        comment = found[0].comment
        if len({x.comment for x in found}) > 1:
            comment = _general([x.comment.split(" = ")[0] for x in found])
        return Line(
            tree,
            comment,
            (y for x in found for y in x.operations),
            (y for x in found for y in x.weights),
        )

    def _merge(self, nodes: list[Any], hint: str, *, in_forward: bool) -> Any:
        """Return one tree for several, with a parameter for each part that differs."""
        first, *others = nodes
        if all(is_same(first, x) for x in others):
            return first
        if all(isinstance(x, ast.BinOp) and type(x.op) is type(first.op) for x in nodes):
            sides = (  # H₁ · h and H₂ · h differ in one letter
                self._merge([getattr(x, side) for x in nodes], hint, in_forward=in_forward)
                for side in ("left", "right")
            )
            return ast.BinOp(next(sides), first.op, next(sides))
        if any(map(is_dimension, nodes)):
            names = (y.id for x in nodes for y in walk(x) if isinstance(y, ast.Name))
            letter = next((x.removeprefix(DIM) for x in names if x.startswith(DIM)), hint)
            return self._hole(nodes, letter.rstrip("0123456789") or letter, in_forward)
        if any(map(is_number, nodes)):
            tags = (tag_of(x.id) for x in nodes if isinstance(x, ast.Name))
            return self._hole(nodes, next(tags, hint), in_forward)
        differ = any(type(x) is not type(first) for x in nodes)
        if differ or (isinstance(first, ast.Call) and len({outline_of(x.func) for x in nodes}) > 1):
            return self._hole(nodes, hint, in_forward)
        if isinstance(first, ast.ListComp) and len({outline_of(x) for x in nodes}) > 1:
            return self._hole(nodes, hint, in_forward)  # each of its modules is made anew
        merged: dict[str, Any] = {}
        for field, value in ast.iter_fields(first):
            own = [getattr(x, field) for x in nodes]
            if isinstance(value, list):
                if len({len(x) for x in own}) > 1:
                    return self._hole(nodes, hint, in_forward)
                merged[field] = [
                    self._merge(list(x), hint, in_forward=in_forward)
                    if isinstance(x[0], ast.AST)
                    else x[0]
                    for x in zip(*own, strict=True)
                ]
            elif isinstance(value, ast.AST):
                merged[field] = self._merge(own, hint, in_forward=in_forward)
            elif len({repr(x) for x in own}) > 1:
                return self._hole(nodes, hint, in_forward)
        return changed(first, **merged)

    def _hole(self, nodes: list[Any], hint: str, in_forward: bool) -> ast.expr:
        """Return a parameter; equal numbers share one, modules never do."""
        sizes = all(is_number(x) or is_dimension(x) for x in nodes)
        assert sizes or not in_forward, "variants of one class compute the same"
        key = tuple(map(unparse, nodes))
        has_calls = any(isinstance(y, ast.Call) for y in walk(nodes))
        key += (str(len(self._holes)),) if has_calls else ()
        if key not in self._holes:
            name = "size" if hint in self._taken else hint
            while name in self._holes.values() or (name == "c"):
                name += "_"
            self._holes[key] = name
            self.parameters.append(name)
            if all(map(is_number, nodes)):
                self.numeric.add(name)
            for x, tree in zip(self.variants, nodes, strict=True):
                self.arguments[id(x.block)].append(tree)
        return parse(f"self.{self._holes[key]}" if in_forward else self._holes[key])

    def _sort_parameters(self) -> None:
        """Put numbers, which are given by name, after the others."""
        order = sorted(
            range(len(self.parameters)), key=lambda i: self.parameters[i] in self.numeric
        )
        self.arguments = {k: [v[i] for i in order] for k, v in self.arguments.items()}
        self.parameters = [self.parameters[i] for i in order]

    def _find_names(self) -> None:
        forward, init = (
            "\n".join([unparse(x.tree) for x in found]) for found in (self.lines, self.attributes)
        )
        read = set(re.findall(r"\.(\w+)", forward)) if self.parameters else ()
        own = {x.name for x in self.attributes}
        # placeholders that forward reads, parameters that it does, and whether any needs the config
        self.kept_symbols = list(dict.fromkeys(SYMBOL.findall(forward)))
        self.kept_parameters = [x for x in self.parameters if x in read and x not in own]
        self.symbols = [*SYMBOL.findall(init), *self.kept_symbols]
        self.needs_config = bool(self.symbols) or "(c)" in init or "(c, " in init

    def made(self, block: Block) -> ast.expr:
        """Return the expression that makes one of its blocks."""
        call = ast.Call(named(self.name), [named("c")] if self.needs_config else [], [])
        for name, x in zip(self.parameters, self.arguments[id(block)], strict=True):
            if name in self.numeric:
                call.keywords.append(ast.keyword(name, x))
            else:
                call.args.append(x)
        return call


def _general(shapes: list[str]) -> str:
    """Return one comment for shapes that differ: that of the first, with … where they do; none for
    several shapes.
    """
    texts = [x.partition(":")[0].strip("()") for x in shapes]
    if any(")" in x for x in texts):
        return ""
    split = [x.split(", ") for x in texts]
    last = {x[-1] for x in split}
    if len({len(x) for x in split}) > 1:
        return f"(…, {split[0][-1]})" if len(last) == 1 else ""
    parts = (x[0] if len(set(x)) == 1 else "…" for x in zip(*split, strict=True))
    return f"({', '.join(parts)})"


def variants_by_class(
    variants: list[Variant], name: Callable[[Variant, Variant, int], str]
) -> list[ClassCode]:
    """Return the classes of the blocks of one type."""
    groups: dict[Any, list[Variant]] = {}
    known: dict[Any, list[Variant]] = {}  # by names of attributes, and lines that were written once
    for x in variants:
        own = (*[y.name for y in x.attributes], id(x.lines))
        if own not in known:
            known[own] = groups.setdefault(x.skeleton if len(variants) > 1 else "", [])
        known[own].append(x)
    first = variants[0]
    return [ClassCode(name(first, x[0], i), x) for i, x in enumerate(groups.values())]
