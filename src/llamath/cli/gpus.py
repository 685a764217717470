"""`llamath gpus`."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import click

from ..api import gpus as find_gpus
from ..questions.sampling_settings import SamplingSettings
from ..questions.value_kinds import GPU_NAMES
from ..render.progress import Progress
from ..utils.errors import LlamathError
from .command_group import command as make_command
from .model_options import output_option
from .output import LONG, echo_report, is_captured, write_file
from .question_options import completed
from .this_machine_option import remember_measured

_EXAMPLES = (
    "llamath gpus",
    "llamath gpus rtx 40",
    "llamath gpus h100-sxm",
    "llamath gpus this ./Llama-3.2-1B -o machine.json",
)
_THIS = "this"
_OPTIONS: dict[str, Any] = {
    "device": "cpu",
    "dtype": None,
    "changes": (),
    **dict.fromkeys(SamplingSettings.described),
}
"""How the model is opened whose speed is measured."""


@make_command("gpus", _EXAMPLES, brief=True, formats=LONG)
@click.argument("words", nargs=-1, type=completed(GPU_NAMES))
@output_option
def command(words: tuple[str, ...], *, output: str | None, force: bool, form: str | None) -> None:
    """List GPUs and other accelerators whose name or vendor contains all WORDS; for a single one,
    everything known about it.

    `this [MODEL]` measures this machine: memory bandwidth, FLOP/s, and decode and prefill of MODEL,
    or the bundled one, beside their limits at these rates. -o writes a file for `llamath fit --on
    FILE`. Exit code 2: there is no such GPU.
    """
    if words[:1] == (_THIS,) and not is_captured():  # a server measures nothing for its visitors
        if len(words) > 2:
            found = len(words) - 1
            raise click.UsageError(f"expected at most one MODEL after {_THIS}, found {found}")
        _measure(words[1] if words[1:] else None, output, force=force, form=form)
        return
    if output is not None:
        raise click.UsageError(f"--output is of this machine: llamath gpus {_THIS} --output FILE")
    echo_report(find_gpus(*words), form)


def _measure(model: str | None, path: str | None, *, force: bool, form: str | None) -> None:
    from ..native.measure import measure
    from .generation_options import open_model

    llama = open_model(model, _OPTIONS)
    with Progress("measuring"):
        report = measure(llama)
    with suppress(LlamathError):  # the model is too small for a calibration
        remember_measured(report.calibration)
    if path is not None:
        write_file(path, json.dumps(report.calibration.to_json(), indent=1) + "\n", overwrite=force)
    echo_report(report, form)
