"""What every command that takes a MODEL understands: a preset, a path, `-`, ModelArgs as options, and `--set`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..checkpoint.open import names_checkpoint
from ..core.errors import FormatError, UnknownModel
from ..loading import load
from ..model import Model

if TYPE_CHECKING:
    from ..analysis.count.header_count import HeaderCount

ARGS: dict[str, Any] = {
    "dim": int, "n_layers": int, "n_heads": int, "n_kv_heads": int, "multiple_of": int, "ffn_dim_multiplier": float,
    "norm_eps": float, "rope_theta": float, "max_batch_size": int, "max_seq_len": int,
}  # fmt: skip


def takes_model(command: Callable[..., None], header: bool = False) -> Callable[..., None]:
    """Add the argument and options that name a model; the command gets a `Model` first, or with `header` perhaps a `HeaderCount`."""

    @wraps(command)
    def wrapper(model: str | None, changes: tuple[str, ...], vocab_size: int | None, **rest: Any) -> None:
        said(click.get_current_context())
        args = {name: rest.pop(name) for name in ARGS}
        try:
            found: Model | HeaderCount = _model(model, changes, vocab_size, {name: x for name, x in args.items() if x is not None})
        except UnknownModel as error:
            if not header or not model or changes or vocab_size is not None:
                raise
            found = _header(model, error)
        command(found, **rest)

    for name, kind in reversed(ARGS.items()):
        wrapper = click.option(f"--{name.replace('_', '-')}", type=kind, help="Meta's ModelArgs, instead of MODEL.", hidden=name != "dim")(
            wrapper
        )
    wrapper = click.option("--vocab-size", type=int, help="The vocabulary, where params.json leaves it to the tokenizer.")(wrapper)
    wrapper = click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a configuration key; may be repeated.")(
        wrapper
    )
    return click.argument("model", required=False)(wrapper)


def said(ctx: click.Context) -> None:
    """Refuse an option that is given and empty, which would pass for one that is not given."""
    for option in ctx.command.params:
        given = ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.default == "" and ctx.params.get(option.name or "") == "":
            raise click.UsageError(f"{option.opts[0]} is given and empty")


def takes_checkpoint(command: Callable[..., None]) -> Callable[..., None]:
    """The same for a command that can do something with a checkpoint of no known family."""
    return takes_model(command, header=True)


def _header(model: str, error: UnknownModel) -> HeaderCount:
    """What the checkpoint's header says; the error again where there is no checkpoint."""
    from ..analysis.count.header_count import count_header

    if not names_checkpoint(model):
        raise error
    try:
        return count_header(model, str(error))
    except FormatError as problem:
        raise (error if problem.code == "no_checkpoint" else problem) from None


def _model(model: str | None, changes: tuple[str, ...], vocab_size: int | None, args: dict[str, Any]) -> Model:
    new = dict(changed(x) for x in changes)
    if args:
        if model is not None:
            raise click.UsageError(f"either MODEL or ModelArgs (--{next(iter(args)).replace('_', '-')}), not both")
        if "dim" not in args or "n_layers" not in args or "n_heads" not in args:
            raise click.UsageError("ModelArgs need at least --dim, --n-layers, --n-heads and --vocab-size")
        return load(args | ({} if vocab_size is None else {"vocab_size": vocab_size}), changes=new)
    if model is None:
        raise click.UsageError(
            "which MODEL? a preset (llama-3-8b), a public id, a config.json, params.json or folder, - for standard input, or --dim …"
        )
    return load(model, changes=new, vocab_size=vocab_size)


def changed(text: str) -> tuple[str, Any]:
    """The key and value of one `--set`: JSON where it is JSON, else text."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"--set wants KEY=VALUE, not {text!r}")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value
