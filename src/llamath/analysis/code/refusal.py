"""`NotWritten`: what `code` cannot write, refused by the name of an operation or of a field."""

from __future__ import annotations

from typing import Any

from ...utils.errors import Call, LlamathError, Name
from ...utils.record_type import Record


class NotWritten(LlamathError):
    """The code of a model was asked for that has something that is not written; `what` names it."""

    def __init__(self, what: str, detail: str = "", hint: str = "") -> None:
        self.what = what
        hint = hint or f"{Call('trace', Name('model'))} shows every step of this model"
        detail = f", {detail}" if detail else ""
        super().__init__(f"`code` does not write {what}{detail}", hint=hint)


def check_fields(record: Record | None, read: tuple[str, ...]) -> None:
    """Refuse a record that has a field, of those that are not read, that is not at its default."""
    if record is None:
        return
    kind = type(record)
    for name in record.fields:
        if name not in read and getattr(record, name) != getattr(kind, name, _MISSING):
            raise NotWritten(f"the field {name} of {kind.__name__}", _shown(getattr(record, name)))


_MISSING = object()


def _shown(value: Any) -> str:
    return f"here {value!r}" if isinstance(value, bool | int | float | str) else ""
