"""`llamath same`."""

from __future__ import annotations

from typing import Any

import click

from ..questions.file_questions import SameQuestion
from .command_group import command as make_command
from .generation_options import compute_dtype_option, device_option, engine_option
from .model_options import MODEL, set_option
from .output import TABLES, echo, echo_json, echo_report, note
from .question_options import Asked, asks

_EXAMPLES = (
    "llamath same ./Llama-3.2-1B ./Llama-3.2-1B.gguf",
    "llamath same ./Llama-3.2-1B ./merged --adapter ./my-adapter",
    "llamath same ./Llama-3.2-1B --brief  # its hash",
    "llamath same original/ model.gguf 'The capital of France is' --logits --tolerance 0.05",
)
_OF_LOGITS = {"prompt": "PROMPT", "tolerance": "--tolerance"} | {
    "dtype": "--dtype",
    "device": "--device",
    "engine": "--engine",
    "changes": "--set",
}
"""The options of `--logits`, by their parameters."""


@make_command("same", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("a", metavar="A", type=MODEL)
@click.argument("b", metavar="[B]", required=False, type=MODEL)
@click.argument("prompt", required=False)
@asks(SameQuestion)
@click.option("--logits", is_flag=True, help="Compare what they compute instead.")
@click.option(
    "--tolerance",
    type=click.FloatRange(0),
    default=None,
    metavar="X",
    help="Relative to the largest logit.  [default: 1e-4, or 2e-2 in 16 bits]",
)
@compute_dtype_option("Dtype that both compute in.  [default: fp32]")
@device_option
@engine_option
@set_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    a: str,
    b: str | None,
    *,
    asked: Asked,
    logits: bool,
    form: str | None,
    **options: Any,
) -> int:
    """Whether the checkpoints A and B hold the same weights, and if not, where they differ, and
    why. Of A alone, the hash of its weights, equal in any lossless format.

    Formats, names, shards, fused tensors and packed weights may differ; an adapter stands for its
    merged base model. With --logits, whether both compute the same logits of PROMPT or a built-in
    text, and if not, where they first differ; a PROMPT ids:1,2,3 is token ids, and random:64 or
    random:64,SEED random ones; --set changes a config key of B. Exit code 0:
    identical or equal within rounding, 1: different, 2: unreadable.
    """
    given = click.core.ParameterSource.COMMANDLINE
    wrong = [
        y for x, y in _OF_LOGITS.items() if not logits and ctx.get_parameter_source(x) is given
    ]
    if wrong:
        verb = "are" if len(wrong) > 1 else "is"
        raise click.UsageError(f"{' and '.join(wrong)} {verb} for --logits", ctx)
    adapted = "adapter" in asked.given
    if b is None and (logits or adapted):
        raise click.UsageError(f"{'--logits' if logits else '--adapter'} needs A and B", ctx)
    if adapted and logits:
        raise click.UsageError("--adapter is for the weights, not for --logits", ctx)
    if b is None:
        return _print_hash(a, form)
    if logits:
        return _print_logits(a, b, form, options)
    from .. import api
    from ..render.progress import Bar

    with Bar("reading headers") as bar:
        report = api.answer_same(a, b, asked.parse(SameQuestion), progress=bar.update)
    echo_report(report, form)
    return int(not report)


def _print_logits(a: str, b: str, form: str | None, options: dict[str, Any]) -> int:
    from .logits_comparison import compare_logits

    report, model = compare_logits(a, b, **options)
    if form == "json":
        echo_json({"model": model, **report.to_json()})
    elif form == "brief":
        echo(report.headline)
    else:
        echo_report(report, form)
    return int(not report)


def _print_hash(path: str, form: str | None) -> int:
    """Print the hash of the weights; --json and --format also print the hash of each weight."""
    from .. import api
    from ..render.progress import Bar

    with Bar("reading headers") as bar:
        report = api.hash_weights(path, progress=bar.update)
    for text in report.notes if form != "json" else ():
        note(text)
    if form == "brief":
        echo(report.hash)
    else:
        echo_report(report, form)
    return 0
