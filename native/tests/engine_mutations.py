"""Runs mutated configs, programs and passes of the tiny models on the native engine, for the sanitizers: `make sanitize`.

    LD_PRELOAD=libasan.so python engine_mutations.py LIBRARY configs|programs SEED FIRST LAST PROGRESS COUNTS

Case `i` depends on the seed and on `i` alone, and its number is in the file PROGRESS while it runs, so that `sanitize.py` can go on after
a case that ends the process. COUNTS has the number of cases by outcome, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import random
import signal
import sys
import traceback
import warnings
from array import array
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from llamath.core.blocks import Decoder
from llamath.core.config import Config
from llamath.core.tree import fold, walk
from llamath.families.registry import find_family
from llamath.native import engine, weights
from llamath.native.engine import (
    KV_TYPES,
    NativeModel,
    NativeSession,
    Row,
    pack_program,
)
from llamath.native.library import F32, Library, Matrix, Pass, ProgramSpec, RopeAngles, Segment
from llamath.native.lowering import NotExpressible
from llamath.native.native_operations import FORMATS, OP_SIZE
from llamath.native.program import Program
from llamath.native.weights import Stored
from llamath.utils.errors import LlamathError

TESTS = Path(__file__).parents[2] / "tests"
CONFIGS = [
    config
    for path in sorted(TESTS.glob("tiny*/*.json"))
    if path.parent.name != "tiny_multimodal"
    for config in json.loads(path.read_text()).values()
]
MOST_WEIGHTS, MOST_LEAVES = 400_000, 4000
MOST_SECONDS = 120
"""A guard against hangs: the processor's time for a case."""
MUTATIONS_OF_PROGRAM = 40
"""Cases with the same program, which is made once."""


def random_weights(
    tree: Decoder, rng: random.Random, specials: tuple[float, ...] = ()
) -> tuple[dict[str, Stored], str] | None:
    """Return random weights of a model and the dtype to compute in; None if it is too large for a test."""
    leaves = fold(tree)
    sizes = [int(x.weight.size) * x.copies for x in leaves]
    if sum(x.copies for x in leaves) > MOST_LEAVES or min(sizes) < 0 or sum(sizes) > MOST_WEIGHTS:
        return None
    numbers, stored = np.random.default_rng(rng.getrandbits(32)), {}
    dtype, special = (
        rng.choice(("fp32", "fp32", "bf16", "fp16")),
        rng.choice((None, None, None, *specials)),
    )
    kinds = {
        "fp32": ("F32",),
        "bf16": ("BF16", "BF16", "F32", "Q8_0", "Q4_0", "Q6_K"),
        "fp16": ("F16",),
    }[dtype]
    kind, spoiled = rng.choice(kinds), rng.randrange(20)
    for i, leaf in enumerate(x for x in walk(tree) if not x.weight.tied):
        shape = tuple(map(int, leaf.shape))
        values = (numbers.standard_normal(shape) * 0.3).astype(np.float32)
        if special is not None and i == spoiled:
            values.reshape(-1)[:: rng.choice((1, 2, 7))] = special
        stored[leaf.path] = _store(values, kind if len(shape) > 1 else "F32")
    return stored, dtype


def _store(values: Any, kind: str) -> Stored:
    cols = values.shape[-1] if values.ndim else 1
    rows = values.size // cols if cols else 0
    block, size, number = {"Q8_0": (32, 34, 8), "Q4_0": (32, 18, 2), "Q6_K": (256, 210, 14)}.get(
        kind, (0, 0, 0)
    )
    if block and cols % block == 0:  # any bytes are numbers
        data = np.frombuffer(np.random.default_rng(1).bytes(rows * cols // block * size), np.uint8)
    elif kind == "F16":
        data, number = values.astype(np.float16), 1
    elif kind == "BF16":
        data, number = (np.ascontiguousarray(values).view(np.uint32) >> 16).astype(np.uint16), 30
    else:
        data, number = np.ascontiguousarray(values), F32
    data = data.copy()
    return Stored(int(data.ctypes.data), number, rows, cols, data.nbytes, data)


# Mutated configs

HUGE = (2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**64 + 1)
ROTARY = ("linear", "dynamic", "yarn", "llama3", "longrope", "su", "ntk")


def mutate_config(config: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a config with one to three changed values, and now and then a key more."""
    result: dict[str, Any] = json.loads(json.dumps(config))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        where, value = rng.choice(
            [x for x in _places(result) if x[0][0] not in ("model_type", "architectures")]
        )
        place: Any = result
        for key in where[:-1]:
            place = place[key]
        place[where[-1]] = _other_value(value, rng)
    if rng.random() < 0.3:
        key, value = rng.choice(_extra_keys(rng))
        result[key] = value
    return result


def _places(x: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for key, value in (
        x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    ):
        yield (*at, key), value
        yield from _places(value, (*at, key))


def _other_value(x: Any, rng: random.Random) -> Any:
    if isinstance(x, bool):
        return not x
    if isinstance(x, int):
        near = (
            0,
            1,
            2,
            3,
            -1,
            2 * x,
            x + 1,
            x - 1,
            x // 2,
            5,
            7,
            12,
            20,
            64,
            0.5,
            None,
            str(x),
            True,
        )
        return rng.choice(HUGE if rng.random() < 0.08 else near)
    if isinstance(x, float):
        return rng.choice(
            (
                0.0,
                -1.0,
                1.0,
                1.5,
                2.0,
                2 * x,
                1e308,
                1e-300,
                0.5,
                None,
                3,
                float("nan"),
                float("inf"),
            )
        )
    if isinstance(x, list):
        return rng.choice(([], x[:1], x + x, x[::-1], x[:-1], None, [1] * 100))
    if isinstance(x, str):
        return rng.choice(
            (
                "",
                "relu",
                "silu",
                "linear",
                "yarn",
                "longrope",
                "dynamic",
                "full_attention",
                "sliding_attention",
            )
        )
    return rng.choice(({}, None)) if isinstance(x, dict) else rng.choice((0, 1, 2, 16, 1.0, True))


def _extra_keys(rng: random.Random) -> list[tuple[str, Any]]:
    scaling = {
        "rope_type": rng.choice(ROTARY),
        "factor": rng.choice((0, 0.5, 1, 2, 1e30)),
        "short_factor": [1.0] * rng.choice((0, 1, 2, 4, 8, 100)),
        "long_factor": [2.0] * rng.choice((0, 1, 2, 4, 8, 100)),
        "original_max_position_embeddings": rng.choice((0, 1, 4, 64)),
        "low_freq_factor": 1,
        "high_freq_factor": rng.choice((1, 4)),
        "mrope_section": [1, 1, 2],
    }
    return [
        ("rope_scaling", scaling),
        ("rope_theta", rng.choice((0, 1, -1, 1e308, 1e-308))),
        ("partial_rotary_factor", rng.choice((0.0, 0.01, 0.5, 1.0, 1.5, 2.0, 100.0, -1.0))),
        ("rotary_dim", rng.choice((0, 1, 3, 8, 32, 64))),
        ("rotary_pct", rng.choice((0.0, 0.3, 1.5, 3.0))),
        ("qk_rope_head_dim", rng.choice((0, 1, 3, 5, 8))),
        ("head_dim", rng.choice((0, 1, 2, 3, 5, 7, 8, 13, 64, 1000))),
        ("num_key_value_heads", rng.choice((0, 1, 3, 4, 5, 8, 100))),
        ("max_position_embeddings", rng.choice((0, 1, 2, 5))),
        ("sliding_window", rng.choice((0, 1, 2, 3, -1, 10**9, 2**40))),
        ("attention_chunk_size", rng.choice((0, 1, 3, -5))),
        ("num_experts_per_tok", rng.choice((0, 1, 3, 100))),
        ("layer_types", ["sliding_attention", "full_attention"] * rng.choice((0, 1, 2))),
    ]


def run_config(case: int, seed: str) -> str:
    """Build a mutated config with random weights and run a prompt, cached tokens and a chunk; return the outcome."""
    rng = random.Random(f"{seed} configs {case}")
    config = rng.choice(CONFIGS)
    mutated = mutate_config(config, rng) if case % 16 else config
    try:
        tree = find_family(mutated["model_type"])(Config(mutated))
        if tree.head is None:
            return "without a head"
        found = random_weights(tree, rng, (0.0, 1e30, float("nan"), float("inf")))
        if found is None:
            return "too large"
        model = NativeModel(
            tree,
            found[0],
            found[1],
            int8=rng.random() < 0.2,
            threads=rng.choice((1, 1, 2)),
            interleaved=rng.random() < 0.1,
        )
    except NotExpressible:
        return "not expressible"
    except LlamathError as error:
        return (
            "refused by the engine"
            if "cannot compute this model" in str(error)
            else "refused by the tree"
        )
    try:
        run_model(model, rng)
    except LlamathError:
        return "error in a pass"
    return "ran"


def run_model(model: NativeModel, rng: random.Random) -> None:
    """Run a prompt, cached tokens and a chunk, of one sequence or of two."""
    tokens, slots = rng.choice((1, 2, 5, 17, 70)), rng.choice((1, 1, 2))
    ids = [rng.randrange(model.vocab) for _ in range(tokens)]
    ids = [model.vocab - 1] * tokens if rng.random() < 0.2 else ids
    session = NativeSession(model, slots, tokens)
    session.reserve(tokens + 3, 0)
    if slots == 2 and tokens > 2:
        session.set_start(1, 2)
    session.run(
        [Row(i, ids[session.start[i] :], session.start[i]) for i in range(slots)],
        all_logits=rng.random() < 0.5,
    )
    length = tokens
    for count in (1, 1, min(3, tokens), *[1] * rng.choice((0, 0, 20))):
        session.reserve(length + count, length)
        session.run(
            [
                Row(i, [ids[(length + t) % tokens] for t in range(count)], length)
                for i in range(slots)
            ]
        )
        length += count
    session.logits(0)


# Mutated programs and passes


class Original(NamedTuple):
    """A valid program, its arrays and the angles of its rotary embeddings."""

    model: NativeModel
    arrays: engine.PackedProgram
    angles: list[RopeAngles]
    counts: tuple[int, int, int, int]  # operations, products, buffers, weights
    places: list[int]  # of the integers of operations


@lru_cache(maxsize=2)
def original(number: int, seed: str) -> Original | None:
    """Return the program of a tiny config; None if the engine does not express it."""
    rng = random.Random(f"{seed} program {number}")
    config = CONFIGS[number % len(CONFIGS)]
    try:
        tree = find_family(config["model_type"])(Config(config))
        found = random_weights(tree, rng)
        if tree.head is None or found is None:
            return None
        model = NativeModel(tree, found[0], found[1], int8=rng.random() < 0.2, threads=1)
    except NotExpressible:
        return None
    angles, program = model.angles(30, 30), model.program
    counts = (
        len(program.ops),
        len(program.products),
        len(program.buffers),
        program.num_weights,
    )
    packed = pack_program(program, [x.half for x in angles])
    return Original(model, packed, angles, counts, integer_places(program))


def other_number(x: int, others: array[int], rng: random.Random) -> int:
    """Return another number: a near one, one from the same array, or one that is beyond all sizes."""
    near = (
        0,
        1,
        -1,
        2,
        3,
        x + 1,
        x - 1,
        x + 2,
        2 * x,
        x // 2,
        -x,
        4 * x,
        rng.choice(others),
        rng.choice(others),
        rng.randrange(100),
    )
    beyond = (2**31 - 1, 2**31, 2**32, 2**32 + x, 2**61, 2**62 + 1, 2**63 - 1, -(2**63), -(2**31))
    value = rng.choice(beyond if rng.random() < 0.2 else near)
    return min(max(value, -(2**63)), 2**63 - 1)


def run_program(case: int, seed: str) -> str:
    """Run a program with a few changed numbers, or a pass with changed numbers over a valid one; return the outcome."""
    rng = random.Random(f"{seed} programs {case}")
    found = original(case // MUTATIONS_OF_PROGRAM, seed)
    if found is None:
        return "not expressible"
    model, library = found.model, found.model.library
    arrays = [array("q", x) for x in found.arrays]
    matrices = (Matrix * len(model.weights.matrices)).from_buffer_copy(model.weights.matrices)
    of_pass = rng.random() < 0.2
    logits = list(model.program.logits)
    for _ in range(0 if of_pass else rng.choice((1, 1, 1, 2, 3))):
        _mutate_program(found.places, arrays, matrices, logits, rng)
    spec = ProgramSpec(
        *(x.buffer_info()[0] for x in arrays[:3]),
        ctypes.addressof(matrices),
        *(x.buffer_info()[0] for x in arrays[3:]),
        *found.counts,
        *(len(x) // n for x, n in zip(arrays[3:], (3, 1, 1), strict=True)),
        tuple(logits),
    )
    pool, where, message = (
        library.pool_create(rng.choice((1, 1, 3))),
        ctypes.c_int64(),
        ctypes.create_string_buffer(400),
    )
    handle = library.engine_create(pool, spec, ctypes.byref(where), message, len(message))
    if not handle:
        assert message.value, "refused without a reason"
        library.pool_destroy(pool)
        return "refused"
    try:
        return _run_passes(library, handle, found, of_pass, rng)
    finally:
        library.engine_destroy(handle)


def integer_places(program: Program) -> list[int]:
    """Return the places of the integers in the array of a program's operations."""
    found = []
    for i, op in enumerate(program.ops):
        at = i * (OP_SIZE // 8)
        found.append(at)
        for kind in op.types.values():
            words = Struct(FORMATS[kind]).size // 8
            found += range(at + 1, at + 1 + words) if kind != "float" else ()
            at += words
    return found


def _mutate_program(
    places: list[int],
    arrays: list[array[int]],
    matrices: Any,
    logits: list[int],
    rng: random.Random,
) -> None:
    kind = rng.choice(("ops",) * 8 + ("rest", "rest", "weights", "logits"))
    if kind == "weights":
        matrix = rng.choice(matrices)
        field = rng.choice(("rows", "cols", "row_stride", "type", "layout"))
        value = (
            rng.choice((0, 1, 2, 8, 12, 14, 24, 30, 39, 77))
            if field in ("type", "layout")
            else getattr(matrix, field)
        )
        setattr(
            matrix,
            field,
            value if field in ("type", "layout") else other_number(value, arrays[0], rng),
        )
        return
    if kind == "logits":
        i = rng.randrange(len(logits))
        logits[i] = other_number(logits[i], arrays[0], rng)
        return
    numbers = arrays[0] if kind == "ops" else rng.choice([x for x in arrays[1:] if x])
    at = rng.randrange(len(numbers))
    if kind == "ops":  # an integer of a field, or the code
        at = rng.choice(places)
        while numbers[at] in (0, -1) and rng.random() < 0.7:
            at = rng.choice(places)
    numbers[at] = other_number(numbers[at], numbers, rng)


def _run_passes(
    library: Library, handle: int, found: Original, of_pass: bool, rng: random.Random
) -> str:
    model, slots, chunk = found.model, rng.choice((1, 2, 3)), 9
    if model.has_length_dependent_rope:
        chunk = 30
    session = library.session_create(handle, slots, chunk, KV_TYPES[model.dtype])
    if not session:
        return "without memory"
    try:
        outcomes, past = Counter[int](), 0
        if library.session_reserve(session, 30, 0):
            return "without memory"
        for batch, tokens in ((slots, 7), (slots, 1), (1, 3)):
            segments = [
                Segment(0, batch, tokens, past, 0),
                *([Segment(1, slots - 1, 1, past, 0)] if batch < slots else []),
            ]
            past += tokens
            ids = [
                rng.randrange(model.vocab) for _ in range(sum(x.batch * x.tokens for x in segments))
            ]
            if of_pass:
                _mutate_pass(segments, ids, rng)
            segment_array, id_array = (
                (Segment * len(segments))(*segments),
                (ctypes.c_int32 * len(ids))(*ids),
            )
            angles = (RopeAngles * max(1, len(found.angles)))(*found.angles)
            layers = (
                (ctypes.c_float * rng.choice((1, 100, 100_000)))() if rng.random() < 0.3 else None
            )
            spec = Pass(
                *map(ctypes.addressof, (segment_array, id_array, angles)),
                *(len(segments), len(ids), len(found.angles), rng.randrange(2), model.precision),
                *((None, 0) if layers is None else (ctypes.addressof(layers), len(layers))),
            )
            where, message = (ctypes.c_int64 * 2)(), ctypes.create_string_buffer(400)
            status = library.session_run(
                session, spec, ctypes.addressof(where), message, len(message)
            )
            outcomes[status] += 1
            for row in (0, 5, 2**40, -1):
                if status == 0 and (address := library.session_logits(session, row)):
                    ctypes.string_at(address, 4 * model.kept_logits if of_pass else 4)
            _read_results(library, session, found, rng)
        return "ran" if outcomes[0] else "ended in a pass"
    finally:
        library.session_destroy(session)


def _read_results(library: Library, session: int, found: Original, rng: random.Random) -> None:
    """Read what the last pass left, and the weights of attention, where they are given out."""
    rows, widths = ctypes.c_int64(), [x.width for x in found.model.program.buffers]
    for number in (-1, len(widths), rng.randrange(len(widths))):
        address = library.session_buffer(session, number, rows)
        if address and number < len(widths):
            ctypes.string_at(address, min(4 * rows.value, 4))
    for number in (-1, found.counts[0], rng.randrange(found.counts[0])):
        weights = (ctypes.c_float * rng.choice((1, 100, 10_000)))()
        library.session_attention(session, number, ctypes.addressof(weights), len(weights))


def _mutate_pass(segments: list[Segment], ids: list[int], rng: random.Random) -> None:
    segment = rng.choice(segments)
    name = rng.choice([x for x, *_ in Segment._fields_])
    if rng.random() < 0.7:
        setattr(segment, name, other_number(getattr(segment, name), array("q", [0, 1, 7, 30]), rng))
    else:
        ids[rng.randrange(len(ids))] = rng.choice((-1, -(2**31), 2**31 - 1, 10**6))


def main(
    library: str, kind: str, seed: str, first: str, last: str, progress: str, counts: str
) -> None:
    """Run the cases from `first` to before `last`."""
    loaded = Library(Path(library))
    engine.load_library = weights.load_library = lambda: loaded  # type: ignore[assignment]
    paths = [loaded.path_name(i) for i in range(loaded.num_paths()) if loaded.path_supported(i)]
    warnings.simplefilter("ignore")
    outcomes: Counter[str] = Counter()
    for case in range(int(first), int(last)):
        Path(progress).write_text(f"{case}")
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)  # its signal ends the process
        assert loaded.set_path(paths[case % len(paths)]) == 0
        try:
            outcome = (run_config if kind == "configs" else run_program)(case, seed)
        except MemoryError:
            outcome = "without memory"
        except Exception as error:  # not a mistake in memory, so the cases go on
            frame = traceback.extract_tb(error.__traceback__)[-1]
            outcome = (
                f"traceback: {type(error).__name__} in {Path(frame.filename).name}, {frame.name}"
            )
        outcomes[outcome] += 1
        Path(counts).write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
