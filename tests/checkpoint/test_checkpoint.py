"""Checkpoints on disk: folders, indexes, shards and links, valid and hostile."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llamath.checkpoint.formats.checkpoint_files import read_checkpoint
from llamath.checkpoint.formats.manifest import Manifest
from llamath.utils.errors import FormatError, LlamathError, safe
from support import hostile_index
from support.cost_limits import peak_bytes, within_calls
from support.hostile_gguf import U16, Gguf
from support.hostile_index import SHARD
from support.hostile_pth import mapped, stream, tensor, zipped
from support.hostile_safetensors import entry, file, header

HOSTILE = hostile_index.hostile()
ODD = hostile_index.odd()
INDEX = "model.safetensors.index.json"
MIB = 1 << 20


def safetensors(*names: str) -> bytes:
    return file(
        header(*(entry(name, offsets=f"[{i},{i + 1}]") for i, name in enumerate(names))),
        bytes(len(names)),
    )


def gguf(no: int = 0, of: int = 0) -> bytes:
    file = Gguf().text("general.architecture", "llama")
    if of:
        file.number("split.no", U16, no).number("split.count", U16, of).number(
            "split.tensors.count", 5, of
        )
    return file.tensor(f"t{no}", 8).bytes()


PTH = zipped(stream(mapped({"w": tensor()})))


def write_index(folder: Path, weight_map: dict[str, str], name: str = INDEX) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(
        json.dumps({"metadata": {"total_size": 2}, "weight_map": weight_map})
    )
    return folder


def refusal(path: Path | str) -> FormatError:
    with pytest.raises(FormatError) as caught:
        read_checkpoint(str(path))
    assert str(caught.value).isprintable()
    return caught.value


def names(manifest: Manifest) -> list[tuple[str, str]]:
    """Return every tensor with the name of its file."""
    return [(x.name, os.path.basename(manifest.files[x.file].name)) for x in manifest.tensors]


# files that loaders choose in a folder


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "consolidated.safetensors",
        "adapter_model.safetensors",
        "anything.safetensors",
    ],
)
def test_folder_with_one_safetensors_file_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(safetensors("w"))
    (tmp_path / "config.json").write_text("{}")
    for path in (tmp_path, tmp_path / name):
        manifest = read_checkpoint(str(path))
        assert (manifest.format, names(manifest), manifest.index) == (
            "safetensors",
            [("w", name)],
            None,
        )


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pth", "model.pt", "last.ckpt"])
def test_folder_with_one_torch_file_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(PTH)
    assert (
        read_checkpoint(str(tmp_path)).format
        == read_checkpoint(str(tmp_path / name)).format
        == "torch"
    )


def test_folder_with_one_gguf_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "llama.Q8_0.gguf").write_bytes(gguf())
    assert names(read_checkpoint(str(tmp_path))) == [("t0", "llama.Q8_0.gguf")]


def test_format_is_detected_by_first_bytes(tmp_path: Path) -> None:
    for name, data, kind in (
        ("a.bin", safetensors("w"), "safetensors"),
        ("b.pth", gguf(), "gguf"),
        ("c.gguf", PTH, "torch"),
    ):
        (tmp_path / name).write_bytes(data)
        assert read_checkpoint(str(tmp_path / name)).format == kind


@pytest.mark.parametrize(("ending", "data"), [("safetensors", safetensors), ("bin", lambda _: PTH)])
def test_shards_of_an_index_are_read(
    ending: str, data: Callable[[str], bytes], tmp_path: Path
) -> None:
    first, second = f"m-00001-of-00002.{ending}", f"m-00002-of-00002.{ending}"
    (tmp_path / first).write_bytes(data("a"))
    (tmp_path / second).write_bytes(data("b"))
    name = INDEX if ending == "safetensors" else "pytorch_model.bin.index.json"
    write_index(tmp_path, {"a": first, "b": second}, name)
    for path in (tmp_path, tmp_path / name):
        manifest = read_checkpoint(str(path))
        assert [file for _, file in names(manifest)] == [first, second]
        assert (
            manifest.index is not None
            and manifest.index.missing == ()
            and manifest.index.metadata == {"total_size": 2}
        )


def test_nonstandard_index_name_is_used(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(safetensors("w"))
    (tmp_path / "y.safetensors").write_bytes(safetensors("v"))
    write_index(tmp_path, {"w": "x.safetensors"}, "diffusion_pytorch_model.safetensors.index.json")
    assert names(read_checkpoint(str(tmp_path))) == [("w", "x.safetensors")]


def test_folder_reads_the_file_that_transformers_loads(tmp_path: Path) -> None:
    (tmp_path / "shard.bin").write_bytes(PTH)
    write_index(tmp_path, {"w": "shard.bin"}, "pytorch_model.bin.index.json")
    write_index(tmp_path, {"w": "gone.h5"}, "tf_model.h5.index.json")
    write_index(tmp_path, {"w": "gone.msgpack"}, "flax_model.msgpack.index.json")
    assert names(read_checkpoint(str(tmp_path))) == [("w", "shard.bin")]
    (tmp_path / "shard.safetensors").write_bytes(safetensors("v"))
    write_index(tmp_path, {"v": "shard.safetensors"})
    assert names(read_checkpoint(str(tmp_path))) == [("v", "shard.safetensors")]
    (tmp_path / "model.safetensors").write_bytes(safetensors("u"))
    assert names(read_checkpoint(str(tmp_path))) == [("u", "model.safetensors")]


def test_meta_shards_are_read_in_order(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"consolidated.0{i}.pth").write_bytes(PTH)
    (tmp_path / "params.json").write_text("{}")
    manifest = read_checkpoint(str(tmp_path))
    assert names(manifest) == [("w", f"consolidated.0{i}.pth") for i in range(3)]
    assert len(read_checkpoint(str(tmp_path / "consolidated.01.pth")).tensors) == 1
    (tmp_path / "consolidated.01.pth").unlink()
    assert refusal(tmp_path).code == "shards"


def test_split_gguf_is_merged(tmp_path: Path) -> None:
    parts = [f"m-0000{i + 1}-of-00003.gguf" for i in range(3)]
    for i, name in enumerate(parts):
        (tmp_path / name).write_bytes(gguf(i, 3))
    for path in (tmp_path, *(tmp_path / name for name in parts)):
        assert names(read_checkpoint(str(path))) == [
            (f"t{i}", name) for i, name in enumerate(parts)
        ]
    (tmp_path / parts[1]).write_bytes(gguf(2, 3))
    assert refusal(tmp_path).code == "split_no"
    (tmp_path / parts[1]).unlink()
    for path in (tmp_path, tmp_path / parts[0]):
        assert "m-00002-of-00003.gguf" in str(refusal(path))


def test_name_with_many_parts_costs_few_calls(tmp_path: Path) -> None:
    (tmp_path / "m-00001-of-65535.gguf").write_bytes(gguf(0, 2))
    assert "and 65,530 more" in str(
        within_calls(2_500_000, lambda: refusal(tmp_path / "m-00001-of-65535.gguf"))
    )
    (tmp_path / "m-00009-of-00003.gguf").write_bytes(gguf())
    assert refusal(tmp_path / "m-00009-of-00003.gguf").code == "split_name"


def test_folder_without_checkpoint_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path).code == "no_checkpoint"
    for name in (
        "config.json",
        "tokenizer.model",
        "README.md",
        "model.onnx",
        "flax_model.msgpack.index.json",
    ):
        (tmp_path / name).write_text("{}")
    assert refusal(tmp_path).code == "no_checkpoint"


def test_folder_with_several_checkpoints_is_ambiguous(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(gguf())
    error = refusal(tmp_path)
    assert (
        error.code == "ambiguous"
        and "a.gguf (" in str(error)
        and "b.gguf (" in str(error)
        and error.hint
    )
    assert read_checkpoint(str(tmp_path / "b.gguf")).tensors


@pytest.mark.parametrize(
    "path",
    [
        "",
        "missing",
        "missing/",
        "a\0b",
        "a\0.index.json",
        "missing.index.json",
        "x" * 5000,
        "é\ud800",
    ],
)
def test_missing_path_is_refused(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refusal(path).code in ("unreadable", "index", "shard_name")


def test_current_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors("w"))
    monkeypatch.chdir(tmp_path)
    assert (
        names(read_checkpoint("."))
        == names(read_checkpoint("model.safetensors"))
        == [("w", "model.safetensors")]
    )
    write_index(tmp_path, {"w": "model.safetensors"})
    assert names(read_checkpoint(INDEX)) == [("w", "model.safetensors")]


# unknown formats


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "lfs_pointer"),
        (b"<!DOCTYPE html><html></html>", "html_page"),
        (b"\n<!doctype html>", "html_page"),
        (b"<HTML><body>", "html_page"),
        (b"tjgg\3\0\0\0" + bytes(99), "unknown_format"),
        (b"\x7fELF" + bytes(99), "unknown_format"),
        (b"\x1f\x8b\x08" + bytes(99), "unknown_format"),
        (b"\x93NUMPY\1\0", "unknown_format"),
        (b"\x89HDF\r\n\x1a\n", "unknown_format"),
        (bytes(64), "zeros"),
        (b"\x1b[2J\x1b[2J", "unknown_format"),
    ],
)
def test_unknown_format_is_refused(data: bytes, code: str, tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(data)
    for location in (path, tmp_path):
        error = refusal(location)
        assert error.code == code and error.hint


def test_lfs_pointer_shard_is_refused(tmp_path: Path) -> None:
    (tmp_path / SHARD).write_bytes(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    )
    write_index(tmp_path, {"w": SHARD})
    assert refusal(tmp_path).code == "lfs_pointer"


# hostile indexes


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_index_is_refused(name: str, tmp_path: Path) -> None:
    code, make = HOSTILE[name]
    (tmp_path / SHARD).write_bytes(safetensors("w"))
    (tmp_path / INDEX).write_bytes(make())
    for path in (tmp_path, tmp_path / INDEX):
        error = within_calls(1_500_000, lambda path=path: refusal(path))
        assert error.code == code, error
        assert len(str(error)) < 1000


def test_corpus_of_hostile_indexes_is_large() -> None:
    assert len(HOSTILE) >= 75


@pytest.mark.parametrize(
    "name", [name for name in HOSTILE if "MiB" in name or "million" in name or "10" in name]
)
def test_a_long_index_costs_little_memory(name: str, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_bytes(HOSTILE[name][1]())
    assert peak_bytes(lambda: refusal(tmp_path)) < 200 * MIB


@pytest.mark.parametrize("name", ODD)
def test_unusual_valid_index_is_read(name: str, tmp_path: Path) -> None:
    (tmp_path / SHARD).write_bytes(safetensors("w"))
    (tmp_path / INDEX).write_bytes(ODD[name]())
    manifest = read_checkpoint(str(tmp_path))
    assert (
        names(manifest) == [("w", SHARD)]
        and manifest.index is not None
        and manifest.index.missing == ()
    )
    assert all(safe(x).isprintable() for x in manifest.index.weight_map)


def test_largest_index_is_read_in_few_calls(tmp_path: Path) -> None:
    (tmp_path / SHARD).write_bytes(safetensors("w"))
    write_index(
        tmp_path,
        {f"model.layers.{i}.mlp.experts.0.gate_proj.weight": SHARD for i in range(200_000)},
    )
    assert within_calls(600_000, lambda: read_checkpoint(str(tmp_path))).index


def test_missing_shards_are_reported(tmp_path: Path) -> None:
    (tmp_path / "b.safetensors").write_bytes(safetensors("b"))
    write_index(tmp_path, {"a": "a.safetensors", "b": "b.safetensors", "c": "c.safetensors"})
    manifest = read_checkpoint(str(tmp_path))
    assert names(manifest) == [("b", "b.safetensors")]
    assert manifest.index is not None and manifest.index.missing == (
        "a.safetensors",
        "c.safetensors",
    )
    (tmp_path / "b.safetensors").unlink()
    nothing = read_checkpoint(str(tmp_path))
    assert nothing.index is not None and len(nothing.index.missing) == 3 and not nothing.tensors


def test_ten_thousand_missing_shards_cost_few_calls(tmp_path: Path) -> None:
    write_index(tmp_path, {str(i): f"{i}.safetensors" for i in range(10_000)})
    manifest = within_calls(600_000, lambda: read_checkpoint(str(tmp_path)))
    assert manifest.index is not None and len(manifest.index.missing) == 10_000


def test_name_in_two_shards_is_kept_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.safetensors").write_bytes(safetensors("w", name))
    write_index(tmp_path, {"w": "a.safetensors", "a": "a.safetensors", "b": "b.safetensors"})
    assert names(read_checkpoint(str(tmp_path))) == [
        (x, f"{f}.safetensors") for f in "ab" for x in ("w", f)
    ]


# problems that are reported while the rest is read


def test_truncated_file_is_reported_and_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors("w", "v")[:-1])
    for location in (path, tmp_path):
        assert refusal(location).code == "truncated"
        problems: list[FormatError] = []
        manifest = read_checkpoint(str(location), problems)
        assert [x.name for x in manifest.tensors] == ["w", "v"]
        assert [(x.code, str(x)) for x in problems] == [
            (
                "truncated",
                f"{path} is 1 bytes short: v ends at byte {path.stat().st_size + 1:,}, the file at {path.stat().st_size:,}",
            )
        ]


def test_damaged_shards_are_reported_and_others_read(tmp_path: Path) -> None:
    contents = {
        "a": safetensors("a"),
        "b": safetensors("b") + b"x",
        "c": b"\xffgarb",
        "d": safetensors("d"),
    }
    for name, data in contents.items():
        (tmp_path / f"{name}.safetensors").write_bytes(data)
    write_index(tmp_path, {name: f"{name}.safetensors" for name in contents})
    problems: list[FormatError] = []
    manifest = read_checkpoint(str(tmp_path), problems)
    assert [x.code for x in problems] == ["trailing", "truncated"]
    assert names(manifest) == [(name, f"{name}.safetensors") for name in "abd"]
    assert refusal(tmp_path).code == "trailing"


def test_first_error_is_raised_if_no_shard_is_readable(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"garbage, and more of it")
    problems: list[FormatError] = []
    with pytest.raises(FormatError):
        read_checkpoint(str(tmp_path), problems)
    assert not problems


# special files and links


def create_special_file(path: Path, kind: str) -> None:
    """Create a file at this path that is not regular."""
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))


@pytest.mark.parametrize("kind", ["folder", "pipe", "socket"])
def test_only_regular_files_are_opened(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    create_special_file(Path("model.safetensors"), kind)
    assert refusal(tmp_path).code == "not_a_file"
    assert kind == "folder" or refusal("model.safetensors").code == "not_a_file"
    write_index(tmp_path / "x", {"w": SHARD})
    monkeypatch.chdir(tmp_path / "x")
    create_special_file(Path(SHARD), kind)
    assert refusal(tmp_path / "x").code == "not_a_file"
    Path(INDEX).unlink()
    create_special_file(Path(INDEX), kind)
    assert refusal(tmp_path / "x").code == "index"


def test_device_files_are_not_opened(tmp_path: Path) -> None:
    assert refusal("/dev/zero").code == "not_a_file"
    write_index(tmp_path, {"w": SHARD})
    (tmp_path / SHARD).symlink_to("/dev/zero")
    assert refusal(tmp_path).code == "link"
    try:
        os.mknod(tmp_path / "null", 0o20666, os.makedev(1, 3))
    except PermissionError:
        return
    write_index(tmp_path, {"w": "null"})
    assert refusal(tmp_path).code == "not_a_file"


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """Yield a folder that all users may enter; root drops its privileges for the test."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
        if root:
            os.seteuid(0)


def test_unreadable_file_is_refused(unprivileged: Path) -> None:
    path = unprivileged / "model.safetensors"
    path.write_bytes(safetensors("w"))
    write_index(unprivileged, {"w": "model.safetensors"}, "x.safetensors.index.json").chmod(0o755)
    for location in unprivileged.iterdir():
        location.chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)
    assert refusal(path).code == refusal(unprivileged).code == "unreadable"
    assert refusal(unprivileged / "x.safetensors.index.json").code == "index"


def test_unlistable_folder_is_refused(unprivileged: Path) -> None:
    (unprivileged / "x").mkdir(mode=0)
    if os.geteuid() == 0:
        os.seteuid(65534)
    assert refusal(unprivileged / "x").code == "unreadable"


OUT = {
    "a file above": "../secret.safetensors",
    "an absolute path": "{}/secret.safetensors",
    "a detour": "sub/../../secret.safetensors",
    "through a folder that is a link": "elsewhere/secret.safetensors",
    "through another link": "second",
    "to a folder above": "..",
    "to the root": "/",
    "to the system": "/etc/passwd",
    "to a process": "/proc/self/environ",
    "to nothing outside": "../nothing",
    "to a folder whose name begins like this one's": "../model-secret/x.safetensors",
}


@pytest.mark.parametrize("name", OUT)
def test_links_out_of_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    folder = write_index(tmp_path / "model", {"w": SHARD})
    (tmp_path / "secret.safetensors").write_bytes(safetensors("secret"))
    (tmp_path / "model-secret").mkdir()
    (tmp_path / "model-secret" / "x.safetensors").write_bytes(safetensors("secret"))
    (folder / "sub").mkdir()
    (folder / "elsewhere").symlink_to("..")
    (folder / "second").symlink_to("../secret.safetensors")
    (folder / SHARD).symlink_to(OUT[name].format(tmp_path))
    assert refusal(folder).code == "link"
    (folder / INDEX).unlink()
    (folder / SHARD).rename(folder / "model.safetensors")
    assert refusal(folder).code == "link"


def test_index_linked_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    write_index(tmp_path, {"w": SHARD}, "other.json")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / INDEX).symlink_to("../other.json")
    assert refusal(folder).code == "link"


def test_links_inside_the_folder_are_followed(tmp_path: Path) -> None:
    folder = write_index(tmp_path / "model", {"w": SHARD})
    (folder / "files").mkdir()
    (folder / "files" / "x").write_bytes(safetensors("w"))
    (folder / "y").symlink_to("files/x")
    (folder / SHARD).symlink_to("y")
    assert names(read_checkpoint(str(folder))) == [("w", SHARD)]
    (tmp_path / "alias").symlink_to("model")
    assert names(read_checkpoint(str(tmp_path / "alias"))) == [("w", SHARD)]


def test_link_given_by_the_user_is_followed(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "real.safetensors").write_bytes(safetensors("w"))
    (tmp_path / "x" / "link.safetensors").symlink_to("../real.safetensors")
    assert read_checkpoint(str(tmp_path / "x" / "link.safetensors")).tensors


def test_dangling_and_circular_links_are_missing_files(tmp_path: Path) -> None:
    folder = write_index(tmp_path, {"a": "loop", "b": "round", "c": "nothing"})
    (folder / "loop").symlink_to("loop")
    (folder / "round").symlink_to("trip")
    (folder / "trip").symlink_to("round")
    (folder / "nothing").symlink_to("nowhere")
    manifest = read_checkpoint(str(folder))
    assert manifest.index is not None and manifest.index.missing == (
        "loop",
        "nothing",
        "round",
    )
    assert refusal(folder / "loop").code == "unreadable"


def hub_cache(root: Path, name: str = "models--org--model", sub: str = "") -> Path:
    """Write a snapshot in the layout of huggingface_hub: every file is a link to a blob."""
    repo = root / name
    folder = repo / "snapshots" / "0123abc" / sub
    folder.mkdir(parents=True)
    (repo / "blobs").mkdir()
    up = "../" * (3 if sub else 2)
    for i, (file_name, content) in enumerate(
        {SHARD: safetensors("w"), INDEX: json.dumps({"weight_map": {"w": SHARD}}).encode()}.items()
    ):
        (repo / "blobs" / f"{i}").write_bytes(content)
        (folder / file_name).symlink_to(f"{up}blobs/{i}")
    return folder


@pytest.mark.parametrize("sub", ["", "original"])
def test_hub_cache_snapshot_is_read(sub: str, tmp_path: Path) -> None:
    folder = hub_cache(tmp_path / "hub", sub=sub)
    assert (
        names(read_checkpoint(str(folder)))
        == names(read_checkpoint(str(folder / INDEX)))
        == [("w", SHARD)]
    )
    shared = tmp_path / "hub" / "blobs" / "ab"
    shared.mkdir(parents=True)
    blob = tmp_path / "hub" / "models--org--model" / "blobs" / "0"
    blob.rename(shared / "abcd")
    blob.symlink_to("../../blobs/ab/abcd")
    assert names(read_checkpoint(str(folder))) == [("w", SHARD)]
    blob.unlink()
    manifest = read_checkpoint(str(folder))
    assert manifest.index is not None and manifest.index.missing == (SHARD,)


@pytest.mark.parametrize(
    "target",
    [
        "../../../secret",
        "../../../models--other--model/blobs/0",
        "/etc/passwd",
        "../../../../secret",
    ],
)
def test_link_out_of_the_hub_cache_is_refused(target: str, tmp_path: Path) -> None:
    folder = hub_cache(tmp_path / "hub")
    hub_cache(tmp_path / "hub", "models--other--model")
    for path in (tmp_path, tmp_path / "hub"):
        (path / "secret").write_bytes(safetensors("secret"))
    (folder / SHARD).unlink()
    (folder / SHARD).symlink_to(target)
    assert refusal(folder).code == "link"


def test_folder_named_snapshots_is_not_a_hub_cache(tmp_path: Path) -> None:
    folder = write_index(tmp_path / "home" / "snapshots" / "x", {"w": SHARD})
    (tmp_path / "home" / "secret").write_bytes(safetensors("secret"))
    (folder / SHARD).symlink_to("../../secret")
    assert refusal(folder).code == "link"


def test_hostile_index_raises_llamath_error_under_every_name(tmp_path: Path) -> None:
    """Read hostile indexes under every name that an index may have."""
    for path in (INDEX, "pytorch_model.bin.index.json", "x.index.json"):
        for name in (
            "not JSON",
            "weight_map null",
            "file name: absolute",
            "objects nested 100,000 deep",
        ):
            (tmp_path / path).write_bytes(HOSTILE[name][1]())
            with pytest.raises(LlamathError):
                read_checkpoint(str(tmp_path / path))
        (tmp_path / path).unlink()


def test_transformers_weights_are_honoured(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", "standard")
    write(tmp_path / "other.safetensors", "other")
    config = tmp_path / "config.json"
    config.write_text('{"transformers_weights": "other.safetensors"}')
    assert [x.name for x in read_checkpoint(str(tmp_path)).tensors] == ["other"]
    for name in ("missing.safetensors", "../other.safetensors", 3):
        config.write_text(json.dumps({"transformers_weights": name}))
        with pytest.raises(FormatError, match="expected the file that transformers_weights"):
            read_checkpoint(str(tmp_path))


def test_checkpoint_with_an_adapter_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", "standard")
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "elsewhere"}')
    with pytest.raises(
        FormatError, match=r"found both model\.safetensors and adapter_config\.json"
    ):
        read_checkpoint(str(tmp_path))
    assert [x.name for x in read_checkpoint(str(tmp_path / "model.safetensors")).tensors] == [
        "standard"
    ]


def write(path: Path, name: str) -> None:
    """Write a file with one tensor of this name."""
    text = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"x")
