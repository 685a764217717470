"""Write `native/operation_fields.h`, the structures of the operations of a program, from
`llamath.native.native_operations`; `--check` compares instead.
"""

from __future__ import annotations

import sys
from pathlib import Path
from struct import Struct

from llamath.native.native_operations import (
    FORMATS,
    MAX_PRODUCTS,
    OP_SIZE,
    OPERATIONS,
    VERSION,
    Op,
    View,
)

HEADER = Path(__file__).parents[1] / "native" / "operation_fields.h"
NUMBERS = ("WeightNumber", "CacheNumber", "StateNumber", "RopeNumber")
_TYPES = {
    **dict.fromkeys(("Input", "Output"), "View"),
    **dict.fromkeys(("int", "bool"), "int64_t"),
    "float": "double",
}
_START = """// The operations of a program: written by tools/native_header.py from
// native_operations.py, which says what each field is.

#ifndef LLAMATH_OPERATION_FIELDS_H
#define LLAMATH_OPERATION_FIELDS_H

#include <cstdint>

// clang-format off: one field per line
"""
_PRODUCTS = """
// Matrix products of the program: the number of the first, and how many there are.
struct Products {
    int64_t first, count;
};
"""
_NAME = """
// The name of an operation, or NULL for a number that is no operation.
inline const char* name_of(int64_t code) {
    static const char* const NAMES[] = {
%s
    };
    return code >= 0 && code < NUM_CODES ? NAMES[code] : nullptr;
}
"""
_GET = """
// An operation if it is of this type, or NULL.
template <class Operation>
const Operation* get_if(const OpSpec& op) {
    return op.code == Operation::CODE ? reinterpret_cast<const Operation*>(op.fields) : nullptr;
}
"""
_VISIT = """
// What `function` returns for the operation, of which it takes every type. Its code is one of them.
template <class Function>
auto visit(const OpSpec& op, Function&& function) {
    switch (op.code) {
%s
        default: __builtin_unreachable();
    }
}
"""


def size_of(op: type[Op]) -> int:
    """Return the bytes of an operation's structure."""
    return sum(Struct(FORMATS[x]).size for x in op.types.values())


def structure(op: type[Op]) -> str:
    """Return the structure of an operation."""
    kinds = {name: kind.removesuffix(" | None") for name, kind in op.types.items()}
    fields = [f"    {_TYPES.get(kind, kind)} {name};" for name, kind in kinds.items()]
    floats = [x for x, kind in op.types.items() if kind == "float"]
    calls = "".join(f' f("{x}", {x});' for x in floats)
    argument = " f" if floats else ""
    return "\n".join(
        (
            f"struct {op.name} {{",
            f"    static constexpr int64_t CODE = {op.code};",
            *fields,
            "    template <class F>",
            f"    void each_double(F&&{argument}) const {{{calls}{' ' if calls else ''}}}",
            "};",
        )
    )


def header() -> str:
    """Return the text of the header."""
    names = "\n".join(f'        "{x.name}",' for x in OPERATIONS)
    cases = "\n".join(
        f"        case ops::{x.name}::CODE: return function(*get_if<ops::{x.name}>(op));"
        for x in OPERATIONS
    )
    return "\n".join(
        (
            _START,
            f"constexpr int32_t LLAMATH_VERSION = {VERSION};",
            f"constexpr int64_t NUM_CODES = {len(OPERATIONS)}, MAX_PRODUCTS = {MAX_PRODUCTS};",
            "",
            "// A part of each row of a buffer",
            "struct View {",
            f"    int64_t {', '.join(View._fields)};  // buffer -1: none",
            "    int64_t size() const { return heads * dim; }",
            "    bool joined() const { return heads == 1 || head_stride == dim; }",
            "    bool given() const { return buffer != -1; }",
            "};",
            "// The number of a weight, cache, state or rotary embedding; of no weight, -1",
            *(f"struct {x} {{ int64_t number; }};" for x in NUMBERS),
            _PRODUCTS,
            "namespace ops {\n",
            "\n\n".join(map(structure, OPERATIONS)),
            "\n}  // namespace ops\n",
            "// An operation: its structure begins at `fields`.",
            "struct OpSpec {",
            "    int64_t code;",
            f"    alignas(8) unsigned char fields[{OP_SIZE - 8}];",
            "};",
            *(f"static_assert(sizeof(ops::{x.name}) == {size_of(x)});" for x in OPERATIONS),
            _NAME % names,
            _GET,
            _VISIT % cases,
            "// clang-format on\n",
            "#endif\n",
        )
    )


def main() -> None:
    if "--check" not in sys.argv:
        HEADER.write_text(header(), encoding="utf-8")
    elif HEADER.read_text(encoding="utf-8") != header():
        sys.exit(
            "native/operation_fields.h is not written from native_operations.py: run "
            "`python tools/native_header.py`"
        )


if __name__ == "__main__":
    main()
