"""Chat templates and sampling settings next to a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest

from llamath.tokenizers.chat_template import MAX_TEMPLATE_BYTES, find_chat_template, read_sampling_settings
from llamath.utils.errors import LlamathError

WORDS = "{{ bos_token }}{% for m in messages %}<|im_start|>{% endfor %}"


def write_file(folder: Path, name: str, content: object) -> Path:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("tokenizer_config.json", {"chat_template": WORDS}, WORDS),
        (
            "tokenizer_config.json",
            {"chat_template": [{"name": "default", "template": WORDS}, {"name": "rag", "template": "b"}]},
            WORDS + "\nb",
        ),
        ("tokenizer_config.json", {"chat_template": None}, ""),
        ("tokenizer_config.json", {"chat_template": 7}, ""),
        ("tokenizer_config.json", {}, ""),
        ("tokenizer.json", {}, ""),
        ("chat_template.json", {"chat_template": WORDS}, WORDS),
        ("chat_template.jinja", WORDS, WORDS),
        ("tokenizer.model", "", None),
    ],
)
def test_template_is_found_in_every_file(name: str, content: object, expected: str | None, tmp_path: Path) -> None:
    assert find_chat_template(str(write_file(tmp_path, name, content))) == expected


@pytest.mark.parametrize("content", ["", WORDS, WORDS * 9000])
def test_template_is_read_from_gguf(content: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    if content:
        writer.add_chat_template(content)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert find_chat_template(str(path)) == content


def test_oversized_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LlamathError, match="expected a chat template of at most"):
        find_chat_template(str(write_file(tmp_path, "chat_template.jinja", "x" * (MAX_TEMPLATE_BYTES + 1))))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_length": 9}, {"temperature": 0.6, "top_p": 0.9}),
        ({"do_sample": True, "top_k": 20}, {"temperature": 1.0, "top_k": 20}),
        ({"do_sample": False, "temperature": 0.6}, {}),
        ({"temperature": 0.6}, {}),
        ({"do_sample": True, "temperature": "hot", "top_k": True}, {"temperature": 1.0}),
    ],
)
def test_sampling_settings_are_read_if_sampling_is_on(content: object, expected: dict[str, float], tmp_path: Path) -> None:
    assert read_sampling_settings(str(write_file(tmp_path, "generation_config.json", content))) == expected


def test_missing_generation_config_gives_no_settings(tmp_path: Path) -> None:
    assert read_sampling_settings(str(tmp_path)) == {}
