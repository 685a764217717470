"""`llamath place`."""

from __future__ import annotations

from typing import Any

import click

from ..model import Model
from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import (
    batch_option,
    context_option,
    dtype_option,
    kv_dtype_option,
    on_option,
    svg_option,
    takes_model,
)
from .output import TABLES, PictureFiles, echo_report

_EXAMPLES = (
    "llamath place gpt-oss-120b --on rtx-3060 --ram 64GiB --dtype mxfp4_moe",
    "llamath place deepseek-v3 --on 2xrtx-4090 --ram 128GiB --disk 7GB/s --dtype q4_k_m",
    "llamath place ./Qwen3-30B-A3B-Q4_K_M.gguf --on 3060+4090 --ram 32GiB",
)


@make_command("place", _EXAMPLES, brief=True, formats=TABLES)
@takes_model
@on_option("GPUs of the machine: rtx-3060, 2xrtx-4090, 3060+4090.", required=True)
@click.option("--ram", required=True, metavar="SIZE", help="RAM of the machine: 64GiB.")
@click.option("--ram-bandwidth", metavar="RATE", help="Bandwidth of the RAM.  [default: 89.6GB/s]")
@click.option(
    "--disk",
    metavar="RATE",
    is_flag=False,
    flag_value="7GB/s",
    help="Bandwidth of a disk, on which what does not fit may stay; --disk alone: 7GB/s, a PCIe "
    "4.0 drive.",
)
@context_option("Tokens of each sequence: 8192, 8k, 128k.")
@batch_option
@dtype_option()
@kv_dtype_option
@svg_option("Also draw where each weight goes.")
def command(model: Model, *, svg: PictureFiles | None, form: str | None, **settings: Any) -> int:
    """Where does each weight go on GPUs, RAM and disk? With flags for llama.cpp, transformers and
    KTransformers. Exit code 1: nowhere.

    Attention first, experts last. The tokens per second are an upper bound, from the bytes that
    each device reads.
    """
    from ..api import place
    from ..render.svg.placement_svg import placement_svg

    with Progress("placing the weights"):
        report = place(model, **settings)
    echo_report(report, form)
    if svg is not None:
        svg.write(placement_svg(report))
    return int(not report)
