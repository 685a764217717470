"""The forward passes of blocks are written in operations of a machine alone, so that any machine can run them; every block has one."""

from __future__ import annotations

import ast
import inspect
import typing
from types import FunctionType
from typing import Any, NamedTuple

import pytest

import llamath
from llamath.catalog import slugs
from llamath.core import blocks, latent_attention, mixers, towers
from llamath.core.machine import Machine
from llamath.core.multimodal import CountedBlock
from llamath.core.sound import SoundBlock
from llamath.core.tree import Block, Stack, fold_blocks
from support.reference_data import multimodal_configs, tiny_configs, unproven_configs

OPERATIONS = {name for name in vars(Machine) if not name.startswith("_")} - {"absorbs"}
NAMES: dict[str, Any] = {**vars(blocks), **vars(mixers), **vars(latent_attention), **vars(towers)}
NOT_ALLOWED = (
    ast.Import,
    ast.ImportFrom,
    ast.While,
    ast.Try,
    ast.With,
    ast.Lambda,
    ast.Yield,
    ast.Global,
    ast.Delete,
)


class Function(NamedTuple):
    """A `forward`, or a function that one calls."""

    name: str
    tree: ast.FunctionDef
    blocks: dict[str, type[Block]]  # parameters that are blocks: self, and those annotated so


def forwards() -> list[Function]:
    """Every `forward` of the blocks, and the functions that they call."""
    helpers, found = {}, []
    for module in (blocks, mixers, latent_attention, towers):
        for x in ast.parse(inspect.getsource(module)).body:
            if isinstance(x, ast.FunctionDef):
                helpers[x.name] = Function(x.name, x, annotated_blocks(x))
            elif isinstance(x, ast.ClassDef):
                methods = [
                    y for y in x.body if isinstance(y, ast.FunctionDef) and y.name == "forward"
                ]
                found += [Function(x.name, y, {"self": NAMES[x.name]}) for y in methods]
    for function in found:  # grows
        called = {
            x.func.id
            for x in ast.walk(function.tree)
            if isinstance(x, ast.Call) and isinstance(x.func, ast.Name)
        }
        found += [helpers[x] for x in sorted(called & helpers.keys()) if helpers[x] not in found]
    return found


def annotated_blocks(tree: ast.FunctionDef) -> dict[str, type[Block]]:
    kinds = {
        x.arg: NAMES.get(ast.unparse(x.annotation))
        for x in tree.args.args
        if x.annotation is not None
    }
    return {
        name: kind
        for name, kind in kinds.items()
        if isinstance(kind, type) and issubclass(kind, Block)
    }


def names_in(tree: ast.AST) -> set[str]:
    return {x.id for x in ast.walk(tree) if isinstance(x, ast.Name)}


class Lint(ast.NodeVisitor):
    """What a forward pass uses besides operations of `m`, blocks and their facts, functions of these modules, and Python's operators."""

    def __init__(self, function: Function) -> None:
        self.found: list[str] = []
        self.blocks = function.blocks
        arguments = [
            x
            for x in (*function.tree.args.args, function.tree.args.vararg)
            if x is not None and x.annotation is not None
        ]
        self.tensors = {x.arg for x in arguments if ast.unparse(x.annotation) == "X"}  # type: ignore[arg-type]
        self.parameters = {x.arg for x in arguments} - self.tensors - {"m"}
        self.parameters |= {
            name
            for x in ast.walk(function.tree)
            if isinstance(x, ast.For | ast.comprehension)
            for name in self.items(x)
        }
        for x in function.tree.body:
            self.visit(x)

    def items(self, loop: ast.For | ast.comprehension) -> set[str]:
        """The loop's variables that are blocks of a Stack, `for block in self.stack` or `zip(…, self.stack)`."""
        zipped = isinstance(loop.iter, ast.Call) and isinstance(loop.target, ast.Tuple)
        pairs = (
            zip(loop.target.elts, loop.iter.args, strict=True)
            if zipped
            else [(loop.target, loop.iter)]
        )  # type: ignore[attr-defined]
        return {to.id for to, over in pairs if isinstance(to, ast.Name) and self.is_stack(over)}

    def is_stack(self, x: ast.AST) -> bool:
        match x:
            case ast.Attribute(value=ast.Name(id=name), attr=field) if name in self.blocks:
                return "Stack" in str(typing.get_type_hints(self.blocks[name]).get(field, ""))
        return False

    def visit(self, x: ast.AST) -> None:
        if isinstance(x, NOT_ALLOWED):
            self.found.append(f"a statement of the kind {type(x).__name__}")
        super().visit(x)

    def visit_Assert(self, x: ast.Assert) -> None:
        """Asserts are for type checkers."""

    def visit_Assign(self, x: ast.Assign) -> None:
        """Results of operations are tensors, too."""
        self.generic_visit(x)
        (target,) = x.targets
        pairs = [(target, x.value)]
        if isinstance(target, ast.Tuple) and isinstance(x.value, ast.Tuple):
            pairs = list(zip(target.elts, x.value.elts, strict=True))
        self.tensors |= {
            name for to, value in pairs if "m" in names_in(value) for name in names_in(to)
        }

    def visit_If(self, x: ast.If | ast.IfExp) -> None:
        """Conditions are on facts of the blocks, `m.absorbs`, or whether there is a tensor."""
        if ast.unparse(x.test) != "m.absorbs":
            compared = (
                x.test.left
                if isinstance(x.test, ast.Compare)
                and ast.unparse(x.test).endswith(("is None", "is not None"))
                else None
            )
            used = names_in(x.test) - (
                names_in(compared) if isinstance(compared, ast.Name) else set()
            )
            self.found += [
                f"a condition on {name}: {ast.unparse(x.test)}"
                for name in used & (self.tensors | {"m"})
            ]
            self.visit(x.test)
        for y in ast.iter_child_nodes(x):
            if y is not x.test:
                self.visit(y)

    visit_IfExp = visit_If  # noqa: N815

    def visit_Call(self, x: ast.Call) -> None:
        match x.func:
            case ast.Name(id=name) if name in self.parameters:
                allowed = ast.unparse(x.args[0]) == "m"
            case ast.Name(id="zip"):
                allowed = True
            case ast.Name(id=name):
                allowed = isinstance(NAMES.get(name), FunctionType)
            case ast.Attribute(value=ast.Name(id="m"), attr=name):
                allowed = name in OPERATIONS
            case ast.Attribute(value=ast.Name(id=name), attr="forward"):
                allowed = isinstance(NAMES.get(name), type) and issubclass(NAMES[name], Block)
            case ast.Attribute(value=ast.Name(id=name), attr=field) if name in self.blocks:
                allowed = field in self.blocks[name].fields and ast.unparse(x.args[0]) == "m"
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id=name), attr=field)) if (
                name in self.blocks
            ):
                allowed = (
                    field in self.blocks[name].fields and ast.unparse(x.args[0]) == "m"
                )  # a block inside a block
            case _:
                allowed = False
        if not allowed:
            self.found.append(f"a call of {ast.unparse(x.func)}")
        for y in (*x.args, *(keyword.value for keyword in x.keywords)):
            if not (isinstance(y, ast.Name) and y.id == "m"):
                self.visit(y)

    def visit_Attribute(self, x: ast.Attribute) -> None:
        match x.value:
            case ast.Name(id=name) if (
                name in self.blocks and x.attr not in self.blocks[name].fields
            ):
                self.found.append(f"{ast.unparse(x)}, which is no field")
            case ast.Name(id=name) if name in self.tensors:
                self.found.append(f"{ast.unparse(x)} of a tensor")
            case _:
                self.generic_visit(x)

    def visit_Subscript(self, x: ast.Subscript) -> None:
        if isinstance(x.value, ast.Name) and x.value.id in self.tensors:
            self.found.append(f"an index: {ast.unparse(x)}")
        self.generic_visit(x)

    def visit_Name(self, x: ast.Name) -> None:
        if x.id == "m":
            self.found.append("m outside calls")

    def visit_BinOp(self, x: ast.BinOp) -> None:
        self.found += [
            f"an operator on {name}: {ast.unparse(x)}" for name in names_in(x) & self.tensors
        ]
        self.generic_visit(x)


@pytest.mark.parametrize("function", forwards(), ids=lambda x: x.name)
def test_forward_uses_only_the_machine(function: Function) -> None:
    assert not Lint(function).found


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("return super().forward(m, x)", "a call of super().forward"),
        ("return m.linear(x, self.weight).view(2)", "a call of m.linear(x, self.weight).view"),
        ("return m.scale(x, m.new_length)", "m outside calls"),
        ("return self.compute(m, x)", "a call of self.compute"),
        ("return x * 2", "an operator on x: x * 2"),
        ("return x[0]", "an index: x[0]"),
        ("return m.scale(x, x.shape[0])", "x.shape of a tensor"),
        ("if m.last_only: return x", "a condition on m: m.last_only"),
        ("if x: return x", "a condition on x: x"),
        ("import torch", "a statement of the kind Import"),
        ("return m.float(x)", "a call of m.float"),
        ("return self.spec", "self.spec, which is no field"),
    ],
)
def test_lint_finds_other_code(line: str, reason: str) -> None:
    (tree,) = ast.parse(f"def forward(self, m: Machine[X], x: X) -> X:\n    {line}").body
    assert isinstance(tree, ast.FunctionDef)
    assert reason in Lint(Function("forward", tree, {"self": blocks.Linear})).found


@pytest.mark.slow
def test_every_block_of_every_model_has_a_forward() -> None:
    kinds: set[type[Block]] = set()
    for source in (
        *slugs(),
        *(x.values[0] for x in tiny_configs() + unproven_configs() + multimodal_configs()),
    ):
        tree = llamath.load(source).tree
        layers = tree.mtp if isinstance(tree.mtp, Stack) else ()
        kinds |= {type(x.block) for part in (tree, *layers) for x in fold_blocks(part)}
    assert {
        x.__name__
        for x in kinds
        if x.forward is Block.forward and not issubclass(x, (SoundBlock, CountedBlock))
    } == set()
    assert len(kinds) > 20
