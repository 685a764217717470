"""The skill file for agents: it is shipped, its front matter is valid, and its examples print what it says."""

from __future__ import annotations

import re
import shlex

import pytest

import docs
from llamath.cli.command_group import COMMANDS
from support.typed_commands import Typed

TEXT = docs.SKILL.read_text()
EXAMPLES = [
    (command.removeprefix("$ "), output)
    for block in docs.CONSOLE.findall(TEXT)
    for command, output in (
        docs.COMMAND.match(x).groups()
        for x in re.split(r"^(?=\$ )", block, flags=re.MULTILINE)
        if x
    )  # type: ignore[union-attr]
]


@pytest.mark.parametrize(("command", "output"), EXAMPLES, ids=[x for x, _ in EXAMPLES])
@pytest.mark.slow
def test_examples_print_what_the_skill_says(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, command: str, output: str
) -> None:
    monkeypatch.chdir(docs.ROOT)
    found = typed(*shlex.split(command)[1:])
    assert found.out + found.err == output


def test_front_matter_has_a_name_and_a_description() -> None:
    match = re.match(
        r"---\nname: ([a-z0-9-]{1,64})\ndescription: (.{1,1024})\n---\n\n# llamath\n", TEXT
    )
    assert match is not None and match[1] == "llamath" and not re.search(r": |#|<|>", match[2])


def test_every_command_that_it_names_exists() -> None:
    named = set(re.findall(r"`([a-z]+)`", TEXT.partition("## When")[2].partition("Do not use")[0]))
    assert len(EXAMPLES) >= 12 and {"count", "fit", "verify", "design"} <= named <= set(COMMANDS)


def test_help_skill_prints_the_shipped_file(typed: Typed) -> None:
    assert typed("help", "skill").out == TEXT
