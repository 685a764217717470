"""`llamath plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..hardware.kernel_rates import ATTENTION_CHOICES
from ..model import Model
from ..render.progress import Progress
from ..utils.key_values import choice, parse_key_values, plain
from .command_group import command as make_command
from .model_options import (
    context_option,
    dtype_option,
    kv_dtype_option,
    note_context,
    on_option,
    takes_model,
)
from .output import TABLES, echo_report

if TYPE_CHECKING:
    from ..analysis.plan import PlanReport
    from ..analysis.plan.serving_plan import ServeReport

_EXAMPLES = (
    "llamath plan llama-3.1-405b --on 16384xh100 --batch-tokens 16M --tokens 15.6T",
    "llamath plan llama-3-70b --on 64xh100 --layout tp=8",
    "llamath plan llama-3.1-70b --on 8xh100 --serve --latency 50ms",
)
_TRAINING_OPTIONS = {"batch_tokens": "", "tokens": "", "layout": "", "training": ""}
_SERVING_OPTIONS = {"latency": "", "kv_dtype": ""}
"""Options that only one of the two questions has -> their defaults."""
_TRAINING = {
    "optimizer": plain,
    "grad_dtype": plain,
    "attention": choice(*ATTENTION_CHOICES),
    "kernels": choice("eager", "fused"),
    "recompute": choice("none", "selective", "op", "full"),
    "loss": plain,
    "fp8": plain,
}


@make_command("plan", _EXAMPLES, brief=True, formats=TABLES)
@takes_model
@on_option(
    "GPUs: 16384xh100, or '8x mem=80GiB bw=2TB/s bf16=300TF'. `llamath gpus` lists them.",
    required=True,
)
@click.option(
    "--train/--serve", default=True, help="Plan for training (default), or for inference."
)
@context_option("Tokens of each sequence: 8192, 128k, max.")
@click.option(
    "--batch-tokens", default="", metavar="TOKENS", help="Training tokens per step: 16M is 16·2²⁰."
)
@click.option(
    "--tokens", default="", metavar="COUNT", help="Training tokens in all, for the duration: 15.6T."
)
@click.option(
    "--layout",
    default="",
    metavar="SPEC",
    help="Keep these fixed: tp=8,pp=16; also cp, ep, dp, zero, microbatch, interleave.",
)
@click.option(
    "--training",
    default="",
    metavar="SPEC",
    help="optimizer=adamw8bit, grad_dtype=bf16, attention=flash3, fp8=tensorwise, loss=chunked, "
    "recompute=op.",
)
@click.option(
    "--latency",
    default="",
    metavar="TIME",
    help="With --serve: maximum time per token, such as 50ms.",
)
@dtype_option("Dtype of the weights, if not MODEL's own.")
@kv_dtype_option
@click.option(
    "--top", type=int, default=10, show_default=True, metavar="N", help="Number of plans to show."
)
def command(
    model: Model, *, on: str, train: bool, form: str | None, top: int, **options: Any
) -> int:
    """Rank the ways to split MODEL over a cluster: TP × PP × CP × EP × DP, with memory and
    predicted MFU. Exit code 1: none fits.
    """
    for name, value in (_SERVING_OPTIONS if train else _TRAINING_OPTIONS).items():
        if options[name] != value:
            raise click.UsageError(
                f"--{name.replace('_', '-')} is for {'--serve' if train else 'training'}"
            )
    from ..api import plan

    shared: dict[str, Any] = {
        "on": on,
        "context": options["context"],
        "dtype": options["dtype"],
        "top": top,
    }
    with Progress("searching layouts"):
        if train:
            settings = parse_key_values(options["training"], "--training", _TRAINING)
            totals: dict[str, Any] = {
                name: options[name] or None for name in ("batch_tokens", "tokens")
            }
            report: PlanReport | ServeReport = plan(
                model, layout=options["layout"], **totals, **settings, **shared
            )
        else:
            report = plan(
                model,
                serve=True,
                latency=options["latency"] or None,
                kv_dtype=options["kv_dtype"],
                **shared,
            ).replace(top=top)
    note_context(model, report.context, options["context"], form)
    echo_report(report, form)
    return int(not report)
