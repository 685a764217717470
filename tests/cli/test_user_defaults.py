"""Defaults of `~/.config/llamath.toml`: used at a terminal alone, shown, and never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import llamath
from llamath.cli import cli
from llamath.cli.output import capture_output
from llamath.cli.user_defaults import read_settings, settings_path
from llamath.utils.errors import LlamathError


def run(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, list(words))


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "llamath.toml"
    path.write_text('on = "rtx-4070"\ncontext = "4k"\ndtype = "q4_k_m"\n')
    return path


def test_defaults_equal_the_options_and_are_shown(settings: Path) -> None:
    for command, options in (
        ("fit", ["--on", "rtx-4070", "--context", "4k", "--dtype", "q4_k_m"]),
        ("memory", ["--on", "rtx-4070", "--context", "4k", "--dtype", "q4_k_m"]),
        ("quants", ["--on", "rtx-4070", "--context", "4k"]),
    ):
        mine = run(command, "llama-3.2-1b")
        settings.rename(settings.with_suffix(".off"))
        typed = run(command, "llama-3.2-1b", *options)
        settings.with_suffix(".off").rename(settings)
        assert mine.exit_code == 0 and mine.stdout == typed.stdout
        shown = " ".join(mine.stderr.split())
        assert "on rtx-4070, context 4k" in shown and settings.name in shown
        assert settings.name not in typed.stderr


def test_typed_options_win_over_defaults(settings: Path) -> None:
    done = run("fit", "llama-3.2-1b", "--on", "h100", "--brief")
    assert "h100-sxm" in done.stdout and "4,096 tokens" in done.stdout
    assert "on rtx-4070" not in done.stderr and "context 4k" in done.stderr
    everything = run("fit", "llama-3.2-1b", "--on", "all")
    assert "GPUs that can run it" in everything.stdout


def test_defaults_reach_neither_json_nor_python_nor_programs(settings: Path) -> None:
    ranked = run("fit", "llama-3.2-1b", "--json")
    assert "cards" in json.loads(ranked.stdout) and settings.name not in ranked.stderr
    assert llamath.memory("llama-3.2-1b").context == 8192
    with capture_output(10**6) as captured:
        CliRunner().invoke(cli, ["memory", "llama-3.2-1b", "--brief"])
    assert "8,192" in captured.text and settings.name not in captured.notes


@pytest.mark.slow
def test_other_commands_and_other_questions_ignore_defaults(settings: Path) -> None:
    for words in (("count", "gpt2"), ("models", "olmo"), ("flops", "gpt2"), ("trace", "gpt2")):
        assert settings.name not in run(*words).stderr
    draft = run("fit", "llama-3.1-70b", "--draft", "llama-3.2-1b")
    assert draft.exit_code == 0, draft.stderr


def test_models_take_context_and_dtype_with_gpus(settings: Path) -> None:
    done = run("models", "llama-3.2", "--on", "rtx-4070")
    assert "context 4k, dtype q4_k_m" in done.stderr and "Q4_K_M" in done.stdout


def test_file_of_the_current_folder_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llamath.toml").write_text("broken")
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config" / "llamath.toml").write_text("broken")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "")
    for place in ("", ".", ".config"):
        monkeypatch.setenv("XDG_CONFIG_HOME", place)
        assert not settings_path().startswith(str(tmp_path))
        assert run("fit", "gpt2", "--brief").exit_code == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'on = "rtx-4070"\ngpu = "x"\n', "line 2: unknown setting 'gpu'"),
        (b'# mine\n\non = 4070\n', "line 3: on should be text like 'rtx-4090', found 4070"),
        (b'context = true', "line 1: context should be text like '8k', found True"),
        (b'dtype = ""', "line 1: dtype should be text like 'q4_k_m', found ''"),
        (b'on = "a"\non = "b"\n', "line 2: expected TOML"),
        (b'on = "a"\n[fit]\ndtype = "x"\n', "line 2: unknown setting 'fit'"),
        (b'on = "\n', "line 1: expected TOML"),
        (b'\xff\xfe', "expected UTF-8 text"),
        (b"#" * 70_000, "more than 65,536 bytes"),
        (b"on = " + b"[" * 20_000, "line 1"),
    ],
)  # fmt: skip
def test_broken_file_is_named_with_its_line(settings: Path, text: bytes, expected: str) -> None:
    settings.write_bytes(text)
    done = run("fit", "gpt2")
    assert done.exit_code == 2 or isinstance(done.exception, LlamathError)
    with pytest.raises(LlamathError) as error:
        read_settings(str(settings))
    assert expected in str(error.value) and str(settings) in str(error.value)
    assert "on = 'rtx-4090'" in error.value.hint
    assert run("fit", "gpt2", "--json").exit_code == 0


def test_wrong_value_of_the_file_is_an_error(settings: Path) -> None:
    settings.write_text('on = "rtx-3060"\n')
    done = subprocess.run(
        [sys.executable, "-m", "llamath", "fit", "gpt2"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 2 and "rtx-3060-12gb" in done.stderr and settings.name in done.stderr


@pytest.mark.parametrize("kind", ["folder", "missing", "empty", "no home"])
def test_empty_or_missing_file_changes_nothing(
    settings: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    settings.unlink()
    if kind == "empty":
        settings.write_text("")
    if kind == "no home":
        monkeypatch.delenv("XDG_CONFIG_HOME")
        monkeypatch.delenv("HOME")
        monkeypatch.setattr("pwd.getpwuid", lambda _: os.environ["NO HOME"])
    if kind == "folder":
        settings.mkdir()
        with pytest.raises(LlamathError, match="cannot be read"):
            read_settings(str(settings))
        return
    assert run("fit", "gpt2", "--brief").exit_code == 0
    assert os.path.isabs(settings_path() or "/")
