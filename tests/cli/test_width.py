"""No line of text is wider than the terminal, apart from single words and tab-separated rows."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from llamath.cli import cli
from llamath.cli.command_group import COMMANDS

MODELS = (
    "deepseek-v3",
    "qwen3-next-80b-a3b",
    "gemma-4-26b-a4b",
    "llama-3-8b",
    "gpt2",
)
"""Those with the longest names, formulas and rows first."""
WITH_MODEL = (
    "count {}",
    "count {} --all",
    "count {} --format tree",
    "config {}",
    "diff {} llama-2-7b",
    "diff llama-2-7b {} gpt2",
    "diff {} --set vocab_size=1000",
    "trace {}",
    "trace {} --next --layers 0",
    "names {}",
    "memory {}",
    "memory {} --context 4k --context 128k --on h100",
    "memory {} --training --layout tp=2,pp=2,dp=8,zero=1 --on h100",
    "memory {} --lora r=16",
    "fit {}",
    "fit {} --on rtx-4090",
    "fit {} --on 8xh100 --layout tp=2,pp=4",
    "flops {} --on 8xh100 --mfu 90000tok/s",
    "flops {} --format conventions",
    "plan {} --on 8xh100 --serve",
)
OTHERS = (
    "plan qwen3-next-80b-a3b --on 64xh100",
    "design 8B --budget tokens=15T --like llama-3 --like qwen3",
    "design 70B --set num_hidden_layers=60:100 --bounds max_kv_per_token=80KiB",
    "design 47B --like mixtral-8x7b",
    "explain 2839830528",
    "explain 685B",
    "models",
    "gpus",
    "gpus h100-sxm",
    "ls examples/tiny-llama",
    "ls examples/tiny-llama --format tree",
    "ls examples/tiny-llama --all",
    "verify examples/tiny-llama",
    "verify examples/tiny-llama --set num_key_value_heads=4",
    "names examples/tiny-llama",
    "plan llama-3.1-405b --on 16384xh100 --batch-tokens 16M --tokens 15.6T",
    "plan llama-3.1-405b --on rtx-4090",
    "--help",
    *(f"{name} --help" for name in COMMANDS),
)

SEARCHES = ("explain 2839830528", "plan qwen3-next-80b-a3b --on 64xh100")
"""Commands that take seconds, and of which the wider terminal has another example."""


def too_wide(command: str, width: int) -> list[str]:
    """Return the lines that could be broken and are wider than the terminal."""
    ran = CliRunner(env={"COLUMNS": str(width), "NO_COLOR": "1"}).invoke(
        cli, command.split(), terminal_width=width
    )
    assert ran.exit_code in (0, 1) and ran.stdout, ran.output
    lines = (ran.stdout + ran.stderr).splitlines()
    return [
        line for line in lines if len(line) > width and len(line.split()) > 1 and "\t" not in line
    ]


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("command", WITH_MODEL)
def test_answers_about_models_fit_the_terminal(
    command: str, width: int, request: pytest.FixtureRequest
) -> None:
    """Three models, in the wider terminal one, or all with `--all`."""
    models = MODELS if request.config.getoption("all") else MODELS[: 3 if width == 60 else 1]
    wide = {model: lines for model in models if (lines := too_wide(command.format(model), width))}
    assert not wide


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("command", OTHERS)
def test_other_answers_and_help_fit_the_terminal(
    command: str, width: int, request: pytest.FixtureRequest
) -> None:
    if width == 80 and command in SEARCHES and not request.config.getoption("all"):
        pytest.skip("with --all")
    assert not too_wide(command, width)
