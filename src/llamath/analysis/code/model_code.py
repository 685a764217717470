"""`ModelWriter`: the classes of a model's written file, and the functions of `support/` that they
call.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from ...core.blocks import Decoder, Embedding, LayerNorm, Linear, RMSNorm
from ...core.expr import Expr
from ...core.positions import Rope
from ...core.tree import LETTERS, Block, Stack, Weight, fold
from ...model import FamilyModel
from ...utils.named_tuple import NamedTuple
from .class_code import Attribute, ClassCode, Variant, variants_by_class
from .class_words import variant_name
from .forward_code import ForwardWriter, Line
from .forward_signature import Signature, mentioned, outline, signature
from .layer_order import count_code, stack_code
from .operation_code import FIELDS_READ, READS, USES, Use
from .recorded_code import Body, Placed, is_module, record_code
from .refusal import NotWritten
from .specialize import Specialization, support_sources
from .symbols import Symbols
from .syntax.trees import fill


class Options(NamedTuple):
    """The options of a copy of a support function: those that every call gives, and some do."""

    given: tuple[str, ...]
    optional: tuple[str, ...]


class _Written(NamedTuple):
    """A forward pass, and what its signature leaves out."""

    forward: ForwardWriter
    letters: list[str]
    kinds: list[str]

    def lines(self, path: str, letters: list[str], kinds: list[str]) -> list[Line] | None:
        """Return the lines of a forward pass of the same signature, of the block at a path; None
        if they are others.
        """
        others = [x for x, y in zip(self.letters, letters, strict=True) if x != y]
        if others and not mentioned(self.forward.lines).isdisjoint(others):
            return None
        own = self.forward.body.path
        if path == own and kinds == self.kinds:
            return self.forward.lines
        found = dict(zip(self.kinds, kinds, strict=True))
        if any(found[x] != y for x, y in zip(self.kinds, kinds, strict=True)):
            return None
        return [x.moved(own, path, found) for x in self.forward.lines]


_OTHER_CACHES = ("causal_conv", "selective_scan", "ssm_scan", "gated_delta_rule")
_Copy = tuple[str, tuple[tuple[str, Any], ...]]
_FACTS = frozenset({"context", "width", "vocab", "group", "kv_heads", "heads"})
"""Fields of blocks that decide no computation."""


class ModelWriter:
    """Writes the classes of a model."""

    def __init__(self, model: FamilyModel) -> None:
        self.source = model
        self.tree: Decoder = model.tree
        self.symbols = Symbols()
        weights = {id(x.weight): x.weight for x in fold(self.tree)}.values()
        sizes = {id(n): n for x in weights for n in x.shape}.values()
        self.letters = {k: v for n in sizes for k, v in n.letters.items()}
        self._check_tied()
        self.record = record_code(self.tree, {*self.letters, *model.key_by_symbol})
        self._all_tokens = f"B·{self.record.new_tokens.symbol}·"
        self.classes: list[ClassCode] = []
        self._class_of: dict[int, ClassCode] = {}  # by block
        self.copies: dict[_Copy, str] = {}  # names of copies of support functions
        self.methods: set[str] = set()  # of the cache that are needed
        self.shifted_norms = False
        self._forwards: dict[Signature, _Written] = {}
        # by how they are made, with the parts whose identity says that
        self._trees: dict[tuple[Any, ...], tuple[ast.expr, Any]] = {}
        self._sizes: dict[int, int] = {}
        self._shapes: dict[tuple[int, ...], tuple[str, Any]] = {}  # by sizes, which it keeps
        self._axes: dict[int, tuple[Any, str, str]] = {}  # by size, which it keeps
        self._made_parts: dict[int, tuple[ast.expr, str]] = {}  # by part, with its comment
        self._reads: dict[int, tuple[str, ...]] = {}
        self._own_reads: dict[int, tuple[str, ...]] = {}
        self._options: dict[_Copy, Options] = {}
        self.has_local_theta = False
        calls = [c for x in self.record.bodies.values() for c in x.calls]
        self.reuses_selection = any(c.op == "reuse_selection" for c in calls)
        heads = [[c.arguments[x].shape[2] for x in "qkv"] for c in calls if c.op == "attention"]
        self.groups_heads = any(len({x.symbol for x in shapes}) > 1 for shapes in heads)
        layers = [x for x, _ in self.tree.layers.distinct()]
        inside = [y for x in layers for _, child in x.children for y in _blocks_of(child)]
        self._layers, self._in_layers = {id(x) for x in layers}, {id(x) for x in inside}
        if "L" in model.key_by_symbol:
            self.letters.setdefault("L", int(self.tree.layers.n))
        if self.reuses_selection:
            self.methods.add("chosen")
        self._scan()
        self._add_unread(self.tree, "", set())
        self._write_classes()
        self._check_fields()

    # What templates ask

    def shape(self, shape: Any) -> str:
        """Return a shape in letters and in numbers; in letters alone if it is (B, T, d)."""
        key = tuple(map(id, shape))
        if key not in self._shapes:
            self._shapes[key] = self._shape(shape), shape
        return self._shapes[key][0]

    def _shape(self, shape: Any) -> str:
        axes = [self._axes.get(id(x)) or self._axis(x) for x in shape]
        letters, numbers = [x for _, x, _ in axes], [x for _, _, x in axes]
        text = f"({', '.join(letters)})"
        plain = letters == numbers or letters in ([*letters[:2], "d"], ["tokens", "d"])
        return text if plain else f"{text} = ({', '.join(numbers)})"

    def _axis(self, x: Any) -> tuple[Any, str, str]:
        """Return a size with its text in letters and in numbers."""
        text = x.symbol if isinstance(x, Expr) else str(x)
        text = "tokens" if text.startswith(self._all_tokens) else text
        number = text if isinstance(x, Expr) and x.variables else str(int(x))
        self._axes[id(x)] = found = x, text, number
        return found

    def options_of(self, use: Use) -> Options:
        """Return which options of a function this model uses."""
        return self._options[_copy_of(use.function, use.structure)]

    def use_function(
        self,
        function: str,
        structure: Mapping[str, Any],
        copy_name: str,
        given: Collection[str],
        optional: Collection[str],
    ) -> str:
        """Return the name of the copy of a function with this structure."""
        key = _copy_of(function, structure)
        self._options.setdefault(key, Options(tuple(given), tuple(optional)))
        if key not in self.copies:
            name, known = function, self.copies.values()
            if name in known:
                name = copy_name
            while name in known:
                name += "_2"
            self.copies[key] = name
        return self.copies[key]

    def class_name(self, block: Block) -> str | None:
        """Return the name of the class of a block; None for modules of torch."""
        code = self._class_of.get(id(block))
        return None if code is None else code.name

    def filled(self, template: str, values: Mapping[str, ast.expr]) -> ast.expr:
        """Return the tree of a template, the same one for the same values."""
        key = (template, *values, *map(id, values.values()))
        known = self._trees.get(key)
        if known is None:
            known = self._trees[key] = fill(template, values), values
        return known[0]

    def tuple_of(self, parts: list[ast.expr]) -> ast.expr:
        """Return the tree of a tuple, the same one for the same parts."""
        key = ("()", *map(id, parts))
        known = self._trees.get(key)
        if known is None:
            known = self._trees[key] = ast.Tuple(parts), parts
        return known[0]

    def call_of(self, function: ast.expr, given: list[ast.expr]) -> ast.expr:
        """Return the tree of a call, the same one for the same arguments."""
        key = (id(function), *map(id, given))
        known = self._trees.get(key)
        if known is None:
            known = self._trees[key] = ast.Call(function, given, []), function
        return known[0]

    def use_method(self, name: str) -> None:
        """Note that a method of the cache is needed."""
        self.methods.add(name)

    def reads(self, block: Block) -> tuple[str, ...]:
        """Return what the forward pass of a block gets beside its inputs: `pos`, `cache`.

        All layers get the same, and so does what they call, since they take each other's place.
        """
        if id(block) not in self._reads:
            self._reads[id(block)] = own = self._reads_itself(block)
            if id(block) in self._layers or (own and id(block) in self._in_layers):
                self._reads[id(block)] = self.read_by_layers
        return self._reads[id(block)]

    def _reads_itself(self, block: Block) -> tuple[str, ...]:
        if id(block) not in self._own_reads:
            self._own_reads[id(block)] = self._find_reads(block)
        return self._own_reads[id(block)]

    def _find_reads(self, block: Block) -> tuple[str, ...]:
        body = self.record.bodies.get(id(block))
        found: set[str] = set()
        for c in body.calls if body is not None else ():
            found.update(READS.get(c.op, ()))
            if c.op in ("select_keys", "rope"):
                use = USES[c.op](self, c.arguments, block)
                found |= {"cache"} & {"cache" for x in ("cache", "prompt") if _given(use, x)}
            if c.block is not None:
                found.update(self._reads_itself(c.block.block))
        return tuple([x for x in ("pos", "cache") if x in found])

    @cached_property
    def read_by_layers(self) -> tuple[str, ...]:
        """The inputs that any layer reads."""
        found = {y for x, _ in self.tree.layers.distinct() for y in self._reads_itself(x)}
        return tuple([x for x in ("pos", "cache") if x in found])

    def cached_before(self, layer: int) -> int:
        """Return how many modules have cached keys and values before those of a layer."""
        self.methods.add("rows")
        found = 0
        for x in list(self.tree.layers)[:layer]:
            bodies = _bodies_inside(self.record.bodies, x)
            found += sum(c.op == "update_cache" for y in bodies for c in y.calls)
            if any(c.op in _OTHER_CACHES for y in bodies for c in y.calls):
                raise NotWritten("read_cache", "beside other caches")
        return found

    def _add_unread(self, block: Block, path: str, seen: set[int]) -> None:
        """Add the blocks in a block that no forward pass calls: their parts are read, or nothing
        is.
        """
        if id(block) in seen:
            return
        seen.add(id(block))
        if id(block) not in self.record.bodies and not is_module(block):
            self.record.bodies[id(block)] = Body(block, path, ())
        for name, child in block.children:
            inner = f"{path}.{name}" if path else name
            if not isinstance(child, Weight | Block):
                inner += f".{LETTERS[LETTERS[0] in path]}"
            for x in _blocks_of(child):
                self._add_unread(x, inner, seen)

    # Support

    def _scan(self) -> None:
        """Find out which options of support functions the model uses."""
        counts: dict[_Copy, tuple[list[str], list[set[str]]]] = {}
        thetas: dict[bool, set[float]] = {True: set(), False: set()}
        for body in self.record.bodies.values():
            for c in body.calls:
                if c.op not in USES:
                    continue
                use = USES[c.op](self, c.arguments, body.block)
                names, found = counts.setdefault(_copy_of(use.function, use.structure), ([], []))
                names[:] = use.options
                found.append({k for k, (_, v) in use.options.items() if v is not None})
                if c.op == "rope":
                    window = getattr(body.block, "window", None)
                    local = getattr(window, "max_lookback", None) is not None
                    rope: Rope = c.arguments["rope"]
                    thetas[local].add(float(rope.theta))
        self.has_local_theta = bool(
            thetas[True] and thetas[False] and thetas[True] != thetas[False]
        )
        sources = support_sources()
        for key, (names, found) in counts.items():
            order = list(sources[key[0]].options)
            names.sort(key=order.index)
            given, some = set.intersection(*found), set.union(*found)
            self._options[key] = Options(
                tuple([x for x in names if x in given]),
                tuple([x for x in names if x in some - given]),
            )

    def support(self) -> list[tuple[str, list[str]]]:
        """Return the support code by name, in the order in which a reader needs it."""
        sources, found = support_sources(), []
        order = list(sources)
        if self.shifted_norms:
            found.append(
                ("RMSNorm", Specialization(sources["RMSNorm"], "RMSNorm", {}, (), ()).text())
            )
        for key, name in sorted(self.copies.items(), key=lambda x: order.index(x[0][0])):
            function, structure = key
            options = self._options[key]
            written = Specialization(sources[function], name, dict(structure), *options)
            found.append((name, written.text()))
        unused = dict.fromkeys({"append", "rows", "chosen", "prompt", "length"} - self.methods)
        found.append(("Cache", Specialization(sources["Cache"], "Cache", unused, (), ()).text()))
        return [(name, [self._own_letters(x) for x in lines]) for name, lines in found]

    def _own_letters(self, line: str) -> str:
        """Put this model's letters of tokens in the shapes that a line of support code names."""
        own = {"T": self.record.new_tokens.symbol, "S": self.record.past_tokens.symbol}
        if all(x == y for x, y in own.items()):
            return line
        return re.sub(
            r"\((?:B, )?[TS]\b[^()]*\)|\(B, [^()]*\b[TS]\)",
            lambda x: re.sub(r"\b[TS]\b", lambda y: own[y[0]], x[0]),
            line,
        )

    # Checks

    def _check_tied(self) -> None:
        for x in fold(self.tree):
            if x.weight.tied and x.pattern != "head.weight":
                raise NotWritten("weights that several layers share", x.pattern)

    def _check_fields(self) -> None:
        """Refuse a block with a field, not at its default, that nothing has read."""
        for body in self.record.bodies.values():
            block = body.block
            passed = (y for c in body.calls for y in c.arguments.values())
            if not any(isinstance(y, Placed) and y.block is block for y in passed):
                continue  # no operation sees it, and `forward` reads what it needs
            read = self.record.fields_read.get(id(block), set()) | _FACTS
            for c in body.calls:
                read.update(FIELDS_READ.get(c.op, ()))
            for name in block.fields:
                value = getattr(block, name)
                plain = not isinstance(value, Weight | Block | Stack | Expr)
                default = getattr(type(block), name, _MISSING)
                if plain and name not in read and value != default and default is not _MISSING:
                    raise NotWritten(f"the field {name} of {type(block).__name__}")

    # Classes

    def _write_classes(self) -> None:
        groups: dict[str, list[Body]] = {}
        for body in self.record.bodies.values():
            groups.setdefault(type(body.block).__name__, []).append(body)
        root = type(self.tree).__name__
        waiting = [x for x in groups if x != root]
        inside = {x: self._kinds_inside(groups[x]) - {x} for x in waiting}
        done: set[str] = set()
        while waiting:
            ready = next((x for x in waiting if inside[x] <= done), waiting[0])
            waiting.remove(ready)
            done.add(ready)
            self._add(ready, groups[ready])
        self._add("Model", groups[root])

    def _kinds_inside(self, bodies: list[Body]) -> set[str]:
        """Return the types of the blocks that these call or have inside them."""
        inner = {
            type(c.block.block).__name__
            for x in bodies
            for c in x.calls
            if c.block is not None and id(c.block.block) in self.record.bodies
        }
        return inner | {
            type(x).__name__
            for body in bodies
            for _, child in body.block.children
            for x in _blocks_of(child)
            if id(x) in self.record.bodies
        }

    def _add(self, kind: str, bodies: list[Body]) -> None:
        outlines = [outline(x) for x in bodies] if len(bodies) > 1 else [()]
        variants = [
            self._variant(x, alone=outlines.count(own) == 1)
            for x, own in zip(bodies, outlines, strict=True)
        ]
        known = {x.name for x in self.classes}

        def name(first: Variant, own: Variant, number: int) -> str:
            found = kind if number == 0 else variant_name(kind, first, own)
            if not found or found in known:
                found = f"{kind}{number + 1}"
            known.add(found)
            return found

        for code in variants_by_class(variants, name):
            for x in code.variants:
                self._class_of[id(x.block)] = code
            self.classes.append(code)

    def _variant(self, body: Body, *, alone: bool) -> Variant:
        attributes = []
        for name, child in body.block.children:
            if (
                isinstance(child, (RMSNorm, LayerNorm))
                and child.weight is None
                and is_module(child)
            ):
                continue
            path = f"{body.path}.{name}" if body.path else name
            weights: tuple[str, ...] = (path,) if isinstance(child, Weight) else ()
            if isinstance(child, Block) and is_module(child):
                weights = tuple(f"{path}.{x}" for x, _ in child.children)
            if id(child) not in self._made_parts:
                self._made_parts[id(child)] = self._made(child), self._note(child)
            attributes.append(Attribute(name, *self._made_parts[id(child)], weights))
        return Variant(body, attributes, *self._forward(body, alone=alone))

    def _forward(self, body: Body, *, alone: bool) -> tuple[list[str], list[Line]]:
        """Return the inputs and lines of the forward pass of a block; those that differ only in
        letters which they do not mention, in the types of their blocks or in their places, are
        written once.
        """
        key, letters, kinds = ((), [], []) if alone else signature(body, self)
        known = self._forwards.get(key)
        lines = None if known is None else known.lines(body.path, letters, kinds)
        if known is not None and lines is not None:
            return known.forward.inputs, lines
        forward = ForwardWriter(body, self)
        forward.write()
        if not alone and known is None:
            self._forwards[key] = _Written(forward, letters, kinds)
        return forward.inputs, forward.lines

    def _note(self, child: Weight | Block | Stack) -> str:
        """Return the comment of a part: its shape and its parameters."""
        if not isinstance(child, Weight) and not is_module(child):
            return self._size_note(child)
        weight = child if isinstance(child, Weight) else getattr(child, "weight", None)
        if weight is None:
            return ""
        letters = ", ".join(x.symbol for x in weight.shape)
        numbers = ", ".join(str(int(x)) for x in weight.shape)
        if weight.tied:
            return f"[{letters}], the same matrix as {weight.tied.removesuffix('.weight')}"
        both = f"[{letters}]" if letters == numbers else f"[{letters}] = [{numbers}]"
        if len(weight.shape) == 1:
            return both
        bias = getattr(child, "bias", None)
        n = int(weight.size) + (0 if bias is None else int(bias.size))
        return f"{both}, {n:,} parameters"

    def _size_note(self, child: Block | Stack) -> str:
        blocks = [(child, 1)] if isinstance(child, Block) else child.distinct()
        sizes: dict[int, int] = {}
        for x, n in blocks:
            size = self._size(x)
            sizes[size] = sizes.get(size, 0) + int(n)
        parts = [f"{n:,} × {k:,}" if n > 1 else f"{k:,}" for k, n in sizes.items()]
        return f"{' + '.join(parts)} parameters"

    def _size(self, block: Block) -> int:
        """Return the number of parameters of a block, a tied matrix not counted."""
        if id(block) not in self._sizes:
            found = 0
            for _, child in block.children:
                if isinstance(child, Weight):
                    found += int(child.parameters)
                elif isinstance(child, Block):
                    found += self._size(child)
                else:
                    found += sum(self._size(x) * int(n) for x, n in child.distinct())
            self._sizes[id(block)] = found
        return self._sizes[id(block)]

    def _made(self, child: Weight | Block | Stack) -> ast.expr:
        """Return the expression that makes a part."""
        if isinstance(child, Weight):
            return self._made_weight(child)
        if not isinstance(child, Block):
            made = {id(x): self._made(x) for x, _ in child.distinct()}
            key = "L" if child is self.tree.layers else ""
            count = count_code(child, self.symbols, self.letters, key)
            firsts = self._first_layers() if key else {}
            return stack_code(child, made, count, firsts)
        if not is_module(child):
            return self._class_of[id(child)].made(child)
        weight: Weight = getattr(child, "weight")  # noqa: B009
        shape = [self.symbols.dimension(x) for x in weight.shape]
        if isinstance(child, Linear):
            values = {"out": shape[0], "into": shape[-1]}
            return fill(f"nn.Linear(into, out, bias={child.bias is not None})", values)
        if isinstance(child, Embedding):
            return fill("nn.Embedding(rows, d)", {"rows": shape[0], "d": shape[1]})
        assert isinstance(child, RMSNorm | LayerNorm)
        values = {"d": shape[-1], "eps": self.symbols.number(float(child.eps), "eps")}
        if isinstance(child, LayerNorm):
            return fill(f"nn.LayerNorm(d, eps=eps, bias={child.bias is not None})", values)
        if not child.offset:
            return fill("nn.RMSNorm(d, eps=eps)", values)
        if child.offset != 1:
            raise NotWritten("the field offset of RMSNorm", f"here {child.offset:g}")
        self.shifted_norms = True
        return fill("RMSNorm(d, eps)", values)

    def _made_weight(self, weight: Weight) -> ast.expr:
        """Return a parameter with usual values of its kind, or a buffer."""
        shape = ", ".join(f"n{i}" for i in range(len(weight.shape)))
        values = {f"n{i}": self.symbols.dimension(x) for i, x in enumerate(weight.shape)}
        kind = {"scale": "ones", "bias": "zeros"}.get(weight.role, "randn")
        made = f"torch.{kind}({shape}){' * 0.02' if kind == 'randn' else ''}"
        if weight.buffer:
            return fill(f"nn.Buffer(torch.zeros({shape}))", values)
        return fill(f"nn.Parameter({made})", values)

    def _first_layers(self) -> dict[int, str]:
        """Return the letters of numbers of first layers, which no weight has."""
        found: dict[int, str] = {}
        for letter, key in self.source.config.key_by_symbol.items():
            value = self.source.config.data.get(key)
            if letter not in self.letters and isinstance(value, int) and "first" in key:
                self.letters[letter] = value
                found[value] = f"_dim_{letter}"
                self.symbols.letters[letter] = value
        return found


_MISSING = object()


def _given(use: Use, option: str) -> bool:
    return use.options.get(option, ("", None))[1] is not None


def _copy_of(function: str, structure: Mapping[str, Any]) -> _Copy:
    return function, tuple(sorted(structure.items(), key=str))


def _blocks_of(child: Weight | Block | Stack) -> list[Block]:
    if isinstance(child, Block):
        return [child]
    return [] if isinstance(child, Weight) else [x for x, _ in child.distinct()]


def _bodies_inside(bodies: Mapping[int, Body], block: Block) -> list[Body]:
    found = [bodies[id(block)]] if id(block) in bodies else []
    for _, child in block.children:
        for x in _blocks_of(child):
            found += _bodies_inside(bodies, x)
    return found
