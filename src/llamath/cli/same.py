"""`llamath same`."""

from __future__ import annotations

import click

from .command_group import command as make_command
from .model_options import MODEL
from .output import TABLES, echo_json, echo_report

_EXAMPLES = (
    "llamath same ./Llama-3.2-1B ./Llama-3.2-1B.gguf",
    "llamath same ./Llama-3.2-1B/original ./Llama-3.2-1B",
    "llamath same ./my-adapter ./merged --base ./Llama-3.2-1B",
)


@make_command("same", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("a", metavar="A", type=MODEL)
@click.argument("b", metavar="B", type=MODEL)
@click.option(
    "--base",
    type=MODEL,
    metavar="MODEL",
    help="The base model of an adapter.  [default: the one that it names]",
)
def command(a: str, b: str, *, base: str | None, form: str | None) -> int:
    """Whether the checkpoints A and B hold the same weights, and if not, where they differ, and
    why.

    Formats, names, shards, fused tensors and packed weights may differ; an adapter stands for its
    merged base model. Exit code 0: identical or equal within rounding, 1: different, 2: unreadable.
    """
    from .. import api
    from ..render.progress import Bar

    with Bar("reading headers") as bar:
        report = api.same(a, b, base=base, progress=bar.update)
    if form == "json":
        echo_json({"model": report.a.model, **report.to_json()})
    else:
        echo_report(report, form)
    return int(not report)
