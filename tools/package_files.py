"""Write what package managers and shells need of the command line: `python tools/package_files.py`,
with --check to compare only.

The man page and the completions are from the commands themselves; CITATION.cff and the formula from
pyproject.toml.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

import lock
from llamath.cli import cli
from llamath.cli.command_group import COMMANDS, GROUPS, SHARED_OPTIONS, SharedOption

ROOT = Path(__file__).parents[1]
SHELLS = {"bash": "llamath.bash", "zsh": "_llamath", "fish": "llamath.fish"}
"""Shell → the name by which it finds the completion of a command."""


def roff(text: str) -> str:
    """Return text for a man page: nothing in it is a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^(?=[.'])", r"\\&", escaped)


def option_lines(option: click.Option, context: click.Context) -> Iterator[str]:
    """Yield an option as an item of a list."""
    record = option.get_help_record(context)
    if record is not None:
        names, text = record
        yield from (".TP", f".B {roff(names)}", roff(text))


def man_page() -> str:
    """Return the man page: what each command does, its options and its examples."""
    about = lock.project()["project"]
    lines = [f'.TH LLAMATH 1 "" "llamath {about["version"]}"']
    lines += [".SH NAME", f"llamath \\- {roff(about['description'])}"]
    lines += [".SH SYNOPSIS", ".B llamath", "COMMAND [OPTIONS] [MODEL]"]
    group = click.Context(cli, info_name="llamath")
    for heading, commands in GROUPS.items():
        lines.append(f".SH {heading.upper()}")
        for name in commands:
            command = cli.get_command(group, name)
            assert command is not None
            context = click.Context(command, info_name=f"llamath {name}", parent=None)
            lines += [
                f".SS {roff(name)}",
                f".B {roff(' '.join(command.get_usage(context).split()[1:]))}",
            ]
            for paragraph in (command.help or "").split("\n\n"):
                lines += [".PP", roff(" ".join(paragraph.split()))]
            for x in command.params:
                if isinstance(x, click.Option) and not isinstance(x, SharedOption):
                    lines += option_lines(x, context)
            for example in getattr(command, "examples", ()):
                lines += [".IP", f".B {roff(example)}"]
    lines += [".SH COMMON OPTIONS", "The help of a command lists those that it takes."]
    for name, option in shared_options().items():
        lines += option_lines(option, click.Context(cli)) if name in SHARED_OPTIONS else ()
    lines += [
        ".SH EXIT STATUS",
        "0: success; 1: a negative verdict; 2: bad input or usage; 130: interrupted.",
    ]
    return "\n".join(lines) + "\n"


def shared_options() -> dict[str, click.Option]:
    """Return the options that many commands share."""
    found: dict[str, click.Option] = {}
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for x in command.params:
            if isinstance(x, SharedOption):
                found.setdefault(x.opts[-1], x)
    return dict(sorted(found.items()))


def completion(shell: str) -> str:
    """Return click's completion for a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(cli, {}, "llamath", "_LLAMATH_COMPLETE").source() + "\n"


def citation() -> str:
    """Return how to cite llamath, as GitHub and reference managers read it."""
    about = lock.project()["project"]
    return f"""cff-version: 1.2.0
message: If you use llamath or its numbers, please cite it.
type: software
title: "llamath: {about["description"].rstrip(".")}"
version: {about["version"]}
license: {about["license"]}
url: {about["urls"]["Documentation"]}
repository-code: {about["urls"]["Homepage"]}
authors:
  - name: {about["authors"][0]["name"]}
"""


def formula(name: str, digest: str) -> str:
    """Return the Homebrew formula that installs a wheel of a release with this sha256 sum."""
    about = lock.project()["project"]
    home = about["urls"]["Homepage"]
    return f'''# For a tap: `brew tap llamath/tap && brew install llamath`
class Llamath < Formula
  include Language::Python::Virtualenv

  desc "{about["description"].rstrip(".")}"
  homepage "{home}"
  url "{home}/releases/download/v{about["version"]}/{name}", using: :nounzip
  version "{about["version"]}"
  sha256 "{digest}"
  license "{about["license"]}"

  depends_on "python@3.13"

  def install
    virtualenv_create(libexec, "python3.13")
    python = Formula["python@3.13"].opt_bin/"python3.13"
    system python, "-m", "pip", "--python", libexec/"bin/python", "install", buildpath/"{name}"
    bin.install_symlink libexec/"bin/llamath"
    man1.install_symlink libexec/"share/man/man1/llamath.1"
    generate_completions_from_executable bin/"llamath", shell_parameter_format: :click
  end

  test do
    assert_match "8,030,261,248", shell_output("#{{bin}}/llamath count llama-3-8b")
  end
end
'''


def files() -> dict[Path, str]:
    """Return the files that are checked in."""
    folder = ROOT / "packaging"
    shells = {folder / name: completion(shell) for shell, name in SHELLS.items()}
    return {folder / "llamath.1": man_page(), ROOT / "CITATION.cff": citation(), **shells}


def main() -> None:
    stale = [
        path
        for path, text in files().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        if stale:
            names = ", ".join(str(x.relative_to(ROOT)) for x in stale)
            sys.exit(f"outdated: {names}. Run `python tools/package_files.py`")
        return
    for path in stale:
        path.write_text(files()[path], encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
