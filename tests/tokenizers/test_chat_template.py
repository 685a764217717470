"""Chat templates and sampling settings next to a tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import pytest

from llamath.tokenizers import load_tokenizer
from llamath.tokenizers.chat_template import (
    MAX_TEMPLATE_BYTES,
    find_chat_templates,
    read_sampling_settings,
    read_special_tokens,
)
from llamath.utils.errors import LlamathError
from tokenizers import Tokenizer as Engine
from tokenizers import models

WORDS = "{{ bos_token }}{% for m in messages %}<|im_start|>{% endfor %}"


def write_file(folder: Path, name: str, content: object) -> Path:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("tokenizer_config.json", {"chat_template": WORDS}, {"default": WORDS}),
        (
            "tokenizer_config.json",
            {
                "chat_template": [
                    {"name": "default", "template": WORDS},
                    {"name": "rag", "template": "b"},
                    {"name": 1},
                    2,
                ]
            },
            {"default": WORDS, "rag": "b"},
        ),
        (
            "tokenizer_config.json",
            {"chat_template": {"default": WORDS, "rag": "b", "bad": 1}},
            {"default": WORDS, "rag": "b"},
        ),
        ("tokenizer_config.json", {"chat_template": None}, {}),
        ("tokenizer_config.json", {"chat_template": 7}, {}),
        ("tokenizer_config.json", {}, {}),
        ("tokenizer.json", {}, {}),
        ("chat_template.json", {"chat_template": WORDS}, {"default": WORDS}),
        ("chat_template.jinja", WORDS, {"default": WORDS}),
        ("tokenizer.model", "", None),
    ],
)
def test_template_is_found_in_every_file(
    name: str, content: object, expected: dict[str, str] | None, tmp_path: Path
) -> None:
    assert find_chat_templates(str(write_file(tmp_path, name, content))) == expected


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
    assert find_chat_templates(str(path)) == ({"default": content} if content else {})


def test_named_templates_are_read_from_gguf(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_chat_template(
        [{"name": "default", "template": WORDS}, {"name": "tool_use", "template": "b"}]
    )
    writer.add_token_list(["<s>", "</s>", "a"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path = str(tmp_path / "model.gguf")
    assert find_chat_templates(path) == {"default": WORDS, "tool_use": "b"}
    engine = Engine(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2}, unk_token="a"))
    assert read_special_tokens(path, engine.id_to_token) == {
        "bos_token": "<s>",
        "eos_token": "</s>",
    }


def test_additional_templates_are_read_by_name(tmp_path: Path) -> None:
    write_file(tmp_path, "chat_template.jinja", WORDS)
    write_file(tmp_path, "tokenizer_config.json", {"chat_template": "older"})
    (tmp_path / "additional_chat_templates").mkdir()
    write_file(tmp_path, "additional_chat_templates/rag.jinja", "b")
    assert find_chat_templates(str(tmp_path)) == {"default": WORDS, "rag": "b"}


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    elsewhere, own = tmp_path / "elsewhere", tmp_path / "own"
    for folder in (elsewhere, own):
        folder.mkdir()
        write_file(folder, "chat_template.jinja", WORDS)
    write_file(elsewhere, "vocabulary.gguf", "GGUF")
    own.joinpath("additional_chat_templates").symlink_to(elsewhere)
    own.joinpath("vocabulary.gguf").symlink_to(elsewhere / "vocabulary.gguf")
    for read in (find_chat_templates, load_tokenizer):
        with pytest.raises(LlamathError, match="is a symbolic link out of"):
            read(str(own))


def test_special_tokens_are_read_from_tokenizer_files(tmp_path: Path) -> None:
    config = {
        "bos_token": {"content": "<s>", "lstrip": False},
        "eos_token": "</s>",
        "pad_token": None,
        "extra_special_tokens": {"image_token": "<image>", "other": "x"},
        "tokenizer_class": "X",
    }
    write_file(tmp_path, "tokenizer_config.json", config)
    write_file(
        tmp_path,
        "special_tokens_map.json",
        {"eos_token": "<older>", "unk_token": "<unk>", "additional_special_tokens": ["<a>"]},
    )
    tokens = read_special_tokens(str(tmp_path), {}.get)
    assert tokens == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "image_token": "<image>",
    }


def test_oversized_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LlamathError, match="expected a chat template of at most"):
        find_chat_templates(
            str(write_file(tmp_path, "chat_template.jinja", "x" * (MAX_TEMPLATE_BYTES + 1)))
        )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_length": 9},
            {"temperature": 0.6, "top_p": 0.9},
        ),
        ({"do_sample": True, "top_k": 20}, {"temperature": 1.0, "top_k": 20}),
        ({"do_sample": False, "temperature": 0.6}, {}),
        ({"temperature": 0.6}, {}),
        ({"do_sample": True, "temperature": "hot", "top_k": True}, {"temperature": 1.0}),
    ],
)
def test_sampling_settings_are_read_if_sampling_is_on(
    content: object, expected: dict[str, float], tmp_path: Path
) -> None:
    assert (
        read_sampling_settings(str(write_file(tmp_path, "generation_config.json", content)))
        == expected
    )


def test_missing_generation_config_gives_no_settings(tmp_path: Path) -> None:
    assert read_sampling_settings(str(tmp_path)) == {}
