"""The output files of conversions: interrupted and killed runs, existing files, full disks, memory, and tokenizers."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from llamath.checkpoint.formats import checkpoint_files as checkpoint
from llamath.checkpoint.formats.folder import STAGING_FOLDER
from llamath.checkpoint.formats.gguf import values
from llamath.checkpoint.formats.source import LocalFile
from llamath.cli import cli
from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
from llamath.render.progress import Bar, bar_line
from llamath.utils.errors import ConvertError, LlamathError, MissingExtra
from support import kill_conversions
from support.cost_limits import peak_bytes

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
Data = Callable[[int, int], bytes]


def tensor_bytes(i: int, size: int) -> bytes:
    """Return bytes that differ from tensor to tensor and are finite as BF16."""
    return bytes((i + j) % 61 for j in range(size)) if size < 1 << 20 else bytes([i % 61]) * size


def write_checkpoint(
    folder: Path, config: dict[str, Any], data: Data | None = tensor_bytes
) -> Path:
    """Write a checkpoint by hand; without data, its file is sparse."""
    import llamath

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    model = llamath.load(str(folder))
    tensors = [(x.name, tuple(map(int, x.shape))) for x in model.scheme("hf").tensors(model.tree)]
    header: dict[str, Any] = {}
    at = 0
    for name, shape in tensors:
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for i, x in enumerate(header.values()):
            begin, end = x["data_offsets"]
            if data is not None:
                file.write(data(i, end - begin))
        file.truncate(8 + len(text) + at)
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("source") / "tiny", LLAMA)


@pytest.fixture
def ram_folder() -> Iterator[Path]:
    """Return a folder in memory if possible, as it is faster than a disk."""
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if os.path.isdir("/dev/shm") else None
    ) as folder:
        yield Path(folder)


def options(kind: str, **rest: Any) -> ConvertOptions:
    return ConvertOptions(to=kind, **rest)


# ── killed and interrupted conversions ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "target", "force"),
    [("hf", "out", ""), ("meta", "out", ""), ("gguf", "x.gguf", ""), ("hf", "out", "force")],
)
def test_conversion_killed_at_any_system_call_can_be_repeated(
    kind: str, target: str, force: str, ram_folder: Path, request: pytest.FixtureRequest
) -> None:
    """Of calls from the same lines the first and the last, or all with `--all`."""
    source = write_checkpoint(ram_folder / "source", {**LLAMA, "num_hidden_layers": 1})
    every = request.config.getoption("all")
    report = kill_conversions.report(source, ram_folder, kind, target, force, every=every)
    assert report["calls"] > 20 and (kind == "gguf" or report["moved"] > 3), report


@pytest.mark.parametrize(
    ("kind", "target", "force", "error"),
    [
        ("hf", "out", "force", errno.EIO),
        ("hf", "out", "", errno.EINTR),
        ("meta", "out", "force", errno.ENOSPC),
        ("gguf", "x.gguf", "", errno.EIO),
    ],
)
def test_failing_system_call_leaves_old_or_new_files(
    kind: str, target: str, force: str, error: int, ram_folder: Path, request: pytest.FixtureRequest
) -> None:
    """Of calls from the same lines the first and the last, or all with `--all`."""
    every = request.config.getoption("all")
    if error in (errno.EINTR, errno.ENOSPC) and not every:
        pytest.skip("with --all")
    source = write_checkpoint(ram_folder / "source", {**LLAMA, "num_hidden_layers": 1})
    report = kill_conversions.report(source, ram_folder, kind, target, force, error, every)
    assert report["calls"] > 60


def kill_during_move(source: Path, home: Path) -> tuple[Path, dict[str, bytes]]:
    """Kill a conversion over an older checkpoint after it has moved some of its files; return the folder and the older files."""
    convert_checkpoint(
        str(source), str(home / "old"), options("hf", dtype="float32", max_shard_size=40_000)
    )
    old = kill_conversions.read_tree(home / "old")
    order = options("hf", max_shard_size=20_000, force=True)
    whole = shutil.copytree(home / "old", home / "whole")
    made = kill_conversions.made_calls(
        lambda: convert_checkpoint(str(source), str(whole), order), 0
    )
    for at in (i for i, lines in enumerate(made) if lines[0] == "rename"):
        target = shutil.copytree(home / "old", home / str(at))
        assert kill_conversions.run(str(source), target, order, at) == -signal.SIGKILL
        after = kill_conversions.read_tree(target)
        names = {x for x in after if "/" not in x}
        if (
            any(x.endswith("/moving") for x in after)
            and len(names) > 3
            and "config.json" not in names
        ):
            return target, old
    raise AssertionError("no call is in the middle of a move")


def test_an_unfinished_move_is_refused_by_every_reader(source: Path, tmp_path: Path) -> None:
    target, _ = kill_during_move(source, tmp_path)
    shard = next(target.glob("*.safetensors"))
    for args in (
        ["verify", target],
        ["ls", target],
        ["ls", shard],
        ["count", target],
        ["convert", target, tmp_path / "x", "--names", "hf"],
    ):
        done = CliRunner().invoke(cli, [str(x) for x in args])
        assert (
            done.exit_code == 2
            and "a conversion that was interrupted while it replaced the files" in done.output
        ), (args, done.output)
    convert_checkpoint(
        str(source), str(target), options("hf", max_shard_size=20_000)
    )  # finishes without force
    convert_checkpoint(str(source), str(tmp_path / "new"), options("hf", max_shard_size=20_000))
    assert kill_conversions.read_tree(target) == kill_conversions.read_tree(tmp_path / "new")


def test_another_conversion_undoes_an_unfinished_move(source: Path, tmp_path: Path) -> None:
    target, old = kill_during_move(source, tmp_path)
    with pytest.raises(ConvertError, match="already contains"):
        convert_checkpoint(str(source), str(target), options("hf"))
    assert kill_conversions.read_tree(target) == old and STAGING_FOLDER not in os.listdir(target)


@pytest.mark.parametrize("change", ["in place", "replaced", "config", "tokenizer", "header only"])
def test_a_source_that_changes_is_refused(change: str, source: Path, tmp_path: Path) -> None:
    mine = with_files(source, tmp_path / "mine", merges__txt=b"#version: 0.2")
    weights = mine / "model.safetensors"
    data = weights.read_bytes()

    def meanwhile(done: int, total: int) -> None:
        if change == "replaced":
            weights.with_suffix(".new").write_bytes(data[:-2] + b"!!")
            os.replace(weights.with_suffix(".new"), weights)
        elif change == "config":
            (mine / "config.json").write_text(json.dumps({**LLAMA, "rope_theta": 20000.0}))
        elif change == "tokenizer":
            (mine / "merges.txt").write_bytes(b"#version: 0.3")
        else:
            times = weights.stat()
            with open(weights, "r+b") as file:
                if change == "in place":
                    file.seek(-2, os.SEEK_END)
                    file.write(b"!!")
                else:
                    file.seek(8)
                    file.write(
                        data[8:5000]
                        .split(b"\0")[0]
                        .replace(b"layers.0.input_layernorm", b"layers.0.inpuX_layernorm")[:2000]
                    )
            if change == "header only":
                os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))

    for force in (False, True):
        if force:
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "config.json").write_text("old")
        before = kill_conversions.read_tree(tmp_path / "out") if force else {}
        with pytest.raises(ConvertError, match="changed during the conversion"):
            convert_checkpoint(
                str(mine), str(tmp_path / "out"), options("hf", force=force), meanwhile
            )
        assert (kill_conversions.read_tree(tmp_path / "out") if force else {}) == before
        weights.write_bytes(data)


def test_conversion_of_a_changed_source_is_not_resumed(source: Path, tmp_path: Path) -> None:
    mine = with_files(source, tmp_path / "mine")
    weights = mine / "model.safetensors"
    times = weights.stat()
    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(
            str(mine),
            str(tmp_path / "out"),
            options("hf", max_shard_size=12_000),
            interrupt_at(50_000),
        )
    weights.with_suffix(".new").write_bytes(weights.read_bytes()[:-2] + b"!!")
    os.replace(
        weights.with_suffix(".new"), weights
    )  # of the same size and time, as rsync -t leaves it
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (
        convert_checkpoint(
            str(mine), str(tmp_path / "out"), options("hf", max_shard_size=12_000)
        ).kept
        == ()
    )


KILLED = """
import os, runpy, signal, sys
left, real = int(sys.argv.pop(1)), os.rename

def rename(*paths, **folders):
    global left
    left -= paths[0] != "plan.part"
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*paths, **folders)

os.rename = rename
runpy.run_module("llamath", run_name="__main__")
"""
"""Runs the command line and kills it before it completes one more than this number of files."""


def test_a_killed_command_continues_with_the_complete_files(tmp_path: Path) -> None:
    large = write_checkpoint(
        tmp_path / "large",
        {**LLAMA, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6},
    )
    expected = tmp_path / "expected"
    convert_checkpoint(str(large), str(expected), options("hf", max_shard_size=1_000_000))
    args = [
        "convert",
        str(large),
        str(tmp_path / "out"),
        "--names",
        "hf",
        "--max-shard-size",
        "1MB",
        "--json",
    ]
    hidden = tmp_path / "out" / STAGING_FOLDER
    complete = 0
    for more in (0, 2, 3):
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, str(more), *args], stdout=subprocess.DEVNULL
        )
        assert (
            killed.returncode == -signal.SIGKILL and not (tmp_path / "out" / "config.json").exists()
        )
        complete += more
        assert len(list(hidden.glob("*.safetensors"))) == complete
    done = subprocess.run(
        [sys.executable, "-m", "llamath", *args], capture_output=True, text=True, check=True
    )
    assert len(json.loads(done.stdout)["kept"]) == complete
    assert (
        kill_conversions.read_tree(tmp_path / "out") == kill_conversions.read_tree(expected)
        and not hidden.exists()
    )


def interrupt_at(size: int) -> Callable[[int, int], None]:
    """Return a progress callback that interrupts the conversion once this many bytes have been written."""

    def progress(done: int, total: int) -> None:
        if done >= size:
            raise KeyboardInterrupt

    return progress


def test_an_interrupted_conversion_is_restarted_with_other_options(
    source: Path, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt) as stopped:
        convert_checkpoint(
            str(source),
            str(tmp_path / "out"),
            options("hf", max_shard_size=12_000),
            interrupt_at(50_000),
        )
    (note,) = stopped.value.__notes__
    assert "files are complete; repeat the conversion to continue" in note
    left = set(os.listdir(tmp_path / "out" / STAGING_FOLDER))
    assert (
        "plan" in left
        and len([x for x in left if x.endswith(".safetensors")]) > 3
        and not any(x.endswith(".part") for x in left)
    )
    again = convert_checkpoint(
        str(source), str(tmp_path / "out"), options("hf", max_shard_size=20_000)
    )
    assert again.kept == ()
    with pytest.raises(ConvertError, match="already contains"):
        convert_checkpoint(str(source), str(tmp_path / "out"), options("hf"))
    whole = convert_checkpoint(
        str(source), str(tmp_path / "whole"), options("hf", max_shard_size=20_000)
    )
    assert kill_conversions.read_tree(tmp_path / "out") == kill_conversions.read_tree(
        tmp_path / "whole"
    )
    assert [x.bytes for x in whole.files] == [x.bytes for x in again.files]


def test_interrupted_command_prints_how_to_continue(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bar, "update", lambda _bar, done, total: interrupt_at(50_000)(done, total))
    args = [
        "convert",
        str(source),
        str(tmp_path / "out"),
        "--names",
        "hf",
        "--max-shard-size",
        "12KB",
    ]
    stopped = CliRunner().invoke(cli, args, standalone_mode=False)
    assert isinstance(stopped.exception, (KeyboardInterrupt, click.Abort))
    assert "files are complete; repeat the conversion to continue" in stopped.output


def test_an_interruption_before_the_first_file_leaves_nothing(source: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        convert_checkpoint(
            str(source), str(tmp_path / "deep" / "out"), options("hf"), interrupt_at(0)
        )
    assert not (tmp_path / "deep").exists()


def test_a_second_conversion_to_the_same_folder_is_refused(source: Path, tmp_path: Path) -> None:
    refused = []

    def meanwhile(done: int, total: int) -> None:
        if not refused:
            with pytest.raises(ConvertError, match="another conversion is writing to") as error:
                convert_checkpoint(str(source), str(tmp_path / "out"), options("hf"))
            refused.append(error)

    convert_checkpoint(str(source), str(tmp_path / "out"), options("hf"), meanwhile)
    assert refused and set(os.listdir(tmp_path / "out")) == {"model.safetensors", "config.json"}


# ── existing files and forbidden targets ────────────────────────────────────────────────────────────────────────────


def test_existing_files_are_not_overwritten_without_force(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    convert_checkpoint(str(source), str(out), options("meta"))  # an empty folder is no obstacle
    before = kill_conversions.read_tree(out)
    for kind in ("hf", "meta"):
        with pytest.raises(ConvertError, match=r"already contains consolidated\.00\.pth"):
            convert_checkpoint(str(source), str(out), options(kind))
    file = tmp_path / "x.gguf"
    file.write_bytes(b"mine")
    with pytest.raises(ConvertError, match=r"already contains x\.gguf"):
        convert_checkpoint(str(source), str(file), options("gguf"))
    with pytest.raises(ConvertError, match="is a file; expected a folder"):
        convert_checkpoint(str(source), str(file), options("hf"))
    assert kill_conversions.read_tree(out) == before and file.read_bytes() == b"mine"
    assert sorted(os.listdir(tmp_path)) == ["out", "x.gguf"]
    convert_checkpoint(str(source), str(file), options("gguf", force=True))
    assert checkpoint.read_checkpoint(str(file)).format == "gguf"
    assert convert_checkpoint(str(source), str(out), options("gguf")).files[0].path == str(
        out / "model.gguf"
    )


def test_force_removes_stale_shards(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert_checkpoint(str(source), str(out), options("hf", max_shard_size=12_000))
    (out / "notes.txt").write_text("mine")
    convert_checkpoint(str(source), str(out), options("hf", force=True))
    assert set(os.listdir(out)) == {"model.safetensors", "config.json", "notes.txt"}
    (out / "consolidated.00.pth").write_bytes(b"old")
    (out / "consolidated.01.pth").write_bytes(b"old")
    convert_checkpoint(str(source), str(out), options("meta", force=True))
    assert set(os.listdir(out)) == {
        "model.safetensors",
        "config.json",
        "notes.txt",
        "consolidated.00.pth",
        "params.json",
    }


def test_the_source_is_never_written_to(source: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(source, mine)
    before = kill_conversions.read_tree(mine)
    (tmp_path / "link").symlink_to(mine)
    for target in (
        mine,
        mine / "deep" / "er",
        mine / "x.gguf",
        tmp_path / "link",
        tmp_path / "link" / "x",
    ):
        with pytest.raises(ConvertError, match=r"is inside the source folder"):
            convert_checkpoint(
                str(mine), str(target), options("gguf" if target.suffix else "hf", force=True)
            )
    with pytest.raises(ConvertError, match="belongs to the source"):
        convert_checkpoint(str(mine / "model.safetensors"), str(mine), options("hf", force=True))
    convert_checkpoint(str(mine), str(tmp_path / "x.gguf"), options("gguf"))
    with pytest.raises(ConvertError, match="belongs to the source"):
        convert_checkpoint(
            str(tmp_path / "x.gguf"), str(tmp_path / "x.gguf"), options("gguf", force=True)
        )
    assert kill_conversions.read_tree(mine) == before
    convert_checkpoint(
        str(mine / "model.safetensors"), str(mine / "x.gguf"), options("gguf")
    )  # next to a source file that was given by name


def test_an_unwritable_target_is_reported(source: Path, tmp_path: Path) -> None:
    for target in ("/proc/self/nowhere/out", "/dev/null/out"):
        with pytest.raises(ConvertError, match="cannot be written"):
            convert_checkpoint(str(source), target, options("hf"))
    if os.geteuid():
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o500)
        with pytest.raises(ConvertError, match="cannot be written: Permission denied"):
            convert_checkpoint(str(source), str(locked / "out"), options("hf"))


# ── disks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_disk_space_is_checked_first(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 1000, 1000)
    )  # type: ignore[attr-defined]
    with pytest.raises(
        ConvertError, match=r"not enough disk space in .*: 6\d,\d{3} bytes needed, 1,000 free"
    ):
        convert_checkpoint(str(source), str(tmp_path / "out"), options("meta"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["hf", "meta", "gguf"])
@pytest.mark.parametrize("call", ["write", "fsync", "rename", "mkdir"])
def test_full_disk_leaves_existing_files(
    call: str, kind: str, source: Path, ram_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(1000):
        left, real = [at], getattr(os, call)

        def full(*args: Any, left: list[int] = left, real: Any = real, **rest: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*args, **rest)

        with monkeypatch.context() as patched:
            patched.setattr(os, call, full)
            try:
                convert_checkpoint(
                    str(source), str(ram_folder / "out"), options(kind, max_shard_size=12_000)
                )
            except ConvertError as error:
                assert "cannot be written: the disk or your quota is full" in str(error)
                if not (ram_folder / "out" / STAGING_FOLDER / "moving").exists():
                    assert not os.listdir(ram_folder)
                    continue
            else:
                break
        convert_checkpoint(
            str(source), str(ram_folder / "out"), options(kind, max_shard_size=12_000)
        )
        shutil.rmtree(ram_folder / "out")
    assert at >= (1 if call in ("mkdir", "rename") else 2) and STAGING_FOLDER not in os.listdir(
        ram_folder / "out"
    )


def test_a_file_size_limit_is_reported_as_a_full_disk(source: Path, tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    args = [
        sys.executable,
        "-m",
        "llamath",
        "convert",
        str(source),
        str(tmp_path / "out"),
        "--names",
        "gguf",
    ]
    done = subprocess.run(args, capture_output=True, text=True, preexec_fn=limited)
    assert (
        done.returncode == 2 and "cannot be written: the disk or your quota is full" in done.stderr
    ), done.stderr
    assert "Traceback" not in done.stderr and not os.listdir(tmp_path)


def test_too_small_disk_is_refused(source: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=40k", "none", str(disk)], capture_output=True
        ).returncode
    ):
        pytest.skip("no disk can be mounted here")
    try:
        with pytest.raises(ConvertError, match=r"not enough disk space"):
            convert_checkpoint(str(source), str(disk / "out"), options("hf"))
        assert not os.listdir(disk)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# ── memory and the command line ─────────────────────────────────────────────────────────────────────────────────────

PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=2)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_memory(*args: str) -> int:
    """Return the peak memory of a command in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, sys.executable, "-m", "llamath", *args],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout) * 1024


@pytest.mark.parametrize(("kind", "dtype"), [("meta", ""), ("gguf", ""), ("hf", "f16")])
def test_memory_stays_below_the_largest_tensor(kind: str, dtype: str, ram_folder: Path) -> None:
    config = {
        **LLAMA,
        "vocab_size": 20000,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 10,
    }
    large = write_checkpoint(ram_folder / "large", {**config, "num_attention_heads": 8}, data=None)
    largest = 20000 * 1024 * 2
    assert os.path.getsize(large / "model.safetensors") > 7 * largest
    rest = ["--dtype", dtype] if dtype else []
    base = peak_memory(
        "convert", str(large), str(ram_folder / "dry"), "--names", kind, *rest, "--dry-run"
    )
    assert (
        peak_memory(
            "convert",
            str(large),
            str(ram_folder / "out.gguf" if kind == "gguf" else ram_folder / "out"),
            "--names",
            kind,
            *rest,
        )
        < base + largest
    )


def test_numpy_is_needed_only_for_rounding(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    convert_checkpoint(str(source), str(tmp_path / "x.gguf"), options("gguf"))
    convert_checkpoint(str(tmp_path / "x.gguf"), str(tmp_path / "back"), options("hf"))
    assert (tmp_path / "back" / "model.safetensors").read_bytes()[-1000:] == (
        source / "model.safetensors"
    ).read_bytes()[-1000:]
    convert_checkpoint(str(source), str(tmp_path / "wide"), options("meta", dtype="F32"))
    for dtype, where in (("F16", source), ("BF16", tmp_path / "wide")):
        with pytest.raises(MissingExtra) as missing:
            convert_checkpoint(str(where), str(tmp_path / "never"), options("hf", dtype=dtype))
        assert "llamath[convert]" in missing.value.hint and not (tmp_path / "never").exists()


def test_convert_command_writes_and_reports(source: Path, tmp_path: Path) -> None:
    def run(*args: str) -> Any:
        return CliRunner().invoke(cli, ["convert", *args], standalone_mode=False)

    done = run(str(source), str(tmp_path / "out"), "--names", "hf", "--dry-run")
    assert done.output.startswith("would write 30 tensors") and not (tmp_path / "out").exists()
    done = run(str(source), str(tmp_path / "out"), "--names", "meta", "--json")
    report = json.loads(done.output)
    assert report["files"][0] == {
        "path": str(tmp_path / "out" / "consolidated.00.pth"),
        "bytes": os.path.getsize(tmp_path / "out" / "consolidated.00.pth"),
    }
    assert (
        report["tensors"] == 30
        and report["dtype"] == "BF16"
        and report["kept"] == []
        and "tokenizer" in report["notes"][0]
    )
    assert (
        report["bytes"]
        == sum(x["bytes"] for x in report["files"])
        == sum(x.stat().st_size for x in (tmp_path / "out").iterdir())
    )
    for text in ("0", "5XB", "-1", "GB"):
        assert (
            "size"
            in str(run(str(source), "x", "--names", "hf", "--max-shard-size", text).exception)
            or text == "0"
        )
    assert isinstance(run(str(tmp_path / "nothing"), "x", "--names", "hf").exception, Exception)
    from llamath.cli.convert import _Size

    sizes = {"5GB": 5 * 10**9, "1.5MiB": 3 << 19, "12": 12, "3 kb": 3000, "0.5G": 5 * 10**8}
    assert {text: _Size().convert(text, None, None) for text in sizes} == sizes


def test_exit_codes_and_no_progress_bar_without_a_terminal(source: Path, tmp_path: Path) -> None:
    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "llamath", "convert", *args], capture_output=True, text=True
        )

    done = run(str(source), str(tmp_path / "out"), "--names", "hf")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("wrote 30 tensors")
    done = run(str(source), str(tmp_path / "out"), "--names", "hf")
    assert (
        done.returncode == 2
        and done.stderr.startswith("error: ")
        and "hint: --force overwrites it" in done.stderr
        and not done.stdout
    )
    assert run(str(tmp_path / "none"), str(tmp_path / "x"), "--names", "hf").returncode == 2


def test_progress_bar_appears_after_one_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("llamath.render.progress.monotonic", lambda: now[0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with Bar("checking the source") as bar:
        for done in range(0, 10**10, 10**9):
            bar.update(done, 10**10)
            now[0] += 0.4
            assert bool(capsys.readouterr().err) == (now[0] > 101.5)
    capsys.readouterr()
    assert (
        bar_line(5 * 10**9, 10**10, 10**9)
        == "[############············]  50%  5.0 of 10.0 GB  1.00 GB/s  5 s left"
    )
    assert bar_line(0, 10**13, 10**9).endswith("2 h 46 min left") and bar_line(
        0, 10**11, 10**9
    ).endswith("1 min 40 s left")
    monkeypatch.setenv("NO_COLOR", "1")
    with Bar("checking the source") as bar:
        bar.update(0, 10)
        now[0] += 5
        bar.update(5, 10)
    assert capsys.readouterr().err == ""


# ── tokenizers ──────────────────────────────────────────────────────────────────────────────────────────────────────


def protobuf_field(number: int, value: bytes | int | float) -> bytes:
    """Encode one field of a protobuf message."""
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return (
        varint(number << 3 | 5) + struct.pack("<f", value)
        if isinstance(value, float)
        else varint(number << 3) + varint(value % (1 << 64))
    )


def varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def sentencepiece(pieces: list[tuple[str, float, int]], kind: int = 2) -> bytes:
    """Return a `tokenizer.model`: pieces, then the settings of trainer and normalizer."""
    body = b"".join(
        protobuf_field(
            1,
            protobuf_field(1, text.encode())
            + protobuf_field(2, score)
            + (protobuf_field(3, k) if k != 1 else b""),
        )
        for text, score, k in pieces
    )
    return (
        body
        + protobuf_field(
            2,
            protobuf_field(3, kind)
            + protobuf_field(40, 0)
            + protobuf_field(41, 1)
            + protobuf_field(42, 2)
            + protobuf_field(43, -1),
        )
        + protobuf_field(3, protobuf_field(3, 1))
    )


PIECES = [
    ("<unk>", 0.0, 2),
    ("<s>", 0.0, 3),
    ("</s>", 0.0, 3),
    ("<0x0A>", 0.0, 6),
    ("▁the", -1.0, 1),
    ("é", -2.5, 1),
]


def with_files(source: Path, target: Path, **files: bytes | dict[str, Any]) -> Path:
    shutil.copytree(source, target)
    for name, data in files.items():
        path = target / name.replace("__", ".")
        path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return target


def tokenizer_metadata(path: Path) -> dict[str, Any]:
    metadata = checkpoint.read_checkpoint(str(path)).metadata
    with LocalFile(path) as file:
        return {
            key: list(values(file, x)) if hasattr(x, "count") and hasattr(x, "start") else x
            for key, x in metadata.items()
            if "token" in key
        }


def test_a_sentencepiece_tokenizer_is_written_to_gguf(source: Path, tmp_path: Path) -> None:
    config = {
        "add_bos_token": True,
        "add_eos_token": False,
        "eos_token": {"content": "<end>"},
        "chat_template": "{{ x }}",
    }
    config["added_tokens_decoder"] = {
        "0": {"content": "<unk>", "special": True},
        "7": {"content": "<end>", "special": True},
    }
    mine = with_files(
        source,
        tmp_path / "mine",
        tokenizer__model=sentencepiece(PIECES),
        tokenizer_config__json=config,
    )
    (mine / "added_tokens.json").write_text(json.dumps({"<extra>": 6}))
    done = convert_checkpoint(str(mine), str(tmp_path / "x.gguf"), options("gguf"))
    metadata = tokenizer_metadata(tmp_path / "x.gguf")
    assert not any("no tokenizer" in note for note in done.notes)
    assert (
        metadata["tokenizer.ggml.model"] == "llama" and metadata["tokenizer.ggml.pre"] == "default"
    )
    assert metadata["tokenizer.ggml.tokens"] == [x[0] for x in PIECES] + ["<extra>", "<end>"] + [
        f"[PAD{i}]" for i in range(8, 100)
    ]
    assert (
        metadata["tokenizer.ggml.scores"]
        == [x[1] for x in PIECES] + [-1000.0] * 2 + [-10000.0] * 92
    )
    assert metadata["tokenizer.ggml.token_type"] == [2, 3, 3, 6, 1, 1, 4, 3] + [5] * 92
    ids = {
        key.removeprefix("tokenizer.ggml."): x
        for key, x in metadata.items()
        if key.endswith(("_id", "_token", "_prefix"))
    }
    flags = {"add_bos_token": True, "add_eos_token": False, "add_space_prefix": True}
    assert ids == {"bos_token_id": 1, "eos_token_id": 7, "unknown_token_id": 0, **flags}
    assert metadata["tokenizer.chat_template"] == "{{ x }}"


def test_unsupported_tokenizers_are_left_out_with_a_note(source: Path, tmp_path: Path) -> None:
    tiktoken = b"".join(b"%b %d\n" % (x, i) for i, x in enumerate([b"IQ==", b"Ig==", b"Iw=="]))
    odd: dict[str, tuple[dict[str, Any], str]] = {
        "unigram": ({"tokenizer__model": sentencepiece(PIECES, kind=1)}, "not a BPE model"),
        "long": (
            {"tokenizer__model": sentencepiece(PIECES * 20)},
            "it has a token 100, but the model's vocabulary has 100 rows",
        ),
        "tiktoken": (
            {"tokenizer__model": tiktoken},
            "a tiktoken file, which lacks its special tokens",
        ),
        "garbage": ({"tokenizer__model": b"\xff\xff"}, "is not a sentencepiece model"),
        "word": (
            {"tokenizer__json": {"model": {"type": "WordLevel", "vocab": {"a": 0}}}},
            "not known to reproduce",
        ),
        "other cut": (
            {"tokenizer__json": {"model": {"type": "BPE", "vocab": {}, "merges": []}}},
            "not known to reproduce",
        ),
        "broken": ({"tokenizer__json": b"{"}, "is not JSON"),
        "none": ({}, "the checkpoint has no tokenizer files"),
    }
    for name, (files, message) in odd.items():
        mine = with_files(source, tmp_path / name, **files)
        done = convert_checkpoint(str(mine), str(tmp_path / f"{name}.gguf"), options("gguf"))
        assert any(
            x.startswith("the GGUF file has no tokenizer: ") and message in x for x in done.notes
        ), (name, done.notes)
        assert tokenizer_metadata(tmp_path / f"{name}.gguf") == {"tokenizer.ggml.model": "none"}


def test_tokenizer_files_are_copied(source: Path, tmp_path: Path) -> None:
    mine = with_files(
        source,
        tmp_path / "mine",
        tokenizer__model=sentencepiece(PIECES),
        tokenizer__json=b"{}",
        README__md=b"no",
    )
    convert_checkpoint(str(mine), str(tmp_path / "meta"), options("meta"))
    assert set(os.listdir(tmp_path / "meta")) == {
        "consolidated.00.pth",
        "params.json",
        "tokenizer.model",
        "tokenizer.json",
    }
    done = convert_checkpoint(str(tmp_path / "meta"), str(tmp_path / "back"), options("hf"))
    assert (tmp_path / "back" / "tokenizer.model").read_bytes() == sentencepiece(PIECES)
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2) and not any(
        "no tokenizer" in x for x in done.notes
    )
    above = tmp_path / "7B"  # as LLaMA 1 came: one tokenizer above all sizes
    shutil.copytree(tmp_path / "meta", above / "7B")
    (above / "7B" / "tokenizer.model").rename(above / "tokenizer.model")
    convert_checkpoint(str(above / "7B"), str(tmp_path / "parent"), options("hf"))
    assert (tmp_path / "parent" / "tokenizer.model").exists()
    lines = b"".join(b"%b %d\n" % (b"YQ==", i) for i in range(98))
    three = with_files(tmp_path / "meta", tmp_path / "three", tokenizer__model=lines)
    (three / "tokenizer.json").unlink()
    done = convert_checkpoint(str(three), str(tmp_path / "four"), options("hf"))
    config = json.loads((tmp_path / "four" / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (98, 99) and any(
        "a tiktoken file" in x for x in done.notes
    )


@pytest.mark.parametrize(
    "command", ["verify", "run", "trace", "convert", "convert edit", "export", "same"]
)
def test_config_of_impossible_size_is_refused_at_once(
    command: str, source: Path, tmp_path: Path
) -> None:
    pytest.importorskip("llamath.torch.debug.trace_run")  # its import is not measured
    mine = with_files(source, tmp_path / "mine", config__json={**LLAMA, "num_hidden_layers": 10**9})
    more = {
        "run": ["hi"],
        "trace": ["hi"],
        "convert edit": [str(tmp_path / "out"), "--layers", "1:2"],
        "same": [str(mine)],
        "convert": [str(tmp_path / "out"), "--names", "hf"],
        "export": ["-o", str(tmp_path / "x")],
    }
    results: list[Any] = []
    peak = peak_bytes(
        lambda: results.append(
            CliRunner().invoke(cli, [command.split()[0], str(mine), *more.get(command, [])])
        )
    )
    assert results[0].exit_code == 2 and "found a config with 9,000,000,003" in " ".join(
        results[0].output.split()
    ), results[0].output
    assert peak < 200 << 20 and os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize("kind", ["hf", "meta", "gguf"])
def test_stride_0_tensors_of_a_small_file_are_not_expanded(
    kind: str, source: Path, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "config.json").write_text(json.dumps(LLAMA))
    tensors = checkpoint.read_checkpoint(str(source)).tensors
    one = torch.ones(1, dtype=torch.bfloat16)
    torch.save({x.name: one.expand(x.shape) for x in tensors}, mine / "pytorch_model.bin")
    assert (mine / "pytorch_model.bin").stat().st_size < sum(x.bytes for x in tensors)
    with pytest.raises(LlamathError, match="stores each element once"):
        convert_checkpoint(str(mine), str(tmp_path / "out"), options(kind))
    for command, *more in (
        ["run", "hi"],
        ["trace", "hi"],
        ["convert", str(tmp_path / "out"), "--names", "hf"],
        ["same"],
        ["same", str(source)],
        ["same", str(source), "--logits"],
    ):
        done = CliRunner().invoke(cli, [command, str(mine), *more])
        assert done.exit_code == 2 and "stores each element once" in " ".join(
            done.output.split()
        ), done.output
    done = CliRunner().invoke(cli, ["verify", str(mine)])
    assert done.exit_code == 1 and "share stored elements" in " ".join(done.output.split()), (
        done.output
    )
    assert not (tmp_path / "out").exists()


TRUNCATE = """
import os, sys, torch
from llamath.cli.output import print_error
from llamath.generation.bus_error import exit_on_bus_error
from llamath.torch.weights.open_model import open_model
exit_on_bus_error(print_error)
loaded = open_model(sys.argv[1])
os.truncate(sys.argv[1] + "/model.safetensors", 5000)
print(sum(x.float().sum() for x in loaded.module.parameters()))
"""
"""Reads the weights of a file that is truncated after it has been mapped."""


def test_mapped_file_that_is_truncated_is_an_error(tmp_path: Path) -> None:
    mine = write_checkpoint(tmp_path / "mine", {**LLAMA, "vocab_size": 20_000})
    done = subprocess.run(
        [sys.executable, "-c", TRUNCATE, str(mine)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2 and not done.stdout, done.stderr
    assert (
        "was truncated while it was in use: expected 2,609,918 bytes, found 5,000 bytes"
        in " ".join(done.stderr.split())
    )


LINKED = [
    "tokenizer.json",
    "chat_template.jinja",
    "merges.txt",
    "vocab.json",
    "generation_config.json",
    "config.json",
]


@pytest.mark.parametrize("kind", ["hf", "gguf", "meta"])
@pytest.mark.parametrize("name", LINKED)
def test_a_link_out_of_the_source_folder_is_refused(
    name: str, kind: str, source: Path, tmp_path: Path
) -> None:
    mine = with_files(source, tmp_path / "mine")
    secret = tmp_path / "private_key"
    secret.write_text((mine / "config.json").read_text())
    (mine / name).unlink(missing_ok=True)
    (mine / name).symlink_to("../private_key")
    target = tmp_path / ("x.gguf" if kind == "gguf" else "out")
    with pytest.raises(LlamathError, match=rf"{name} is a symbolic link out of"):
        convert_checkpoint(str(mine), str(target), options(kind))
    assert not target.exists()


def test_links_within_a_hub_cache_are_copied_as_files(source: Path, tmp_path: Path) -> None:
    repo = tmp_path / "models--owner--name"
    snapshot = repo / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for i, file in enumerate(
        [*with_files(source, repo / "blobs", merges__txt=b"#version: 0.2").iterdir()]
    ):
        blob = file.rename(file.with_name(f"{i}"))
        (snapshot / file.name).symlink_to(f"../../blobs/{blob.name}")
    convert_checkpoint(str(snapshot), str(tmp_path / "out"), options("hf"))
    assert (tmp_path / "out" / "merges.txt").read_bytes() == b"#version: 0.2" and not (
        tmp_path / "out" / "merges.txt"
    ).is_symlink()


TEXTS = [
    "Hello, world!",
    "  two spaces\n\nand lines",
    "it's 12345 o'clock",
    "naïve café 你好 🙂",
    "<|begin|>x<|end|>",
    "\t\r\n ...",
]


@pytest.mark.transformers
@pytest.mark.parametrize("kind", ["llama-bpe", "qwen2"])
def test_transformers_reads_a_byte_level_tokenizer_from_gguf(
    kind: str, source: Path, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    from llamath.tokenizers.pretokenizers import GGUF_PRETOKENIZERS, SPLIT_PATTERNS

    (cut,) = SPLIT_PATTERNS[GGUF_PRETOKENIZERS[kind]]
    own = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=kind == "llama-bpe"))
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(cut), "isolated")
    own.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [split, tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    own.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=[], initial_alphabet=alphabet, show_progress=False
    )
    own.train_from_iterator([*TEXTS, "the then them there their"] * 3, trainer)
    own.add_special_tokens(["<|begin|>", "<|end|>"])
    if kind == "llama-bpe":
        pieces = {
            "single": "<|begin|> $A",
            "special_tokens": [("<|begin|>", own.token_to_id("<|begin|>"))],
        }
        own.post_processor = tokenizers.processors.Sequence(
            [
                tokenizers.processors.ByteLevel(trim_offsets=False),
                tokenizers.processors.TemplateProcessing(**pieces),
            ]
        )
    mine = write_checkpoint(tmp_path / "mine", {**LLAMA, "vocab_size": 320})
    own.save(str(mine / "tokenizer.json"))
    (mine / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<|begin|>", "eos_token": "<|end|>"})
    )
    done = convert_checkpoint(str(mine), str(tmp_path / "x.gguf"), options("gguf"))
    assert not any("no tokenizer" in x for x in done.notes), done.notes
    metadata = tokenizer_metadata(tmp_path / "x.gguf")
    size = own.get_vocab_size()
    assert metadata["tokenizer.ggml.tokens"][:size] == [own.id_to_token(i) for i in range(size)]
    assert metadata["tokenizer.ggml.token_type"] == [1] * (size - 2) + [3, 3] + [5] * (320 - size)
    assert metadata["tokenizer.ggml.pre"] == kind and metadata["tokenizer.ggml.model"] == "gpt2"
    assert (metadata["tokenizer.ggml.bos_token_id"], metadata["tokenizer.ggml.eos_token_id"]) == (
        size - 2,
        size - 1,
    )
    assert metadata["tokenizer.ggml.add_bos_token"] == (kind == "llama-bpe")
    if kind == "llama-bpe":
        read = transformers.AutoTokenizer.from_pretrained(str(tmp_path), gguf_file="x.gguf")
        for text in TEXTS:
            assert (
                read(text, add_special_tokens=False)["input_ids"]
                == own.encode(text, add_special_tokens=False).ids
            ), text
