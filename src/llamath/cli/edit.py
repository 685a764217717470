"""`llamath edit`."""

from __future__ import annotations

from typing import Any

import click

from .command_group import command as make_command
from .model_options import MODEL, dry_run_option, force_option, local_model
from .output import TABLES, echo, echo_json, echo_report

_EXAMPLES = (
    "llamath edit Llama-3.2-1B pruned --drop-layers 10:14",
    "llamath edit Qwen3-0.6B padded --resize-vocab 152064",
    "llamath edit Llama-3.1-70B ranks/0 --tp-shard 0/4",
    "llamath edit ranks joined --join-shards",
)


@make_command("edit", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("source", metavar="SRC", type=MODEL)
@click.argument("target", metavar="DST")
@click.option(
    "--drop-layers",
    metavar="LAYERS",
    help="Layers to remove: 20:28 for layers 20 to 27, or a list such as 3,5,-1.",
)
@click.option(
    "--resize-vocab",
    type=int,
    metavar="N",
    help="Rows of embedding and head; new rows are the mean of the others.",
)
@click.option(
    "--tp-shard",
    default="",
    metavar="R/N",
    help="Write the part of rank R of N (tensor parallelism); ranks count from 0.",
)
@click.option("--join-shards", is_flag=True, help="Join the ranks in the subfolders of SRC.")
@force_option
@dry_run_option
def command(source: str, target: str, *, form: str | None, **options: Any) -> None:
    """Write an edited copy of the checkpoint SRC to the folder DST, with a config that describes
    it.

    Layers are dropped first, then the vocabulary is resized.
    """
    from ..api import edit
    from ..render.progress import Bar

    try:
        with Bar("checking the source") as bar:
            report = edit(local_model(source), target, progress=bar.update, **options)
    except KeyboardInterrupt as stopped:
        for text in getattr(stopped, "__notes__", ()):
            echo(f"stopped: {text}", err=True)
        raise
    if form == "json":
        echo_json(report.to_json())
    else:
        echo_report(report, form)
