"""`DottedNames`: find which names of a list are parents or ends of a dotted name, in steps that
grow with the name alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class DottedNames:
    """Names with their indices, such as `self_attn.q_proj`; `from_end`: they are compared from
    the last part on.
    """

    def __init__(self, names: Iterable[str], *, from_end: bool = False) -> None:
        self._from_end = from_end
        self._after: dict[tuple[int, str], int] = {}
        self._indices: dict[int, int] = {}
        for i, name in enumerate(names):
            at = 0
            for part in self._parts(name):
                at = self._after.setdefault((at, part), len(self._after) + 1)
            self._indices.setdefault(at, i)

    def along(self, name: str) -> Iterator[int]:
        """Yield the indices of the names that are this one, its parents, or its ends; the
        shortest first, equal names once.
        """
        at = 0
        for part in self._parts(name):
            found = self._after.get((at, part))
            if found is None:
                return
            at = found
            if at in self._indices:
                yield self._indices[at]

    def _parts(self, name: str) -> list[str]:
        parts = name.split(".")
        return parts[::-1] if self._from_end else parts
