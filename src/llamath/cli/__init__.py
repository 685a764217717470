"""The command line: one module per command, imported when it is called for."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import NoReturn

import click

from ..errors import LlamathError

COMMANDS = {
    "config": "the configuration, as HF keys and as Meta's ModelArgs, each explained",
    "convert": "a checkpoint as safetensors, as Meta's .pth or as GGUF",
    "count": "count the parameters, weight by weight, with the formula",
    "diff": "why one model is larger than another, cause by cause and matrix by matrix",
    "ls": "what is in a checkpoint: tensors, types, shapes, bytes",
    "models": "list the presets",
    "verify": "is a checkpoint what its configuration says?",
    "names": "the names of the tensors in files",
}


class Lazy(click.Group):
    """A group whose commands are modules of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"{__name__}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="llamath")
def cli() -> None:
    """Know a Llama down to its last weight."""


def main() -> None:
    """Run the command line; a user's mistake ends with a sentence and exit code 2, never with a traceback."""
    gc.disable()  # a process this short has no use for it, and 45,000 tensors set it off again and again
    try:
        cli(standalone_mode=False)
        sys.stdout.flush()
    except LlamathError as error:
        _complain(str(error), error.hint)
    except click.ClickException as error:
        where = f"\n\nhint: {error.ctx.command_path} --help" if isinstance(error, click.UsageError) and error.ctx else ""
        _complain(error.format_message() + where)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        _quiet(0)
    except OSError as error:
        click.echo(f"error: the output cannot be written: {error.strerror}", err=True)
        _quiet(2)


def _quiet(status: int) -> NoReturn:
    """End without another word about an output that is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)


def _complain(message: str, hint: str = "") -> None:
    click.echo(f"error: {message}" + (f"\n\nhint: {hint}" if hint else ""), err=True)
    sys.exit(2)
