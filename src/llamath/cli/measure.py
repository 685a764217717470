"""`llamath measure`."""

from __future__ import annotations

import json
from typing import Any

import click

from ..render.progress import Progress
from .command_group import command as make_command
from .generation_options import compute_dtype_option, engine_option, open_model
from .model_options import MODEL, force_option
from .output import TABLES, echo_report, write_file

_EXAMPLES = (
    "llamath measure  # with the bundled model",
    "llamath measure ./Llama-3.2-1B --out machine.json",
    "llamath fit llama-3.1-8b --calibration machine.json --dtype q4_k_m",
)

_DEFAULTS = {
    "device": "cpu",
    "changes": (),
    "sampling": None,
    "temperature": None,
    "top_p": None,
    "seed": None,
}
"""Options of generation that do not matter here."""


@make_command("measure", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("model", required=False, type=MODEL)
@engine_option
@compute_dtype_option()
@click.option(
    "--context",
    "prompt",
    type=int,
    metavar="N",
    help="Tokens of the prompt.  [default: 512, or fewer where they do not fit]",
)
@click.option(
    "--tokens", type=int, default=32, show_default=True, metavar="N", help="Tokens to generate."
)
@click.option(
    "--threads",
    type=int,
    metavar="N",
    help="Threads that measure the machine.  [default: one for each core]",
)
@click.option("--out", metavar="FILE", help="Write what `llamath fit --calibration` reads.")
@force_option
def command(
    model: str | None,
    *,
    prompt: int | None,
    tokens: int,
    threads: int | None,
    out: str | None,
    force: bool,
    form: str | None,
    **options: Any,
) -> int:
    """Measure this machine: memory bandwidth, FLOP/s, and decode and prefill of MODEL beside
    their limits at these rates.
    """
    from ..native.measure import measure

    if threads is not None and not 1 <= threads <= 1024:
        raise click.UsageError(f"--threads should be from 1 to 1,024, found {threads:,}")
    llama = open_model(model, options | _DEFAULTS)
    with Progress("measuring"):
        report = measure(llama, prompt, tokens, threads)
    if out is not None:
        write_file(out, json.dumps(report.calibration.to_json(), indent=1) + "\n", overwrite=force)
    echo_report(report, form)
    return 0
