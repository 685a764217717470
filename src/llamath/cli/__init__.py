"""The command line: one module per command, imported when it is used."""

from .command_group import cli as cli
from .command_group import main as main
