"""Print the concepts of the whole house that have a budget, each with its figure, and what is only
reported: `python tools/budgets.py`. `tests/core/test_architecture.py` holds the budgets.

Of the command line: its commands, the options that their help shows, and the distinct names that a
user may type, keys inside `key=value` options included. An option that many commands share is shown
once, by `llamath help options`. `--kv-dtype` and the key `kv_dtype` are one name. What describes a
model or a GPU (keys of a config after --set, `dim=4096`, `mem=24GiB`) is a value and no name.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click

import llamath
from llamath.cli import cli
from llamath.cli.command_group import COMMANDS, SHARED_OPTIONS, SharedOption
from llamath.cli.question_options import FieldOption
from llamath.core.machine import Machine

HELP = ("-h", "--help")
ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "llamath"


CODE = re.compile(r"^```console\n\$ llamath code .*?^```$", re.MULTILINE | re.DOTALL)


class Budget(NamedTuple):
    """A figure, its limit, and what it is made of where that helps."""

    what: str
    figure: int
    limit: int
    parts: str = ""


def own_options() -> Iterator[tuple[str, click.Option]]:
    """Yield the options of each command."""
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        yield from ((name, x) for x in command.params if isinstance(x, click.Option))


def shown_options() -> list[str]:
    """Return the options in all help texts, each with its command; shared ones once."""
    own = [
        f"{name} {x.opts[-1]}"
        for name, x in own_options()
        if not (isinstance(x, SharedOption) or x.hidden)
    ]
    return [*own, *SHARED_OPTIONS, HELP[0]]


def distinct_names() -> set[str]:
    """Return the names of options and of keys."""
    found = {HELP[1]}
    for _, x in own_options():
        found |= {y for y in (*x.opts, *x.secondary_opts) if y.startswith("--")}
        if isinstance(x, FieldOption):
            found |= set(x.keys)
    return {x.removeprefix("--").replace("-", "_") for x in found}


def operations() -> list[str]:
    """Return the operations of the machine."""
    return [x for x, y in vars(Machine).items() if inspect.isfunction(y) and not x.startswith("_")]


def blocks_of_one_family() -> dict[str, str]:
    """Return the blocks in `core` that only one family uses, each with its file: by name, or by
    what in `core` is made of them. A file without a family is shared by those that import it.
    """
    core = dict(_definitions(SOURCE / "core"))
    texts = _family_texts()
    words = {name: set(re.findall(r"\w+", text)) for name, text in texts.items()}
    found: dict[str, str] = {}
    for block, code in core.items():
        if "    def forward(" in code or "    forward = " in code:
            users = _families({x for y in _made_of(block, core) for x in words if y in words[x]})
            if len(users) <= 1:
                found[block] = "".join(users)
    return found


def _definitions(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the classes and functions of a folder with their code."""
    for path in folder.rglob("*.py"):
        text = path.read_text()
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                yield node.name, ast.get_source_segment(text, node) or ""


def _made_of(block: str, core: Mapping[str, str]) -> set[str]:
    """Return a block and what in `core` names it, directly or not."""
    found, new = {block}, {block}
    while new:
        pattern = re.compile(rf"\b(?:{'|'.join(new)})\b")
        new = {x for x, code in core.items() if x not in found and pattern.search(code)}
        found |= new
    return found


@cache
def _family_texts() -> dict[str, str]:
    """Return the code of each family, with that of its towers."""
    found: dict[str, str] = {}
    for x in (SOURCE / "families").rglob("*.py"):
        found[x.stem] = found.get(x.stem, "") + x.read_text()
    return found


def _families(users: set[str]) -> set[str]:
    """Return files of families, which have an object of their name; others stand for the files that
    import them.
    """
    texts = _family_texts()
    found, left, seen = set[str](), [*users], set[str]()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        if re.search(rf"^(?:def {name}\(|{name} = )", texts[name], re.MULTILINE):
            found.add(name)
        else:
            importing = re.compile(rf"^from \.+{name} import", re.MULTILINE)
            left += [x for x, text in texts.items() if importing.search(text)]
    return found


def most_arguments() -> tuple[int, str]:
    """Return the most arguments of a public function, and its name."""
    functions = {x: getattr(llamath, x) for x in dir(llamath)}
    return max(
        (len(inspect.signature(y).parameters), x)
        for x, y in functions.items()
        if inspect.isfunction(y) and not x.startswith("_")
    )


def words_of_docs() -> dict[str, int]:
    """Return the words of each page in docs/ without the decision records, as `wc -w` counts;
    files that `llamath code` writes are no words.
    """
    docs = ROOT / "docs"
    pages = [x for x in docs.rglob("*.md") if "decisions" not in x.relative_to(docs).parts]
    texts = {x.relative_to(docs).as_posix(): CODE.sub("", x.read_text()) for x in pages}
    return {name: len(text.split()) for name, text in texts.items()}


def budgets() -> list[Budget]:
    """Return every budget with its figure."""
    lonely, (arguments, function), words = blocks_of_one_family(), most_arguments(), words_of_docs()
    longest = sorted(words, key=lambda x: -words[x])[:8]
    return [
        Budget("commands", len(COMMANDS), 24),
        Budget("options in all help texts", len(shown_options()), 134),
        Budget("names of options and of their keys", len(distinct_names()), 105),
        Budget("operations of the machine", len(operations()), 80),
        Budget("blocks in core of one family", len(lonely), 5, ", ".join(sorted(lonely))),
        Budget("arguments of a public function", arguments, 10, function),
        Budget(
            "words in docs without decisions",
            sum(words.values()),
            85_000,
            ", ".join(f"{x} {words[x]:,}" for x in longest),
        ),
    ]


def reported() -> dict[str, object]:
    """Return what has no limit: lines, `isinstance`, `Any`, files that spell q_proj, and the
    longest file and function.
    """
    texts = {x.relative_to(SOURCE).as_posix(): x.read_text() for x in SOURCE.rglob("*.py")}
    lines = {name: len(text.splitlines()) for name, text in texts.items()}
    functions = {
        f"{name} {x.name}": (x.end_lineno or 0) - x.lineno + 1
        for name, text in texts.items()
        for x in ast.walk(ast.parse(text))
        if isinstance(x, ast.FunctionDef)
    }
    file, longest = max(lines, key=lambda x: lines[x]), max(functions, key=lambda x: functions[x])
    whole = "\n".join(texts.values())
    return {
        "lines of Python in src": sum(lines.values()),
        "files of Python in src": len(lines),
        "isinstance": len(re.findall(r"\bisinstance\(", whole)),
        "Any": len(re.findall(r"\bAny\b", whole)),
        "files that spell q_proj": sum("q_proj" in x for x in texts.values()),
        "longest file": f"{lines[file]:,} lines, {file}",
        "longest function": f"{functions[longest]} lines, {longest}",
    }


def main() -> None:
    for x in budgets():
        print(f"{x.figure:>7,} of {x.limit:>6,}  {x.what}" + (f": {x.parts}" if x.parts else ""))
    print()
    for what, figure in reported().items():
        print(f"{figure:>7,}  {what}" if isinstance(figure, int) else f"{what}: {figure}")


if __name__ == "__main__":
    main()
