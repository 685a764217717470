"""The native engine refuses programs and passes whose numbers do not fit their memory, and none escapes the address sanitizer."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import native_header
from llamath.core.config import Config
from llamath.core.tree import walk
from llamath.families.registry import find_family
from llamath.native import engine
from llamath.native import native_operations as ops
from llamath.native.engine import NativeModel, NativeSession, Row
from llamath.native.library import F32, load_library
from llamath.native.lowering import lower
from llamath.native.native_operations import Op
from llamath.native.program import Program
from llamath.native.weights import Stored
from llamath.utils.errors import LlamathError
from sanitize import cached_sanitized, find_compiler, run_cases

TINY = Path(__file__).parents[1] / "tiny"
CONFIGS, PROGRAMS = 120, 640
"""Cases under the sanitizers; `make sanitize` runs many more."""


def parts(family: str) -> tuple[Any, dict[str, Stored]]:
    """The tree of the first tiny config of a family, and weights of ones."""
    config = next(iter(json.loads((TINY / f"{family}.json").read_text()).values()))
    tree, stored = find_family(config["model_type"])(Config(config)), {}
    for leaf in walk(tree):
        values = np.full(tuple(map(int, leaf.shape)), 0.1, np.float32)
        cols = values.shape[-1]
        stored[leaf.path] = Stored(
            int(values.ctypes.data), F32, values.size // cols, cols, values.nbytes, values
        )
    return tree, stored


def changed(program: Program, kind: type[Op], **facts: Any) -> Program:
    """The program with other facts in its first operation of this type; a function of the old fact gives the new one."""
    at = next(i for i, op in enumerate(program.ops) if type(op) is kind)
    op: Op = program.ops[at]
    new = {
        key: value(getattr(op, key)) if callable(value) else value for key, value in facts.items()
    }
    return program.replace(ops=(*program.ops[:at], op.replace(**new), *program.ops[at + 1 :]))


def other(**fields: Any) -> Any:
    """A function that changes the fields of a view."""
    return lambda view: view._replace(**fields)


def cache(i: int, **fields: int) -> Any:
    """A function of a program that changes a cache."""
    return lambda program: program.replace(
        caches=(*program.caches[:i], program.caches[i]._replace(**fields), *program.caches[i + 1 :])
    )


MISTAKES: list[tuple[str, Any, str]] = [
    # (family, a function of the program, the message)
    (
        "llama",
        lambda p: changed(p, ops.Rope, x=other(heads=32, head_stride=1, dim=1)),
        "twice the number of rotary pairs",
    ),
    ("llama", lambda p: changed(p, ops.Rope, rope=7), "the rotary embedding is 7"),
    ("llama", cache(1, heads=3), "the number of heads is"),
    ("llama", cache(0, dim=3), "the width of a head is"),
    ("llama", lambda p: changed(p, ops.Attention, window=-1), "the window is -1"),
    (
        "llama",
        lambda p: changed(p, ops.Attention, first_key=1),
        "the first number of a key is 1",
    ),
    ("llama", lambda p: changed(p, ops.Attention, value_cache=99), "the cache is 99"),
    ("llama", lambda p: changed(p, ops.Lookup, table=1000), "the table is weight 1000"),
    (
        "llama",
        lambda p: changed(p, ops.Linear, x=other(dim=31, head_stride=31)),
        "the matrix of product 0 has",
    ),
    (
        "llama",
        lambda p: changed(p, ops.Linear, x=other(buffer=1000)),
        "x is in buffer 1000",
    ),
    ("llama", lambda p: changed(p, ops.RMSNorm, out=other(offset=1)), "out ends at number"),
    (
        "llama",
        lambda p: changed(p, ops.RMSNorm, x=other(stride=10**9)),
        "x has rows of 1000000000",
    ),
    ("llama", lambda p: changed(p, ops.RMSNorm, weight_rows=2), "the weight has"),
    ("llama", lambda p: changed(p, ops.RMSNorm, eps=1e300), "eps is not finite"),
    (
        "llama",
        lambda p: changed(
            p,
            ops.Add,
            y=other(heads=2, dim=16, head_stride=16, stride=16),
        ),
        "y ends at",
    ),
    (
        "llama",
        lambda p: changed(p, ops.Add, out=next(x for x in p.ops if isinstance(x, ops.Add)).x),
        "is read and written",
    ),
    ("llama", lambda p: changed(p, ops.Gated, function=10), "the activation function is 10"),
    ("llama", lambda p: p.replace(logits=p.logits._replace(stride=1)), "the result ends at number"),
    (
        "llama",
        lambda p: p.replace(buffers=(p.buffers[0]._replace(width=2**40), *p.buffers[1:])),
        "buffer 0 has no possible size",
    ),
    ("llama", lambda p: changed(p, ops.Store, cache=2**70), "exceeds 64 bits"),
    (
        "mixtral",
        lambda p: changed(p, ops.Route, top_k=1000),
        "the number of chosen experts is 1000",
    ),
    (
        "mixtral",
        lambda p: changed(p, ops.ExpertLinear, num_experts=2**31 - 1),
        "the matrix of product 0",
    ),
    ("mixtral", lambda p: changed(p, ops.Combine, top_k=1), "y has"),
    ("deepseek_v3", lambda p: changed(p, ops.Route, groups=3), "the experts are"),
    ("mamba", lambda p: changed(p, ops.CausalConv, taps=9), "the weight has"),
    (
        "mamba",
        lambda p: p.replace(states=(p.states[0]._replace(size=1), *p.states[1:])),
        "the size of the state is 1",
    ),
    ("mamba2", lambda p: changed(p, ops.SSMScan, state=-1), "the state is -1"),
]


def test_header_has_the_fields_of_the_description() -> None:
    assert native_header.HEADER.read_text() == native_header.header()


def test_wrong_fields_do_not_compile(tmp_path: Path) -> None:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    for line, message in (
        ("int64_t f(const ops::Rope& op) { return op.interleaved; }", ""),
        ("int64_t f(const ops::Rope& op) { return op.window; }", "window"),
        ("WeightNumber f(const ops::Rope& op) { return op.rope; }", "RopeNumber"),
        (
            "void f(ops::Rope) {} void g(const OpSpec& op) { visit(op, [](auto x) { f(x); }); }",
            "Lookup",
        ),
    ):
        source = tmp_path / "fields.cpp"
        source.write_text(f'#include "{native_header.HEADER}"\n{line}\n')
        command = (compiler, "-std=c++17", "-fsyntax-only", str(source))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == bool(message) and message in done.stderr, line


def test_programs_that_leave_their_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    for family, change, message in MISTAKES:
        tree, stored = made.setdefault(family, parts(family))
        monkeypatch.setattr(engine, "lower", lambda x, _keep, change=change: change(lower(x)))
        with pytest.raises(LlamathError) as error:
            NativeModel(tree, stored, "fp32", threads=1)
        assert message in str(error.value), (family, message)
        monkeypatch.setattr(engine, "lower", lower)
        NativeModel(tree, stored, "fp32", threads=1)


def test_an_operation_is_named_in_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, stored = parts("llama")
    monkeypatch.setattr(engine, "lower", lambda x, _keep: changed(lower(x), ops.Rope, rope=7))
    with pytest.raises(
        LlamathError,
        match=r"operation \d+ \(Rope\): the rotary embedding is 7, expected 0 to 0 \(layers\.0\.attn",
    ):
        NativeModel(tree, stored, "fp32", threads=1)


def test_weights_larger_than_their_memory_are_refused() -> None:
    tree, stored = parts("llama")
    for path, x in stored.items():
        if x.rows > 1:
            with pytest.raises(LlamathError, match=r"larger than its memory|does not fit"):
                NativeModel(
                    tree,
                    {**stored, path: x._replace(bytes=x.bytes - 1)},
                    "fp32",
                    threads=1,
                    int8=path.startswith("layers"),
                )


def test_passes_beyond_the_vocabulary_and_the_cache_are_refused() -> None:
    tree, stored = parts("llama")
    model = NativeModel(tree, stored, "fp32", threads=1)
    session = NativeSession(model, 2, 4)
    session.reserve(6, 0)
    for rows, message in (
        ([Row(0, [model.vocab], 0)], "a token is"),
        ([Row(0, [-1], 0)], "a token is -1"),
        ([Row(2, [1], 0)], "the first sequence is 2"),
        ([Row(0, [1, 2, 3, 4, 5], 0)], "the tokens of a sequence is 5"),
        ([Row(0, [1, 2], 5)], "the tokens before a pass is 5"),
        ([Row(0, [1], -1)], "the tokens before a pass is -1"),
        ([], "the number of tokens is 0"),
    ):
        session.start += [0]
        with pytest.raises(LlamathError, match=message):
            session.run(rows)
    assert session.run([Row(0, [1, 2, 3], 0)]) == 1
    with pytest.raises(IndexError):
        session.logits_address(1)


def test_positions_beyond_their_table_are_refused() -> None:
    """OPT's first row of positions is the third of the table; the engine checks it again."""
    tree, stored = parts("opt")
    rows = stored["positions.weight"].rows
    model = NativeModel(tree, stored, "fp32", threads=1)
    for known, tokens, message in (
        (rows - 2, rows - 1, f"for {rows - 2} tokens, found {rows - 1}"),
        (rows, rows - 1, f"a position is {rows - 2}"),
    ):
        model.max_positions = known
        session = NativeSession(model, 1, rows)
        session.reserve(rows, 0)
        with pytest.raises(LlamathError, match=message):
            session.run([Row(0, [1] * tokens, 0)])
        assert session.run([Row(0, [1] * (rows - 2), 0)]) == 1


def test_kernels_refuse_what_does_not_fit() -> None:
    library = load_library()
    from llamath.native.library import GroupComparison, Matrix

    values, out = np.ones((2, 32), np.float32), np.zeros(64, np.float32)
    for rows, cols, kind, size, row in (
        (2, 32, F32, 255, 0),
        (2, 32, F32, 256, 2),
        (2, 32, F32, 256, -1),
        (2, 31, 8, 256, 0),
        (2, 32, 99, 256, 0),
        (2, 32, 24, 256, 0),
    ):
        matrix = Matrix(values.ctypes.data, None, rows, cols, 0, kind, 0, size, 0)
        assert library.dequantize_row(out.ctypes.data, matrix, row) == -1
    assert (
        library.dequantize_row(
            out.ctypes.data, Matrix(values.ctypes.data, None, 2, 32, 0, F32, 0, 256, 0), 1
        )
        == 0
    )
    for groups, size, kind in ((1, 15, 0), (1, 0, 0), (-1, 16, 0), (2**31, 16, 0), (1, 16, 2)):
        assert library.compare_groups(GroupComparison(groups=groups, size=size, type=kind)) == -1


@pytest.mark.parametrize(("kind", "count"), [("configs", CONFIGS), ("programs", PROGRAMS)])
def test_mutations_are_clean_under_the_sanitizers(kind: str, count: int) -> None:
    if find_compiler() is None:
        pytest.skip("needs a C++ compiler")
    outcomes, reports = run_cases(cached_sanitized(("reference",)), kind, "tests", 0, count)
    assert not reports, "\n".join(f"{x.kind} {x.case}: {x.text}" for x in reports)
    assert outcomes["ran"] > count / 8 and outcomes.total() == count
