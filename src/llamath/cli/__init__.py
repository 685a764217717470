"""The command line: one module per command, imported when it is used."""

import gc

_collects = gc.isenabled()
gc.disable()  # imports make many objects, and no garbage
from .command_group import cli as cli  # noqa: E402
from .command_group import main as main  # noqa: E402

if _collects:
    gc.enable()
