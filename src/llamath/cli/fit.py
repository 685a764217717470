"""`llamath fit`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..core.units import parse_tokens, tokens_note
from ..hardware import parse_devices
from ..model import Model
from .memory import SCHEMES, doubt, warn
from .model_options import takes_model
from .output import say

if TYPE_CHECKING:
    from ..analysis.inference.fit_report import FitReport
    from ..analysis.inference.inference_memory import MemoryCalculator


@click.command("fit")
@takes_model
@click.option("--on", "on", metavar="GPUS", help="A GPU of the catalogue, or several: h100, 2xh100 (llamath gpus lists them).")
@click.option("--gpu", "other", metavar="SPEC", help="Any machine instead: 'mem=80GiB bw=3.35TB/s bf16=989TF', '2x mem=…'.")
@click.option("--dtype", default="", metavar="NAME", help=f"What the weights are in, if not what MODEL says: {SCHEMES}")
@click.option("--kv-dtype", default="", metavar="NAME", help="What keys and values are in: bf16, fp8, int8, q8_0, q4_0, …")
@click.option("--context", default="", metavar="TOKENS", help="Tokens of each sequence: 4096, 128k; the model's own context if not said.")
@click.option("--batch", type=int, default=1, show_default=True, help="Sequences at once.")
@click.option("--tp", type=int, help="Tensor parallelism; the widest inside a node that divides the model, if not said.")
@click.option("--pp", type=int, help="Stages of a pipeline.")
@click.option("--json", "form", flag_value="json", help="For programs.")
@click.option("--svg", metavar="FILE", help="Draw the roofline as well.")
@click.option("--force", is_flag=True, help="Let --svg write over a file.")
@click.pass_context
def command(ctx: click.Context, /, model: Model, *, on: str | None, other: str | None, form: str | None, **asked: Any) -> None:
    """Does MODEL fit, and how fast could it be at the most? Exit code 0: it fits, 1: it does not.

    Without --on and --gpu: which cards of the catalogue can run it, smallest first.
    """
    if on is not None and other is not None:
        raise click.UsageError("either --on or --gpu, not both")
    picture, split = {x: asked.pop(x) for x in ("svg", "force")}, {x: asked.pop(x) for x in ("tp", "pp")}
    said = asked.pop("context")
    if said and (note := tokens_note(said)):
        say(f"note: {note}", err=True)
    sizes = _sizes(model, asked | {"context": parse_tokens(said) if said else None}, str(ctx.params.get("model") or ""))
    doubt(sizes)
    where = on if on is not None else other
    if where is None:
        if any(x is not None for x in (picture["svg"], *split.values())):
            raise click.UsageError("--svg, --tp and --pp want to know on what: --on 2xh100")
        _rank(sizes, form)
    else:
        _fit(model, sizes, where, split, form, picture)


def _sizes(model: Model, asked: dict[str, Any], name: str) -> MemoryCalculator:
    from ..analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
    from ..analysis.inference.weight_bytes import read_stored_weights

    request = MemoryRequest(**asked)
    return MemoryCalculator(model, request, None if request.dtype else read_stored_weights(name))


def _fit(
    model: Model, sizes: MemoryCalculator, where: str, split: dict[str, int | None], form: str | None, picture: dict[str, Any]
) -> None:
    from ..analysis.inference.fit_report import fit

    count, gpu = parse_devices(where)
    report = fit(sizes, gpu, count, **split)
    warn(model, sizes.context)
    if form == "json":
        import json

        say(json.dumps(report.to_json()))
    else:
        from ..render.text.fit_text import fit_text

        say(fit_text(report))
    _draw(model, sizes, report, **picture)
    if not report.fits:
        sys.stdout.flush()
        sys.exit(1)


def _draw(model: Model, sizes: MemoryCalculator, found: FitReport, svg: str | None, force: bool) -> None:
    if svg is not None:
        from ..render.svg.roofline_svg import roofline_svg
        from .save_file import save

        save(svg, roofline_svg(model, sizes, found), force)


def _rank(sizes: MemoryCalculator, form: str | None) -> None:
    from ..analysis.inference.gpu_ranking import rank_gpus

    ranking = rank_gpus(sizes)
    if form == "json":
        import json

        say(json.dumps(ranking.to_json()))
    else:
        from ..render.text.fit_text import gpu_ranking_text

        say(gpu_ranking_text(ranking))
    if not ranking.fits:
        sys.stdout.flush()
        sys.exit(1)
