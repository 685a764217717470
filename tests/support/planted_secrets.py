"""Files of many kinds that are full of one secret text, as a user's folder holds them; no answer to an agent may contain it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from support.hub_server import CONFIG

SECRET = "hf_S3cretMarkerOfTheUser"
_S = SECRET


def secret_files() -> dict[str, bytes]:
    """Return the files by name: none of them is a checkpoint or a plain configuration, though some look like one."""
    texts = {
        "docker.json": json.dumps({"auths": {_S: {"auth": _S}}, "HttpHeaders": {"X": _S}}),
        "typed.json": json.dumps({"model_type": _S, "hidden_size": _S, _S: 1}),
        "list.json": json.dumps([_S, {"a": _S}]),
        "text.json": json.dumps(_S),
        "twice.json": f'{{"{_S}": 1, "{_S}": 2}}',
        "number.json": f'{{"hidden_size": 1{"0" * 400}, "a": {_S}}}',
        "error.json": json.dumps({"error": _S}),
        "token": _S,
        "lines.txt": f"{_S}\n{_S}\n",
        "notes.md": f"# {_S}\n\n[{_S}]({_S})\n",
        "config.yaml": f"password: {_S}\n{_S}: 1\n",
        "pyproject.toml": f'[tool.{_S}]\nkey = "{_S}"\n',
        "key.pem": f"-----BEGIN PRIVATE KEY-----\n{_S}\n-----END PRIVATE KEY-----\n",
        "env": f"HF_TOKEN={_S}\n",
        "page.html": f"<!doctype html><html><head><title>{_S}</title></head><body>{_S}</body></html>",
        "page.xml": f"<?xml version='1.0'?><Error><Code>{_S}</Code><Message>{_S}</Message></Error>",
        "answer.txt": f"404: not found {_S}",
        "tokenizer.json": json.dumps(
            {"added_tokens": [{"content": _S}], "model": {"type": _S, "vocab": {_S: 0}}, _S: _S}
        ),
        "tokenizer_config.json": json.dumps({"tokenizer_class": _S, "chat_template": _S, _S: _S}),
        "generation_config.json": json.dumps({"do_sample": _S, "eos_token_id": _S}),
        "trainer_state.json": json.dumps({"log_history": [{_S: _S}]}),
        "calibration.json": json.dumps({"llamath_calibration": 1, "flops": {_S: 1}, "machine": _S}),
        "weights.safetensors": _S * 30,
        "weights.gguf": _S * 30,
        "weights.bin": _S * 30,
        "weights.pth": f"{_S}\n" * 30,
        "weights.npz": _S * 30,
        "model.safetensors.index.json": json.dumps(
            {"weight_map": {_S: f"../{_S}"}, "metadata": {_S: _S}}
        ),
    }
    files = {name: text.encode() for name, text in texts.items()}
    files["pointer.safetensors"] = (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{_S}\nsize 12\n{_S}".encode()
    )
    header = f'{{"{_S}": {_S}'.encode()
    files["header.safetensors"] = struct.pack("<Q", len(header)) + header
    files["utf16.txt"] = _S.encode("utf-16")
    return files


def secret_folders() -> dict[str, dict[str, bytes]]:
    """Return folders by name, whose files are read together."""
    adapter = {
        "peft_type": _S,
        "base_model_name_or_path": "gpt2",
        "task_type": _S,
        "rank_pattern": {_S: _S},
        _S: _S,
    }
    own = {
        "api_key": _S,
        "aws": {"key": _S},
        "_note_of_mine": _S,
        "list": [_S],
        "vision_config": {"secret": _S},
        "license": _S,
    }
    return {
        "adapter": {
            "adapter_config.json": json.dumps(adapter).encode(),
            "adapter_model.safetensors": (_S * 9).encode(),
        },
        "config": {"config.json": json.dumps({"auth": _S, "nested": {_S: _S}}).encode()},
        "own-keys": {"config.json": json.dumps({**CONFIG, **own}).encode()},
        "params": {
            "params.json": json.dumps(
                {"dim": 8, "n_layers": 1, "n_heads": 2, "vocab_size": 5, "key": _S, "moe": _S}
            ).encode()
        },
        "pipeline": {
            "model_index.json": json.dumps(
                {"_class_name": "FluxPipeline", "unet": [_S, _S], "_a": [_S], "b": _S}
            ).encode()
        },
        "zero": {"latest": _S.encode()},
        "recipe": {
            "config.json": json.dumps(CONFIG).encode(),
            "hf_quant_config.json": json.dumps({"token": _S}).encode(),
        },
        "sums": {"SHA256SUMS": (_S * 9).encode(), **secret_files()},
    }


def plant(folder: Path) -> list[str]:
    """Write all of them into a folder; returns the paths of the files and folders, relative to it."""
    for name, data in secret_files().items():
        (folder / name).write_bytes(data)
    for inner, files in secret_folders().items():
        (folder / inner).mkdir()
        for name, data in files.items():
            (folder / inner / name).write_bytes(data)
    return sorted(x.name for x in folder.iterdir())
