"""The commands as click knows them: each a module of this package, imported when it is called for."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from . import COMMANDS
from .output import complain


class Lazy(click.Group):
    """A group whose commands are modules of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f".{cmd_name}", __package__).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="llamath")
def cli() -> None:
    """Know a Llama down to its last weight."""


def run() -> None:
    """Run what the arguments ask for."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        where = f"\n\nhint: {error.ctx.command_path} --help" if isinstance(error, click.UsageError) and error.ctx else ""
        complain(error.format_message() + where)
    except click.Abort:
        sys.exit(130)
