"""The words of errors for the user of a shell."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click

from ..utils.errors import Argument, Call, Name, Wording

_COMMANDS: Mapping[str, str] = {
    "compare_machines": "fit",
    "fit_engine": "fit",
    "compare_engines": "fit",
    "rank_gpus": "fit",
    **dict.fromkeys(("place", "cost", "pair"), "fit"),
    "lesson": "learn",
    "check": "learn",
}
"""Function -> its command, where their names differ."""


def command_of(function: str) -> str:
    """Return the name of the command that answers like a function."""
    return _COMMANDS.get(function, function)


class CommandLine(Wording):
    """The words of a shell: `llamath verify x`, and the options of a command, by default of the one
    that runs.
    """

    def __init__(
        self, find: Callable[[str], click.Command | None], command: click.Command | None = None
    ) -> None:
        """`find`, a function of a module, returns the command of a name."""
        self._find, self._command = find, command

    def argument(self, argument: Argument) -> str:
        """Return an option with its value."""
        parameter, value = self._parameter(argument.name), argument.value
        if isinstance(parameter, click.Argument):
            return parameter.human_readable_name.strip("[]") if value is None else word(value)
        if parameter is None and (options := self._options_of_keys(value)):
            return options
        names = parameter.opts if parameter else [f"--{argument.name.replace('_', '-')}"]
        if value is None or value is True:
            return names[0]
        if value is False:
            return next(iter(parameter.secondary_opts if parameter else ()), names[0])
        if isinstance(value, Mapping):
            return " ".join(f"{names[0]} {key}={word(x)}" for key, x in value.items())
        return f"{names[0]} {word(value)}"

    def _options_of_keys(self, value: object) -> str:
        """Return the options for the keys of a value such as `tp_shards=4`, of an argument that a
        command has by its keys.
        """
        words = []
        for part in value.split(",") if isinstance(value, str) else ():
            key, _, text = part.partition("=")
            if self._parameter(key) is None:
                return ""
            words.append(self.argument(Argument(key, {"yes": True, "no": False}.get(text, text))))
        return " ".join(words)

    def field(self, name: str) -> str:
        """Return the option of an argument as programs name it: `kv_dtype`."""
        parameter = self._parameter(name)
        is_option = isinstance(parameter, click.Option)
        return parameter.opts[-1].lstrip("-").replace("-", "_") if parameter and is_option else name

    def call(self, call: Call) -> str:
        """Return the command of a call."""
        name = command_of(call.function)
        own = CommandLine(self._find, self._find(name))
        words = ["llamath", name, *map(word, call.given), *map(own.argument, call.arguments)]
        return f"`{' '.join(words)}`"

    def help(self, function: str) -> str:
        """Return the command that explains a command."""
        return f"llamath {command_of(function)} --help"

    def _parameter(self, name: str) -> click.Parameter | None:
        command = self._command
        if command is None and (context := click.get_current_context(silent=True)) is not None:
            command = context.command
        return next((x for x in (command.params if command else ()) if x.name == name), None)


def word(value: object) -> str:
    """Return a value as one word of a shell, or the word that stands for it."""
    from ..utils.file_diagnosis import quote_path

    return value.upper() if isinstance(value, Name) else quote_path(str(value))
