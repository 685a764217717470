"""`formula_lines`: the forward passes as formulas, in Unicode or in LaTeX, one for each statement
of the code, from the same syntax trees.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from ...core.blocks import Embedding, Linear, Norm
from ...core.tree import Block
from ...utils.errors import safe
from .class_code import ClassCode
from .code_file import FileLine, FileWriter
from .recorded_code import is_module
from .symbols import DIM, NUMBER
from .syntax.line_breaks import wrap
from .syntax.trees import unparse, walk

_SAME = ("unflatten", "flatten", "float", "type_as", "expand", "view")
"""Methods that change a shape or a dtype, not the mathematics."""
_OPERATORS: Mapping[type[ast.operator], tuple[str, str]] = {
    ast.Add: (" + ", " + "),
    ast.Sub: (" − ", " - "),
    ast.Mult: (" · ", r" \cdot "),
    ast.Div: (" / ", " / "),
    ast.FloorDiv: (" // ", r" \div "),
    ast.MatMult: (" ", r" \, "),
}
_GREEK = {"theta": ("θ", r"\theta"), "beta": ("β", r"\beta"), "alpha": ("α", r"\alpha")}
_FUNCTIONS = {"sigmoid": ("σ", r"\sigma"), "tanh": ("tanh", r"\tanh"), "exp": ("exp", r"\exp")}


class Formulas:
    """Writes the trees of one class as formulas."""

    def __init__(self, writer: FileWriter, code: ClassCode, latex: bool) -> None:
        self._writer = writer
        self._code = code
        self._latex = latex

    def line(self, tree: ast.stmt) -> str:
        """Return the formula of a statement."""
        if isinstance(tree, ast.Assign):
            goal, value = tree.targets[0], tree.value
            function = value.func if isinstance(value, ast.Call) else None
            is_split = isinstance(function, ast.Attribute) and function.attr == "split"
            if is_split and isinstance(goal, ast.Tuple):
                parts = "; ".join(map(self._of, goal.elts))
                return f"[{parts}] = {self._of(function.value)}"  # type: ignore[union-attr]
            return f"{self._of(goal)} = {self._of(value)}"
        if isinstance(tree, ast.Return):
            assert tree.value is not None
            return f"y = {self._of(tree.value)}"
        layers = self._pick("l = 1, …, L", r"\quad l = 1, \dots, L")
        return f"x {self._pick('←', chr(92) + 'leftarrow')} {self._word('Layer')}_l(x), {layers}"

    def _pick(self, plain: str, latex: str) -> str:
        return latex if self._latex else plain

    def _word(self, name: str) -> str:
        """Return a name as text: in LaTeX upright, with what follows a _ below."""
        if name in _GREEK:
            return _GREEK[name][self._latex]
        if not self._latex:
            return name
        first, _, rest = name.partition("_")
        first = first if len(first) == 1 else rf"\mathrm{{{first}}}"
        rest = rest.replace("_", " ")
        return f"{first}_{{\\mathrm{{{rest}}}}}" if rest else first

    def _sub(self, name: str, below: str) -> str:
        shown = below if len(below) == 1 else rf"\mathrm{{{below.replace('_', ' ')}}}"
        return f"{name}_{{{shown}}}" if self._latex else f"{name}_{below}"

    def _root(self, x: str) -> str:
        if self._latex:
            return rf"\sqrt{{{x}}}"
        return f"√{x}" if re.fullmatch(r"\w+", x) else f"√({x})"

    def _bracketed(self, x: ast.expr, *kinds: type[ast.operator]) -> str:
        text = self._of(x)
        needs = isinstance(x, ast.BinOp) and isinstance(x.op, kinds or (ast.Add, ast.Sub))
        return f"({text})" if needs else text

    def _of(self, x: Any) -> str:
        kinds: dict[type, Callable[[Any], str]] = {
            ast.Name: self._name,
            ast.Constant: lambda y: _number(y.value),
            ast.Tuple: lambda y: ", ".join(map(self._of, y.elts)),
            ast.UnaryOp: lambda y: f"{self._pick('−', '-')}{self._bracketed(y.operand)}",
            ast.Attribute: lambda y: self._word(y.attr.rstrip("_")),
            ast.BinOp: self._binary,
            ast.Call: self._call,
            ast.Subscript: lambda y: self._of(y.value),
            ast.Starred: lambda y: self._of(y.value),
        }
        write = kinds.get(type(x))
        return write(x) if write else unparse(x)

    def _name(self, x: ast.Name) -> str:
        if x.id.startswith(DIM):
            return self._word(x.id.removeprefix(DIM))
        if x.id.startswith(NUMBER):
            return _number(self._writer.value_of(x.id))
        return self._word(x.id)

    def _binary(self, x: ast.BinOp) -> str:
        if isinstance(x.op, ast.Pow):
            exponent = unparse(x.right).strip("()")
            if exponent == "0.5":
                return self._root(self._of(x.left))
            if exponent == "-0.5":
                return f"1/{self._root(self._of(x.left))}"
            return f"{self._bracketed(x.left)}^{{{exponent}}}"
        operator = _OPERATORS[type(x.op)][self._latex]
        inverse = self._inverse_root(x.right) if isinstance(x.op, ast.Mult) else ""
        if inverse:
            return f"{self._bracketed(x.left)} / {inverse}"
        if isinstance(x.op, ast.Mult) and self._is_tensor(x.left) and self._is_tensor(x.right):
            operator = self._pick(" ⊙ ", r" \odot ")
        if isinstance(x.op, ast.Add):
            return f"{self._of(x.left)}{operator}{self._of(x.right)}"
        return f"{self._bracketed(x.left)}{operator}{self._bracketed(x.right)}"

    def _inverse_root(self, x: ast.expr) -> str:
        """Return √y of a factor 1 / √y; empty for another factor."""
        if not isinstance(x, ast.BinOp) or not isinstance(x.op, ast.Pow):
            return ""
        return self._root(self._of(x.left)) if unparse(x.right).strip("()") == "-0.5" else ""

    @staticmethod
    def _is_tensor(x: ast.expr) -> bool:
        names = [y for y in walk(x) if isinstance(y, ast.Name)]
        return any(not y.id.startswith((DIM, NUMBER)) for y in names)

    def _call(self, x: ast.Call) -> str:
        function, arguments = x.func, x.args
        if isinstance(function, ast.Name):
            return self._support(function.id, x)
        assert isinstance(function, ast.Attribute)
        name, owner = function.attr, function.value
        if name in _SAME:
            return self._of(owner)
        root = unparse(owner)
        if root == "F" and name == "linear":
            path = unparse(arguments[1]).removesuffix(".float()").removesuffix(".weight")
            return self._block(path, arguments[:1])
        if re.fullmatch(r"self(\.\w+(\[\d+\])?)*", root):
            return self._block(unparse(function), arguments)
        if root == "cache":
            rows = ", ".join(map(self._of, arguments[1:]))
            return f"{self._pick('cache', chr(92) + 'mathrm{cache}')} ∪ ({rows})".replace(
                "∪", self._pick("∪", r"\cup")
            )
        if name == "cat":
            return f"[{'; '.join(map(self._of, getattr(arguments[0], 'elts', arguments)))}]"
        if name == "topk":
            return f"{self._word('top')}-{self._of(arguments[0])}({self._of(owner)})"
        shown = _FUNCTIONS.get(name, (name, rf"\operatorname{{{name.replace('_', ' ')}}}"))
        given = [] if root in ("torch", "F") else [owner]
        given += [y for y in arguments if not isinstance(y, ast.Constant)]
        shape = "x.shape"
        inner = [self._of(y) for y in given if shape not in unparse(y)]
        return (
            f"{shown[self._latex]}({', '.join(inner[:1] if name in ('softmax', 'sum') else inner)})"
        )

    def _support(self, name: str, x: ast.Call) -> str:
        first = self._bracketed(x.args[0], ast.Add, ast.Sub) if x.args else ""
        if name.endswith("rope"):
            return f"{self._pick('R_t', 'R_t')} {first}"
        if name == "attention":
            return self._attention(x)
        if name.startswith("route"):
            top = f"{self._word('top')}-{self._of(x.args[1])}"
            return f"{top}({self._of(x.args[0])})"
        if name.startswith("run_"):
            expert = self._sub("E", "e")
            total = self._pick("Σₑ wₑ · ", r"\sum_e w_e \cdot ")
            return f"{total}{expert}({self._of(x.args[1])})"
        kept = [y for y in x.args if unparse(y) not in ("cache", "self", "pos")]
        shown = rf"\operatorname{{{name.replace('_', ' ')}}}" if self._latex else name
        return f"{shown}({', '.join(map(self._of, kept))})"

    def _attention(self, x: ast.Call) -> str:
        q, k, v = map(self._of, x.args[:3])
        options = {y.arg: y.value for y in x.keywords}
        transposed = self._pick(f"{k}ᵀ", rf"{k}^\top")
        pair = f"{q} {transposed}"
        if "scale" in options:
            scores = self._of(ast.BinOp(ast.Name("_pair"), ast.Mult(), options["scale"]))
            scores = scores.replace(self._word("_pair"), pair)
        else:
            scores = self._pick(f"{pair} / √h", rf"\frac{{{pair}}}{{\sqrt{{h}}}}")
        if "softcap" in options:
            cap = self._of(options["softcap"])
            inner = self._pick(f"tanh({scores} / {cap})", rf"\tanh\left({scores} / {cap}\right)")
            scores = f"{cap} {inner}"
        mask = self._word("mask")
        for name in ("window", "chunk"):
            if name in options:
                mask += f"({self._of(options[name])})"
        softmax = self._pick("softmax", r"\operatorname{softmax}")
        left, right = self._pick("(", r"\left("), self._pick(")", r"\right)")
        return f"{softmax}{left}{scores} + {mask}{right} {v}"

    def _block(self, path: str, arguments: list[ast.expr]) -> str:
        """Return the use of a block: a matrix W times x, a norm, or a function of its name."""
        names = re.sub(r"\[\d+\]", "", path).split(".")[1:]
        block = _part(self._code.block, names)
        kept = [y for y in arguments if unparse(y) not in ("pos", "cache")]
        inner = ", ".join(map(self._of, kept))
        name = "_".join(names)
        if isinstance(block, Linear) and is_module(block):
            bias = f" + {self._sub('b', name)}" if block.bias is not None else ""
            simple = re.fullmatch(r"\w+|\\mathrm\{\w+\}", inner)
            made = f"{self._sub('W', name)} {inner if simple else f'({inner})'}{bias}"
            return f"({made})" if bias else made
        if isinstance(block, Embedding) and is_module(block):
            return f"{self._sub('W', name)}[{inner}]"
        if isinstance(block, Norm):
            return f"{self._word(name)}({inner})"
        kinds = {type(_part(x.block, names)) for x in self._code.variants}
        word = type(block).__name__ if isinstance(block, Block) and len(kinds) == 1 else name
        return f"{self._word(word)}({inner})"


def _part(block: Any, names: list[str]) -> Any:
    for name in names:
        block = getattr(block, name, None)
    return block


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def formula_lines(writer: FileWriter, *, latex: bool = False) -> list[FileLine]:
    """Return the formulas of every class, with the spaces of their results."""
    model = writer.model
    title = f"{safe(model.name)}: {model.parameters.total:,} parameters."
    lines = [FileLine(text=rf"% {title}" if latex else title)]
    for code in writer.classes:
        if not code.lines:
            continue
        summary = writer.summary_of(code)
        lines += [FileLine(text="")]
        if latex:
            lines += [FileLine(text=rf"\paragraph{{{code.name}}}", block=code.name)]
            lines += [FileLine(text=r"\begin{align*}", block=code.name)]
        else:
            heading = wrap(f"{code.name}: {summary}")
            lines += [FileLine(text=x, block=code.name) for x in heading]
        formulas = Formulas(writer, code, latex)
        for x in code.lines:
            text = formulas.line(x.tree)
            left, _, right = text.partition(" = ")
            if left == right:  # another shape or dtype of the same
                continue
            space = _space(x.comment, latex)
            if latex:
                text = text.replace(" = ", " &= ", 1) + f"{space} \\\\"
            made = f"  {text}{space if not latex else ''}"
            lines.append(
                FileLine(text=made, block=code.name, operations=x.operations, weights=x.weights)
            )
        if latex:
            lines += [FileLine(text=r"\end{align*}", block=code.name)]
    return lines


def _space(comment: str, latex: bool) -> str:
    """Return the space of a result, from the comment with its shape."""
    shape = comment.partition(": ")[0].split(" = ")[0]
    if not re.fullmatch(r"\([^()]*\)", shape) or "…" in shape:
        return ""
    sizes = [x.strip() for x in shape.strip("()").split(",")]
    sizes = [f"({x})" if " + " in x else x for x in sizes]
    if latex:
        joined = r" \times ".join(x.replace("·", r" \cdot ") for x in sizes)
        return rf" \quad \in \mathbb{{R}}^{{{joined}}}"
    return f"    ∈ ℝ^({'×'.join(sizes)})"
