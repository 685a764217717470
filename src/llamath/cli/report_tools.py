"""The reports that programs and agents ask for: which commands, and their parameters as JSON
Schema, read from the options of click.

`serve` answers them as `/api/NAME`, and `serve --mcp` offers them as tools; both run the command
itself, so that its JSON is the command's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

from ..loading import load
from ..model import Model
from ..questions.shared_fields import names_file
from ..questions.value_kinds import MAX_TEXT, MAX_VALUES
from ..render.table import unstyled
from ..utils.errors import Argument, Call, LlamathError, Name, nearest, safe, worded
from ..utils.record_type import Record
from .command_group import Command, cli, find_command
from .model_options import ModelName, parse_changes, resolve_models
from .output import capture_output, print_error
from .question_options import FieldArgument, FieldOption
from .wording import CommandLine, command_of

_OMITTED_OPTIONS = frozenset("json brief format output force via".split())
"""Options that choose an output, write files, or start a process that reads a config by other
rules; a tool has none of them."""
MAX_ANSWER = 32 << 20
"""The longest answer, in characters."""

_ARGUMENTS: Mapping[str, str] = {
    "model": "The model",
    "models": "The models; each is compared with the first",
    "words": "Words that must all occur in the name",
    "path": "A checkpoint: a file, folder, repository on the Hub or URL",
}
"""What the arguments of commands are; click has no text for them."""


class ReportTool(Record):
    """A command that answers in JSON, without some of its parameters."""

    name: str
    omitted: frozenset[str] = frozenset()
    # it reads files that the caller names, or starts processes: only for callers that could do so
    # themselves
    local: bool = False

    @property
    def command(self) -> Command:
        """The command of this name."""
        command = find_command(self.name)
        assert isinstance(command, Command)
        return command

    @property
    def description(self) -> str:
        """The command's help, without what it says of exit codes and outputs."""
        text = re.sub(r"; --format.*", ".", " ".join((self.command.help or "").split()))
        return " ".join(
            x
            for x in re.split(r"(?<=[.?]) (?=[A-Z-])", text)
            if not any(y in x for y in ("Exit code", "--format", "-o "))
        )


TOOLS: Mapping[str, ReportTool] = {
    x.name: x
    for x in (
        ReportTool(name="count", omitted=frozenset(("all",))),
        *(
            ReportTool(name=name)
            for name in (
                "facts",
                "config",
                "diff",
                "explain",
                "design",
                "models",
                "names",
                "memory",
            )
        ),
        ReportTool(name="code"),
        ReportTool(name="fit", omitted=frozenset(("draft",))),
        *(ReportTool(name=name) for name in ("quants", "flops", "plan")),
        ReportTool(name="gpus"),
        ReportTool(name="ls", omitted=frozenset(("all",)), local=True),
        ReportTool(name="verify", omitted=frozenset(("full",)), local=True),
    )
}
"""The tools by name; those that are `local` are not answered over HTTP."""


class ToolAnswer(Record):
    """What a tool answers: the JSON that the command prints, its notes, and the error that ended
    it.
    """

    text: str
    notes: str = ""
    exit_code: int = 0
    error: LlamathError | None = None
    is_usage: bool = False


def parameters(tool: ReportTool) -> dict[str, click.Parameter]:
    """Return the parameters of a tool by name, arguments first: an option's name has
    underscores, `kv_dtype`.
    """
    skipped = _OMITTED_OPTIONS | tool.omitted
    return {name: x for x in tool.command.params if (name := _name(x)) not in skipped}


def _name(parameter: click.Parameter) -> str:
    if not isinstance(parameter, click.Option):
        return parameter.name or ""
    long = next((x for x in parameter.opts if x.startswith("--")), parameter.opts[0])
    return long.lstrip("-").replace("-", "_")


def required(name: str, parameter: click.Parameter) -> bool:
    """Whether a tool needs a parameter; the command line asks for a missing MODEL itself."""
    return parameter.required or (name == "model" and isinstance(parameter, click.Argument))


def parameter_of_models(tool: ReportTool) -> str:
    """Return the argument of a tool that names its models; empty if it takes none."""
    own = parameters(tool).items()
    return next(
        (
            name
            for name, x in own
            if isinstance(x, click.Argument) and isinstance(x.type, ModelName)
        ),
        "",
    )


def is_list(parameter: click.Parameter) -> bool:
    """Whether a parameter may be given several times."""
    return parameter.nargs == -1 or parameter.multiple


def parameter_schema(name: str, parameter: click.Parameter, model: str) -> dict[str, Any]:
    """Return a parameter as JSON Schema; `model` describes the names of models."""
    if isinstance(parameter, FieldOption | FieldArgument):
        return parameter.schema
    item = _value_schema(parameter)
    schema: dict[str, Any] = (
        {"type": "array", "items": item, "maxItems": MAX_VALUES}
        if is_list(parameter)
        else dict(item)
    )
    if is_list(parameter) and parameter.required:
        schema["minItems"] = 1
    text = (
        _ARGUMENTS[name]
        if isinstance(parameter, click.Argument)
        else getattr(parameter, "help", None) or ""
    )
    text = re.sub(r"(?: {1,2})?\[default: ([^\]]*)\]", r" Default: \1.", text).rstrip(".")
    described = (
        f"{text}: {model}"
        if isinstance(parameter, click.Argument) and isinstance(parameter.type, ModelName)
        else text
    )
    schema["description"] = f"{described}." if described else ""
    if isinstance(parameter.default, bool | int | float) or (
        isinstance(parameter.default, str) and parameter.default
    ):
        schema["default"] = parameter.default
    elif isinstance(parameter, click.Option) and parameter.is_flag:
        schema["default"] = False
    return schema


def _value_schema(parameter: click.Parameter) -> dict[str, Any]:
    kind = parameter.type
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return {"type": "boolean"}
    if isinstance(kind, click.Choice):
        return {"type": "string", "enum": [str(x) for x in kind.choices]}
    if isinstance(kind, click.IntRange):
        bounds = {"minimum": kind.min, "maximum": kind.max}
        return {
            "type": "integer",
            **{key: value for key, value in bounds.items() if value is not None},
        }
    if kind is click.INT:
        return {"type": "integer"}
    if kind is click.FLOAT:
        return {"type": "number"}
    return {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}


def input_schema(tool: ReportTool, model: str) -> dict[str, Any]:
    """Return the parameters of a tool as one JSON Schema of an object."""
    own = parameters(tool)
    return {
        "type": "object",
        "properties": {name: parameter_schema(name, x, model) for name, x in own.items()},
        "required": [name for name, x in own.items() if required(name, x)],
        "additionalProperties": False,
    }


_MODEL_FOR_AGENTS = (
    "a preset (llama-3-8b), a repository on the Hub (owner/name, owner/name/file.gguf), the path "
    "of a config.json, params.json, GGUF file "
    "or checkpoint folder, or ModelArgs (dim=4096,n_layers=32,n_heads=32,vocab_size=32000)"
)
FORMATS = ("json", "text", "brief")
"""What an agent can ask for."""


def agent_schema(tool: ReportTool) -> dict[str, Any]:
    """Return the parameters of a tool for an agent of this user, with the format of the answer."""
    schema = input_schema(tool, _MODEL_FOR_AGENTS)
    text = (
        "json: every number; text: the tables that a person reads, with formulas; brief: one line."
    )
    schema["properties"]["format"] = {
        "type": "string",
        "enum": list(FORMATS),
        "default": FORMATS[0],
        "description": text,
    }
    return schema


def command_line(
    tool: ReportTool, values: Iterable[tuple[str, str]], *, local: bool, form: str = "json"
) -> list[str]:
    """Return the arguments of the command for named values, each as text; a list has one entry for
    each of its values. A caller that is not `local` names no file.

    `form` is `json`, `brief` or `text`.
    """
    known = parameters(tool)
    options, arguments, seen = [], [], Counter[str]()
    for name, value in values:
        parameter = known.get(name)
        if parameter is None:
            near = nearest(name, known)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            raise click.UsageError(f"{tool.name} has no parameter {safe(repr(name), 60)}: {hint}")
        if seen[name] and not is_list(parameter):
            raise click.UsageError(f"{name} is given twice")
        if seen[name] == MAX_VALUES:
            raise click.UsageError(f"{name} has more values than are read, at most {MAX_VALUES}")
        if not value and not (isinstance(parameter, click.Option) and parameter.is_flag):
            raise click.UsageError(f"{name} is empty")
        if len(value) > MAX_TEXT:
            raise click.UsageError(
                f"{name} has {len(value):,} characters, and at most {MAX_TEXT:,} are read"
            )
        if name == "on" and not local and names_file(value):
            raise click.UsageError("on names GPUs here, and no file")
        seen[name] += 1
        if isinstance(parameter, click.Argument):
            arguments.append(value)
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            options += _flag(name, parameter, value)
        else:
            options.append(f"{parameter.opts[0]}={value}")
    return [tool.name, *options, *([f"--{form}"] if form != "text" else []), "--", *arguments]


def _flag(name: str, option: click.Option, value: str) -> list[str]:
    if value.lower() not in ("true", "false", ""):
        raise click.UsageError(f"{name} should be true or false, found {safe(repr(value), 60)}")
    return option.secondary_opts[:1] if value.lower() == "false" else option.opts[:1]


class ToolCall(CommandLine):
    """The words of an agent, whose tools are commands: `dtype=bf16`."""

    local = True
    """Whether tools that read the files of this machine are among them."""

    def argument(self, argument: Argument) -> str:
        """Return a parameter with its value."""
        name, value = self.field(argument.name), argument.value
        return name if value is None else f"{name}={_json_word(value)}"

    def call(self, call: Call) -> str:
        """Return the call of a tool; the other commands are those of a shell."""
        tool = self._tool(call)
        if tool is None:
            return super().call(call)
        given = ", ".join(f"{name}={_json_word(value)}" for name, value in tool)
        return f"the tool {command_of(call.function)}{given and f' with {given}'}"

    def help(self, function: str) -> str:
        """Return where the parameters of a tool are described."""
        return f"the tool {command_of(function)} describes them in its input schema"

    def _tool(self, call: Call) -> list[tuple[str, object]] | None:
        """Return the parameters of a call with their values, or None if it is of no tool."""
        tool = TOOLS.get(command_of(call.function))
        if tool is None or (tool.local and not self.local):
            return None
        words = type(self)(self._find, tool.command)
        known = parameters(tool)
        values = [(words.field(x.name), x.value) for x in call.arguments]
        if any(name not in known for name, _ in values):
            return None
        positional = [x for x, y in known.items() if isinstance(y, click.Argument)]
        if positional and is_list(known[positional[-1]]):
            positional += positional[-1:] * len(call.given)
        return [*zip(positional, call.given, strict=False), *values]


class HttpRequest(ToolCall):
    """The words of a program that asks `llamath serve`: `/api/memory?dtype=bf16`."""

    local = False

    def call(self, call: Call) -> str:
        """Return the address of a report; the other commands are those of a shell."""
        from urllib.parse import quote

        tool = self._tool(call)
        if tool is None:
            return CommandLine.call(self, call)
        query = "&".join(f"{name}={quote(_json_word(value), '/:…')}" for name, value in tool)
        path = f"/api/{command_of(call.function)}"
        return f"{path}?{query}" if query else path

    def help(self, function: str) -> str:
        """Return where the parameters of a report are described."""
        return f"/openapi.json describes /api/{command_of(function)}"


def _json_word(value: object) -> str:
    """Return a value as a program writes it, or the word that stands for it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(f"{key}={x}" for key, x in value.items())
    return value.upper() if isinstance(value, Name) else safe(str(value), 4096)


def answer(
    tool: ReportTool,
    values: Sequence[tuple[str, str]],
    resolve: Callable[[str], Model | str],
    *,
    local: bool,
    check: Callable[[Model], None] | None = None,
    form: str = "json",
) -> ToolAnswer:
    """Run the command of a tool in this thread; `resolve` finds the models that it names, and
    `check` refuses one, with its changes.
    """
    words = (ToolCall if local else HttpRequest)(find_command)
    with (
        worded(words),
        capture_output(MAX_ANSWER) as captured,
        resolve_models(resolve),
        unstyled(),
    ):
        try:
            arguments = command_line(tool, values, local=local, form=form)
            if check is not None:
                for model in _changed_models(tool, values, resolve):
                    check(model)
            cli.main(arguments)
        except LlamathError as error:
            print_error(error, as_json=True)
            code = 2
        except click.UsageError as error:
            print_error(
                LlamathError(error.format_message(), hint=words.help(tool.name)),
                as_json=True,
                kind="UsageError",
            )
            code = 2
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 2
    return ToolAnswer(
        text=captured.text,
        notes=captured.notes,
        exit_code=code,
        error=captured.error,
        is_usage=captured.kind == "UsageError",
    )


def _changed_models(
    tool: ReportTool, values: Sequence[tuple[str, str]], resolve: Callable[[str], Model | str]
) -> Iterator[Model]:
    """Yield the models that a call names, under its changes; the command itself explains what
    cannot be loaded.
    """
    known = parameters(tool)
    takes_changes = any(x.name == "changes" for x in known.values())
    for name, value in values:
        if isinstance(known[name].type, ModelName):
            model = resolve(value)
            with suppress(LlamathError, click.UsageError):
                changes = (
                    parse_changes(value for name, value in values if name == "set")
                    if takes_changes
                    else {}
                )
                yield load(model, changes=changes)
