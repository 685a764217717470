"""JSON for the page in few bytes: equal parts once, records of the same keys as columns, then LZMA and base64."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ...utils.errors import LlamathError

_SHORT = 12
"""A part whose text is not longer is written again: a reference to it would not be shorter."""
_Packed = Any


def pack_json(data: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return data as text for a page: nothing that an HTML parser could interpret. `web/src/lib/read_data.ts` reads it.

    The text is the base64 of a length, in four bytes, and so many bytes of JSON, compressed: `[keys, parts, root]`. In it a list begins
    with a number that says what it is: 0 a list, n a record with the keys `keys[n - 1]`, −n a list of such records as one column for each
    key; a number alone, `[n]`, is `parts[n - 1]`, and `[0]` an empty list. A list that begins with anything else is itself.
    """
    packer = _Packer()
    root = packer.pack(data)
    text = json.dumps(packer.with_shared_parts(root), ensure_ascii=True, separators=(",", ":")).encode()
    return b64encode(len(text).to_bytes(4, "big") + compress(text)).decode()


def compress(data: bytes) -> bytes:
    """Return data by LZMA, without a header."""
    try:
        import lzma
    except ImportError:
        raise LlamathError(
            "this Python was built without lzma, which a page needs", hint="install liblzma and build Python again"
        ) from None
    how = {"id": lzma.FILTER_LZMA1, "preset": 9, "lc": 3, "lp": 0, "pb": 0, "nice_len": 273, "dict_size": 1 << 22}
    return lzma.compress(data, format=lzma.FORMAT_RAW, filters=[how])


def _common_keys(rows: Sequence[Any]) -> list[str]:
    """Return the keys of records that all have the same."""
    keys = [list(x) if isinstance(x, Mapping) else [] for x in rows]
    return keys[0] if all(x == keys[0] for x in keys) else []


class _Packer:
    """Interns every part of the data, so that equal parts are one object."""

    def __init__(self) -> None:
        self.keys: dict[tuple[str, ...], int] = {}
        self.interned: dict[tuple[object, ...], list[_Packed]] = {}

    def pack(self, x: Any) -> _Packed:
        """Return the packed form of data; equal lists are the same object."""
        if isinstance(x, Mapping):
            return self._intern([self._key_number(x), *map(self.pack, x.values())] if x else [self._key_number(x), 0])
        if not isinstance(x, (list, tuple)):
            return x
        if not x:
            return self._intern([0])
        if len(x) > 1 and (names := _common_keys(x)):
            return self._intern([-self._key_number(x[0]), *(self.pack([y[name] for y in x]) for name in names)])
        items = [self.pack(y) for y in x]
        return self._intern([0, *items] if type(x[0]) in (int, float) else items)

    def _key_number(self, x: Mapping[str, Any]) -> int:
        return self.keys.setdefault(tuple(x), len(self.keys) + 1)

    def _intern(self, x: list[_Packed]) -> list[_Packed]:
        identity = tuple((list, id(y)) if type(y) is list else (type(y), y) for y in x)
        return self.interned.setdefault(identity, x)

    def with_shared_parts(self, root: _Packed) -> list[Any]:
        """Return `[keys, parts, root]`, in which every part that occurs again is a reference."""
        uses = Counter[int]()
        for x in self.interned.values():
            uses.update(id(y) for y in x if type(y) is list)
        parts: list[_Packed] = []
        place: dict[int, int] = {}

        def written(x: _Packed) -> _Packed:
            if type(x) is not list:
                return x
            if id(x) in place:
                return [place[id(x)]]
            found = [written(y) for y in x]
            if uses[id(x)] < 2 or len(json.dumps(found, separators=(",", ":"))) <= _SHORT:
                return found
            parts.append(found)
            place[id(x)] = len(parts)
            return [len(parts)]

        whole = written(root)
        return [[list(x) for x in self.keys], parts, whole]
