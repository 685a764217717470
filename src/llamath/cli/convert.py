"""`llamath convert`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ..questions.edit_settings import Edit
from .command_group import command as make_command
from .model_options import (
    MODEL,
    TARGET_DTYPE,
    dry_run_option,
    force_option,
    local_model,
    parse_changes,
    set_option,
)
from .output import TABLES, echo, echo_json, echo_report
from .question_options import field_option

if TYPE_CHECKING:
    from ..conversion.convert_checkpoint import ConversionReport

_EXAMPLES = (
    "llamath convert Llama-3.2-1B/original llama-hf --names hf",
    "llamath convert llama-hf model.gguf --dtype q4_k",
    "llamath convert Qwen3-8B-GPTQ qwen3-bf16 --names hf --dtype bf16",
    "llamath convert llama-hf llama-meta --names meta --dry-run",
    "llamath convert Llama-3.2-1B merged --adapter my-lora",
    "llamath convert Llama-3.2-1B pruned --layers 0:10,14:16",
    "llamath convert Llama-3.1-70B ranks --tp-shards 4",
    "llamath convert ranks joined --join-shards",
)
_NOT_WITH_ADAPTER = ("names", "max_shard_size", "changes", *Edit.described)
_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}


class _Size(click.ParamType[int]):
    """A number of bytes: 5GB is 5·10⁹, 5GiB is 5·2³⁰."""

    name = "size"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        match = re.fullmatch(r"(\d{1,15})(?:\.(\d{1,3}))?\s*([KMGT]?I?)B?", str(value).upper())
        if match is None or match[3] not in _UNITS:
            self.fail(f"{value!r} is not a size: expected 5GB, 500MB or 2GiB", param, ctx)
        size = int(match[1] + (match[2] or "")) * _UNITS[match[3]] // int(10 ** len(match[2] or ""))
        if not size:
            self.fail("a shard has at least one byte", param, ctx)
        return size


@make_command("convert", _EXAMPLES, formats=TABLES)
@click.argument("source", metavar="SRC", type=MODEL)
@click.argument("target", metavar="DST")
@click.option(
    "--names",
    type=click.Choice(["hf", "hf-fused", "meta", "gguf"]),
    help="Write safetensors (hf; hf-fused: experts in stacks), .pth (meta) or GGUF.  [default: "
    "gguf for a DST NAME.gguf]",
)
@click.option(
    "--dtype",
    type=TARGET_DTYPE,
    metavar="NAME",
    help="fp32, bf16, fp16; in GGUF also q8_0, q4_0, q4_k, q6_k, q4_k_m.  [default: as stored]",
)
@click.option(
    "--max-shard-size",
    type=_Size(),
    default="5GB",
    show_default=True,
    help="Size of each safetensors file.",
)
@field_option(Edit, "layers")
@field_option(Edit, "vocab_size")
@field_option(Edit, "tp_shards")
@click.option("--join-shards", is_flag=True, help=Edit.described["join_shards"].text())
@field_option(Edit, "part")
@click.option(
    "--adapter",
    metavar="ADAPTER",
    type=MODEL,
    help="Merge this adapter of SRC (LoRA, rsLoRA, DoRA, IA³ or saved modules) into it.",
)
@set_option
@force_option
@dry_run_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: str,
    target: str,
    *,
    adapter: str | None,
    form: str | None,
    **options: Any,
) -> None:
    """Convert the checkpoint SRC, a path or a repository on the Hub, to DST, a folder, or a file
    for GGUF.
    """
    if adapter is not None:
        _check_adapter_options(ctx)
    from ..render.progress import Bar

    try:
        with Bar("checking the source") as bar:
            done = _convert(source, target, adapter, bar.update, **options)
    except KeyboardInterrupt as stopped:
        for text in getattr(stopped, "__notes__", ()):
            echo(f"stopped: {text}", err=True)
        raise
    if form == "json":
        merged = {} if adapter is None else {"model": source, "adapter": adapter}
        echo_json({**done.to_json(), **merged})
    else:
        echo_report(done.replace(seconds=bar.seconds), form)


def _convert(
    source: str,
    target: str,
    adapter: str | None,
    progress: Callable[[int, int], None],
    *,
    dtype: str | None,
    changes: tuple[str, ...],
    force: bool,
    dry_run: bool,
    **options: Any,
) -> ConversionReport:
    """Convert a checkpoint, or merge an adapter into it."""
    from ..api import convert, merge

    path = local_model(source)
    edit = Edit.parse(**{name: options.pop(name) for name in Edit.described})
    how: dict[str, Any] = {"force": force, "dry_run": dry_run, "progress": progress}
    if adapter is not None:
        return merge(path, local_model(adapter), target, dtype=dtype or "", **how)
    how |= options | {"edit": edit, "changes": parse_changes(changes)}
    return convert(path, target, dtype=dtype or "", **how)


def _check_adapter_options(ctx: click.Context) -> None:
    given = click.core.ParameterSource.COMMANDLINE
    names = [
        x.opts[0]
        for x in ctx.command.params
        if x.name in _NOT_WITH_ADAPTER and ctx.get_parameter_source(x.name) is given
    ]
    if names:
        raise click.UsageError(f"{' and '.join(names)} cannot be used with --adapter", ctx)
