"""`ForwardWriter`: the statements of one block's `forward`.

Every result is a line at first. Then results that are used once and have no name are written where
they are used (inline), as are short named ones (shorten); `k = rope(k)` moves to where k is made
(hoist); a line that is too long gives up its largest part (fit); and the sum of a residual branch
has the name of the stream (residual).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from ...core.blocks import Embedding, Linear
from ...core.expr import Expr, Power
from ..graph.node import FLOAT32, Node, UsedWeight
from .operation_code import EXPRESSIONS, FUNCTIONS, MENTIONED_TWICE, USES
from .recorded_code import Body, NamedFloat, NamedInt, Placed, PlacedStack, RecordedCall, is_module
from .refusal import NotWritten
from .symbols import DIM, NUMBER, outline_of
from .syntax.trees import fill, named, part_of, unparse

if TYPE_CHECKING:
    from .model_code import ModelWriter

CODE_WIDTH = 92  # of a statement, with its indentation
_INLINE, _INLINE_CALLS, _ROPE_WIDTH = 68, 5, 84
_STATEMENTS = ("update_cache", "layers", "route")
"""Operations that are always lines of their own."""
_HOISTED = ("rope", "", "norm_heads", "clamp", "scale", "scale_by_position", "split_heads")
"""Operations that may move to where their input is made; "" is the use of a block."""


class Line:
    """A statement, its comment, and the operations and weights that it stands for."""

    def __init__(
        self,
        tree: ast.stmt,
        comment: str = "",
        operations: Iterable[str] = (),
        weights: Iterable[str] = (),
    ) -> None:
        self.tree = tree
        self.comment = comment
        self.operations = tuple(dict.fromkeys(operations))
        self.weights = tuple(dict.fromkeys(weights))
        self._same: Line | None = None  # one with this tree

    @cached_property
    def outline(self) -> Any:
        """Its statement without numbers and dimensions."""
        return outline_of(self.tree) if self._same is None else self._same.outline

    def moved(self, place: str, other: str, kinds: Mapping[str, str]) -> Line:
        """Return the line of a block at another place, that uses blocks of other types."""
        operations = [kinds.get(x, x) for x in self.operations]
        weights = [other + x.removeprefix(place) for x in self.weights]
        made = Line(self.tree, self.comment, operations, weights)
        made._same = self
        return made


class ForwardWriter:
    """Writes the forward pass of one block."""

    def __init__(self, body: Body, model: ModelWriter) -> None:
        self.body = body
        self.model = model
        self.lines: list[Line] = []
        self.variables: dict[int, str] = {}  # of nodes
        self.call: RecordedCall
        self._remarks: set[str] = set()
        calls = body.calls = _hoisted(body)
        self._producer = {id(r): c for c in calls for r in c.results}
        self._position = {id(c): i for i, c in enumerate(calls)}
        self._uses: dict[int, list[int]] = {}
        for i, c in enumerate(calls):
            # the dtype of the model is that of the input
            implied = body.inputs[:1] if c.op == "to_model_dtype" else ()
            for x in (*c.inputs, *implied):
                self._uses.setdefault(id(x), []).append(i)
        for x in body.outputs:
            self._uses.setdefault(id(x), []).append(len(calls))
        # results that a template mentions more than once
        self._mentioned_twice = {id(x) for c in calls for x in _mentioned_twice(c)}
        self._inline = {id(c) for c in calls if self._is_anonymous(c)}
        # of calls, while neither what is inline nor a variable changes, and of nodes
        self._trees: dict[int, ast.expr] = {}
        self._last_uses: dict[int, int] = {}
        for x in body.inputs:
            name = body.names[id(x)][1] if id(x) in body.names else "x"
            while name in self.variables.values():
                name = {"x": "e"}.get(name, name + "_")
            self.variables[id(x)] = name
        self.inputs = [self.variables[id(x)] for x in body.inputs]
        self._holders = {name: x for x, name in self.variables.items()}  # one node has a name

    def _is_anonymous(self, c: RecordedCall) -> bool:
        """Whether a result is written where it is used: it is used once, and has no name in the
        block's own forward.
        """
        if len(c.results) != 1 or c.op in _STATEMENTS:
            return False
        r = c.results[0]
        once = len(self._uses.get(id(r), [])) == 1 and id(r) not in self._mentioned_twice
        return once and self.body.names.get(id(r), (9, ""))[0] > 0

    # What templates use

    def text(self, template: str, **values: Any) -> ast.expr:
        """Return the tree of an expression with these values."""
        return self.model.filled(template, {k: self.value(v) for k, v in values.items()})

    def value(self, x: Any) -> ast.expr:
        """Return the expression of an argument."""
        kind = type(x)
        if kind is Node:
            c = self._producer.get(id(x))
            if c is not None and id(c) in self._inline:
                known = self._trees.get(id(c))
                if known is None:
                    before, self.call = self.call, c
                    known = self._trees[id(c)] = self.expression(c)
                    self.call = before
                return known
            return named(self.variables[id(x)])
        if kind is UsedWeight or kind is Placed or kind is PlacedStack:
            return self._inside(x.path)
        if isinstance(x, ast.expr):
            return x
        if isinstance(x, Expr):
            return self.model.symbols.dimension(x)
        if isinstance(x, Power):
            return self.model.symbols.power(x)
        if isinstance(x, (NamedFloat, NamedInt)):
            plain = float(x) if isinstance(x, float) else int(x)
            return self.model.symbols.number(plain, x.tag)
        if isinstance(x, (tuple, list)):
            return self.model.tuple_of([self.value(y) for y in x])
        return ast.Constant(x)

    def _tagged(self, tag: str, x: Any) -> ast.expr:
        """Return a number of a record by its tag, or what else an option may be."""
        if tag == "alibi_slopes":
            _, heads, alibi = x
            self.model.use_function("alibi_slopes", {}, "", (), ())
            slopes = self.text(
                "alibi_slopes(n, most)",
                n=heads,
                most=self.model.symbols.number(float(alibi.max_bias), "max_bias"),
            )
            if float(alibi.scale) == 1:
                return slopes
            return ast.BinOp(slopes, ast.Mult(), self.value(_power_of(alibi.scale)))
        if isinstance(x, Node | UsedWeight | Expr | ast.expr) or x is None:
            return self.value(x)
        if isinstance(x, Power):
            return self.model.symbols.power(x, tag)
        return self.model.symbols.number(float(x) if isinstance(x, float) else x, tag)

    def _inside(self, path: str) -> ast.expr:
        """Return the attribute of a weight or block inside this one."""
        own = self.body.path
        if not path.startswith(own):
            raise NotWritten(f"a block of another place, {path}")
        return part_of("self", path[len(own) :].lstrip("."))

    # Expressions

    def expression(self, c: RecordedCall) -> ast.expr:
        """Return the expression of an operation or of the use of a block."""
        if c.block is not None:
            return self._use_block(c.block, list(c.arguments.values()))
        if c.op == "norm_heads":
            norm = c.arguments["norm"]
            if isinstance(norm, Placed):
                return self._use_block(norm, [c.arguments["x"]])
            form = "torch.stack([norm(head) for norm, head in zip(norms, x.unbind(2))], 2)"
            return self.text(form, norms=norm, x=c.arguments["x"])
        if c.op == "update_cache":
            return self._update_cache(c)
        if c.op in USES:
            return self._use_function(c)
        if c.op in FUNCTIONS:
            return FUNCTIONS[c.op](self, c.arguments)
        if c.op in EXPRESSIONS:
            return self.text(EXPRESSIONS[c.op], **c.arguments)
        kind = type(self.body.block).__name__
        raise NotWritten(f"the operation {c.op}", f"which {kind} computes")

    def _update_cache(self, c: RecordedCall) -> ast.expr:
        rows = {f"r{i}": x for i, x in enumerate(c.arguments["rows"])}
        self.model.use_method("append")
        return self.text(f"cache.append(self, {', '.join(rows)})", **rows)

    def _use_function(self, c: RecordedCall) -> ast.expr:
        use = USES[c.op](self.model, c.arguments, self.body.block)
        found = self.model.options_of(use)
        name = self.model.use_function(
            use.function, use.structure, use.copy_name, found.given, found.optional
        )
        values = {
            k: self._tagged(*v) if _is_tagged(v) else self.value(v) for k, v in use.values.items()
        }
        call = fill(f"f{use.template}", values)
        assert isinstance(call, ast.Call)
        by_place, by_name = list(call.args), list[ast.keyword]()
        for option in (*found.given, *found.optional):
            tag, x = use.options[option]
            if option == "slopes" and x is not None:
                tag = "alibi_slopes"
            made = self._tagged(tag, x)
            if use.function == "route" and option in found.given:
                by_place.append(made)
            else:
                by_name.append(ast.keyword(option, made))
        call = ast.Call(named(name), by_place, by_name)
        if use.function != "rope":
            return call
        if "prompt" in found.given:
            self.model.use_method("prompt")
        return packed(call, len([x for x in found.given if x != "prompt"]))

    def _use_block(self, block: Placed, inputs: list[Node]) -> ast.expr:
        own = block.block
        if is_module(own) and getattr(own, "weight", None) is None:
            name = "rms_norm" if type(own).__name__ == "RMSNorm" else "layer_norm"
            return self.text(f"F.{name}(x, x.shape[-1:], eps=eps)", x=inputs[0], eps=block.eps)
        target = self._inside(block.path)
        if type(own) is Linear and inputs[0].width == FLOAT32:
            bias = ", block.bias.float()" if own.bias is not None else ""
            return self.text(f"F.linear(x, block.weight.float(){bias})", x=inputs[0], block=target)
        given = [self.value(x) for x in inputs]
        if type(own) is Embedding and own.offset:
            given[0] = ast.BinOp(given[0], ast.Add(), ast.Constant(int(own.offset)))
        given += map(named, self.model.reads(own))
        found = self.model.call_of(target, given)
        if type(own) is Embedding and float(own.scale) != 1.0:
            scale = self.model.symbols.number(own.scale, "embedding_scale")
            return ast.BinOp(found, ast.Mult(), scale)
        return found

    # Lines

    def write(self) -> None:
        """Write all lines."""
        if not self.body.outputs:
            return
        self._shorten()
        for c in self.body.calls:
            if id(c) not in self._inline:
                self.call = c
                self._write_call(c)
        self.call = RecordedCall("", {}, ())
        self._position[id(self.call)] = len(self.body.calls)
        outputs = self.body.outputs
        value = self._fitted(lambda: _joined([self.value(x) for x in outputs]), outputs, 15)
        made = self._made_inline(outputs)
        last = self.lines[-1].tree if self.lines else None
        if isinstance(last, ast.Assign) and unparse(last.targets[0]) == unparse(value):
            self.lines[-1].tree = ast.Return(last.value)
            return
        self._add(ast.Return(value), self.model.shape(outputs[0].shape), made)

    def _add(self, tree: ast.stmt, comment: str, calls: Sequence[RecordedCall]) -> None:
        remark = next((x.remark for x in calls if x.remark), "")
        if remark and remark not in self._remarks:
            self._remarks.add(remark)
            comment = f"{comment}: {remark}" if comment else remark
        weights = [path for c in calls for path in _weights(c)]
        operations = [x for c in calls for x in _operations(c)]
        self.lines.append(Line(tree, comment, operations, weights))

    def _write_call(self, c: RecordedCall, hint: str = "y") -> None:
        if c.op == "layers":
            self._write_layers(c)
            return
        known = self.body.names.get(id(c.results[0]), (9, ""))
        indent = 8 + 4 + 4 * len(c.results)
        target = known[1] if known[0] == 0 and len(c.results) == 1 else ""
        value = self._fitted(lambda: self.expression(c), c.inputs, indent, target, _hints(c))
        made = [c, *self._made_inline(c.inputs)]
        used = [r for r in c.results if self._uses.get(id(r))]
        names = [self._name(r, hint) if r in used else "_" for r in c.results]
        if len(names) == 1 and c.op == "add" and _is_sum_of_name(value):
            first = c.arguments["x"]  # the sum of a residual branch has the name of the stream
            left = value.left.id  # type: ignore[attr-defined]
            done = self._last_use(id(first)) <= self._position[id(c)]
            if done and self.variables.get(id(first)) == left:
                del self.variables[id(first)]
                self._hold(id(c.results[0]), left)
                names[0] = left
        goal: ast.expr = named(names[0])
        if len(names) > 1 or c.op == "update_cache":
            goal = ast.Tuple([*map(named, names)])
        self._add(ast.Assign([goal], value), self._result_shapes(used), made)

    def _result_shapes(self, results: list[Node]) -> str:
        shapes = [self.model.shape(r.shape) for r in results]
        if len(set(shapes)) == 1:
            return shapes[0] + (" each" if len(shapes) > 1 else "")
        return " and ".join(x.split(" = ")[0] for x in shapes)

    def _name(self, r: Node, hint: str) -> str:
        known = self.body.names.get(id(r))
        vague = known is None or (known[0] and known[1] in ("x", "y"))
        if vague and hint == "y":
            hint = self._final_name(r) or hint
        return self._set(r, known[1] if known is not None and not (hint != "y" or vague) else hint)

    def _final_name(self, r: Node) -> str:
        """Return the name of what a nameless result becomes, `q = norm(q)`, if it is free."""
        calls, uses = self.body.calls, self._uses.get(id(r), [])
        if len(uses) != 1 or uses[0] >= len(calls):
            return ""
        end = calls[uses[0]]
        while id(end) in self._inline:
            i = self._uses[id(end.results[0])][0]
            if i >= len(calls):
                return ""
            end = calls[i]
        distance, name = self.body.names.get(id(end.results[0]), (9, ""))
        return name if not distance and len(end.results) == 1 and self._is_free(name, r) else ""

    def _is_free(self, name: str, x: Node) -> bool:
        """Whether no other node has this name that is still used."""
        if name in ("pos", "cache"):
            return False
        other = self._holders.get(name)
        if other is None or other == id(x):
            return True
        last = self._last_uses.get(other)
        if last is None:
            last = self._last_use(other)
        return last <= self._position[id(self.call)]

    def _write_layers(self, c: RecordedCall) -> None:
        self.call = c
        x, extra = c.arguments["x"], c.arguments["extra"]
        for z in extra:
            source = self._producer.get(id(z))
            if source is not None and id(source) in self._inline:
                self._write_apart(source)
                self._write_call(source, "e")
                self.call = c
        if any(self.variables.get(id(z)) == "x" for z in extra):  # the embeddings themselves
            self._add(ast.Assign([named("e")], named("x")), "", [])
        value = self.value(x)
        y = self._set(c.results[0], "x")
        if not (isinstance(value, ast.Name) and value.id == y):
            made = self._made_inline([x])
            self._add(ast.Assign([named(y)], value), self.model.shape(x.shape), made)
        arguments, numbered = [y], False
        for z in extra:
            text = self.variables.get(id(z), "e")
            numbered |= len(z.shape) == 4
            arguments.append(f"{text}[:, :, i]" if len(z.shape) == 4 else text)
        head = "for i, layer in enumerate(self.layers)" if numbered else "for layer in self.layers"
        call = f"{y} = layer({', '.join([*arguments, *self.model.read_by_layers])})"
        self._add(ast.parse(f"{head}:\n    {call}").body[0], "", [c])

    def _set(self, x: Node, name: str) -> str:
        """Give a node a name that no other has that is still used."""
        while not self._is_free(name, x):
            name = f"{name}2" if name.endswith("_") else f"{name}_"
        self._hold(id(x), name)
        return name

    def _hold(self, node: int, name: str) -> None:
        """Give a node a name, which it takes from another one."""
        before = self.variables.pop(self._holders.get(name, 0), None)
        if node in self.variables:
            before = self.variables[node]
            del self._holders[before]
        self.variables[node], self._holders[name] = name, node
        if before is not None:
            self._trees = {}

    def _write_apart(self, c: RecordedCall) -> None:
        """Let a call be a line of its own."""
        self._inline.discard(id(c))
        self._trees, self._last_uses = {}, {}

    def _last_use(self, node: int) -> int:
        """Return the position of the last line that uses a node, or an expression with it."""
        last, calls = -1, self.body.calls
        for i in self._uses.get(node, ()):
            if i < len(calls) and id(calls[i]) in self._inline:
                i = self._last_use(id(calls[i].results[0]))  # the only one
            if i > last:
                last = i
        self._last_uses[node] = last
        return last

    def _made_inline(self, nodes: Iterable[Node]) -> list[RecordedCall]:
        """Return the operations that are written inside an expression of these nodes."""
        found: list[RecordedCall] = []
        for x in nodes:
            made = self._producer.get(id(x))
            if made is not None and id(made) in self._inline:
                found += [*self._made_inline(made.inputs), made]
        return found

    # Fit

    def _fitted(
        self,
        build: Callable[[], ast.expr],
        inputs: Iterable[Node],
        indent: int,
        target: str = "",
        hints: Mapping[int, str] = {},
    ) -> ast.expr:
        """Return an expression of at most the width of a line; parts of a longer one become lines
        of their own.
        """
        while True:
            value = build()
            if code_width(value) + indent <= CODE_WIDTH:
                return value
            found: list[tuple[bool, int, RecordedCall, str]] = []
            self._parts(inputs, found, hints)
            parts = [x for x in found if x[0]] or [x for x in found if x[1] > 20]
            if not parts:
                return value
            _, _, c, hint = max(parts, key=lambda x: (x[1] < CODE_WIDTH, x[1]))
            self._write_apart(c)
            before, self.call = self.call, c
            self._write_call(c, target if target and hint in ("x", "y") else hint)
            self.call = before

    def _parts(self, inputs: Iterable[Node], found: list[Any], hints: Mapping[int, str]) -> None:
        for x in inputs:
            c = self._producer.get(id(x))
            if c is None or id(c) not in self._inline:
                continue
            known, hint = self.body.names.get(id(x)), hints.get(id(x), "")
            if known and not (known[0] and known[1] == "x"):
                name = known[1]
            else:
                name = hint if hint and hint != "x" else "y"
            has_name = known is not None or c.op == "attention"
            found.append((has_name, code_width(self.value(x)), c, name))
            self._parts(c.inputs, found, _hints(c))

    # Shorten

    def _shorten(self) -> None:
        """Write short named results where they are used, too, as in x + self.attn(self.norm(x))."""
        calls = self.body.calls
        for c in calls:
            if id(c) in self._inline or len(c.results) != 1 or c.op in (*_STATEMENTS, "split"):
                continue
            r = c.results[0]
            uses = self._uses.get(id(r), [])
            if len(uses) != 1 or id(r) in self._mentioned_twice:
                continue
            between = calls[self._position[id(c)] + 1 : uses[0]]
            if any(id(x) not in self._inline for x in between):
                continue
            consumer = calls[uses[0]] if uses[0] < len(calls) else None
            if consumer is not None and consumer.op in _STATEMENTS:
                continue
            self._try_inline(c, consumer)

    def _try_inline(self, c: RecordedCall, consumer: RecordedCall | None) -> None:
        calls, end = self.body.calls, consumer
        while end is not None and id(end) in self._inline:
            i = self._uses[id(end.results[0])][0]
            end = calls[i] if i < len(calls) else None
        if end is not None and end.op == "layers":
            return
        before = self._inline, self.variables
        self._inline, self.variables = self._inline | {id(c)}, _LikelyNames(self.body)
        self._trees = {}
        self.call = end or RecordedCall("", {}, ())
        value = (
            self.expression(end)
            if end is not None
            else _joined([self.value(x) for x in self.body.outputs])
        )
        self._inline, self.variables = before
        self._trees = {}
        text = unparse(value)
        width, calls_in = _width_of(text), text.count("(")
        mine = self.body.names.get(id(c.results[0]), (9, ""))[1]
        other = self.body.names.get(id(end.results[0]), (9, ""))[1] if end is not None else ""
        short = width <= _INLINE and calls_in <= _INLINE_CALLS
        rotated = end is not None and mine == other != "" and end.op == "rope"
        if short or (rotated and width <= _ROPE_WIDTH):
            self._inline.add(id(c))
            self._last_uses = {}


def packed(call: ast.Call, given: int) -> ast.Call:
    """Return a call of `rope` whose numbers are one tuple, if there are several."""
    if given > 1:
        *first, theta = call.args
        numbers = ast.Tuple([theta, *(x.value for x in call.keywords[:given])])
        return ast.Call(call.func, [*first, ast.Starred(numbers)], call.keywords[given:])
    return call


_NUMBER = re.compile(rf"{NUMBER}(\w+?)_\d+\b")


def code_width(tree: ast.AST) -> int:
    """Return the width of the code that a tree becomes."""
    return _width_of(unparse(tree))


def _width_of(text: str) -> int:
    if "*(" in text:
        text = re.sub(r"\*\([^()]*\)", "*self.rope", text)
    text = text.replace(DIM, "self.").replace("F.", "")
    return len(_NUMBER.sub(r"self.\1", text) if NUMBER in text else text)


def _hints(c: RecordedCall) -> dict[int, str]:
    """Return the names of the parameters that nodes are arguments for."""
    named = c.arguments.items()
    return {id(v): k for k, v in named if isinstance(v, Node) and not k[-1:].isdigit()}


class _LikelyNames(dict[int, str]):
    """The likely name of any node, for measuring text."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def __missing__(self, key: int) -> str:
        return self._body.names.get(key, (0, "x"))[1]


def _hoisted(body: Body) -> list[RecordedCall]:
    """Return the calls in an order in which `k = rope(k)` follows `k = …` at once."""
    calls, uses = list(body.calls), dict[int, int]()
    producer = {id(x): c for c in calls for x in c.results}
    for c in calls:
        for x in c.inputs:
            uses[id(x)] = uses.get(id(x), 0) + 1

    def name(x: Node) -> str:
        distance, found = body.names.get(id(x), (9, ""))
        return found if distance == 0 else ""

    for c in list(calls):
        chain, last = [c], c
        while len(last.results) == 1 and last.op in _HOISTED:
            inputs = last.inputs
            made = producer.get(id(inputs[0])) if len(inputs) == 1 else None
            if made is None or uses[id(inputs[0])] > 1 or len(made.results) > 1:
                break
            if name(inputs[0]):
                if name(inputs[0]) == name(c.results[0]):
                    for y in chain:
                        calls.remove(y)
                    at = calls.index(made) + 1
                    calls[at:at] = reversed(chain)
                break
            chain.append(made)
            last = made
    return calls


def _mentioned_twice(c: RecordedCall) -> list[Node]:
    """Return the arguments that the code of an operation mentions more than once."""
    op = c.op
    if op in ("act", "gated") and "quick_gelu" in str(c.arguments["activation"]):
        op = "quick_gelu"
        return [x for k, x in c.arguments.items() if k in ("x", "gate")]
    names = _names_mentioned_twice(op)
    return [c.arguments[k] for k in names if isinstance(c.arguments.get(k), Node)] if names else []


@cache
def _names_mentioned_twice(op: str) -> frozenset[str]:
    words = re.findall(r"\w+", EXPRESSIONS.get(op, ""))
    return frozenset(MENTIONED_TWICE.get(op, ())) | {x for x in words if words.count(x) > 1}


def _weights(c: RecordedCall) -> list[str]:
    """Return the paths of the weights that an operation reads itself, or a module inside."""
    if c.block is not None and is_module(c.block.block):
        return [f"{c.block.path}.{name}" for name, _ in c.block.block.children]
    values = c.arguments.values()
    found = [x.path for x in values if isinstance(x, UsedWeight)]
    for x in values:
        if isinstance(x, Placed) and is_module(x.block):
            found += [f"{x.path}.{name}" for name, _ in x.block.children]
    return found


def _operations(c: RecordedCall) -> list[str]:
    """Return the name of an operation; that of a module is its own."""
    if c.block is None:
        return [c.op]
    names = {"Linear": "linear", "RMSNorm": "rms_norm", "LayerNorm": "layer_norm"}
    if is_module(c.block.block):
        return [names.get(type(c.block.block).__name__, "lookup")]
    return [type(c.block.block).__name__]


def _is_tagged(x: Any) -> bool:
    return isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], str)


def _is_sum_of_name(x: ast.expr) -> bool:
    return isinstance(x, ast.BinOp) and isinstance(x.left, ast.Name)


def _joined(values: list[ast.expr]) -> ast.expr:
    return values[0] if len(values) == 1 else ast.Tuple(values)


def _power_of(scale: float) -> Any:
    return scale if isinstance(scale, Power) else NamedFloat(float(scale), "alibi_scale")
