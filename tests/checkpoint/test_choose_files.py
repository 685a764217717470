"""The files of a folder that are its checkpoint: those that transformers loads, local and on the Hub."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from llamath.checkpoint.formats.checkpoint_files import read_checkpoint
from llamath.checkpoint.formats.choose_files import INDEX_EXTENSIONS, parse_shard
from llamath.checkpoint.hub import read_remote
from llamath.checkpoint.open import file_notes, open_checkpoint
from llamath.utils.errors import FormatError
from support.hub_server import COMMIT, Hub, safetensors

NAMES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "other.safetensors",
    "other.safetensors.index.json",
    "sub/inner.safetensors",
)
EXPLICIT = (
    *(
        None,
        "other.safetensors",
        "other.safetensors.index.json",
        "sub/inner.safetensors",
        "model.safetensors",
    ),
    *(
        "gone.safetensors",
        "pytorch_model.bin",
        "model.gguf",
        "../outside.safetensors",
        "sub/../../outside.safetensors",
        3,
        "",
    ),
)


def file_of(name: str) -> bytes:
    """Return a file whose only tensor has its name, or an index of it."""
    if name.endswith(INDEX_EXTENSIONS):
        return json.dumps(
            {"metadata": {}, "weight_map": {name: f"shard of {name}.safetensors"}}
        ).encode()
    return safetensors({name: (1,)})


def write(folder: Path, names: list[str], explicit: Any = None) -> Path:
    (folder / "sub").mkdir(parents=True)
    safe = [f"shard of {x}.safetensors" for x in names if x.endswith(INDEX_EXTENSIONS)]
    for name in (*names, *safe):
        (folder / name).write_bytes(safetensors({name: (1,)}) if name in safe else file_of(name))
    config = {} if explicit is None else {"transformers_weights": explicit}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    return folder


def chosen(path: Path) -> list[str]:
    """Return the files, or the index, that were read, relative to the folder."""
    manifest = read_checkpoint(str(path))
    files = [manifest.index.path] if manifest.index else [x.name for x in manifest.files]
    return [os.path.relpath(x, path) for x in files]


@pytest.mark.parametrize("explicit", EXPLICIT)
@pytest.mark.slow
def test_files_are_those_that_transformers_loads(explicit: Any, tmp_path: Path) -> None:
    modeling = pytest.importorskip("transformers.modeling_utils")
    draw = Random(str(explicit))
    resolved_any = refused_any = 0
    for case in range(40):
        names = [x for x in NAMES if draw.random() < 0.5]
        folder = write(tmp_path / str(case), names, explicit)
        try:
            found, _ = modeling._get_resolved_checkpoint_files(
                str(folder), None, None, None, None, False, explicit, {}
            )
            expected = sorted({os.path.relpath(x, folder) for x in found})
            if not all(os.path.exists(folder / x) for x in expected):
                raise OSError("transformers fails when it opens the file")
        except (OSError, ValueError, AttributeError):
            if explicit is not None:
                with pytest.raises(FormatError):
                    read_checkpoint(str(folder))
                refused_any += 1
            continue
        resolved_any += 1
        ours = chosen(folder)
        if ours[0].endswith(INDEX_EXTENSIONS):
            ours = [
                f"{os.path.dirname(x)}/shard of {os.path.basename(x)}.safetensors".lstrip("/")
                for x in ours
            ]
        assert ours == expected, names
    assert resolved_any or refused_any


def test_weights_in_a_link_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", [], "linked/inner.safetensors")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "inner.safetensors").write_bytes(file_of("inner.safetensors"))
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="symbolic link"):
        read_checkpoint(str(folder))


@pytest.mark.parametrize("config", [True, False])
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("adapter", [True, False])
@pytest.mark.slow
def test_adapter_config_is_honoured_as_in_transformers(
    config: bool, weights: bool, adapter: bool, tmp_path: Path
) -> None:
    peft = pytest.importorskip("transformers.integrations.peft")
    pytest.importorskip("peft")
    names = ["model.safetensors"] * weights + ["adapter_model.safetensors"] * adapter
    folder = write(tmp_path / "model", names)
    (folder / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "org/base", "peft_type": "LORA"}'
    )
    if not config:
        (folder / "config.json").unlink()
    adapter_path, base, _ = peft.maybe_load_adapters(str(folder), {})
    assert adapter_path == str(folder)
    if base == str(folder) and weights:
        manifest = read_checkpoint(str(folder))
        assert [x.name for x in manifest.tensors] == ["model.safetensors"]
        assert "transformers also loads" in file_notes(manifest)[0]
    elif adapter:
        manifest = read_checkpoint(str(folder))
        assert [x.name for x in manifest.tensors] == ["adapter_model.safetensors"]
        assert ("model.safetensors is left out" in "".join(file_notes(manifest))) == weights
    else:
        with pytest.raises(FormatError):
            read_checkpoint(str(folder))


# the Hub


def test_transformers_weights_of_a_repository_are_honoured(pair: Any) -> None:
    config = json.dumps({"transformers_weights": "other.safetensors"}).encode()
    files = {
        "config.json": config,
        "model.safetensors": file_of("standard"),
        "other.safetensors": file_of("other"),
    }
    Hub(*pair, files)
    assert [x.name for x in read_remote("hf://org/name").manifest.tensors] == ["other"]
    assert [x.name for x in open_checkpoint("org/name").manifest.tensors] == ["other"]


def test_transformers_weights_in_a_folder_of_a_repository(pair: Any) -> None:
    config = json.dumps({"transformers_weights": "sub/inner.safetensors"}).encode()
    Hub(
        *pair,
        {
            "config.json": config,
            "model.safetensors": file_of("standard"),
            "sub/inner.safetensors": file_of("inner"),
        },
    )
    assert [x.name for x in read_remote("hf://org/name").manifest.tensors] == ["inner"]


@pytest.mark.parametrize(
    "name", ["gone.safetensors", "../x.safetensors", "sub/gone.safetensors", "model.bin", 3]
)
def test_wrong_transformers_weights_of_a_repository_are_refused(name: Any, pair: Any) -> None:
    config = json.dumps({"transformers_weights": name}).encode()
    Hub(
        *pair,
        {
            "config.json": config,
            "model.safetensors": file_of("standard"),
            "sub/inner.safetensors": file_of("inner"),
        },
    )
    with pytest.raises(FormatError, match="transformers_weights"):
        read_remote("hf://org/name")


def test_repository_with_an_adapter_is_the_adapter(pair: Any) -> None:
    files = {
        "config.json": b"{}",
        "adapter_config.json": b'{"base_model_name_or_path": "org/base"}',
    }
    Hub(
        *pair,
        files
        | {"model.safetensors": file_of("base"), "adapter_model.safetensors": file_of("adapter")},
    )
    manifest = read_remote("hf://org/name").manifest
    assert [x.name for x in manifest.tensors] == ["adapter"] and "is left out" in file_notes(
        manifest
    )[0]


def test_cached_repository_is_chosen_like_that_on_the_hub(pair: Any) -> None:
    from llamath.checkpoint.hub_cache import cache_folder

    files = {
        "config.json": b"{}",
        "adapter_config.json": b'{"base_model_name_or_path": "org/base"}',
    }
    files |= {"model.safetensors": file_of("base"), "adapter_model.safetensors": file_of("adapter")}
    repo = Path(cache_folder()) / "models--org--name"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for name, data in files.items():
        (snapshot / name).write_bytes(data)
    cached = open_checkpoint("org/name")
    assert cached.cached_as and [x.name for x in cached.manifest.tensors] == ["adapter"]
    assert [x.name for x in open_checkpoint(str(snapshot)).manifest.tensors] == ["base"]


@pytest.mark.slow
def test_broken_files_of_a_repository_are_named(pair: Any) -> None:
    from support.broken_files import CONTENTS

    for data, code, message in CONTENTS.values():
        Hub(*pair, {"model.safetensors": data})
        with pytest.raises(FormatError) as error:
            read_remote("hf://org/name")
        assert error.value.code == code and message in str(error.value) and error.value.hint
        assert "hf download" not in error.value.hint


# sets of shards


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("model-00002-of-00006.safetensors", (2, 6)),
        ("pytorch_model-00001-of-00002.bin", (1, 2)),
        ("x-001-of-100.safetensors", (1, 100)),
        ("model-00007-of-00006.safetensors", None),
        ("model-00000-of-00006.safetensors", None),
        ("model-1-of-6.safetensors", None),
        ("model-00001-of-999999.safetensors", None),
        ("model.safetensors", None),
        ("model-00001-of-00002.gguf", None),
    ],
)
def test_place_of_a_shard_is_in_its_name(name: str, place: tuple[int, int] | None) -> None:
    shard = parse_shard(name)
    assert (None if shard is None else (shard.number, shard.total)) == place
    if shard:
        assert shard.names[shard.number - 1] == name and len(shard.names) == shard.total


def test_training_files_are_no_second_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").write_bytes(file_of("w"))
    for name in (
        "optimizer.pt",
        "scheduler.pt",
        "rng_state_0.pth",
        "training_args.bin",
        "random_states_0.pt",
        "scaler.pt",
    ):
        (tmp_path / name).write_bytes(b"")
    assert [x.name for x in read_checkpoint(str(tmp_path)).tensors] == ["w"]


def test_two_sets_of_shards_are_ambiguous(tmp_path: Path) -> None:
    for name in ("a-00001-of-00002.safetensors", "b-00001-of-00002.safetensors"):
        (tmp_path / name).write_bytes(file_of(name))
    with pytest.raises(FormatError, match="without an index"):
        read_checkpoint(str(tmp_path))
