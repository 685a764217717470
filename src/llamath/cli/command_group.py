"""`llamath` and its commands: grouped help, shared options, suggestions for misspelled commands,
and exit codes.

Exit codes: 0 success, 1 a negative verdict (does not fit, does not match, nothing found), 2 bad
input, 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from typing import Any, NoReturn

import click

from ..utils.errors import Argument, LlamathError, nearest, worded, wording
from .output import echo, is_captured, print_error, under_torchrun
from .wording import CommandLine

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Understand a model": {
        "count": "parameters, weight by weight, with the formula",
        "facts": "what a model is, on one page",
        "config": "every config key explained, as config.json and params.json",
        "diff": "why one model has more parameters than another",
        "trace": "a forward pass step by step: shapes, FLOPs, KV cache",
        "code": "the model as one readable PyTorch file, or as formulas",
        "explain": "which model, with which change, has this many parameters",
        "design": "dimensions for a number of parameters",
        "models": "list the presets",
        "learn": "lessons and worksheets that check your answers",
    },
    "Check files": {
        "ls": "tensors, dtypes, shapes and bytes of a checkpoint",
        "verify": "does a checkpoint match its config?",
        "names": "tensor names in HF, Meta and GGUF files",
        "convert": "another format, an adapter merged, fewer layers, shards",
        "same": "do two checkpoints hold or compute the same; the hash of one",
    },
    "Size hardware": {
        "memory": "memory for inference or training, line by line",
        "fit": "does it fit on these GPUs, how fast at most, at what cost?",
        "quants": "sizes in each dtype, and which GGUF file to choose",
        "flops": "FLOPs of prefill, decode and training, and the MFU",
        "plan": "rank the ways to split a model over a cluster",
        "gpus": "memory, bandwidth and FLOP/s of GPUs, and of this machine",
    },
    "Run": {
        "run": "generate text, or chat",
    },
    "Look": {
        "serve": "interactive page in the browser, or tools for agents (MCP)",
        "export": "the page as one HTML file, or a site of all presets",
    },
}
"""Heading -> command -> one line of help; each command is a module of this package."""

_SHELL_WORDS = r" ?#.*|--[\w-]+ (?:'[^']*'|[^\s-]\S*)|'[^']*'|\S+"
"""Parts of an example between which its line can be broken."""

COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
FIRST = ("count", "diff", "explain", "config", "verify", "memory", "fit", "plan", "run", "serve")
"""The commands that `llamath` lists; `llamath help all` lists every one."""
MOVED: Mapping[str, str] = {
    "chat": "run",
    "gallery": "export",
    "hash": "same",
    "logits": "same --logits",
    "merge": "convert --adapter",
    "edit": "convert --layers",
    "measure": "gpus this --output",
    "place": "fit --ram",
    "cost": "fit --price",
    "pair": "fit --draft",
    "mcp": "serve --mcp",
}
"""Old name of a command -> what to type instead."""

_DRAWING = ("count", "diff", "trace", "design", "fit")
MOVED_OPTIONS: Mapping[str, str] = {
    **{f"{name} --svg": "--output FILE.svg" for name in _DRAWING},
    **{f"{name} --png": "--output FILE.png" for name in _DRAWING},
    **{f"{name} --picture": "--output FILE" for name in _DRAWING},
    "count --names": "llamath names MODEL --names hf",
    "count --layer": "--all",
    "count --formula": "--format formula",
    "count --unfold": "--all",
    "ls --unfold": "--all",
    "trace --layer": "--layers N",
    "trace --tokens": "--context TOKENS",
    "design --rank": "--sort habits|error",
    "design --tokens": "--budget tokens=COUNT",
    "design --flops": "--budget flops=COUNT",
    "design --law": "--budget law=NAME",
    "verify --write-sums": "--output SHA256SUMS",
    "verify --as": "llamath verify PATH MODEL",
    "verify --against": "llamath verify PATH MODEL",
    "verify --base": "llamath verify ADAPTER MODEL",
    "same --base": "llamath same MODEL B --adapter ADAPTER",
    "design --against": "--like MODEL",
    "memory --train": "--training",
    "memory --chunk": "--batch-tokens TOKENS",
    "fit --train": "--tokens COUNT",
    "fit --calibration": "--on FILE",
    "fit --memory-fraction": "--engine-args '--gpu-memory-utilization F'",
    "fit --kv-memory": "--engine-args '--kv-cache-memory-bytes BYTES'",
    "fit --engine-memory": "--engine-args '--gpu-memory-utilization F'",
    "fit --grid": "",
    "fit --disk": "--ram 'SIZE disk=RATE'",
    "same --ids": "ids:1,2,3",
    "convert --no-mtp": "--part main",
    "fit --ram-bandwidth": "--ram 'SIZE bw=RATE'",
    "run --sampling": "--top-k N",
    "run --raw": "--chat-template none",
    "run --verbose": "",
    "serve --browser": "",
    "serve --hub": "--allow hub",
    "serve --host": "--port ADDRESS:N",
    "serve --allow-urls": "--allow urls",
    "gpus --measure": "--output FILE",
    "learn --model": "llamath learn LESSON MODEL",
    "learn --check": "llamath learn ANSWERS.json",
    "learn --worksheet": "-o FILE",
    "models --max": "--on mem=SIZE",
    "models --type": "llamath models moe",
    "plan --train": "",
    "trace --dtype": "",
}
"""Command and old name of an option -> what to type instead; empty: nothing."""

EXAMPLES = (
    ("llamath count llama-3-8b", "its 8,030,261,248 parameters"),
    ("llamath fit llama-3.1-8b --on rtx-4090", "does it fit on my GPU?"),
    ("llamath verify ./my-checkpoint", "are the files complete?"),
)


SHARED_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "--set": {
        "multiple": True,
        "metavar": "KEY=VALUE",
        "help": "Change a config key of MODEL; may be repeated.",
    },
    "--via": {
        "type": click.Choice(["transformers"]),
        "help": "Let transformers build a MODEL of an unknown family; runs no code of it.",
    },
    "--json": {"is_flag": True, "help": "Print JSON, errors included."},
    "--brief": {"is_flag": True, "help": "Answer in one line."},
    "--format": {
        "metavar": "FORMAT",
        "help": "Print the tables as csv or markdown, or another format that the command lists: "
        "short, tree, formula, config.",
    },
    "--all": {"is_flag": True, "help": "Print every tensor on its own line."},
    "--output": {
        "metavar": "FILE",
        "help": "Write a file: the answer as a picture, FILE.svg or FILE.png, or what the command "
        "says.",
    },
    "--force": {"is_flag": True, "help": "Overwrite an existing file."},
    "--dry-run": {"is_flag": True, "help": "Check the source and print what would be written."},
    "--device": {
        "default": "cpu",
        "show_default": True,
        "metavar": "NAME",
        "help": "Device to compute on: cpu, cuda, cuda:1, …",
    },
}
"""The options that many commands share, with their settings; `llamath help options` explains
them."""
_SHORT = {"--output": "-o"}


class SharedOption(click.Option):
    """An option that many commands have; the help of a command names it, and `llamath help
    options` explains it.
    """


def shared_option(
    name: str, parameter: str = "", *, required: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add one of the shared options; the command gets it as `parameter`, if that differs from
    the option's name.
    """
    names = [*_spellings(name), *([parameter] if parameter else [])]
    return click.option(*names, cls=SharedOption, required=required, **SHARED_OPTIONS[name])


def _spellings(name: str) -> list[str]:
    """Return a shared option as it may be typed, the short form first."""
    return [_SHORT[name], name] if name in _SHORT else [name]


class _Main(click.Command):
    """Run as a program: print help and errors, as text or JSON, and end with an exit code."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:  # noqa: ARG002
        """Return --help, which prints like any answer: in the encoding of stdout, and with an
        error if that is full.
        """
        # built here, because click would import gettext's catalogs to translate its text
        if self._help_option is None:
            text = "Show this message and exit."
            self._help_option = click.Option(
                ["-h", "--help"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_print_help,
                help=text,
            )
        return self._help_option

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = "llamath",
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        args = list(sys.argv[1:] if args is None else args)
        # a program or an agent that runs a command has words of its own
        with nullcontext() if is_captured() else worded(CommandLine(find_command)):
            if standalone_mode:
                return self._main(args, prog_name, complete_var, **extra)
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)

    def _main(
        self, args: list[str], prog_name: str | None, complete_var: str | None, **extra: Any
    ) -> NoReturn:
        """Run the program, print its error, and exit."""
        as_json = "--json" in args
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.Abort:
            sys.exit(130)
        except click.ClickException as error:
            failed = error.ctx if isinstance(error, click.UsageError) else None
            if (
                isinstance(error, click.NoSuchOption)
                and failed is not None
                and (known := _known_option(failed, error.option_name))
            ):
                print_error(known, as_json=as_json)
                sys.exit(2)
            name = failed.info_name if failed is not None and failed.parent else None
            hint = (
                wording().help(name) if name else f"{failed.command_path} --help" if failed else ""
            )
            print_error(_worded_usage(error, hint), as_json=as_json, kind="UsageError")
            sys.exit(2)
        except LlamathError as error:
            print_error(error, as_json=as_json)
            sys.exit(2)
        sys.exit(code if isinstance(code, int) else 0)


def _worded_usage(error: click.ClickException, hint: str) -> LlamathError:
    """Return an error of click, about a parameter as the caller types it."""
    field = ""
    if isinstance(error, click.BadParameter) and error.param is not None and error.ctx is not None:
        with error.ctx.scope(cleanup=False):
            name = error.param.name or ""
            field = wording().field(name)
            if is_captured():
                error.param_hint = repr(str(Argument(name)))
    worded_error = LlamathError(error.format_message(), hint=hint)
    worded_error.field = field
    return worded_error


class Command(_Main):
    """A command with examples in its help; what its function returns is the exit code."""

    examples: Sequence[str] = ()

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["llamath.words"] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        formats = [x for x in ("json", "brief") if ctx.params.pop(x, False)]
        formats += [x] if (x := ctx.params.pop("format", None)) else []
        if len(formats) > 1:
            raise click.UsageError(f"choose one of {' and '.join(f'--{x}' for x in formats)}", ctx)
        if any(x.name == "json" for x in self.params):
            ctx.params["form"] = formats[0] if formats else None
        for option in self.params:
            typed = (
                ctx.get_parameter_source(option.name or "")
                is click.core.ParameterSource.COMMANDLINE
            )
            if (
                typed
                and isinstance(option, click.Option)
                and ctx.params.get(option.name or "") in ("", ("",))
                and not option.is_flag
            ):
                raise click.UsageError(f"{option.opts[0]} is empty", ctx)
        code = super().invoke(ctx)
        if code:
            sys.exit(code)
        return 0

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"": []}
        for option in self.params:
            if isinstance(option, click.Option) and not isinstance(option, SharedOption):
                about = getattr(option, "group", "")
                if record := option.get_help_record(ctx):
                    groups.setdefault(about, []).append(record)
        for about, rows in groups.items():
            if rows:
                with formatter.section(f"Options for {about}" if about else "Options"):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        _write_examples(formatter, self.examples)
        if not self.shared_options:
            return
        formatter.write_paragraph()
        formatter.write_text(
            f"Common options: {', '.join(self.shared_names)} (llamath help options)"
        )

    @property
    def shared_options(self) -> list[str]:
        """The options of this command that others have, too."""
        accepted = {x.opts[-1] for x in self.params if isinstance(x, SharedOption)}
        return [x for x in SHARED_OPTIONS if x in accepted]

    @property
    def shared_names(self) -> list[str]:
        """The options of this command that others have, too, --format with what it can be."""
        own = {x.opts[-1]: x.type for x in self.params}
        return [
            f"{x} {'|'.join(map(str, kind.choices))}"
            if isinstance(kind := own[x], click.Choice) and x == "--format"
            else _spellings(x)[0]
            for x in self.shared_options
        ]


def command(
    name: str,
    examples: Sequence[str],
    *,
    json: bool = True,
    brief: bool = False,
    formats: Sequence[str] = (),
) -> Callable[[Callable[..., int | None]], Command]:
    """Return a decorator that makes a function a command.

    The function gets `form`: `json`, `brief`, one of `formats`, or None for text.
    """

    def decorate(function: Callable[..., int | None]) -> Command:
        command: Command = click.command(
            name, cls=Command, context_settings={"help_option_names": ["-h", "--help"]}
        )(function)
        command.examples = examples
        kinds: dict[str, dict[str, Any]] = {
            **({"--json": {}} if json else {}),
            **({"--brief": {}} if brief else {}),
            **({"--format": {"type": click.Choice(formats)}} if formats else {}),
        }
        for option, kind in kinds.items():
            command.params.append(SharedOption([option], **SHARED_OPTIONS[option], **kind))
        return command

    return decorate


class _CommandGroup(_Main, click.Group):
    """The group of all commands, whose modules are imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name == "help":
            return _show_help
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f".{cmd_name}", __package__).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in (*COMMANDS, "help"):
            raise _unknown_command(args[0])
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in FIRST])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = 2 + max(len(example) for example, _ in EXAMPLES)
        fits = all(width + len(text) + 2 <= formatter.width for _, text in EXAMPLES)
        with formatter.section("Examples"):
            for example, text in EXAMPLES:
                formatter.write(
                    f"  {example:{width}}{text}\n" if fits else f"  {example}\n      {text}\n"
                )
        formatter.write_paragraph()
        formatter.write_text(
            f"`llamath help all` lists all {len(COMMANDS)} commands and what MODEL can be, "
            "`llamath COMMAND -h` explains one."
        )

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:  # noqa: ARG002
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=text)
            for name, text in COMMANDS.items()
            if name.startswith(incomplete)
        ]


def _print_help(ctx: click.Context, _option: click.Parameter, requested: bool) -> None:
    if requested and not ctx.resilient_parsing:
        echo(ctx.get_help())
        ctx.exit()


def _print_version(ctx: click.Context, _option: click.Parameter, requested: bool) -> None:
    if requested and not ctx.resilient_parsing:
        # importlib.metadata would cost as much as all other imports
        echo(f"llamath, version {import_module('..', __package__).__version__}")
        ctx.exit()


def _write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    with formatter.section("Examples"):
        indent = " " * formatter.current_indent
        for example in examples:
            line, *rest = re.findall(_SHELL_WORDS, example)
            for i, word in enumerate(rest):
                ending = " \\" if i < len(rest) - 1 else ""
                if (
                    len(indent) + len(line.rpartition("\n")[2]) + len(f" {word}{ending}")
                    > formatter.width
                ):
                    line += f" \\\n{indent}   "
                line += f" {word}"
            formatter.write(f"{indent}{line}\n")


_MEANT = {
    **dict.fromkeys(("--gpu", "--gpus", "--card", "--hardware"), "--on rtx-4090"),
    **dict.fromkeys(("--vram", "--memory", "--budget"), "--on 'mem=24GiB'"),
    **dict.fromkeys(("--quant", "--quantization", "--precision"), "--dtype q4_k_m"),
    **dict.fromkeys(("--ctx", "--ctx-size", "--max-model-len", "--seq-len"), "--context 8k"),
    "--csv": "--format csv",
    "--markdown": "--format markdown",
}
"""Options of other programs, or words of people, and what they are here."""


def _known_option(context: click.Context, option: str) -> LlamathError | None:
    """Return the error of an option that a command had before, or that others have for a
    reason.
    """
    now = MOVED_OPTIONS.get(f"{context.info_name} {option}")
    if now is not None:
        then = f"is now `{now}`" if now else "has gone: leave it out"
        return LlamathError(
            f"`{option}` of `llamath {context.info_name}` {then}",
            hint=f"llamath {context.info_name} --help",
        )
    owned = {y for x in context.command.params for y in x.opts}
    if (meant := _MEANT.get(option)) and meant.split()[0] in owned:
        return LlamathError(
            f"`llamath {context.info_name}` has no {option}", hint=f"did you mean {meant}?"
        )
    if option != "--via":
        return None
    message = (
        f"`{context.command_path}` needs the formulas of a family; a model that transformers "
        "builds has names and shapes only"
    )
    return LlamathError(
        message, hint="count, names, memory (of the weights), verify and diff have --via"
    )


def _unknown_command(name: str) -> LlamathError:
    from ..utils.errors import safe

    if name in MOVED:
        return LlamathError(
            f"`llamath {name}` is now `llamath {MOVED[name]}`",
            hint=f"llamath {MOVED[name].split()[0]} --help",
        )
    near = nearest(name, COMMANDS)
    hint = f"did you mean {' or '.join(near[:2])}?" if near else "`llamath` lists the commands"
    return LlamathError(f"unknown command {safe(repr(name), 60)}", hint=hint)


@click.group(
    cls=_CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Know a Llama down to its last weight: count, check, size, compare and run Llama-family
    models.
    """
    if ctx.invoked_subcommand is None:
        echo(ctx.get_help())


def find_command(name: str) -> click.Command | None:
    """Return the command of a name."""
    return cli.get_command(click.Context(cli), name)


@click.command("help", hidden=True)
@click.argument("topics", nargs=-1, metavar="[COMMAND | all | options | skill]")
@click.pass_context
def _show_help(ctx: click.Context, topics: tuple[str, ...]) -> None:
    """Show the help of a command, all commands, the options that many of them share, or the
    skill file for agents.
    """
    parent = ctx.parent or ctx
    if not topics:
        echo(parent.get_help())
        return
    if topics[0] == "all":
        echo(_all_commands_help(parent))
        return
    if topics[0] == "options":
        echo(_shared_options_help(parent))
        return
    if topics[0] == "skill":
        from importlib.resources import files

        echo(files(__package__).joinpath("SKILL.md").read_text(encoding="utf-8"), end="")
        return
    command = cli.get_command(parent, topics[0])
    if command is None:
        raise _unknown_command(topics[0])
    with click.Context(command, info_name=topics[0], parent=parent) as inner:
        echo(command.get_help(inner))


def _all_commands_help(ctx: click.Context) -> str:
    formatter = ctx.make_formatter()
    for title, commands in GROUPS.items():
        with formatter.section(title):
            formatter.write_dl(list(commands.items()))
    formatter.write_paragraph()
    formatter.write_text(
        "MODEL is a preset (llama-3-8b), a repository on the Hub (owner/name, "
        "owner/name@revision, owner/name/file.gguf; the local Hugging Face cache is read first), a "
        "config.json, params.json, GGUF file or folder, - for standard input, or ModelArgs: "
        "dim=4096,n_layers=32,n_heads=32,vocab_size=32000"
    )
    formatter.write_paragraph()
    *names, last = SHARED_OPTIONS
    formatter.write_text(f"`llamath help options` explains {', '.join(names)} and {last}.")
    return formatter.getvalue().strip("\n")


def _shared_options_help(ctx: click.Context) -> str:
    formatter = ctx.make_formatter()
    formatter.write_text(
        "Options that many commands share; `llamath COMMAND --help` names those of a command."
    )
    with formatter.section("Common options"):
        formatter.write_dl(shared_option_records(ctx))
    return formatter.getvalue().rstrip("\n")


def shared_option_records(ctx: click.Context) -> list[tuple[str, str]]:
    """Return each shared option with its help, and --help."""
    records = [
        SharedOption(_spellings(name), **settings).get_help_record(ctx)
        for name, settings in SHARED_OPTIONS.items()
    ]
    return [*(x for x in records if x), ("-h, --help", "Show the help of a command.")]


def run_program() -> NoReturn:
    """Run the command line as a program, which ends with its exit code."""
    gc.freeze()
    try:
        cli.main()
    except SystemExit as ended:
        if under_torchrun():
            _exit_rank(ended.code)
        raise
    finally:
        gc.freeze()  # what is left need not be looked through at the end
    raise AssertionError("the command line exits")


def _exit_rank(code: str | int | None) -> None:
    """End a process started by torchrun without the interpreter's own shutdown.

    The threads of gloo release the tensors of the last collectives in their own time. One that does
    so while the interpreter shuts down aborts the process, and torchrun then reports that the run
    failed.
    """
    with suppress(OSError, ValueError):  # a reader that left, or a closed stream
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)
