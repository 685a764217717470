"""Bad input gives one error sentence, a hint and exit code 2, without a traceback or a number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.cli import cli
from llamath.utils.errors import safe
from support.each_case import each

GOOD: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
}  # fmt: skip

FILES = {
    "not JSON": (b"hello", "not JSON"),
    "empty": (b"", "not JSON"),
    "cut": (json.dumps(GOOD).encode()[:-1], "not JSON"),
    "array": (b"[1, 2]", "an array where an object"),
    "string": (b'"llama"', "a string where an object"),
    "number": (b"7", "where an object"),
    "null": (b"null", "null where an object"),
    "duplicate keys": (
        b'{"model_type": "llama", "hidden_size": 1, "hidden_size": 2}',
        "'hidden_size' occurs twice",
    ),
    "duplicate keys inside": (b'{"a": {"b": 1, "b": 1}}', "'b' occurs twice"),
    "NaN": (
        json.dumps(GOOD | {"rms_norm_eps": float("nan")}).encode(),
        "rms_norm_eps should be a number, not nan",
    ),
    "Infinity": (
        json.dumps(GOOD | {"hidden_size": float("inf")}).encode(),
        "hidden_size should be a positive integer, not inf",
    ),
    "NaN as JSON": (b'{"rms_norm_eps": nan}', "not JSON"),
    "1e999": (b'{"rms_norm_eps": 1e999}', "out of the range of a float"),
    "5,000 digits": (b'{"hidden_size": ' + b"9" * 5000 + b"}", "5,000 digits"),
    "nesting": (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    "arrays nested": (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "latin-1": (b'{"model_type": "ll\xe4ma"}', "not UTF-8"),
    "UTF-16": ('{"model_type": "llama"}'.encode("utf-16"), "UTF-16 text, not JSON"),
    "byte order mark": (b"\xef\xbb\xbf" + json.dumps(GOOD).encode(), "not JSON"),
}

CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"{key} {label}": ({key: value}, key)
        for key in ("hidden_size", "vocab_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
        for label, value in {"zero": 0, "negative": -4, "fractional": 4096.5, "whole float": 4096.0, "boolean": True, "string": "4096", "list": [1], "huge": 2**64}.items()
    },
    **{f"{key} missing": ({key: None}, f"{key} is missing") for key in ("hidden_size", "vocab_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")},
    "heads do not divide": ({"num_attention_heads": 33, "num_key_value_heads": 33}, "does not divide the width 4096"),
    "kv heads do not divide": ({"num_key_value_heads": 5}, "does not divide the 32 attention heads"),
    "more kv heads than heads": ({"num_key_value_heads": 64}, "does not divide"),
    "activation": ({"hidden_act": "sillu"}, "unknown activation 'sillu'"),
    "activation of another kind": ({"hidden_act": 7}, "hidden_act should be a string"),
    "bias as text": ({"attention_bias": "false"}, "attention_bias should be true or false"),
    "tied as number": ({"tie_word_embeddings": 1}, "tie_word_embeddings should be true or false"),
    "eps as text": ({"rms_norm_eps": "1e-5"}, "rms_norm_eps should be a number"),
    "rope scaling of no kind known": ({"rope_scaling": {"type": "spiral", "factor": 2.0}}, "unknown type 'spiral'"),
    "rope scaling without factor": ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor is missing"),
    "rope scaling as list": ({"rope_scaling": [1]}, "rope_scaling should be an object"),
    "no model type": ({"model_type": None}, "model_type is missing"),
    "model type as number": ({"model_type": 7}, "model_type should be a string"),
    "model type unknown": ({"model_type": "lllama"}, "'lllama'"),
    "model type hostile": ({"model_type": "\x1b[2J\u202ellama"}, "\\x1b[2J\\u202ellama"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "message"), FILES.values(), ids=FILES)
def test_non_config_files_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(data)
    with pytest.raises(llamath.ConfigError) as error:
        llamath.load(path)
    assert message in str(error.value)


@each(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_invalid_configs_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(llamath.LlamathError) as error:
        llamath.load({**GOOD, **change})
    assert message in str(error.value)


def run(*args: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "llamath", *args], input=data, capture_output=True, timeout=300
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["count"], "which MODEL?"),
        (["count", "llama-3-8"], "did you mean"),
        (["count", "no/such/folder/config.json"], "does not exist"),
        (["count", "llama-3-8b", "--set", "num_hiden_layers=3"], "did you mean num_hidden_layers"),
        (["count", "llama-3-8b", "--set", "num_hidden_layers"], "KEY=VALUE"),
        (["count", "dim=4096"], "lack n_layers and n_heads"),
        (["count", "dim=4096,n_layers=32,n_heads=32"], "vocab_size"),
        (["count", "dim=4096,n_layer=32"], "did you mean n_layers"),
        (["names", "gpt2", "--names", "meta"], "has no meta names"),
        (
            ["count", "llama-3-8b", "--set", "num_hidden_layers=1000000000", "--json"],
            "too many to list",
        ),
        (
            ["count", "llama-3-8b", "--set", "num_hidden_layers=1000000000", "--all"],
            "too many to list",
        ),
        (["frobnicate"], "unknown command"),
        (["count", "--frobnicate"], "No such option"),
        (["count", "-"], "not JSON"),
        (["count", "/dev/null"], "expected a regular file"),
        (["count", "/dev/zero"], "expected a regular file"),
    ],
)
@pytest.mark.slow
def test_command_line_reports_bad_input(args: list[str], message: str) -> None:
    done = run(*args)
    assert done.returncode == 2 and (
        "error" in json.loads(done.stdout) if "--json" in args else not done.stdout
    )
    assert message in done.stderr.decode() and "Traceback" not in done.stderr.decode()
    assert done.stderr.startswith(b"error: ")


def test_fifo_is_refused_without_blocking(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "config.json")
    assert run("count", str(tmp_path)).returncode == 2


def test_oversized_config_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(llamath.ConfigError, match="1,073,741,824 bytes"):
        llamath.load(path)


def test_a_billion_layers_are_counted_in_few_calls() -> None:
    model = llamath.load({**GOOD, "num_hidden_layers": 10**9})
    assert model.parameters.total == 2 * 32000 * 4096 + 4096 + 10**9 * 202_383_360
    done = run("count", "-", data=json.dumps({**GOOD, "num_hidden_layers": 10**9}).encode())
    assert done.returncode == 0 and b"202,383,360,262,148,096" in done.stdout


def test_names_from_a_file_reach_the_terminal_escaped() -> None:
    done = run("count", "-", data=json.dumps({**GOOD, "\x1b[31mred": 1, "bidi\u202e": 2}).encode())
    assert (
        done.returncode == 0 and b"\x1b" not in done.stdout and "\u202e" not in done.stdout.decode()
    )
    assert b"\\u{1b}[31mred" in done.stdout


@pytest.mark.slow
def test_closed_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -m llamath names llama-3-8b | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=300
    )
    assert not done.stderr


def test_infinity_in_a_config_is_read_as_transformers_reads_it(tmp_path: Path) -> None:
    """NVIDIA's Nemotron configs have `"time_step_limit": [0.0, Infinity]`."""
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            GOOD | {"time_step_limit": [0.0, float("inf")], "initializer_range": float("nan")}
        )
    )
    assert "Infinity" in path.read_text()
    assert llamath.count(path).parameters.total == llamath.count(GOOD).parameters.total
    for command in (
        ["count", str(path), "--json"],
        ["config", str(path), "--json"],
        ["memory", str(path), "--json"],
    ):
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0
        json.loads(done.stdout, parse_constant=pytest.fail)


@pytest.mark.parametrize("character", ["\x1b", "\u0601", "\u05f8", "\u202e", "\ue000", "\ufffd"])
def test_characters_that_are_not_printable_are_escaped(character: str) -> None:
    assert safe(f"a{character}b") == f"a\\u{{{ord(character):x}}}b"
