"""What teaches: the commands of the syllabus write worksheets, and the pictures of formulas are
drawn from them.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import concept_pictures
from llamath.cli import cli

PAGE = Path(__file__).parents[2] / "docs" / "teach.md"


def worksheets() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [x for y in blocks for x in y.splitlines() if x.startswith("llamath learn")]


def test_the_syllabus_has_four_sessions_with_worksheets() -> None:
    sessions = re.split(r"^## \d\. ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert len(sessions) == 4 and all("llamath learn" in x for x in sessions)
    assert len(worksheets()) >= 12


@pytest.mark.parametrize("command", worksheets())
def test_each_worksheet_of_the_syllabus_is_written(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, shlex.split(command)[1:])
    assert done.exit_code == 0, done.stderr
    assert "note:" not in done.stderr, "asks for more questions than there are"
    (sheet,) = tmp_path.iterdir()
    text = sheet.read_text()
    assert ("Solution" in text) == ("--solutions" in command) and "?" in text


@pytest.mark.parametrize("name", concept_pictures.PICTURES)
def test_pictures_of_the_docs_are_what_their_tool_draws(name: str) -> None:
    assert concept_pictures.file_of(name).read_text() == concept_pictures.PICTURES[name]()
