"""The module refuses programs, weights and tokens that do not fit, before a pass touches memory; mutated programs stay inside."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import pytest
import wasmtime

from llamath.core.config import Config
from llamath.families.registry import find_family
from llamath.native import native_operations
from llamath.native.library import F16, F32, I8
from llamath.native.live.program_bytes import placed_weights, program_bytes
from llamath.native.lowering import lower
from llamath.native.native_operations import OPERATIONS, Rope
from llamath.native.program import Program
from support.live_module import LiveModule, Refused, compiled_module
from wasm import MODULE

TINY = Path(__file__).parents[1] / "tiny"
VERSION, MAX_LENGTH, COUNTS, FIRST_OPERATION = 8, 16, 24, 152
"""Where the header has the version of the library, the most tokens, and the first count."""
CASES = 300


@cache
def program(family: str = "llama") -> Program:
    config = next(iter(json.loads((TINY / f"{family}.json").read_text()).values()))
    return lower(find_family(config["model_type"])(Config(config)), keep=True)


def started(blob: bytes, family: str = "llama", value: float = 0.1) -> LiveModule:
    """A module with a program and weights of one value."""
    module = LiveModule(blob)
    for i, x in enumerate(placed_weights(program(family))):
        module.write_weight(i, struct.pack("<f", value) * (x.rows * x.cols))
    module.check(module.start())
    return module


def with_number(blob: bytes, at: int, value: int) -> bytes:
    return blob[:at] + struct.pack("<q", value) + blob[at + 8 :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x[:0], "no program"),
        (lambda x: x[:100], "no program"),
        (lambda x: b"llamath\0" + x[8:], "no program"),
        (lambda x: x[:-1], "says otherwise"),
        (lambda x: x + b"\0", "says otherwise"),
        (lambda x: with_number(x, VERSION, 2), f"version 2, expected {native_operations.VERSION}"),
        (lambda x: with_number(x, MAX_LENGTH, 0), "no possible length"),
        *(
            (lambda x, at=at, n=n: with_number(x, at, n), "says otherwise")
            for at in range(COUNTS, COUNTS + 80, 8)
            for n in (-1, 2**31, 2**61, 2**63 - 1)
        ),
    ],
)
def test_programs_of_another_form_are_refused(
    change: Callable[[bytes], bytes], message: str
) -> None:
    with pytest.raises(Refused, match=message):
        LiveModule(change(program_bytes(program())))


def test_module_imports_nothing_and_has_the_notices_of_its_libraries() -> None:
    _, module = compiled_module()
    assert list(module.imports) == []
    content = MODULE.read_bytes()
    for words in (b"Rich Felker", b"Zig contributors", b"Permission is hereby granted"):
        assert words in content


def test_addresses_outside_of_the_memory_are_refused() -> None:
    blob = program_bytes(program())
    with pytest.raises(Refused, match="outside of the memory"):
        LiveModule(blob, 2**31 - 1)
    module = started(blob)
    for at, count in ((2**31 - 4, 4), (0, 1), (64, 2**30), (66, 1)):
        assert module.forward(at, count, 0) == -1
        assert "a pass reads 1 to 65536 tokens" in module.message


def test_programs_that_leave_their_buffers_are_refused() -> None:
    good = program()
    op = next(x for x in good.ops if isinstance(x, Rope))
    for buffer, message in ((999, "is in buffer 999 of"), (-1, "is in buffer -1 of")):
        view = op.x._replace(buffer=buffer)
        ops = tuple(x.replace(x=view) if x is op else x for x in good.ops)
        with pytest.raises(Refused, match=message):
            started(program_bytes(good.replace(ops=ops)))
    for changes in (
        {"buffer": 999},
        {"offset": 2**40},
        {"heads": 10**6},
        {"dim": 0},
        {"stride": 1},
    ):
        first = good.results[0]
        bad = first._replace(view=first.view._replace(**changes))
        with pytest.raises(Refused, match="a result is outside of its buffer"):
            started(program_bytes(good.replace(results=(bad, *good.results[1:]))))
    for attention in (0, -2, 10**6):
        bad = good.results[0]._replace(op=attention)
        with pytest.raises(Refused, match="a result is outside of its buffer"):
            started(program_bytes(good.replace(results=(bad, *good.results[1:]))))
    blob = program_bytes(good)
    for code in (-1, len(OPERATIONS), 2**63 - 1):
        with pytest.raises(Refused, match="no such operation"):
            started(with_number(blob, FIRST_OPERATION, code))


def test_weights_of_other_types_or_numbers_are_refused() -> None:
    module = LiveModule(program_bytes(program()))
    for number, kind in ((-1, F32), (10**6, F32), (0, 99), (0, -1), (0, I8)):
        assert module.weight(number, kind) == 0
    with pytest.raises(Refused, match="the weight 0 is missing"):
        module.check(module.start())
    for i, x in enumerate(placed_weights(program())):
        module.write_weight(i, b"\0\0" * (x.rows * x.cols), F16)
    module.check(module.start())
    assert module.weight(0, F32) == 0, "the program has started"


def test_tokens_and_rows_that_are_not_there_are_refused() -> None:
    module = started(program_bytes(program()))
    with pytest.raises(Refused, match="a token is 100000, expected 0 to"):
        module.read([100_000])
    with pytest.raises(Refused):
        module.floats(module.values(0), 1)
    module.read([1, 2, 3])
    assert module.logits(3) == module.logits(-1) == module.values(-1) == module.values(10**6) == 0
    assert module.attention(0) == 0, "not of attention"
    assert module.truncate(4) == module.truncate(-1) == -1
    assert module.sample(-1, 1.0, 0, 1.0, 0.5) >= 0 > module.sample(9, 1.0, 0, 1.0, 0.5)


def test_length_ends_where_the_angles_change() -> None:
    name = "phi3"
    configs = json.loads((TINY / f"{name}.json").read_text()).values()
    trees = [find_family(x["model_type"])(Config(x)) for x in configs]
    lowered = next(p for p in map(lower, trees) if any(x.depends_on_length for x in p.ropes))
    longest = min(x.original_context for x in lowered.ropes if x.depends_on_length)
    module = LiveModule(program_bytes(lowered))
    for i, x in enumerate(placed_weights(lowered)):
        module.write_weight(i, bytes(4 * x.rows * x.cols))
    module.check(module.start())
    assert module.max_length() == longest
    module.read([1] * longest)
    with pytest.raises(Refused, match=f"{longest + 1} tokens, expected {longest} at most"):
        module.read([1])


@pytest.mark.parametrize("family", ["llama", "qwen3_next"])
def test_an_emptied_sequence_begins_anew(family: str) -> None:
    module = started(program_bytes(program(family)), family)
    first = module.read([1, 2, 3, 4])
    has_states = bool(program(family).states)
    assert module.truncate(2) == (-1 if has_states else 0)
    if has_states:
        assert module.message == "this model cannot forget some of its tokens"
        assert module.truncate(0) == 0
    again = module.read([1, 2, 3, 4] if has_states else [3, 4])
    assert again == first[-len(again) :]


def test_failed_pass_spoils_states_until_the_sequence_is_emptied() -> None:
    module = started(program_bytes(program("qwen3_next")), "qwen3_next", inf)
    for _ in range(2):
        with pytest.raises(Refused, match="is NaN or infinite"):
            module.read([1])
        with pytest.raises(Refused, match="a pass has failed: empty the sequence"):
            module.read([1])
        assert module.truncate(0) == 0


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "qwen3_next"])
def test_mutated_programs_are_refused_or_computed(family: str) -> None:
    blob, rng = program_bytes(program(family)), random.Random(family)
    outcomes = {"refused": 0, "computed": 0}
    numbers = (0, 1, -1, 2, 3, 7, 255, 2**16, 2**28, 2**31 - 1, 2**31, 2**40, 2**62, -(2**63))
    for _ in range(CASES // 3):
        at = 8 * rng.randrange(4, len(blob) // 8 - 1)
        found = struct.unpack_from("<q", blob, at)[0]
        value: Any = rng.choice((*numbers, found + 1, found - 1, 2 * found))
        mutated = with_number(blob, at, max(-(2**63), min(value, 2**63 - 1)))
        try:
            module = started(mutated, family)
            module.read([1, 2, 3])
            for i in range(module.num_results()):
                module.values(i), module.attention(i)
            outcomes["computed"] += 1
        except (Refused, AssertionError):  # or a weight of another size
            outcomes["refused"] += 1
        except wasmtime.Trap as error:
            pytest.fail(f"a trap with {value} at {at}: {error}")
    assert min(outcomes.values()) > 5, outcomes
