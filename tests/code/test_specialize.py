"""Functions of support code are reduced to what a model uses, and their comments stay."""

from __future__ import annotations

import ast
import itertools
from typing import Any

import pytest

from llamath.analysis.code.operation_code import EXPRESSIONS
from llamath.analysis.code.specialize import Specialization, support_sources
from llamath.analysis.code.syntax.trees import fill, inner_nodes, is_same, parse, unparse, walk

SOURCES = support_sources()


def reduced(
    function: str, fixed: dict[str, Any] | None = None, given: str = "", optional: str = ""
) -> str:
    """Return a function with some options fixed, some always given, and some given by some calls."""
    written = Specialization(
        SOURCES[function], function, fixed or {}, given.split(), optional.split()
    )
    return "\n".join(written.text())


def test_plain_attention_has_no_option() -> None:
    text = reduced("attention")
    assert text.startswith("def attention(q, k, v, pos):\n")
    assert "y = scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)" in text
    assert "if" not in text.split()
    assert "# heads first" in text


def test_optional_parameter_keeps_its_condition() -> None:
    text = reduced("attention", given="softcap", optional="window")
    assert text.startswith("def attention(q, k, v, pos, softcap, window=None):\n")
    assert "    if window is not None:\n        mask = mask & (i - j < window)\n" in text
    assert "    scores = softcap * torch.tanh(scores / softcap)\n" in text
    assert "scaled_dot_product" not in text


def test_assigned_option_is_a_variable_from_there_on() -> None:
    text = reduced("attention", given="sinks")
    assert "scale = q.shape[-1] ** -0.5\n" in text
    assert "scores = (q @ k.mT).float() * scale" in text


def test_names_for_one_value_are_left_out() -> None:
    text = reduced("route")
    assert "ranked" not in text
    assert "chosen = scores.topk(top_k, -1).indices" in text
    assert "ranked = scores + correction  # for the choice alone" in reduced(
        "route", given="correction"
    )


def test_last_value_is_returned() -> None:
    assert reduced("rope").endswith(
        "return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).type_as(x)"
    )
    assert reduced("rope", given="dim").endswith("return torch.cat((y, rest), -1)")


def test_comment_of_a_condition_moves_to_its_first_line() -> None:
    text = reduced("attention", given="sinks")
    (line,) = [x for x in text.split("\n") if "sink = " in x]
    assert line.endswith("# a logit without a value")


def test_methods_of_a_class_can_be_left_out() -> None:
    whole, without = reduced("Cache"), reduced("Cache", dict.fromkeys(("append", "chosen")))
    assert "def append(self, module, *new):" in whole and "chosen = None" in whole
    assert "append" not in without and "chosen" not in without


OPTIONS = {
    "rope": {
        "scaling": ("", "linear", "dynamic", "qwen_dynamic", "llama3", "yarn", "long"),
        "interleaved": (False, True),
        "truncate": (True, False),
    },
    "route": {
        "scoring": ("softmax", "sigmoid", "sqrtsoftplus"),
        "by_logits": (False, True),
        "grouped": (False, True),
        "normalize": (True, False),
    },
    "run_experts": {"weigh_inputs": (False, True), "zero_experts": (False, True)},
}


@pytest.mark.parametrize("function", sorted(OPTIONS))
def test_each_structure_is_valid_and_mentions_only_what_it_has(function: str) -> None:
    names, values = zip(*OPTIONS[function].items(), strict=True)
    numbers = set(SOURCES[function].options) - set(names)
    for chosen in itertools.product(*values):
        for given in ("", " ".join(sorted(numbers))):
            text = reduced(function, dict(zip(names, chosen, strict=True)), given)
            (tree,) = ast.parse(text).body
            assert isinstance(tree, ast.FunctionDef)
            known = {x.arg for x in tree.args.args} | {
                x.id
                for x in ast.walk(tree)
                if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
            }
            read = {x.id for x in ast.walk(tree) if isinstance(x, ast.Name)} - known
            assert not read & (set(names) | numbers)
            assert max(map(len, text.split("\n"))) <= 100


def test_walk_visits_nodes_in_the_order_of_ast() -> None:
    for source in SOURCES.values():
        assert list(walk(source.node)) == [x for x in ast.walk(source.node) if x._fields]


def test_text_of_trees_has_their_meaning_and_few_brackets() -> None:
    nested = (
        "(a + b) * -c ** -d ** 2 - (e - f)",
        "(a if b else c) if d else [x.y[1:, i] for i in z]",
        "not (a or b and (c or d)) and (e, *f)[0] is not {}",
    )
    trees = [*map(parse, (*EXPRESSIONS.values(), *nested)), *(x.node for x in SOURCES.values())]
    for tree in (x for y in trees for x in ast.walk(y) if isinstance(x, ast.expr)):
        text = unparse(tree)
        assert len(text) <= len(ast.unparse(tree))
        part = any(isinstance(x, ast.Starred | ast.Slice) for x in (tree, *inner_nodes(tree)))
        if not part and '"' not in text:
            assert is_same(parse(text), tree), text


def test_filling_a_template_leaves_its_tree() -> None:
    before = ast.dump(parse("f(x, y, z)"))
    absent = {"x": ast.Name("a"), "z": ast.Constant(None)}
    assert unparse(fill("f(x, y, z)", absent)) == "f(a, y)"
    assert ast.dump(parse("f(x, y, z)")) == before
