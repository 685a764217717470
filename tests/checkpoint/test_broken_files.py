"""Broken, unfinished and partial checkpoints are named for what they are in every command, and nothing is written."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from safetensors.torch import load_file

import llamath
from llamath.analysis.check.verify.check_checkpoint import verify_checkpoint
from llamath.checkpoint.formats.checkpoint_files import read_checkpoint
from llamath.cli import cli
from llamath.cli.command_group import find_command
from llamath.cli.wording import CommandLine
from llamath.utils.errors import FormatError, worded
from llamath.utils.file_diagnosis import (
    LOCK,
    UNFINISHED,
    diagnose,
    download_command,
    truncated_hint,
)
from support.broken_files import (
    CONFIG,
    CONTENTS,
    HTML,
    INDEX,
    LFS,
    SHARDS,
    WEIGHTS,
    aria2,
    contents_of,
    lone_shard,
    missing_shard,
    other_depth,
    replaced,
    sharded,
    trainer_folder,
    training_checkpoint,
    truncated,
    truncated_torch,
    unfinished,
    whole,
    with_prefix,
    without_index,
)
from support.release import usual

TOTAL = 54_096
READ_WEIGHTS = {
    "ls": "ls {}",
    "ls brief": "ls {} --brief",
    "ls json": "ls {} --json",
    "verify": "verify {}",
    "verify json": "verify {} --json",
    "verify full": "verify {} --full",
    "hash": "same {}",
    "same": "same {} {}",
    "edit": "convert {} OUT --layers 1:",
    "memory": "memory {}",
    "memory json": "memory {} --json",
    "fit": "fit {} --on h100",
    "fit ranking": "fit {} --brief",
    "convert": "convert {} OUT --names hf",
    "run": "run {} hello --max-tokens 1",
    "logits": "same {} {} --logits",
    "trace": "trace {} hello",
}
"""Commands that read the headers of weights."""
READ_CONFIG = {
    "count": "count {}",
    "count brief": "count {} --brief",
    "names": "names {}",
    "config": "config {}",
    "diff": "diff llama-3-8b {}",
    "flops": "flops {}",
    "plan": "plan {} --on 8xh100",
    "explain": "explain 8030261248 --like {}",
    "export": "export {} -o OUT.html",
    "memory of a dtype": "memory {} --dtype q4_k_m",
}
"""Commands that need a model's configuration alone."""
ALL = READ_WEIGHTS | READ_CONFIG


def run(command: str, path: Path, folder: Path) -> Result:
    """Run a command in a folder of its own."""
    words = [
        x.replace("{}", str(path)).replace("OUT", str(folder / "out")) for x in command.split()
    ]
    return CliRunner().invoke(cli, words)


def text_of(result: Result) -> str:
    """Return both outputs without line breaks."""
    return " ".join((result.stdout + result.stderr).split())


def refused(command: str, path: Path, message: str, tmp_path: Path) -> Result:
    """Check that a command refuses a path with this message, exit code 2 and a hint, and writes nothing."""
    before = contents_of(tmp_path)
    result = run(command, path, tmp_path)
    assert result.exit_code == 2, result.output
    assert message in text_of(result) and "hint: " in result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if command.endswith("--json"):
        assert json.loads(result.stdout)["error"]["hint"]
    else:
        assert not result.stdout
    assert contents_of(tmp_path) == before
    return result


# one file that was named


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("command", ALL)
def test_named_file_is_named_for_what_it_is(command: str, content: str, tmp_path: Path) -> None:
    data, code, message = CONTENTS[content]
    (tmp_path / WEIGHTS).write_bytes(data)
    result = refused(ALL[command], tmp_path / WEIGHTS, message, tmp_path)
    if command.endswith("json"):
        assert json.loads(result.stdout)["error"]["code"] == code
    if code.endswith(("pointer", "page", "document", "message", "file")) and code != "text_file":
        assert f"hf download OWNER/NAME {WEIGHTS} --local-dir" in result.stderr


@pytest.mark.parametrize("ending", [*UNFINISHED, LOCK])
@pytest.mark.parametrize(
    "command", ["count {}", "ls {}", "memory {}", "names {}", "run {} hello", "verify {}"]
)
def test_remains_of_downloads_are_named(command: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.safetensors{ending}"
    path.write_bytes(b"" if ending == LOCK else bytes(range(200)))
    refused(command, path, UNFINISHED.get(ending, "a lock file of a download"), tmp_path)


@pytest.mark.parametrize(
    "content", [x for x in CONTENTS if x not in ("text", "gzip", "annex pointer", "xet pointer")]
)
@pytest.mark.parametrize("command", [x for x in ALL if not x.startswith("ls")])
def test_broken_config_is_named_for_what_it_is(command: str, content: str, tmp_path: Path) -> None:
    data, _, message = CONTENTS[content]
    path = whole_copy(tmp_path)
    (path / CONFIG).write_bytes(data)
    if content in ("json error",):
        assert run(ALL[command], path, tmp_path).exit_code == 2
    else:
        refused(ALL[command], path, message, tmp_path)


@pytest.mark.parametrize("content", ["lfs pointer", "html", "empty"])
def test_broken_index_is_named_for_what_it_is(content: str, tmp_path: Path) -> None:
    data, _, message = CONTENTS[content]
    replaced(data, INDEX)(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    for command in ("ls {}", "verify {}", "memory {}"):
        refused(command, tmp_path, message, tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
def test_tokenizer_that_is_a_pointer_is_a_warning(name: str, tmp_path: Path) -> None:
    (whole(tmp_path) / name).write_bytes(LFS)
    report = verify_checkpoint(str(tmp_path))
    assert not report.ok and [(x.code, x.severity) for x in report.findings] == [
        ("lfs_pointer", "warning")
    ]
    assert name in report.findings[0].message and name in report.findings[0].hint
    refused("run {} hello", tmp_path, "is a Git LFS pointer", tmp_path)


# folders


@pytest.fixture(scope="module")
def whole_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole(tmp_path_factory.mktemp("whole"))


@pytest.fixture(autouse=True)
def _remember(whole_folder: Path) -> None:
    WHOLE[:] = [whole_folder]


WHOLE: list[Path] = []


def whole_copy(tmp_path: Path) -> Path:
    """Return a copy of a whole checkpoint."""
    import shutil

    return Path(shutil.copytree(WHOLE[0], tmp_path / "model"))


FOLDERS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "lfs pointer": (replaced(LFS), "is a Git LFS pointer"),
    "html": (replaced(HTML), "is an HTML page, not"),
    "empty": (replaced(b""), "is empty"),
    "truncated": (truncated, "is 100 bytes short"),
    "truncated torch": (truncated_torch, "the file is truncated"),
    "aria2": (aria2, "is not finished: model.safetensors.aria2 next to it"),
    "unfinished": (unfinished, "contains no checkpoint, but 1 unfinished download"),
    "lfs shard": (replaced(LFS, SHARDS[1]), f"{SHARDS[1]} is a Git LFS pointer"),
    "html shard": (replaced(HTML, SHARDS[2]), f"{SHARDS[2]} is an HTML page"),
}
VERIFIED_IN_PART = {"truncated", "aria2", "lfs shard", "html shard"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: make(tmp_path_factory.mktemp("broken")) for name, (make, _) in FOLDERS.items()}


@pytest.mark.parametrize("case", FOLDERS)
@pytest.mark.parametrize("command", READ_WEIGHTS)
def test_broken_weights_of_a_folder_are_named(
    command: str, case: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    message, before = FOLDERS[case][1], contents_of(folders[case])
    result = run(READ_WEIGHTS[command], folders[case], tmp_path)
    verified = command.startswith("verify") and case in VERIFIED_IN_PART
    assert result.exit_code == (1 if verified else 2) and message in text_of(result), result.output
    assert ("hf download OWNER/NAME" in text_of(result)) and not list(tmp_path.iterdir())
    assert contents_of(folders[case]) == before


@pytest.mark.parametrize("case", FOLDERS)
def test_count_of_a_folder_notes_broken_weights(case: str, folders: dict[str, Path]) -> None:
    text = run("count {} --json", folders[case], Path()).stdout
    document = json.loads(text)
    assert document["parameters"]["total"] == TOTAL and any(
        FOLDERS[case][1] in x for x in document["notes"]
    )
    brief = run("count {} --brief", folders[case], Path())
    assert brief.exit_code == 0 and f"{TOTAL:,} parameters" in brief.stdout
    assert FOLDERS[case][1] in " ".join(brief.stderr.split())


READ_ONLY_CONFIG = ("names", "config", "diff", "flops", "plan", "explain", "export")


CONFIG_COMMANDS = (*READ_ONLY_CONFIG, "design", "trace")


@pytest.mark.parametrize(
    ("command", "case"),
    usual(
        *((command, next(iter(FOLDERS))) for command in CONFIG_COMMANDS),
        *((CONFIG_COMMANDS[0], case) for case in list(FOLDERS)[1:]),
        release=itertools.product(CONFIG_COMMANDS, FOLDERS),
    ),
)
def test_commands_that_read_the_config_name_broken_weights(
    command: str, case: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    line = {"design": "design 30M --like {}", "trace": "trace {}"}.get(command) or READ_CONFIG[
        command
    ]
    result = run(line, folders[case], tmp_path)
    noted = " ".join(result.stderr.split())
    assert result.exit_code in (0, 1), result.output
    assert (
        FOLDERS[case][1] in noted
        and "hf download OWNER/NAME" in noted
        and FOLDERS[case][1] not in result.stdout
    )


@pytest.mark.parametrize("command", READ_ONLY_CONFIG)
def test_commands_that_read_the_config_name_missing_shards(command: str, tmp_path: Path) -> None:
    folder = missing_shard(tmp_path / "folder")
    assert f"1 file named in the index is missing ({SHARDS[1]})" in text_of(
        run(READ_CONFIG[command], folder, tmp_path)
    )


def test_many_broken_files_are_counted(tmp_path: Path) -> None:
    folder = sharded(tmp_path)
    for i in range(9):
        (folder / f"extra-{i}.safetensors").write_bytes(HTML)
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"] |= {f"extra.{i}": f"extra-{i}.safetensors" for i in range(9)}
    (folder / INDEX).write_text(json.dumps(index))
    noted = run("names {}", folder, tmp_path).stderr
    assert noted.count("is an HTML page") == 3 and "6 more files are broken" in " ".join(
        noted.split()
    )


@pytest.mark.parametrize("command", READ_ONLY_CONFIG)
def test_whole_folders_are_not_warned_about(
    command: str, whole_folder: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / CONFIG).write_bytes((whole_folder / CONFIG).read_bytes())
    for path in (whole_folder, alone):
        assert "warning" not in run(READ_CONFIG[command], path, tmp_path / path.name).stderr


PARTIAL: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing shard": (missing_shard, f"1 file named in the index is missing ({SHARDS[1]})"),
    "one shard of three": (lone_shard, f"2 files of the set are missing ({SHARDS[1]}, …)"),
    "no index": (without_index, f"{INDEX}, by which loaders find the shards, is missing"),
    "other depth": (
        other_depth,
        "the file has layers 0–1; the config has L = 8 → num_hidden_layers should be 2",
    ),
    "wrapped": (
        with_prefix("module._orig_mod."),
        "begin with `module._orig_mod.`, from DistributedDataParallel and torch.compile",
    ),
    "training checkpoint": (training_checkpoint, "are state of the optimizer or the training run"),
}


@pytest.fixture(scope="module")
def partial(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: make(tmp_path_factory.mktemp("partial")) for name, (make, _) in PARTIAL.items()}


@pytest.mark.parametrize("case", PARTIAL)
@pytest.mark.parametrize("form", ["", " --brief", " --json"])
@pytest.mark.parametrize(
    "command",
    [
        "count {}",
        "memory {}",
        "fit {} --on h100",
        "fit {}",
        "memory {} --dtype q8_0",
        "memory {} --training",
    ],
)
def test_files_that_differ_from_the_config_are_noted(
    command: str, form: str, case: str, partial: dict[str, Path]
) -> None:
    result = run(command + form, partial[case], Path())
    assert result.exit_code == 0, result.output
    if form == " --json":
        assert any(PARTIAL[case][1] in x for x in json.loads(result.stdout)["notes"])
    else:
        assert PARTIAL[case][1] in text_of(result)


@pytest.mark.parametrize("case", PARTIAL)
def test_verify_refuses_what_other_commands_note(case: str, partial: dict[str, Path]) -> None:
    report = verify_checkpoint(str(partial[case]))
    assert not report.ok
    assert {"missing", "unexpected", "other_part"}.isdisjoint(x.code for x in report.findings), (
        "one cause, one finding"
    )


def test_missing_last_shards_do_not_change_the_depth(tmp_path: Path) -> None:
    (sharded(tmp_path) / SHARDS[2]).unlink()
    assert [x.code for x in verify_checkpoint(str(tmp_path)).findings] == ["missing_shard"]


def test_a_whole_folder_has_no_notes(whole_folder: Path, tmp_path: Path) -> None:
    for path in (whole_folder, sharded(tmp_path)):
        assert json.loads(run("count {} --json", path, tmp_path).stdout)["notes"] == []
        for command in ("memory {} --brief", "fit {} --brief", "count {} --brief"):
            assert not run(command, path, tmp_path).stderr


# the file that was named is the one that is counted


def test_count_counts_the_named_file(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "sharded")
    sizes = [sum(x.numel() for x in load_file(folder / name).values()) for name in SHARDS]
    for i, (name, size) in enumerate(zip(SHARDS, sizes, strict=True)):
        document = json.loads(run("count {} --json", folder / name, tmp_path).stdout)
        assert document["parameters"]["total"] == size and document["model"] == name
        assert any(f"shard {i + 1} of 3" in x for x in document["notes"])
        assert f"{size:,} parameters" in run("count {}", folder / name, tmp_path).stdout
    assert sum(sizes) == TOTAL
    trainer = trainer_folder(tmp_path / "trainer")
    for name, total in ((WEIGHTS, TOTAL), ("optimizer.pt", 0)):
        assert (
            json.loads(run("count {} --json", trainer / name, tmp_path).stdout)["parameters"][
                "total"
            ]
            == total
        )
    result = run("count {}", trainer / "optimizer.pt", tmp_path)
    assert (
        "state of the optimizer or the training run, not counted: 3 tensors with 41 elements"
        in text_of(result)
    )
    assert run("count {}", trainer / "training_args.bin", tmp_path).exit_code == 2
    assert run("count {}", trainer, tmp_path).exit_code == 0


def test_count_counts_the_named_file_of_a_repository(pair: Any, tmp_path: Path) -> None:
    from support.hub_server import Hub

    folder = sharded(tmp_path)
    Hub(*pair, {x.name: x.read_bytes() for x in folder.iterdir() if x.is_file()})
    for name in SHARDS:
        document = json.loads(run("count {} --json", Path(f"org/name/{name}"), tmp_path).stdout)
        assert document["parameters"]["total"] == sum(
            x.numel() for x in load_file(folder / name).values()
        )
    assert (
        json.loads(run("count {} --json", Path("org/name"), tmp_path).stdout)["parameters"]["total"]
        == TOTAL
    )


def test_missing_part_of_a_split_gguf_has_a_hint(tmp_path: Path) -> None:
    from support.hostile_gguf import U16, Gguf

    part = (
        Gguf()
        .text("general.architecture", "llama")
        .number("split.no", U16, 0)
        .number("split.count", U16, 2)
    )
    (tmp_path / "x-00001-of-00002.gguf").write_bytes(
        part.number("split.tensors.count", 5, 2).tensor("t0", 8).bytes()
    )
    for path in (tmp_path, tmp_path / "x-00001-of-00002.gguf"):
        refused("ls {}", path, "x-00002-of-00002.gguf cannot be read", tmp_path)


def test_count_of_a_whole_file_keeps_the_formula(whole_folder: Path, tmp_path: Path) -> None:
    document = json.loads(run("count {} --json", whole_folder / WEIGHTS, tmp_path).stdout)
    assert document["family"] == "llama" and document["formula"] and not document["notes"]
    assert llamath.count(whole_folder / WEIGHTS).total == TOTAL


def test_counting_a_shard_from_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(llamath.UnknownModel, match="does not hold the model") as error:
        llamath.count(shard := sharded(tmp_path) / SHARDS[0])
    assert f"ls({str(shard)!r})" in error.value.hint


def test_a_named_shard_is_one_finding(tmp_path: Path) -> None:
    report = verify_checkpoint(str(sharded(tmp_path) / SHARDS[1]))
    assert [(x.code, x.severity) for x in report.findings] == [("single_shard", "error")]
    assert f"llamath.verify({str(tmp_path)!r})" in report.findings[0].hint


# training state and wrappers


PREFIXES = {
    "module.": "module.",
    "_orig_mod.": "_orig_mod.",
    "module._orig_mod.": "module._orig_mod.",
    "_orig_mod.module.": "_orig_mod.module.",
    "module.module.": "module.module.",
    "_fsdp_wrapped_module.": "_fsdp_wrapped_module.",
    "_forward_module.module.": "_forward_module.module.",
    "model.": "model.",
    "state_dict.": "state_dict.",
    "state_dict.model.module.": "state_dict.model.module.",
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_wrapper_prefixes_are_one_finding(prefix: str, tmp_path: Path) -> None:
    folder = with_prefix(prefix)(tmp_path / "wrapped")
    with worded(CommandLine(find_command)):
        report = verify_checkpoint(str(folder))
    assert [(x.code, x.severity) for x in report.findings] == [
        ("prefix", "warning")
    ] and report.verdict.matched == 21
    assert (
        f"begin with `{prefix}`" in report.findings[0].message
        and "llamath convert" in report.findings[0].hint
    )
    command = re.findall("`(.*?)`", report.findings[0].hint)[0]
    before = contents_of(folder)
    words = shlex.split(command.replace("TARGET", str(tmp_path / "new")))
    assert CliRunner().invoke(cli, words[1:]).exit_code == 0 and contents_of(folder) == before
    assert verify_checkpoint(str(tmp_path / "new")).ok
    original, copy = load_file(folder / WEIGHTS), load_file(tmp_path / "new" / WEIGHTS)
    assert all(original[f"{prefix}{name}"].equal(x) for name, x in copy.items()) and len(
        original
    ) == len(copy)


def test_wrappers_inside_names_are_recognized(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    def wrap(name: str) -> str:
        name = re.sub(
            r"layers\.(\d+)\.", r"layers.\1._fsdp_wrapped_module._checkpoint_wrapped_module.", name
        )
        return f"_fsdp_wrapped_module.{name}"

    tensors = {wrap(name): x for name, x in load_file(whole(tmp_path) / WEIGHTS).items()}
    save_file(tensors, tmp_path / WEIGHTS, {"format": "pt"})
    report = verify_checkpoint(str(tmp_path))
    assert [x.code for x in report.findings] == ["prefix"] and report.verdict.matched == 21
    assert "contain `_checkpoint_wrapped_module`" in report.findings[0].message
    assert "FullyShardedDataParallel and activation checkpointing" in report.findings[0].message


def test_names_of_torch_wrappers_are_those_of_torch() -> None:
    import torch

    from llamath.checkpoint.naming.training_names import find_wrappers, without_wrappers

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = torch.nn.Linear(2, 2)

    compiled = torch.compile(Model(), backend="eager")
    names = [
        f"module.{x}" for x in compiled.state_dict()
    ]  # DistributedDataParallel needs a process group
    assert find_wrappers(names) == ("module", "_orig_mod")
    assert [without_wrappers(x) for x in names] == list(Model().state_dict())


def test_tied_checkpoint_keeps_its_prefix(tmp_path: Path) -> None:
    from support.small_llama import save_llama

    save_llama(tmp_path, tie_word_embeddings=True)
    assert all(x.startswith("model.") for x in load_file(tmp_path / WEIGHTS))
    assert verify_checkpoint(str(tmp_path)).findings == ()


def test_optimizer_state_is_reported_separately(tmp_path: Path) -> None:
    path = training_checkpoint(tmp_path) / "checkpoint.pt"
    document = json.loads(run("ls {} --json", path, tmp_path).stdout)
    assert document["parameters"] == TOTAL
    assert document["training_state"] == {
        "tensors": 63,
        "elements": 2 * TOTAL + 21,
        "parameters": 0,
        "bytes": 4 * (2 * TOTAL + 21),
    }
    assert "training state 63 tensors" in text_of(run("ls {}", path, tmp_path))
    assert json.loads(run("count {} --json", path, tmp_path).stdout)["parameters"]["total"] == TOTAL
    assert json.loads(run("memory {} --json", path, tmp_path).stdout)["weights"] == 2 * TOTAL
    (tmp_path / CONFIG).unlink()
    result = run("count {} --json", path, tmp_path)
    assert json.loads(result.stdout)["parameters"]["total"] == TOTAL, "without a family, too"


# hints


def git(folder: Path, remote: str = "") -> Path:
    """Make a folder a clone."""
    (folder / ".git").mkdir()
    url = f'[remote "origin"]\n\turl = {remote}\n\tfetch = +refs/heads/*\n' if remote else ""
    (folder / ".git" / "config").write_text(f"[core]\n\tbare = false\n{url}")
    return folder


def test_pointer_in_a_clone_is_pulled(tmp_path: Path) -> None:
    (git(tmp_path) / "sub").mkdir()
    (tmp_path / "sub" / WEIGHTS).write_bytes(LFS)
    found = diagnose(LFS, str(tmp_path / "sub" / WEIGHTS), len(LFS))
    assert found is not None and f"`git -C {tmp_path}/sub lfs pull`" in found.hint


@pytest.mark.parametrize(
    "remote",
    [
        "https://huggingface.co/org/name",
        "https://user:token@huggingface.co/org/name.git",
        "git@hf.co:org/name",
        "https://huggingface.co/org/name/",
    ],
)
def test_clone_of_a_hub_repository_has_its_name(remote: str, tmp_path: Path) -> None:
    (git(tmp_path, remote) / "original").mkdir()
    (tmp_path / "original" / "consolidated.00.pth").write_bytes(b"x")
    command = download_command(str(tmp_path / "original" / "consolidated.00.pth"))
    assert command == f"hf download org/name original/consolidated.00.pth --local-dir {tmp_path}"
    assert "token" not in command


@pytest.mark.parametrize(
    "remote",
    [
        "https://github.com/org/name",
        "https://evil.example/huggingface.co/name",
        "https://hf.co/a/$(id)",
    ],
)
def test_other_clones_name_no_repository(remote: str, tmp_path: Path) -> None:
    git(tmp_path, remote)
    (tmp_path / WEIGHTS).write_bytes(b"x")
    assert (
        download_command(str(tmp_path / WEIGHTS))
        == f"hf download OWNER/NAME {WEIGHTS} --local-dir {tmp_path}"
    )


def test_file_in_the_hub_cache_is_downloaded_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = tmp_path / "models--org--my-name" / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / WEIGHTS).write_bytes(LFS)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    command = f"hf download org/my-name {WEIGHTS} --revision {commit}"
    assert download_command(str(folder / WEIGHTS)) == f"{command} --force-download"
    assert download_command(str(folder), ["other.safetensors"]) == command.replace(
        WEIGHTS, "other.safetensors"
    )
    monkeypatch.delenv("HF_HUB_CACHE")
    assert download_command(str(folder / WEIGHTS)).endswith(f"--cache-dir {tmp_path}")


@pytest.mark.parametrize(
    "name", ["a b", "-x", "$(touch pwned)", "`id`", "'; rm -rf ~; '", "x\ny", "x\x1b[2Jy", "ünï"]
)
def test_hints_are_one_harmless_shell_command(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for file in (WEIGHTS, f"{name}.safetensors"):
        (folder / file).write_bytes(LFS)
        found = diagnose(LFS, str(folder / file), len(LFS))
        assert found is not None and (found.hint + found.message).isprintable()
        words = shlex.split(found.hint.partition("`")[2].rpartition("`")[0])
        assert (
            words[:3] == ["hf", "download", "OWNER/NAME"]
            and words[-2] == "--local-dir"
            and len(words) == 6
        )
        assert not words[3].startswith("-")


def test_no_hint_can_destroy_anything(tmp_path: Path) -> None:
    hints = [truncated_hint(str(tmp_path))]
    for name in (*CONTENTS, *UNFINISHED):
        path = tmp_path / f"x{name if name in UNFINISHED else ''}"
        path.write_bytes(b"")
        data = CONTENTS.get(name, (b"\xff", "", ""))[0]
        found = diagnose(data, str(path), len(data))
        assert found is not None
        hints.append(found.hint)
    for hint in hints:
        assert not re.search(
            r"\brm\b|--force|reset|checkout|clean|unlink|delete|remove|regenerate", hint
        ), hint


def test_suggested_command_repairs_only_the_broken_file(
    tmp_path: Path, pair: Any, whole_folder: Path
) -> None:
    from support.hub_server import COMMIT, Hub

    pytest.importorskip("huggingface_hub")
    files = {x.name: x.read_bytes() for x in whole_folder.iterdir() if x.is_file()}
    hub = Hub(*pair, files, repo="org/name")
    folder = whole_copy(tmp_path)
    (folder / WEIGHTS).write_bytes(LFS)
    (folder / "notes.txt").write_text("my own")
    (folder / CONFIG).write_text((folder / CONFIG).read_text() + "\n")
    before = contents_of(folder)
    found = diagnose(LFS, str(folder / WEIGHTS), len(LFS))
    assert found is not None
    command = (
        found.hint.partition("`")[2].rpartition("`")[0].replace("OWNER/NAME", "org/name")
        + f" --revision {COMMIT}"
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {
        **os.environ,
        "PATH": path,
        "HF_ENDPOINT": pair[0].url,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_XET": "1",
    }
    done = subprocess.run(
        shlex.split(command), capture_output=True, text=True, env=environment, timeout=300
    )
    assert not done.returncode, done.stderr[-300:]
    assert hub and {
        x: y for x, y in contents_of(folder).items() if not x.startswith(".cache")
    } == before | {WEIGHTS: files[WEIGHTS]}


# safetensors headers that begin as pickles do


@pytest.mark.parametrize("length", [640, 640 + 65_536, 640 + 3 * 65_536, 896, 1152, 1408])
@pytest.mark.parametrize("name", ["model.safetensors", "model.bin", "model"])
def test_header_that_begins_as_a_pickle_is_read(length: int, name: str, tmp_path: Path) -> None:
    text = (
        json.dumps({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})
        .ljust(length)
        .encode()
    )
    (tmp_path / name).write_bytes(len(text).to_bytes(8, "little") + text + b"x")
    assert (tmp_path / name).read_bytes()[:1] == b"\x80" and read_checkpoint(
        str(tmp_path / name)
    ).format == "safetensors"


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_pickles_are_no_safetensors_files(protocol: int, tmp_path: Path) -> None:
    import pickle

    path = tmp_path / "model.bin"
    path.write_bytes(pickle.dumps({"{": list(range(99))}, protocol=protocol))
    with pytest.raises(FormatError) as error:
        read_checkpoint(str(path))
    assert error.value.code != "header_length" and "pickle" in str(error.value)
