"""Chat templates and sampling settings next to a tokenizer. Templates are searched for markers and never rendered."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..checkpoint.formats import gguf as gguf_format
from ..checkpoint.formats.folder import resolve_inside
from ..checkpoint.formats.gguf import Array, values
from ..checkpoint.formats.source import LocalFile
from ..utils.errors import FormatError, safe
from ..utils.strict_json import read_json

MAX_TEMPLATE_BYTES = 1 << 20
"""The largest template that is read; published ones have about 10,000 characters."""
_SAMPLING_KEYS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def find_chat_template(path: str) -> str | None:
    """Return the template of a folder or a GGUF file: empty if it has none, None if its format cannot contain one."""
    if not os.path.isdir(path):
        return _template_in_gguf(path) if path.endswith(".gguf") else None
    if os.path.lexists(os.path.join(path, "chat_template.jinja")):
        return _read_template(resolve_inside(path, "chat_template.jinja"))
    for name in ("tokenizer_config.json", "chat_template.json"):
        if os.path.lexists(os.path.join(path, name)) and (
            text := _template_text(read_json(resolve_inside(path, name)).get("chat_template"))
        ):
            return text
    may_have_one = any(os.path.lexists(os.path.join(path, name)) for name in ("tokenizer_config.json", "tokenizer.json"))
    return "" if may_have_one else None


def read_sampling_settings(path: str) -> dict[str, Any]:
    """Return the publisher's sampling settings (`generation_config.json`); empty for greedy decoding."""
    name = "generation_config.json"
    settings = read_json(resolve_inside(path, name)) if os.path.lexists(os.path.join(path, name)) else {}
    if settings.get("do_sample") is not True:
        return {}
    return {"temperature": 1.0} | {
        name: x for name in _SAMPLING_KEYS if isinstance(x := settings.get(name), int | float) and not isinstance(x, bool)
    }


def _template_text(value: Any) -> str:
    """Return the text of a template, or of several named ones."""
    if isinstance(value, str):
        return value
    several = [x.get("template") for x in value if isinstance(x, Mapping)] if isinstance(value, list) else []
    return "\n".join(x for x in several if isinstance(x, str))


def _read_template(path: str) -> str:
    with LocalFile(path) as source:
        if source.size > MAX_TEMPLATE_BYTES:
            raise FormatError(
                "too_large", f"{safe(path)}: expected a chat template of at most {MAX_TEMPLATE_BYTES:,} bytes, found {source.size:,}"
            )
        return source.read(0, source.size).decode("utf-8", "replace")


def _template_in_gguf(path: str) -> str:
    with LocalFile(gguf_format.siblings(path)[0]) as source:
        text = gguf_format.read(source).metadata.get("tokenizer.chat_template", "")
        if isinstance(text, Array):
            text = next(values(source, text), "") if text.type == "STRING" and text.count == 1 else ""
    return text if isinstance(text, str) else ""
