"""Checkpoints as downloads and training leave them: broken, unfinished, or of something else than the config says."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from support.fuzz_files import LFS
from support.small_llama import SMALL, save_llama

HTML = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Log in to continue</body></html>\n"
XML = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'
WEIGHTS, CONFIG, INDEX = "model.safetensors", "config.json", "model.safetensors.index.json"
SHARDS = [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]

CONTENTS: Mapping[str, tuple[bytes, str, str]] = {
    "lfs pointer": (LFS, "lfs_pointer", "is a Git LFS pointer to 4,976,698,672 bytes"),
    "xet pointer": (
        b"# xet version 0\nfilesize = 9\nhash = '00'\n",
        "xet_pointer",
        "is a Xet pointer",
    ),
    "annex pointer": (
        b"/annex/objects/SHA256E-s9--00.safetensors\n",
        "annex_pointer",
        "is a git-annex pointer",
    ),
    "html": (HTML, "html_page", "is an HTML page, not"),
    "xhtml": (
        b'<?xml version="1.0"?>\n<!DOCTYPE html>\n<html></html>',
        "html_page",
        "is an HTML page",
    ),
    "xml": (XML, "xml_document", "is an XML document (the server's answer: AccessDenied)"),
    "json error": (
        b'{"error":"Repository not found"}',
        "error_message",
        "is the error message of a server",
    ),
    "text error": (
        b"Entry not found",
        "error_message",
        "is the error message of a server (entry not found)",
    ),
    "gated": (
        b"Access to model meta-llama/Llama-3 is restricted.",
        "error_message",
        "is the error message of a server",
    ),
    "empty": (b"", "empty_file", "is empty"),
    "zeros": (bytes(5000), "zeros", "begins with 1,024 zero bytes"),
    "gzip": (b"\x1f\x8b\x08" + bytes(99), "unknown_format", "is a gzip archive"),
    "text": (b"These are the weights.\n", "text_file", "is a text file"),
}
"""Content in the place of a file → code of the error and a part of its message."""


def whole(folder: Path) -> Path:
    """Return a checkpoint of one file without faults."""
    return save_llama(folder)


def sharded(folder: Path) -> Path:
    """Return a checkpoint of three shards without faults."""
    save_llama(folder, shard="25KB", num_hidden_layers=2)
    tensors: dict[str, torch.Tensor] = {}
    for path in folder.glob("model-*.safetensors"):
        tensors |= load_file(path)
        path.unlink()
    names = list(tensors)
    weight_map = {}
    for i, file in enumerate(SHARDS):
        part = {
            name: tensors[name] for name in names[i * len(names) // 3 : (i + 1) * len(names) // 3]
        }
        save_file(part, folder / file, {"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def replaced(content: bytes, name: str = WEIGHTS) -> Callable[[Path], Path]:
    """Return a maker of a checkpoint, one file of which has this content."""

    def make(folder: Path) -> Path:
        (sharded if name in SHARDS else whole)(folder)
        (folder / name).write_bytes(content)
        return folder

    return make


def truncated(folder: Path) -> Path:
    whole(folder)
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[:-100])
    return folder


def truncated_torch(folder: Path) -> Path:
    whole(folder)
    torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()
    data = (folder / "pytorch_model.bin").read_bytes()
    (folder / "pytorch_model.bin").write_bytes(data[: len(data) // 2])
    return folder


def missing_shard(folder: Path) -> Path:
    (sharded(folder) / SHARDS[1]).unlink()
    return folder


def lone_shard(folder: Path) -> Path:
    """Return a folder with one shard of three, and no index."""
    sharded(folder)
    for name in (*SHARDS[1:], INDEX):
        (folder / name).unlink()
    return folder


def without_index(folder: Path) -> Path:
    (sharded(folder) / INDEX).unlink()
    return folder


def aria2(folder: Path) -> Path:
    (whole(folder) / f"{WEIGHTS}.aria2").write_bytes(bytes(30))
    return folder


def unfinished(folder: Path) -> Path:
    """Return a folder that huggingface_hub has not finished."""
    whole(folder)
    (folder / WEIGHTS).unlink()
    cache = folder / ".cache" / "huggingface" / "download"
    cache.mkdir(parents=True)
    (cache / "Zz9.0123.incomplete").write_bytes(bytes(99))
    (cache / f"{WEIGHTS}.lock").write_bytes(b"")
    return folder


def other_depth(folder: Path) -> Path:
    """Return files of two layers with a config of eight."""
    config = json.loads((whole(folder) / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | {"num_hidden_layers": 8}))
    return folder


def with_prefix(prefix: str) -> Callable[[Path], Path]:
    """Return a maker of a checkpoint whose names begin with a prefix."""

    def make(folder: Path) -> Path:
        tensors = load_file(whole(folder) / WEIGHTS)
        save_file(
            {f"{prefix}{name}": x for name, x in tensors.items()},
            folder / WEIGHTS,
            {"format": "pt"},
        )
        return folder

    return make


def training_checkpoint(folder: Path) -> Path:
    """Return a checkpoint with the state of AdamW, under DistributedDataParallel and torch.compile."""
    tensors = load_file(whole(folder) / WEIGHTS)
    (folder / WEIGHTS).unlink()
    parameters = [torch.nn.Parameter(x.float()) for x in tensors.values()]
    optimizer = torch.optim.AdamW(parameters)
    for x in parameters:
        x.grad = torch.ones_like(x)
    optimizer.step()
    model = {f"module._orig_mod.{name}": x for name, x in tensors.items()}
    torch.save(
        {"model": model, "optimizer": optimizer.state_dict(), "epoch": 3}, folder / "checkpoint.pt"
    )
    return folder


def trainer_folder(folder: Path) -> Path:
    """Return what transformers' Trainer leaves: weights, optimizer, scheduler and arguments."""
    state = {
        "state": {
            0: {
                "step": torch.tensor(1.0),
                "exp_avg": torch.zeros(20),
                "exp_avg_sq": torch.zeros(20),
            }
        },
        "param_groups": [{"lr": 1e-4}],
    }
    torch.save(state, whole(folder) / "optimizer.pt")
    torch.save({"last_epoch": 3}, folder / "scheduler.pt")
    (folder / "training_args.bin").write_bytes(pickle.dumps(object))
    return folder


def copy(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    return target


def contents_of(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, to show that nothing was written."""
    return {
        str(x.relative_to(folder)): x.read_bytes() for x in sorted(folder.rglob("*")) if x.is_file()
    }


LLAMA: dict[str, Any] = SMALL
