"""Process time of reading headers: listing and verifying checkpoints with sparse tensors,
compared with the reference libraries."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import keep, report, side_by_side

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import gguf

import llamath
from support.sparse_checkpoints import header_of, write_config, write_safetensors, write_sharded

PYTHON = sys.executable
LLAMATH = str(Path(PYTHON).parent / "llamath")
PASS = [PYTHON, "-c", "pass"]
SIZES = {"llama-3.1-405b": 191, "deepseek-v3": 163}
VOCABULARY = 128_256
ROUNDS = 15

SAFE_OPEN = """
import pathlib, sys
from safetensors import safe_open
n = 0
for path in sorted(pathlib.Path(sys.argv[1]).glob('*.safetensors')):
    with safe_open(path, 'np') as file:
        for name in file.keys():
            slice = file.get_slice(name)
            n += len(slice.get_shape()) + len(slice.get_dtype())
print(n)
"""
READER = "import sys, gguf; print(len(gguf.GGUFReader(sys.argv[1]).tensors))"
HUB = (
    "import huggingface_hub; "
    "print(sum(huggingface_hub.get_safetensors_metadata('org/name').parameter_count.values()))"
)


def vocabulary(path: Path) -> Path:
    """A GGUF file of a small model with a large vocabulary."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {i}" for i in range(VOCABULARY)])
    writer.add_token_types([1] * VOCABULARY)
    writer.add_token_merges([f"left{i} right{i}" for i in range(280_147)])
    import numpy

    writer.add_tensor("token_embd.weight", numpy.zeros((8, 32), numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@contextmanager
def hub(folder: Path) -> Iterator[None]:
    """The folder as `org/name` on a hub on loopback."""
    from support.hub_server import Hub, file, sites

    with sites(2) as (site, store):
        Hub(site, store, {x.name: x.read_bytes() for x in folder.iterdir()})
        site.pages |= {
            f"/org/name/resolve/main/{x.name}": file(x.read_bytes()) for x in folder.iterdir()
        }
        os.environ |= {"HF_ENDPOINT": site.url, "HF_HUB_DISABLE_TELEMETRY": "1"}
        yield


def disk(folder: Path) -> list[dict[str, object]]:
    results = []
    for slug, shards in SIZES.items():
        model = llamath.load(slug)
        place = write_sharded(folder / slug, header_of(model), shards)
        write_config(place, model)
        commands = {
            "python -c pass": PASS,
            "llamath ls": [LLAMATH, "ls", str(place)],
            "llamath ls --json": [LLAMATH, "ls", str(place), "--json"],
            "llamath verify": [LLAMATH, "verify", str(place)],
            "llamath verify --json": [LLAMATH, "verify", str(place), "--json"],
            "safetensors safe_open, every name and shape": [PYTHON, "-c", SAFE_OPEN, str(place)],
        }
        results.append(
            report(
                f"{slug}, {shards} shards", side_by_side(commands, ROUNDS), "python -c pass", ROUNDS
            )
        )
    path = str(vocabulary(folder / "vocabulary.gguf"))
    commands = {
        "python -c pass": PASS,
        "llamath ls": [LLAMATH, "ls", path],
        "llamath ls --json": [LLAMATH, "ls", path, "--json"],
        "gguf GGUFReader": [PYTHON, "-c", READER, path],
    }
    title = f"GGUF header of {os.path.getsize(path):,} bytes, {VOCABULARY:,} tokens"
    return [*results, report(title, side_by_side(commands, 3), "python -c pass", 3)]


def remote(folder: Path) -> dict[str, object]:
    """A small model on a local hub server: both read headers by range requests."""
    place = folder / "remote"
    place.mkdir()
    model = llamath.load(
        "smollm-135m",
        changes={"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "head_dim": 8},
    )
    write_config(place, model)
    write_safetensors(place / "model.safetensors", header_of(model))
    with hub(place):
        commands = {
            "python -c pass": PASS,
            "llamath ls hf://": [LLAMATH, "ls", "hf://org/name"],
            "huggingface_hub get_safetensors_metadata": [PYTHON, "-c", HUB],
        }
        return report(
            "one file on a hub on loopback", side_by_side(commands, 5), "python -c pass", 5
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = disk(Path(folder))
        results.append(remote(Path(folder)))
    keep("headers", results)


if __name__ == "__main__":
    main()
