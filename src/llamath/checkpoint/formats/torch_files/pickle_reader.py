"""Interpret the pickle stream of a torch checkpoint without running code: it builds plain values
and records, and calls nothing.

It supports a subset of the opcodes of torch 2.13's `weights_only` reader. A global becomes a record
of its name, from an allow-list, and `REDUCE` applies a function of `torch_objects` for it; nothing
is looked up, imported or called by name, and nothing recurses. The opcodes are documented in
CPython's `pickletools`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, ClassVar

from ....utils.errors import FormatError, safe
from .torch_objects import (
    CALLS,
    CounterRecord,
    Global,
    OrderedDictRecord,
    Storage,
    allowed_global,
    parse_storage_id,
    set_item,
)

_MAX_OPCODES = 1 << 22
"""Maximum opcodes in a stream, enough for 127,000 tensors; as a container takes at least one,
this bounds memory, too."""
_MAX_MARKS = 1000
"""Maximum nesting of marks."""
MAX_NAME = 200
"""Maximum length of a module or a name."""


class PickleInterpreter:
    """The stack, marks and memo of one stream; integer keys are parse_storage_id as decimal
    bytes, whose hashes cannot be predicted.
    """

    steps: ClassVar[list[Opcode]]

    def __init__(self, data: bytes, storage_fields: int) -> None:
        self.data, self.size = data + bytes(16), len(data)
        self.storage_fields = storage_fields
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, Storage] = {}
        # limits repeated copies, so that small streams cannot build large values
        self.budget = 4 * len(data) + 65536
        self.begin = self.at = 0

    def run(self, at: int = 0) -> tuple[Any, int]:
        """Interpret the stream that begins at this byte; returns its value and its end."""
        self.begin = self.at = at
        self.stack, self.marks, self.memo = [], [], {}
        try:
            if self.data[at] != 0x80:
                raise FormatError("protocol", "expected a pickle protocol at its start")
            end = self.execute(at)
            return self.final_value(), end
        except IndexError:
            error = FormatError("stack", "an opcode needs more values than the stack holds")
        except KeyError as missing:
            error = FormatError("memo", f"memo {missing} is read before it is set")
        except UnicodeDecodeError:
            error = FormatError("text", "a string is not UTF-8")
        except FormatError as raised:
            error = raised
        if self.at + _ARGUMENT.get(self.data[self.at], 0) >= self.size and error.code != "limit":
            error = FormatError("truncated", "it is truncated")
        raise FormatError(error.code, f"pickle stream, byte {self.at:,}: {error}", hint=error.hint)

    def execute(self, at: int) -> int:
        """Execute the opcodes up to STOP; the five most frequent are inlined for speed."""
        data, memo, steps, stack = self.data, self.memo, self.steps, self.stack
        try:
            for _ in range(_MAX_OPCODES):
                code = data[at]
                if code == 0x72:  # LONG_BINPUT
                    index = _U4(data, at + 1)[0]
                    if index in memo or index > len(memo) + 1:
                        raise _memo_error(index, len(memo))
                    memo[index] = stack[-1]
                    at += 5
                elif code == 0x6A:  # LONG_BINGET
                    stack.append(memo[_U4(data, at + 1)[0]])
                    at += 5
                elif code == 0x68:  # BINGET
                    stack.append(memo[data[at + 1]])
                    at += 2
                elif code == 0x4B:  # BININT1
                    stack.append(data[at + 1])
                    at += 2
                elif code == 0x2E:  # STOP
                    return at + 1
                else:
                    at = steps[code](self, at + 1)
                    stack = self.stack
            raise FormatError("limit", f"more than {_MAX_OPCODES:,} opcodes")
        finally:
            self.at = at

    def final_value(self) -> Any:
        """Return the only value on the stack at the end."""
        if len(self.stack) != 1 or self.marks:
            raise FormatError(
                "stack",
                f"it ends with {len(self.stack)} values and "
                f"{len(self.marks)} open marks instead of one value",
            )
        return self.stack[0]

    def charge(self, amount: int) -> None:
        """Charge the copy budget; raise if it is exhausted."""
        self.budget -= amount
        if self.budget < 0:
            raise FormatError("limit", "values are copied too many times")

    def pop_mark(self) -> list[Any]:
        """Pop and return what was pushed since the last mark."""
        items, self.stack = self.stack, self.marks.pop()
        return items

    def argument_end(self, at: int, length: int) -> int:
        """Return the end of an argument of this length; raise if the stream is shorter."""
        if at + length > self.size:
            raise FormatError(
                "truncated", f"expected {length:,} bytes, found {max(0, self.size - at):,}"
            )
        return at + length


Opcode = Callable[["PickleInterpreter", int], int]
"""Executes an opcode whose argument starts at this byte; returns the position of the next
opcode."""

_U2, _U4, _I4, _F8 = (Struct(layout).unpack_from for layout in ("<H", "<I", "<i", ">d"))
_ARGUMENT = {
    code: width
    for width, codes in ((1, b"\x80hKqU\x8a"), (2, b"M"), (4, b"jrJX"), (8, b"G"))
    for code in codes
}


def unknown_opcode(machine: PickleInterpreter, at: int) -> int:
    """Raise the error for an opcode that is not supported."""
    raise FormatError("opcode", f"opcode {machine.data[at - 1]:#04x} is not one that torch writes")


def _protocol(machine: PickleInterpreter, at: int) -> int:
    if at != machine.begin + 1:
        raise FormatError("protocol", "a second protocol")
    if (version := machine.data[at]) not in (2, 3):
        hint = (
            "torch.load(weights_only=True) refuses it too; save again with the default "
            "pickle_protocol"
        )
        raise FormatError("protocol", f"protocol {version}; torch.save writes 2", hint=hint)
    return at + 1


def _push(value: Any) -> Opcode:
    def step(machine: PickleInterpreter, at: int) -> int:
        machine.stack.append(value)
        return at

    return step


def _number(unpack: Callable[[bytes, int], tuple[Any, ...]], width: int) -> Opcode:
    def step(machine: PickleInterpreter, at: int) -> int:
        machine.stack.append(unpack(machine.data, at)[0])
        return at + width

    return step


def _long(machine: PickleInterpreter, at: int) -> int:
    end = machine.argument_end(at + 1, machine.data[at])
    machine.stack.append(int.from_bytes(machine.data[at + 1 : end], "little", signed=True))
    return end


def _text(machine: PickleInterpreter, at: int) -> int:
    start = at + (4 if machine.data[at - 1] == 0x58 else 1)
    end = machine.argument_end(start, int.from_bytes(machine.data[at:start], "little"))
    machine.stack.append(machine.data[start:end].decode())
    return end


def _push_new(kind: type) -> Opcode:
    def step(machine: PickleInterpreter, at: int) -> int:
        machine.stack.append(kind())
        return at

    return step


def _mark(machine: PickleInterpreter, at: int) -> int:
    if len(machine.marks) >= _MAX_MARKS:
        raise FormatError("depth", f"more than {_MAX_MARKS:,} open marks")
    machine.marks.append(machine.stack)
    machine.stack = []
    return at


def _tuple(machine: PickleInterpreter, at: int) -> int:
    items = tuple(machine.stack)
    machine.stack = machine.marks.pop()
    machine.stack.append(items)
    return at


def _tuple_of(length: int) -> Opcode:
    def step(machine: PickleInterpreter, at: int) -> int:
        if len(machine.stack) < length:
            raise IndexError
        machine.stack[-length:] = [tuple(machine.stack[-length:])]
        return at

    return step


def _append(machine: PickleInterpreter, at: int) -> int:
    item = machine.stack.pop()
    _target(machine, list).append(item)
    return at


def _extend(machine: PickleInterpreter, at: int) -> int:
    items = machine.pop_mark()
    _target(machine, list).extend(items)
    return at


def _target(machine: PickleInterpreter, *kinds: type) -> Any:
    if type(machine.stack[-1]) not in kinds:
        raise FormatError("target", f"items are added to a {type(machine.stack[-1]).__name__}")
    return machine.stack[-1]


def _set_one(machine: PickleInterpreter, at: int) -> int:
    value, key = machine.stack.pop(), machine.stack.pop()
    set_item(_target(machine, dict, OrderedDictRecord, CounterRecord), key, value)
    return at


def _set_many(machine: PickleInterpreter, at: int) -> int:
    items = machine.pop_mark()
    target = _target(machine, dict, OrderedDictRecord, CounterRecord)
    for index in range(0, len(items), 2):
        set_item(target, items[index], items[index + 1])
    return at


def _put(machine: PickleInterpreter, at: int) -> int:
    index, memo = machine.data[at], machine.memo
    if index in memo or index > len(memo) + 1:
        raise _memo_error(index, len(memo))
    memo[index] = machine.stack[-1]
    return at + 1


def _memo_error(index: int, count: int) -> FormatError:
    return FormatError("memo", f"memo {index:,} is set out of order, after {count:,} others")


def _persistent(machine: PickleInterpreter, at: int) -> int:
    storage = parse_storage_id(machine.stack.pop(), machine.storage_fields)
    declared = machine.storages.setdefault(storage.key, storage)
    if declared != storage and (declared.elements or storage.elements):
        raise FormatError(
            "storage", f"storage {safe(storage.key)} is declared twice, with different properties"
        )
    machine.stack.append(storage)
    return at


def _global(machine: PickleInterpreter, at: int) -> int:
    parts = []
    for _ in range(2):
        end = machine.data.find(b"\n", at, min(at + MAX_NAME, machine.size))
        if end < 0:
            machine.argument_end(at, MAX_NAME)
            raise FormatError("global", f"a name of over {MAX_NAME} bytes")
        parts.append(machine.data[at:end].decode())
        at = end + 1
    machine.stack.append(allowed_global(*parts))
    return at


def _reduce(machine: PickleInterpreter, at: int) -> int:
    args, function = machine.stack.pop(), machine.stack[-1]
    if type(function) is not Global or type(args) is not tuple or function.name not in CALLS:
        found = safe(function.name) if type(function) is Global else f"a {type(function).__name__}"
        raise FormatError(
            "call", f"it calls {found}, which does not rebuild a tensor or a plain value"
        )
    machine.stack[-1] = CALLS[function.name](args, machine.charge)
    return at


def _build(machine: PickleInterpreter, at: int) -> int:
    state, target = machine.stack.pop(), machine.stack[-1]
    if type(target) is not OrderedDictRecord or type(state) not in (dict, OrderedDictRecord):
        raise FormatError(
            "build",
            f"a {type(state).__name__} of attributes is set on a "
            f"{type(target).__name__}; only an OrderedDict may have attributes",
        )
    machine.charge(len(state))
    if not all(type(key) is str for key in state):
        raise FormatError("build", "an attribute's name is not a string")
    return at


KNOWN: dict[bytes, Opcode] = {
    b"\x80": _protocol, b"c": _global, b"R": _reduce, b"b": _build, b"Q": _persistent,
    b"(": _mark, b"t": _tuple, b"\x85": _tuple_of(1), b"\x86": _tuple_of(2), b"\x87": _tuple_of(3),
    b")": _push(()),
    b"]": _push_new(list), b"a": _append, b"e": _extend, b"}": _push_new(dict), b"s": _set_one,
    b"u": _set_many,
    b"N": _push(None), b"\x88": _push(True), b"\x89": _push(False),
    b"J": _number(_I4, 4), b"M": _number(_U2, 2), b"G": _number(_F8, 8), b"\x8a": _long,
    b"X": _text, b"U": _text, b"q": _put,
}  # fmt: skip
STEPS: list[Opcode] = [KNOWN.get(bytes([code]), unknown_opcode) for code in range(256)]
"""The other opcodes, by byte."""
PickleInterpreter.steps = STEPS
