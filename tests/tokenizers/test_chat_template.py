"""Chat templates and sampling settings next to a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest

from llamath.core.errors import LlamathError
from llamath.tokenizers.template_lookup import MAX_TEMPLATE_BYTES, find_chat_template, read_sampling_settings

WORDS = "{{ bos_token }}{% for m in messages %}<|im_start|>{% endfor %}"


def written(folder: Path, name: str, said: object) -> Path:
    (folder / name).write_text(said if isinstance(said, str) else json.dumps(said))
    return folder


@pytest.mark.parametrize(
    ("name", "said", "found"),
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
def test_template_is_found_in_every_file(name: str, said: object, found: str | None, tmp_path: Path) -> None:
    assert find_chat_template(str(written(tmp_path, name, said))) == found


@pytest.mark.parametrize("said", ["", WORDS, WORDS * 9000])
def test_template_is_read_from_gguf(said: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    if said:
        writer.add_chat_template(said)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert find_chat_template(str(path)) == said


def test_oversized_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LlamathError, match="expected a chat template of at most"):
        find_chat_template(str(written(tmp_path, "chat_template.jinja", "x" * (MAX_TEMPLATE_BYTES + 1))))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_length": 9}, {"temperature": 0.6, "top_p": 0.9}),
        ({"do_sample": True, "top_k": 20}, {"temperature": 1.0, "top_k": 20}),
        ({"do_sample": False, "temperature": 0.6}, {}),
        ({"temperature": 0.6}, {}),
        ({"do_sample": True, "temperature": "hot", "top_k": True}, {"temperature": 1.0}),
    ],
)
def test_sampling_settings_are_read_if_sampling_is_on(said: object, found: dict[str, float], tmp_path: Path) -> None:
    assert read_sampling_settings(str(written(tmp_path, "generation_config.json", said))) == found


def test_missing_generation_config_gives_no_settings(tmp_path: Path) -> None:
    assert read_sampling_settings(str(tmp_path)) == {}
