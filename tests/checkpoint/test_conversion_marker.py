"""Hidden folders of interrupted conversions: one from elsewhere moves no file, and one of this user is known by its seal."""

from __future__ import annotations

import json
import os
import shutil
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from llamath.checkpoint.formats import conversion_marker
from llamath.checkpoint.formats.conversion_marker import STAGING_FOLDER, is_plain_name
from llamath.cli import cli
from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
from llamath.conversion.write.staging import StagingFolder
from llamath.utils.errors import ConvertError
from support.tiny_checkpoint import tiny_checkpoint

SHARDED = ConvertOptions(to="hf", max_shard_size=12_000, force=True)


def look(folder: Path) -> dict[str, bytes | str]:
    """Every entry below a folder: the bytes of files, the targets of links."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        else:
            found[str(path)] = (
                path.read_bytes() if path.is_file() else oct(stat.S_IFMT(path.lstat().st_mode))
            )
    return found


def adapter(folder: Path) -> Path:
    """A LoRA of the tiny checkpoint's first query projection."""
    folder.mkdir()
    header: dict[str, Any] = {}
    for at, (name, shape) in enumerate((("A", (4, 32)), ("B", (32, 4)))):
        name = f"base_model.model.model.layers.0.self_attn.q_proj.lora_{name}.weight"
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at * 512, at * 512 + 512]}
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + bytes(1024)
    )
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj"],
    }
    (folder / "adapter_config.json").write_text(
        json.dumps({**config, "base_model_name_or_path": "x/y"})
    )
    return folder


def interrupt(source: Path, target: Path) -> None:
    """Stop a conversion into a folder in the middle of its moves, and let the undoing fail as well."""
    real, done = os.rename, []

    def rename(old: str, new: str, **folders: Any) -> None:
        if len(done) > 3:
            raise OSError(5, "Input/output error")
        if done or new == "moving":
            done.append(new)
        real(old, new, **folders)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises(ConvertError):
            convert_checkpoint(str(source), str(target), SHARDED)
    assert (target / STAGING_FOLDER / "moving").exists()


def test_a_planted_hidden_folder_moves_no_file(tmp_path: Path) -> None:
    source = tiny_checkpoint(tmp_path / "source")
    lora = adapter(tmp_path / "lora")
    home = tmp_path / "home"
    home.mkdir()
    (home / "id_rsa").write_text("PRIVATE KEY")
    (home / "moving").write_text("0" * 64 + "\nid_rsa")
    (tmp_path / "outside.txt").write_text("mine")
    begun = shutil.copytree(source, tmp_path / "begun")
    interrupt(source, begun)  # a conversion of this very user

    def planted(
        *files: str, links: dict[str, str] | None = None, text: str = ""
    ) -> Callable[[Path], object]:
        def plant(hidden: Path) -> None:
            hidden.mkdir()
            for name in files:
                (hidden / name).parent.mkdir(exist_ok=True)
                (hidden / name).write_text(text or "0" * 64 + "\nmodel.safetensors\nconfig.json")
            for name, to in (links or {}).items():
                (hidden / name).symlink_to(to)

        return plant

    def fifo(hidden: Path) -> None:
        hidden.mkdir()
        os.mkfifo(hidden / "moving")

    plants: dict[str, Callable[[Path], object]] = {
        "old is a link": planted("moving", links={"old": str(home)}),
        "names lead out": planted(
            "moving", text="0" * 64 + "\n../outside.txt\n/etc/hostname\n..\n"
        ),
        "old is a folder": planted("moving", "old/config.json"),
        "a link to a folder": lambda hidden: hidden.symlink_to(home),
        "a copy of a marker of this user": lambda hidden: shutil.copytree(
            begun / STAGING_FOLDER, hidden
        ),
        "a link to a marker of this user": planted(
            "x", links={"moving": str(begun / STAGING_FOLDER / "moving")}
        ),
        "only a plan": planted("plan", "model.safetensors"),
        "only the marker of a finished move": planted("moved", "model.safetensors"),
        "no marker": planted("README.md"),
        "a FIFO": fifo,
        "a file": lambda hidden: hidden.write_text("x"),
    }
    for name, plant in plants.items():
        for suffix in ("", ".model.gguf"):
            target = shutil.copytree(source, tmp_path / "download")
            plant(target / (STAGING_FOLDER + suffix))
            before = look(tmp_path)
            forms = [["convert", source, target / "model.gguf", "--names", "gguf"]]
            if not suffix:
                forms = [
                    ["convert", source, target, "--names", "hf"],
                    ["convert", source, target, "--layers", "0"],
                    ["convert", source, target, "--adapter", lora],
                ]
            for form in forms:
                for force in (["--force"], [], ["--force", "--dry-run"]):
                    if "--names" not in form and "--dry-run" in force:
                        continue
                    done = CliRunner().invoke(cli, [str(x) for x in (*form, *force)])
                    assert done.exit_code == 2 and not isinstance(done.exception, OSError), (
                        name,
                        form,
                        force,
                        done.output,
                    )
                    said = " ".join(done.output.split())
                    assert "this user has not begun on this machine" in said or (
                        not force and "already contains" in said
                    ), (
                        name,
                        form,
                        said,
                    )
                    assert look(tmp_path) == before, (name, form, force)
            if os.path.lexists(target / STAGING_FOLDER / "moving"):
                refused = CliRunner().invoke(cli, ["verify", str(target)])
                assert (
                    refused.exit_code == 2
                    and "get the folder again" in refused.output
                    and "restores" not in refused.output
                )
            shutil.rmtree(target)
    convert_checkpoint(str(source), str(begun), SHARDED)  # the original is known, and finished
    assert STAGING_FOLDER not in os.listdir(begun)


def test_hidden_folder_swapped_for_a_link_is_not_followed(tmp_path: Path) -> None:
    source, home, target = tiny_checkpoint(tmp_path / "source"), tmp_path / "home", tmp_path / "out"
    for name in ("old", "model.safetensors", "config.json"):
        (home / name).mkdir(parents=True) if name == "old" else (home / name).write_text("mine")
    before = look(home)

    def swap(done: int, total: int) -> None:
        if not (target / STAGING_FOLDER).is_symlink():
            os.rename(target / STAGING_FOLDER, tmp_path / "aside")
            (target / STAGING_FOLDER).symlink_to(home)

    convert_checkpoint(str(source), str(target), ConvertOptions(to="hf", force=True), swap)
    assert look(home) == before and (target / "model.safetensors").stat().st_size > 1000


def test_hidden_folder_planted_after_the_first_look_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tiny_checkpoint(tmp_path / "source"), tmp_path / "out"
    real = StagingFolder.lock

    def plant(staging: StagingFolder) -> None:
        (target / STAGING_FOLDER / "old").mkdir(parents=True)
        (target / STAGING_FOLDER / "old" / "config.json").write_text("mine")
        real(staging)

    monkeypatch.setattr(StagingFolder, "lock", plant)
    with pytest.raises(ConvertError, match="this user has not begun on this machine"):
        convert_checkpoint(str(source), str(target), SHARDED)
    assert (target / STAGING_FOLDER / "old" / "config.json").read_text() == "mine"


def test_conversion_is_resumed_only_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tiny_checkpoint(tmp_path / "source")
    target = shutil.copytree(source, tmp_path / "out")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    interrupt(source, target)
    key = tmp_path / "state" / "llamath" / "conversion.key"
    assert (
        stat.S_IMODE(key.stat().st_mode) == 0o600
        and stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    )
    before = look(target)

    def refused() -> None:
        conversion_marker._process_key.cache_clear()
        for options in (SHARDED, ConvertOptions(to="hf", force=True)):
            with pytest.raises(ConvertError, match="this user has not begun on this machine"):
                convert_checkpoint(str(source), str(target), options)
        assert look(target) == before

    key.chmod(0o644)
    refused()
    key.chmod(0o600)
    data = key.read_bytes()
    key.write_bytes(data[:-1] + b"?")
    refused()
    key.unlink()
    assert not conversion_marker.is_own_move(str(target)) and not key.exists(), (
        "reading makes no key"
    )
    refused()
    assert not key.exists()
    key.touch(0o600)
    key.write_bytes(data)
    for name in ("another home", ""):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other") if name else "relative")
        monkeypatch.setenv("HOME", str(tmp_path))
        refused()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    convert_checkpoint(str(source), str(target), SHARDED)
    assert STAGING_FOLDER not in os.listdir(target)


def test_conversion_without_a_place_for_its_key_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tiny_checkpoint(tmp_path / "source")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "shared"))

    def stop(done: int, total: int) -> None:
        if done > 50_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        convert_checkpoint(str(source), str(tmp_path / "out"), SHARDED, stop)
    assert not hasattr(stopped.value, "__notes__") and not (tmp_path / "out").exists()
    convert_checkpoint(str(source), str(tmp_path / "out"), SHARDED)
    assert STAGING_FOLDER not in os.listdir(tmp_path / "out") and not os.listdir(
        tmp_path / "shared"
    )


def test_names_in_a_marker_are_plain() -> None:
    assert all(map(is_plain_name, ("config.json", "model-00001-of-00002.safetensors", "..x", "ü")))
    assert not any(map(is_plain_name, ("", ".", "..", "a/b", "/a", "../a", "a\0", "a\nb")))
