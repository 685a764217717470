"""What a template is rendered from, and the result, as JSON: the process that renders gets the one
and answers with the other.

Each text keeps the origin of its characters. The answer is untrusted, as the template is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ...utils.errors import Command, LlamathError, Name, safe
from .template_text import TemplateText, origins_of, with_origins

MAX_TEMPLATE_CHARACTERS = 1 << 18
"""The longest template that is parsed; published ones have about 20,000 characters."""
_MAX_DEPTH = 64
"""The deepest nesting of messages, tools and arguments."""
_TO_DIGITS, _TO_ORIGINS = bytes.maketrans(b"\0\1", b"01"), bytes.maketrans(b"01", b"\0\1")


def make_request(
    text: str,
    special_tokens: Mapping[str, str],
    messages: Sequence[Mapping[str, Any]],
    *,
    add_generation_prompt: bool = True,
    arguments: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Return what the rendering of a template depends on."""
    if not messages:
        raise LlamathError(
            "the conversation is empty", hint="a chat template needs at least one message"
        )
    return {
        "template": text,
        "special_tokens": dict(special_tokens),
        "messages": [pack({k: v for k, v in x.items() if v is not None}) for x in messages],
        "arguments": pack(dict(arguments or {})),
        "add_generation_prompt": bool(add_generation_prompt),
        "now": (now or datetime.now()).isoformat(),
    }


def pack(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON: a dict as the list of its keys and values, and with a text of the
    model itself its origins.
    """
    if depth > _MAX_DEPTH:
        raise LlamathError(
            f"expected messages, tools and arguments at most {_MAX_DEPTH} levels deep, found more"
        )
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, TemplateText):
        return pack_text(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {"dict": [pack(x, depth + 1) for pair in value.items() for x in pair]}
    if isinstance(value, list | tuple):
        return [pack(x, depth + 1) for x in value]
    raise LlamathError(
        f"expected messages, tools and arguments of JSON values, found {type(value).__name__}"
    )


def unpack(value: Any) -> tuple[Any, int]:
    """Return the value of JSON, and the number of its elements and characters."""
    size = 0

    def read(x: Any) -> Any:
        nonlocal size
        size += 1
        if isinstance(x, list):
            return [read(y) for y in x]
        if isinstance(x, dict) and "dict" in x:
            rest = iter(x["dict"])
            return {read(key): read(y) for key, y in zip(rest, rest, strict=True)}
        text = unpack_text(x) if isinstance(x, dict) else x
        size += len(text) if isinstance(text, str) else 0
        return text

    return read(value), size


def pack_text(text: str) -> dict[str, str]:
    """Return a text and a digit for each character: 1 where the template wrote it."""
    return {"text": str(text), "origins": origins_of(text).translate(_TO_DIGITS).decode("ascii")}


def unpack_text(packed: Mapping[str, str]) -> str:
    """Return the text that `pack_text` packed."""
    text, origins = packed["text"], packed["origins"]
    if (
        not isinstance(text, str)
        or not isinstance(origins, str)
        or len(text) != len(origins)
        or origins.strip("01")
    ):
        raise ValueError("expected a text and the origin of each of its characters")
    return with_origins(text, origins.encode("ascii").translate(_TO_ORIGINS))


def read_answer(answer: Any, source: str) -> str:
    """Return the text that was rendered, or raise the error of the template."""
    try:
        if answer.keys() == {"text", "origins"}:
            return unpack_text(answer)
        if answer.keys() == {"problem", "exceeded"} and isinstance(answer["problem"], str):
            raise template_error(
                source, safe(answer["problem"], 500), exceeded=answer["exceeded"] is True
            )
    except (AttributeError, ValueError):
        pass
    raise template_error(source, "expected a text or an error, found something else")


def template_error(source: str, problem: str, *, exceeded: bool = False) -> LlamathError:
    """Return the error about a template; `exceeded`: it needs more than a template may."""
    named = Command("run", Name("model"), chat_template=Name("name"))
    none = Command("run", Name("model"), chat_template="none")
    hint = f"{named} uses a named format instead, and {none} none"
    if exceeded:
        hint = f"compare the template with the publisher's; {hint}"
    return LlamathError(f"{safe(source)}: chat template: {problem}", hint=hint)
