"""The short form of reports, the answer that is repeated below a long one, and colors of groups."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

import llamath
from llamath.cli import cli
from llamath.render.svg.svg_shapes import LIGHT
from llamath.render.table import group_color

LONG = (
    "fit llama-3.1-8b",
    "fit llama-3.1-70b --on rtx-4090",
    "fit gpt-oss-120b --on rtx-4090 --ram 64GiB",
    "fit minimax-m2 --on 8xh100 --engine vllm",
    "count deepseek-v3",
    "memory llama-3.1-8b",
    "memory llama-3-8b --training",
    "quants llama-3.1-8b --on rtx-4090",
    "plan llama-3-8b --on 8xh100",
    "flops qwen3-30b-a3b",
    "gpus",
    "models",
    "models qwen --on rtx-4070",
)


@cache
def run(line: str, **environment: str) -> str:
    env = {"COLUMNS": "80", "NO_COLOR": "1"} | environment
    done = CliRunner(env=env).invoke(cli, line.split())
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["80", "60"])
@pytest.mark.parametrize("line", LONG)
def test_short_form_fits_24_lines_and_ends_with_the_answer(line: str, columns: str) -> None:
    short = run(f"{line} --format short", COLUMNS=columns).rstrip().splitlines()
    answer = " ".join(run(f"{line} --brief").split())
    assert 3 <= len(short) <= 24 and max(map(len, short)) <= int(columns)
    assert " ".join(" ".join(short).split()).endswith(answer)
    assert len(run(line, COLUMNS=columns).splitlines()) > 20


def test_short_form_keeps_what_fits_whole() -> None:
    report = llamath.fit("gpt2", on="h100")
    assert all(x in report.terminal_text() for x in report.short_text().splitlines()[:5])
    assert report.short_text().endswith(report.summary) and "assumed" not in report.short_text()


def on_terminal(lines: int, *words: str) -> str:
    """Return what a command prints on a terminal of this many lines."""
    import fcntl
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 80, 0, 0))
    environment = {x: y for x, y in os.environ.items() if x not in ("COLUMNS", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "llamath", *words],
        stdout=slave,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env=environment | {"TERM": "xterm", "NO_COLOR": "1"},
    )
    os.close(slave)
    data = b""
    try:
        while part := os.read(master, 65536):
            data += part
    except OSError:  # the end of a terminal
        pass
    os.close(master)
    assert process.wait(timeout=600) == 0
    return data.decode().replace("\r\n", "\n")


@pytest.mark.slow
def test_answer_is_repeated_where_the_headline_scrolls_away(tmp_path: Path) -> None:
    summary = run("count llama-3-8b --brief").strip()
    assert on_terminal(24, "count", "llama-3-8b").rstrip().endswith(f"\n\n{summary}")
    assert not on_terminal(60, "count", "llama-3-8b").rstrip().endswith(summary)
    assert not run("count llama-3-8b").rstrip().endswith(summary)


def test_groups_have_colors_of_their_own_on_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    colored = run("count deepseek-v3", FORCE_COLOR="1", NO_COLOR="")
    found = dict(re.findall(r"\x1b\[(3\d|9\d)m(\w+)\x1b", colored))
    names = set(re.findall(r"\x1b\[(?:3\d|9\d)m(\w+)\x1b", colored))
    assert names >= {"embedding", "attention", "mlp", "experts", "router", "norm", "head"}
    assert len(found) == len(names) and names <= set(LIGHT)
    plain = re.sub(r"\x1b\[\d+m", "", colored)
    assert plain == run("count deepseek-v3") and "\x1b" not in run("count deepseek-v3")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert group_color("norm  x", "norm") == "norm  x"
