"""`llamath count`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..model import Model
from ..render.progress import Progress
from .command_group import command as make_command
from .model_options import is_generic, picture_option, takes_checkpoint
from .output import TABLES, PictureFile, echo, echo_report, echo_table, warn

if TYPE_CHECKING:
    from ..analysis.count.header_count import HeaderCount
    from ..generic.generic_model import GenericModel

_EXAMPLES = (
    "llamath count llama-3-8b",
    "llamath count dim=4096,n_layers=32,n_heads=32,vocab_size=32000",
    "llamath count llama-3-8b --set tie_word_embeddings=true",
    "llamath count ./my-checkpoint --brief",
    "llamath count google/gemma-3-4b-it --part vision",
    "llamath count ./my-bert --via transformers",
)


@make_command("count", _EXAMPLES, brief=True, formats=(*TABLES, "tree"))
@takes_checkpoint
@click.option("--layer", type=click.IntRange(min=0), metavar="N", help="This layer only.")
@click.option("--unfold", is_flag=True, help="Every tensor on its own line.")
@click.option(
    "--names", type=click.Choice(["hf", "meta", "gguf"]), help="Tensor names as in these files."
)
@click.option(
    "--part",
    type=click.Choice(["text", "vision", "audio"]),
    help="Only this part of a multimodal model.",
)
@picture_option
def command(
    model: Model | HeaderCount,
    *,
    layer: int | None,
    unfold: bool,
    names: str | None,
    part: str | None,
    picture: PictureFile | None,
    form: str | None,
) -> None:
    """Count the parameters of MODEL, weight by weight, with the formula; for an unknown family,
    from the checkpoint's header.

    A file that holds something else than the config next to it describes, such as one shard, is
    counted by its own header. --picture draws the weights to scale, --format tree prints the
    blocks.
    """
    if isinstance(model, Model) and is_generic(model):
        _print_generic(model.part(part) if part else model, layer, unfold, names, picture, form)
        return
    if (
        isinstance(model, Model)
        and model.location
        and not click.get_current_context().params["changes"]
    ):
        from ..analysis.count.count_files import count_files

        with Progress("reading headers"):
            model, notes = count_files(model)
        for line in notes if form == "brief" else ():
            warn(line)
    if not isinstance(model, Model):
        if (
            layer is not None
            or names is not None
            or part is not None
            or picture is not None
            or form not in (None, "json", "brief")
        ):
            raise click.UsageError(
                f"{model.reason}; without a family there is only --json, "
                "--brief, --unfold and the table"
            )
        _print_header(model, unfold, form)
        return
    if names in ("gguf", "meta"):
        model = model.text  # such files have no towers
    if part is not None:
        model = model.part(part)
    layers = 0 if model.part_name in ("vision", "audio") else int(model.tree.layers.n)
    if layer is not None and layer >= layers:
        raise click.UsageError(
            f"--layer {layer}: the model has {layers:,} layers"
            + (f", 0 to {layers - 1:,}" if layers else "")
        )
    if form in ("json", "tree", "brief") and (layer is not None or unfold or names):
        option = f"--{form}" if form in ("json", "brief") else f"--format {form}"
        raise click.UsageError(
            f"{option} shows the whole model by canonical names: not with "
            "--layer, --unfold or --names"
        )
    _print(model, layer, unfold, names, form)
    if picture is not None:
        from ..render.svg.treemap_svg import treemap_svg

        picture.write(treemap_svg(model))


def _print(
    model: Model, layer: int | None, unfold: bool, names: str | None, form: str | None
) -> None:
    from ..analysis.count.count_report import CountReport
    from ..analysis.count.count_tables import count_tables

    scheme, report = model.scheme(names) if names else None, CountReport(model=model)
    if form == "tree":
        from ..render.text.tree_text import tree_text

        echo(tree_text(model))
    elif unfold:
        from ..render.text.count_rows import unfolded_rows

        rows = unfolded_rows(model, scheme, layer, form)
        if form:
            echo_table(report.summary, rows, form)
            return
        for line in rows:
            echo(line)
    else:
        echo_report(report, form, count_tables(model, layer, scheme))


def _print_generic(
    model: GenericModel,
    layer: int | None,
    unfold: bool,
    names: str | None,
    picture: PictureFile | None,
    form: str | None,
) -> None:
    """Print the count of a model without a family."""
    from ..analysis.generic.state_dict_count import StateDictCount

    if layer is not None or picture is not None or names not in (None, "hf") or form in TABLES:
        raise click.UsageError(
            f"the model is counted {model.claim}: there is only --json, "
            "--brief, --unfold, --format tree and the table"
        )
    if form == "tree":
        from ..render.text.tree_text import tree_text

        echo(tree_text(model))
        return
    report = StateDictCount(model=model)
    echo_report(report, form, report.tables(unfold=unfold))


def _print_header(header_count: HeaderCount, unfold: bool, form: str | None) -> None:
    echo_report(header_count, form, header_count.tables(unfold=unfold))
