"""Print how large the command line is: its commands, the options that their help shows, and the
distinct names that a user may type, keys inside `key=value` options included.

An option that many commands share is shown once, by `llamath help options`. `--kv-dtype` and the
key `kv_dtype` are one name. What describes a model or a GPU (keys of a config after --set,
`dim=4096`, `mem=24GiB`) is a value and no name.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from llamath.cli import cli
from llamath.cli.command_group import COMMANDS, SHARED_OPTIONS, SharedOption
from llamath.cli.generation_options import SamplingKeys
from llamath.cli.question_options import FieldOption

HELP = ("-h", "--help")


def visible_options() -> Iterator[tuple[str, click.Option]]:
    """Yield the options of each command."""
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        yield from ((name, x) for x in command.params if isinstance(x, click.Option))


def shown_options() -> list[str]:
    """Return the options in all help texts, each with its command; shared ones once."""
    own = [
        f"{name} {x.opts[-1]}" for name, x in visible_options() if not isinstance(x, SharedOption)
    ]
    return [*own, *SHARED_OPTIONS, HELP[0]]


def distinct_names() -> set[str]:
    """Return the names of options and of keys."""
    found = {HELP[1], *SamplingKeys.described}
    for _, x in visible_options():
        found |= {y for y in (*x.opts, *x.secondary_opts) if y.startswith("--")}
        if isinstance(x, FieldOption):
            found |= set(x.keys)
    return {x.removeprefix("--").replace("-", "_") for x in found}


def main() -> None:
    print(f"{len(COMMANDS)} commands")
    print(f"{len(shown_options())} options in their help")
    print(f"{len(distinct_names())} distinct names, keys included")


if __name__ == "__main__":
    main()
