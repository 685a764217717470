"""`program_bytes`: a program as one block of bytes for the engine in WebAssembly.

The block has no alignment and no gaps. Integers have 64 bits and are little-endian, like all
numbers. It is

- the header: `LLAMATH` and a zero; the version of the library; the most tokens of a sequence; how
  many there are of each of the following parts, in their order; the view of the logits;
- the operations as `operation_fields.h`, and products, buffers, caches and sizes of states as
  `program.h` has them, and after the buffers the weights: rows, columns, and 1 for those that are
  converted to float32;
- rotary embeddings: the number of pairs, and the factors of cosines and of sines as float64;
- results: a view, and the number of the operation that computes attention weights, or −1;
- the frequencies of all pairs, as float32;
- names as JSON: `results`, the name of each and of its attention weights or "", and `weights`, the
  paths of the stored weights whose values are those of each, one after the other.

`wasm/live.cpp` reads it and checks each number again.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from ...generation.rope_frequencies import rope_frequencies
from ..engine import pack_program
from ..native_operations import VERSION, LayerNorm, RMSNorm, View
from ..program import Program

_MAGIC = b"LLAMATH\0"
_VIEW_FIELDS = len(View._fields)
_HEADER = struct.Struct(f"<8s12q{_VIEW_FIELDS}q")
_ANY_LENGTH = 2**31 - 1


class PlacedWeight(NamedTuple):
    """A weight with a number of its own: its stored values are those of `paths`, joined."""

    paths: tuple[str, ...]
    rows: int
    cols: int
    as_floats: bool  # converted to float32, whatever it is stored in


def placed_weights(program: Program) -> Iterator[PlacedWeight]:
    """Yield the weights of a program by their numbers, experts one by one."""
    number = 0
    for x in program.weights:
        size, cols = prod(x.shape), x.shape[-1] if x.shape else 1
        if x.kind == "per_head":
            heads = next(
                op.weight_rows
                for op in program.ops
                if (isinstance(op, RMSNorm | LayerNorm) and op.weight == number)
                or (isinstance(op, LayerNorm) and op.bias == number)
            )
            paths = tuple(x.path.replace("{e}", str(i)) for i in range(heads))
            yield PlacedWeight(paths, heads, size, True)
            number += 1
            continue
        if x.kind == "matrix" and len(x.shape) > 2:  # of a convolution over patches
            cols = size // x.shape[0]
        for i in range(max(1, x.experts)):
            path = x.path.replace("{e}", str(i)) if x.experts else x.path
            yield PlacedWeight((path,), size // cols, cols, x.kind == "vector")
            number += 1


def program_bytes(program: Program) -> bytes:
    """Return a program as one block of bytes. Where the angles of a rotary embedding depend on the
    length of the sequence, they are those up to its original context, and longer ones are refused.
    """
    ropes = [rope_frequencies(x, x.angle_length(1, 1)) for x in program.ropes]
    lengths = [int(x.original_context) for x in program.ropes if x.depends_on_length]  # type: ignore[attr-defined]
    weights = list(placed_weights(program))
    packed = pack_program(program, [len(x.angles) for x in ropes])
    frequencies = [x for rope in ropes for x in rope.angles]
    text = {
        "results": [[x.name, x.weights] for x in program.results],
        "weights": [x.paths for x in weights],
    }
    described = json.dumps(text, separators=(",", ":")).encode()
    counts = (
        *(len(program.ops), len(program.products), len(program.buffers), len(weights)),
        *(len(program.caches), len(program.states)),
        *(len(ropes), len(program.results), len(frequencies), len(described)),
    )
    longest = min(lengths, default=_ANY_LENGTH)
    return b"".join(
        (
            _HEADER.pack(_MAGIC, VERSION, longest, *counts, *program.logits),
            *(packed.ops.tobytes(), packed.products.tobytes(), packed.buffers.tobytes()),
            *(struct.pack("<3q", x.rows, x.cols, x.as_floats) for x in weights),
            *(packed.caches.tobytes(), packed.state_sizes.tobytes()),
            *(struct.pack("<q2d", len(x.angles), x.factor, x.sin_sign) for x in ropes),
            *(struct.pack(f"<{_VIEW_FIELDS + 1}q", *x.view, x.op) for x in program.results),
            struct.pack(f"<{len(frequencies)}f", *frequencies),
            described,
        )
    )
