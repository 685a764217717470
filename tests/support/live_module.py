"""`LiveModule`: the engine of pages, in WebAssembly, run by wasmtime."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import wasmtime

from wasm import MODULE

F32 = 0
MOST_MEMORY = 1 << 29
"""Bytes of an instance, as of a page on a small machine."""


class Refused(Exception):
    """The module refused what it was given."""


@cache
def compiled_module() -> tuple[wasmtime.Engine, wasmtime.Module]:
    engine = wasmtime.Engine()
    return engine, wasmtime.Module.from_file(engine, str(MODULE))


class LiveModule:
    """An instance with a program: its exports as attributes without `live_`, the program first."""

    def __init__(self, program: bytes, size: int | None = None) -> None:
        engine, module = compiled_module()
        self._store = wasmtime.Store(engine)
        self._store.set_limits(memory_size=MOST_MEMORY)
        self._exports = wasmtime.Instance(self._store, module, []).exports(self._store)
        self.memory: Any = self._exports["memory"]
        self.export("_initialize")()
        at = self.copy(program)
        self._live = self.export("live_open")(at, len(program) if size is None else size)
        if not self._live:
            raise Refused(self.message)

    def export(self, name: str) -> Callable[..., Any]:
        function: Any = self._exports[name]
        return lambda *arguments: function(self._store, *arguments)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = self.export(f"live_{name}")
        return lambda *arguments: function(self._live, *arguments)

    @property
    def message(self) -> str:
        at = self.export("live_message")()
        return bytes(self.memory.read(self._store, at, at + 400)).split(b"\0")[0].decode()

    def copy(self, data: bytes) -> int:
        """Return the address of a copy in the module's memory."""
        at: int = self.export("live_alloc")(len(data))
        self.memory.write(self._store, data, at)
        return at

    def floats(self, address: int, count: int) -> array[float]:
        if not address:
            raise Refused(self.message)
        return array("f", bytes(self.memory.read(self._store, address, address + 4 * count)))

    @property
    def described(self) -> dict[str, Any]:
        """The names of the program."""
        at = self.names()
        text = bytes(self.memory.read(self._store, at, at + self.names_bytes()))
        found: dict[str, Any] = json.loads(text)
        return found

    def write_weight(self, number: int, data: bytes, kind: int = F32) -> None:
        at = self.weight(number, kind)
        if not at:
            raise Refused(self.message)
        assert self.weight_bytes(number) == len(data), number
        self.memory.write(self._store, data, at)

    def check(self, status: int) -> None:
        if status:
            raise Refused(self.message)

    def read(self, ids: Sequence[int], all_logits: bool = True) -> list[array[float]]:
        """Return the logits of a pass over tokens."""
        at = self.copy(struct.pack(f"<{len(ids)}i", *ids))
        self.check(self.forward(at, len(ids), int(all_logits)))
        rows = len(ids) if all_logits else 1
        return [self.floats(self.logits(i), self.num_logits()) for i in range(rows)]
