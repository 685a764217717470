"""What lies beside a tokenizer: the words of a chat template, which are looked at and never rendered, and settings for drawing tokens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..checkpoint.formats import gguf as gguf_format
from ..checkpoint.formats.gguf_values import Array, values
from ..checkpoint.formats.source import LocalFile
from ..core.errors import FormatError, safe
from ..core.strict_json import read_json

MAX_TEMPLATE_BYTES = 1 << 20
"""The longest template that is read; published ones have some 10,000 characters."""
_SAMPLING_KEYS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def find_chat_template(path: str) -> str | None:
    """The template of a folder or a GGUF file; empty where there might be one and is none, None where the format knows of no templates."""
    if not os.path.isdir(path):
        return _template_in_gguf(path) if path.endswith(".gguf") else None
    if os.path.lexists(place := os.path.join(path, "chat_template.jinja")):
        return _read_template(place)
    for name in ("tokenizer_config.json", "chat_template.json"):
        if os.path.lexists(place := os.path.join(path, name)) and (said := _template_text(read_json(place).get("chat_template"))):
            return said
    known = any(os.path.lexists(os.path.join(path, name)) for name in ("tokenizer_config.json", "tokenizer.json"))
    return "" if known else None


def read_sampling_settings(path: str) -> dict[str, Any]:
    """How the publisher would have tokens drawn (`generation_config.json`); nothing where the likeliest are to be taken."""
    place = os.path.join(path, "generation_config.json")
    said = read_json(place) if os.path.lexists(place) else {}
    if said.get("do_sample") is not True:
        return {}
    return {"temperature": 1.0} | {
        name: x for name in _SAMPLING_KEYS if isinstance(x := said.get(name), int | float) and not isinstance(x, bool)
    }


def _template_text(said: Any) -> str:
    """A template, or several by their names."""
    if isinstance(said, str):
        return said
    several = [x.get("template") for x in said if isinstance(x, Mapping)] if isinstance(said, list) else []
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
        said = gguf_format.read(source).metadata.get("tokenizer.chat_template", "")
        if isinstance(said, Array):
            said = next(values(source, said), "") if said.type == "STRING" and said.count == 1 else ""
    return said if isinstance(said, str) else ""
