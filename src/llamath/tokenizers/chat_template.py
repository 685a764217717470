"""The chat templates, special tokens and sampling settings that the files of a checkpoint
contain.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..checkpoint.formats import gguf as gguf_format
from ..checkpoint.formats.folder import LocalFolder, resolve_inside
from ..checkpoint.formats.gguf import Array, values
from ..checkpoint.formats.source import LocalFile, read_small_file
from ..utils.strict_json import read_json

MAX_TEMPLATE_BYTES = 1 << 20
"""The largest template that is read; published ones have about 10,000 characters."""
_MORE_TEMPLATES = "additional_chat_templates"
_TEMPLATE_FILES = ("tokenizer_config.json", "chat_template.json", "processor_config.json")
_SAMPLING_KEYS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")


def find_chat_templates(path: str) -> dict[str, str] | None:
    """Return the templates of a folder or a GGUF file by name, `default` among them; None if its
    format cannot contain one.
    """
    if not os.path.isdir(path):
        return _templates_in_gguf(path) if path.endswith(".gguf") else None
    if os.path.lexists(os.path.join(path, "chat_template.jinja")):
        return {
            "default": read_template_file(resolve_inside(path, "chat_template.jinja"))
        } | _additional_templates(path)
    for name in _TEMPLATE_FILES:
        if os.path.lexists(os.path.join(path, name)) and (
            templates := _named_templates(
                read_json(resolve_inside(path, name)).get("chat_template")
            )
        ):
            return templates
    may_have_one = any(
        os.path.lexists(os.path.join(path, name))
        for name in ("tokenizer_config.json", "tokenizer.json")
    )
    return {} if may_have_one else None


def read_special_tokens(path: str, token_text: Callable[[int], str | None]) -> dict[str, str]:
    """Return the special tokens that a template may refer to, such as `bos_token`: those of the
    tokenizer's files, or of a GGUF file, which has their ids.
    """
    if not os.path.isdir(path):
        return _special_tokens_in_gguf(path, token_text) if path.endswith(".gguf") else {}
    tokens: dict[str, str] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        settings = (
            read_json(resolve_inside(path, name))
            if os.path.lexists(os.path.join(path, name))
            else {}
        )
        extra = settings.get("extra_special_tokens")
        for key, value in (
            {**extra, **settings} if isinstance(extra, Mapping) else settings
        ).items():
            text = value.get("content") if isinstance(value, Mapping) else value
            if key.endswith("_token") and isinstance(text, str):
                tokens[key] = text
    return tokens


def read_sampling_settings(path: str) -> dict[str, Any]:
    """Return the publisher's sampling settings (`generation_config.json`); empty for greedy
    decoding.
    """
    name = "generation_config.json"
    settings = (
        read_json(resolve_inside(path, name)) if os.path.lexists(os.path.join(path, name)) else {}
    )
    if settings.get("do_sample") is not True:
        return {}
    return {"temperature": 1.0} | {
        name: x
        for name in _SAMPLING_KEYS
        if isinstance(x := settings.get(name), int | float) and not isinstance(x, bool)
    }


def _named_templates(value: Any) -> dict[str, str]:
    """Return a template as `default`, or several by their names."""
    if isinstance(value, str):
        return {"default": value} if value else {}
    if isinstance(value, Mapping):  # name → template
        return {str(name): x for name, x in value.items() if isinstance(x, str)}
    several = [x for x in value if isinstance(x, Mapping)] if isinstance(value, list) else []
    return {
        x["name"]: x["template"]
        for x in several
        if isinstance(x.get("name"), str) and isinstance(x.get("template"), str)
    }


def _additional_templates(path: str) -> dict[str, str]:
    """Return the templates in `additional_chat_templates`, next to the default one."""
    if not os.path.isdir(os.path.join(path, _MORE_TEMPLATES)):
        return {}
    folder = LocalFolder(path).inner(_MORE_TEMPLATES)  # a link out of the folder is refused
    files = [x for x in folder.names() if x.endswith(".jinja")]
    return {
        x.removesuffix(".jinja"): read_template_file(resolve_inside(folder.name, x)) for x in files
    }


def read_template_file(path: str) -> str:
    """Return the template in a file."""
    data = read_small_file(path, "a chat template", MAX_TEMPLATE_BYTES)
    return data.decode("utf-8", "replace")


def _templates_in_gguf(path: str) -> dict[str, str]:
    """Return `tokenizer.chat_template` as `default`, and `tokenizer.chat_template.NAME`."""
    with LocalFile(gguf_format.siblings(path)[0]) as source:
        templates = {}
        for key, value in gguf_format.read(source).metadata.items():
            name = key.removeprefix("tokenizer.chat_template")
            if name == key or (name and not name.startswith(".")):
                continue
            text = value
            if isinstance(text, Array):
                text = (
                    next(values(source, text), "")
                    if text.type == "STRING" and text.count == 1
                    else ""
                )
            if isinstance(text, str) and text:
                templates[name.removeprefix(".") or "default"] = text
    return templates


_GGUF_TOKENS = {
    "bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "seperator": "sep_token",
    "padding": "pad_token",
    "cls": "cls_token", "mask": "mask_token",
}  # fmt: skip
"""`tokenizer.ggml.NAME_token_id` → the name of the token in templates; `seperator` is how GGUF
spells it."""


def _special_tokens_in_gguf(path: str, token_text: Callable[[int], str | None]) -> dict[str, str]:
    with LocalFile(gguf_format.siblings(path)[0]) as source:
        metadata = gguf_format.read(source).metadata
    ids = {
        name: metadata.get(f"tokenizer.ggml.{key}_token_id") for key, name in _GGUF_TOKENS.items()
    }
    texts = {name: token_text(x) for name, x in ids.items() if isinstance(x, int) and x >= 0}
    return {name: text for name, text in texts.items() if text is not None}
