"""`NativeModel`: the program of a model with its weights; `NativeSession`: the caches of some
sequences, and passes over their tokens.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import weakref
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

from ..core.blocks import Decoder
from ..generation.rope_frequencies import rope_frequencies
from ..utils.errors import LlamathError
from .library import (
    BF16,
    CANCELLED,
    EXACT,
    F16,
    F32,
    FAST,
    NO_MEMORY,
    NONFINITE,
    REFUSED,
    Library,
    Pass,
    ProgramSpec,
    RopeAngles,
    Segment,
    load_library,
)
from .lowering import lower
from .native_operations import Op, View
from .program import Program
from .rotary_pairs import with_interleaved_pairs
from .weights import LoadedWeights, Stored

CONFIG_HINT = "a size in the config contradicts another one"
HINT = "the file is damaged, or was written in a dtype of too small a range"
KV_TYPES = {"fp32": F32, "bf16": BF16, "fp16": F16}
_SINGLE_THREAD_PARAMETERS = 1 << 25
"""Models with fewer parameters run on one thread."""


def default_threads(parameters: int) -> int:
    """Return the number of threads: OMP_NUM_THREADS, else the cores that this process may use,
    one for a small model.
    """
    if (set_by_user := os.environ.get("OMP_NUM_THREADS", "")).isdigit() and int(set_by_user) > 0:
        return int(set_by_user)
    if parameters < _SINGLE_THREAD_PARAMETERS:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Row(NamedTuple):
    """Tokens of one sequence that a pass reads."""

    slot: int
    tokens: Sequence[int]
    past: int  # tokens of the slot before them, padding included


class NativeModel:
    """The program of a model, its weights, and the threads that compute."""

    def __init__(
        self,
        tree: Decoder,
        stored: Mapping[str, Stored],
        dtype: str,
        *,
        int8: bool = False,
        threads: int | None = None,
        # whether queries and keys are stored as interleaved rotary pairs
        interleaved: bool = False,
        keep: bool = False,  # passes leave the result of every operation
    ) -> None:
        self.tree, self.dtype = tree, dtype
        self.library = load_library()
        program = lower(tree, keep)
        self.program = with_interleaved_pairs(program) if interleaved else program
        self.weights = LoadedWeights(self.program, stored, self.library, int8)
        self.precision = EXACT if dtype == "fp32" else FAST
        self.parameters = sum(x.rows * x.cols for x in self.weights.matrices)
        self.threads = default_threads(self.parameters) if threads is None else threads
        self.vocab = min(
            int(x.weight.shape[0])
            for x in (tree.embed, *([tree.per_layer.embed] if tree.per_layer is not None else []))
        )
        self.kept_logits = self.program.logits.dim
        self.max_positions = (
            None
            if tree.positions is None
            else int(tree.positions.weight.shape[0]) - int(tree.positions.offset)
        )
        self.has_length_dependent_rope = any(x.depends_on_length for x in self.program.ropes)
        self._rope_tables: dict[tuple[int, int], tuple[Any, int, float, float]] = {}
        self._pool = self.library.pool_create(self.threads)
        self._engine = self._create()
        weakref.finalize(self, _destroy, self.library, self._engine, self.weights)

    @property
    def pool(self) -> int:
        """The thread pool."""
        return int(self._pool)

    @property
    def handle(self) -> int:
        """The program in the library."""
        return int(self._engine)

    @property
    def path(self) -> str:
        """The instruction set that the kernels use."""
        return str(self.library.path().decode())

    def _create(self) -> int:
        """Return the program in the library, which checks all of its sizes."""
        program = self.program
        arrays = pack_program(program, [x.half for x in self.angles(1, 1)])
        spec = ProgramSpec(
            *(x.buffer_info()[0] for x in (arrays.ops, arrays.products, arrays.buffers)),
            ctypes.addressof(self.weights.matrices),
            *(x.buffer_info()[0] for x in (arrays.caches, arrays.state_sizes, arrays.rope_pairs)),
            *map(len, (program.ops, program.products, program.buffers)),
            program.num_weights,
            *map(len, (program.caches, program.states, program.ropes)),
            program.logits,
        )
        where, message = ctypes.c_int64(-1), ctypes.create_string_buffer(400)
        engine = self.library.engine_create(
            self._pool, spec, ctypes.byref(where), message, len(message)
        )
        if not engine:
            self.library.pool_destroy(self._pool)
            place = f" ({program.ops[where.value].path})" if where.value >= 0 else ""
            raise LlamathError(
                f"the native engine cannot compute this model: {message.value.decode()}{place}",
                hint=CONFIG_HINT,
            )
        return int(engine)

    def angles(self, length: int, prefill_length: int) -> list[RopeAngles]:
        """Return the frequencies of every rotary embedding for a sequence of this length."""
        result = []
        for i, rope in enumerate(self.program.ropes):
            at = rope.angle_length(length, prefill_length)
            if (i, at) not in self._rope_tables:
                if len(self._rope_tables) > 4096:
                    self._rope_tables.clear()
                values = rope_frequencies(rope, at)
                array = (ctypes.c_float * len(values.angles))(*values.angles)
                self._rope_tables[i, at] = array, len(values.angles), values.factor, values.sin_sign
            array, half, factor, sign = self._rope_tables[i, at]
            result.append(RopeAngles(ctypes.addressof(array), half, factor, sign))
        return result

    def explain(self, problem: str, op: Op | None = None, product: int = 0) -> LlamathError:
        """Return the error for numbers that are not finite: it names a weight, or else the
        operation.
        """
        products = () if op is None else op.all_products
        numbers = [products[product].weight] if products else []
        for number in (*numbers, *range(len(self.weights.matrices))):
            if described := self._describe(number):
                return LlamathError(
                    f"{problem}: the weight {self.weights.paths[number]} {described}", hint=HINT
                )
        place = (
            f": the first output that is not is that of {op.path}"
            if op is not None and op.path
            else ""
        )
        return LlamathError(
            f"{problem}, though every weight is finite{place}", hint="the dtype float32 may help"
        )

    def _describe(self, number: int) -> str:
        """Describe the values of a weight that are not finite; empty if all are."""
        matrix = self.weights.matrices[number]
        row = (ctypes.c_float * matrix.cols)()
        bad, nan = 0, False
        for i in range(matrix.rows):
            self.library.dequantize_row(ctypes.addressof(row), matrix, i)
            if self.library.first_nonfinite(self._pool, ctypes.addressof(row), matrix.cols) >= 0:
                wrong = [x for x in row if x - x != 0]
                bad, nan = bad + len(wrong), nan or any(x != x for x in wrong)
        return (
            (
                f"is {'NaN' if nan else 'infinite'} in {bad:,} of its "
                f"{matrix.rows * matrix.cols:,} values"
            )
            if bad
            else ""
        )


def _destroy(library: Library, engine: int, _weights: LoadedWeights) -> None:
    """End an engine; its weights live until then."""
    library.engine_destroy(engine)


class PackedProgram(NamedTuple):
    """The arrays of a `ProgramSpec`."""

    ops: array[int]
    products: array[int]
    buffers: array[int]
    caches: array[int]
    state_sizes: array[int]
    rope_pairs: array[int]


def pack_program(program: Program, rope_pairs: Sequence[int]) -> PackedProgram:
    """Return the numbers of a program as the library reads them."""
    first, ops = 0, bytearray()
    try:
        for op in program.ops:
            ops += op.pack(first)
            first += len(op.all_products)
        products = ((x.weight, -1 if x.bias is None else x.bias, *x.out) for x in program.products)
        return PackedProgram(
            array("q", bytes(ops)),
            array("q", chain.from_iterable(products)),
            array("q", [n for x in program.buffers for n in x]),
            array("q", [n for x in program.caches for n in (x.heads, x.dim, x.lookback or 0)]),
            array("q", [x.size for x in program.states]),
            array("q", rope_pairs),
        )
    except (struct.error, OverflowError):
        raise LlamathError(
            "the native engine cannot compute this model: one of its numbers exceeds 64 bits",
            hint=CONFIG_HINT,
        ) from None


class NativeSession:
    """Caches of `slots` sequences. A pass has at most `chunk` tokens of each."""

    def __init__(self, model: NativeModel, slots: int, chunk: int) -> None:
        self.model, self.slots, self.chunk = model, slots, chunk
        self._handle = model.library.session_create(
            model.handle, slots, chunk, KV_TYPES[model.dtype]
        )
        if not self._handle:
            raise MemoryError("the states of the sequences")
        weakref.finalize(self, model.library.session_destroy, self._handle)
        self.capacity = 0
        self.start = [0] * slots
        self.prefill_length = [0] * slots

    @property
    def nbytes(self) -> int:
        """Bytes of caches, states and buffers."""
        return int(self.model.library.session_bytes(self._handle))

    def reserve(self, capacity: int, length: int) -> None:
        """Make room for `capacity` tokens of each sequence, of which `length` are stored."""
        if self.model.library.session_reserve(self._handle, capacity, length):
            raise MemoryError("the KV cache")
        self.capacity = max(self.capacity, capacity)

    def set_start(self, slot: int, start: int) -> None:
        """Set the padding before a sequence."""
        self.start[slot] = start
        if self.model.library.session_set_start(self._handle, slot, start):
            raise IndexError(slot)

    def can_truncate(self, stored: int, length: int) -> bool:
        """Whether the caches still have what the first `length` of `stored` tokens left."""
        return bool(self.model.library.session_can_truncate(self._handle, stored, length))

    def run(
        self,
        rows: Sequence[Row],
        *,
        all_logits: bool = False,
        layers: tuple[int, int] | None = None,
    ) -> int:
        """Run a pass; return the number of rows of its logits.

        `layers` is the address and the size of an array [layers, tokens, width] for the hidden
        states after each layer.
        """
        model = self.model
        segments: list[Segment] = []
        angles: list[RopeAngles] = []
        fixed = [] if model.has_length_dependent_rope else model.angles(0, 0)
        angles += fixed
        last: Row | None = None
        for row in rows:
            length = row.past + len(row.tokens) - self.start[row.slot]
            if model.max_positions is not None and length > model.max_positions:
                raise LlamathError(
                    f"the model has position embeddings for {model.max_positions} tokens, found "
                    f"{length} tokens",
                    hint="use a shorter prompt",
                )
            at = 0
            if model.has_length_dependent_rope:
                self.prefill_length[row.slot] = self.prefill_length[row.slot] or length
                at = len(angles)
                angles += model.angles(length, self.prefill_length[row.slot])
            joins = (
                last is not None
                and at == 0
                and (row.slot, row.past, len(row.tokens))
                == (last.slot + 1, last.past, len(last.tokens))
            )
            if joins and len(row.tokens) == 1:
                segments[-1].batch += 1
            else:
                segments.append(Segment(row.slot, 1, len(row.tokens), row.past, at))
            last = row
        ids = (ctypes.c_int32 * sum(len(x.tokens) for x in rows))(
            *[token for x in rows for token in x.tokens]
        )
        segment_array, angle_array = (
            (Segment * len(segments))(*segments),
            (RopeAngles * max(1, len(angles)))(*angles),
        )
        spec = Pass(
            *[ctypes.addressof(x) for x in (segment_array, ids, angle_array)],
            *(len(segments), len(ids), len(angles)),
            int(all_logits),
            model.precision,
            *(layers or (None, 0)),
        )
        where, message = (ctypes.c_int64 * 2)(), ctypes.create_string_buffer(400)
        with _interruptible(model):
            status = model.library.session_run(
                self._handle, spec, ctypes.addressof(where), message, len(message)
            )
        if status == CANCELLED:
            raise KeyboardInterrupt
        if status == NO_MEMORY:
            raise MemoryError("the activations")
        if status == REFUSED:
            raise LlamathError(
                f"the native engine cannot read these tokens: {message.value.decode()}",
                hint="use tokens of this model",
            )
        if status == NONFINITE:
            read = max(x.past + len(x.tokens) - self.start[x.slot] for x in rows)
            raise model.explain(
                f"the model's activations within {read:,} tokens are NaN or infinite",
                model.program.ops[where[0]],
                where[1],
            )
        return len(ids) if all_logits else len(rows)

    def values(self, view: View) -> tuple[array[float], tuple[int, ...]]:
        """Return what the last pass left in a part of a buffer, and its shape: rows, heads where
        there are several, and numbers.
        """
        rows = ctypes.c_int64()
        address = self.model.library.session_buffer(self._handle, view.buffer, rows)
        if address is None:
            raise IndexError(view.buffer)
        stored = (ctypes.c_float * (rows.value * view.stride)).from_address(int(address))
        found = array("f")
        for at in range(view.offset, len(stored), view.stride):
            for head in range(view.heads):
                start = at + head * view.head_stride
                found.extend(stored[start : start + view.dim])
        heads = (view.heads,) if view.heads > 1 else ()
        return found, (rows.value, *heads, view.dim)

    def attention(self, op: int, tokens: int) -> tuple[array[float], tuple[int, ...]]:
        """Return the weights of an attention operation of the last pass, which was the first and
        read `tokens` of one sequence: tokens, heads, keys.
        """
        heads = self.model.program.ops[op].inputs[0].heads
        found = array("f", bytes(4 * tokens * heads * tokens))
        if self.model.library.session_attention(
            self._handle, op, found.buffer_info()[0], len(found)
        ):
            raise IndexError(op)
        return found, (tokens, heads, tokens)

    def logits_address(self, row: int) -> int:
        """Return the address of a row of the logits of the last pass."""
        address = self.model.library.session_logits(self._handle, row)
        if address is None:
            raise IndexError(row)
        return int(address)

    def logits(self, row: int) -> list[float]:
        """Return a row of the logits of the last pass."""
        return list(
            (ctypes.c_float * self.model.kept_logits).from_address(self.logits_address(row))
        )


@contextmanager
def _interruptible(model: NativeModel) -> Iterator[None]:
    """Let Ctrl-C cancel the passes inside."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    model.library.interrupts(model.pool)
    try:
        yield
    finally:
        model.library.interrupts(None)
