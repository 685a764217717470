"""`llamath merge`."""

from __future__ import annotations

from typing import Any

import click

from .command_group import command as make_command
from .model_options import MODEL, dry_run_option, force_option, local_model
from .output import TABLES, echo, echo_json, echo_report

_EXAMPLES = (
    "llamath merge Llama-3.2-1B my-lora merged",
    "llamath merge Qwen3-8B-GPTQ my-lora merged --dtype bf16",
)


@make_command("merge", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("base", metavar="BASE", type=MODEL)
@click.argument("adapter", metavar="ADAPTER", type=MODEL)
@click.argument("target", metavar="DST")
@click.option(
    "--dtype",
    metavar="NAME",
    help="fp32, bf16 or fp16; dequantizes packed weights.  [default: as stored]",
)
@force_option
@dry_run_option
def command(
    base: str, adapter: str, target: str, *, dtype: str | None, form: str | None, **options: Any
) -> None:
    """Merge ADAPTER (LoRA, rsLoRA, DoRA, IA³ or saved modules) into BASE, and write the model to
    the folder DST.
    """
    from ..api import merge
    from ..render.progress import Bar

    try:
        with Bar("checking the source") as bar:
            done = merge(
                local_model(base),
                local_model(adapter),
                target,
                dtype=dtype or "",
                progress=bar.update,
                **options,
            )
    except KeyboardInterrupt as stopped:
        for text in getattr(stopped, "__notes__", ()):
            echo(f"stopped: {text}", err=True)
        raise
    if form == "json":
        echo_json({**done.to_json(), "model": base, "adapter": adapter})
    else:
        echo_report(done.replace(seconds=bar.seconds), form)
