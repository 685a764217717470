"""`llamath place`."""

from __future__ import annotations

from ..model import Model
from ..questions.serving_questions import PlaceQuestion
from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import svg_option, takes_model
from .output import TABLES, PictureFiles, echo_report
from .question_options import Asked, asks

_EXAMPLES = (
    "llamath place gpt-oss-120b --on rtx-3060 --ram 64GiB --dtype mxfp4_moe",
    "llamath place deepseek-v3 --on 2xrtx-4090 --ram 128GiB --disk 7GB/s --dtype q4_k_m",
    "llamath place ./Qwen3-30B-A3B-Q4_K_M.gguf --on 3060+4090 --ram 32GiB",
)


@make_command("place", _EXAMPLES, brief=True, formats=TABLES)
@takes_model
@asks(PlaceQuestion)
@svg_option("Also draw where each weight goes.")
def command(model: Model, *, asked: Asked, svg: PictureFiles | None, form: str | None) -> int:
    """Where does each weight go on GPUs, RAM and disk? With flags for llama.cpp, transformers and
    KTransformers. Exit code 1: nowhere.

    Attention first, experts last. The tokens per second are an upper bound, from the bytes that
    each device reads.
    """
    from ..api import answer_place
    from ..render.svg.placement_svg import placement_svg

    with Progress("placing the weights"):
        report = answer_place(model, asked.parse(PlaceQuestion))
    echo_report(report, form)
    if svg is not None:
        svg.write(placement_svg(report))
    return int(not report)
