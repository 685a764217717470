"""`llamath count`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..model import Model
from .model_options import takes_checkpoint

if TYPE_CHECKING:
    from ..analysis.count.header_count import HeaderCount


@click.command("count")
@takes_checkpoint
@click.option("--layer", type=click.IntRange(min=0), help="One layer only.")
@click.option("--unfold", is_flag=True, help="Every tensor on a line of its own.")
@click.option("--tree", is_flag=True, help="The module tree, as print(model) draws it.")
@click.option("--names", type=click.Choice(["hf", "meta", "gguf"]), help="Say the weights' names as these files have them.")
@click.option("--json", "form", flag_value="json", help="For programs.")
@click.option("--csv", "form", flag_value="csv", help="The table, for spreadsheets.")
@click.option("--markdown", "form", flag_value="markdown", help="The table, for documents.")
@click.option("--svg", metavar="FILE", help="Draw the weights to scale as well.")
@click.option("--force", is_flag=True, help="Let --svg write over a file.")
def command(
    model: Model | HeaderCount, *, layer: int | None, unfold: bool, tree: bool, names: str | None, form: str | None, **picture: Any
) -> None:
    """Count the parameters of MODEL, weight by weight, with the formula; of a checkpoint that no family fits, from its header."""
    if not isinstance(model, Model):
        _header(
            model,
            unfold,
            form,
            rest=layer is not None or tree or names is not None or form in ("csv", "markdown") or picture["svg"] is not None,
        )
        return
    if layer is not None and layer >= int(model.tree.layers.n):
        raise click.UsageError(f"--layer {layer}: the model has {int(model.tree.layers.n):,} layers, 0 to {int(model.tree.layers.n) - 1:,}")
    if (form == "json" or tree) and (layer is not None or unfold or names or (form and tree)):
        raise click.UsageError(
            "--json and --tree show the whole model by canonical names: not with --layer, --unfold, --names or each other"
        )
    scheme = model.scheme(names) if names else None
    if form == "json":
        import json

        from ..analysis.count.count_report import CountReport

        click.echo(json.dumps(CountReport(model=model).to_json()))
    elif tree:
        from ..render.text.tree_text import tree_text

        click.echo(tree_text(model))
    elif unfold or form:
        from ..render.csv_rows import folded_rows, unfolded_rows

        for line in unfolded_rows(model, scheme, layer, form) if unfold else folded_rows(model, scheme, layer, form or "csv"):
            click.echo(line)
    else:
        from ..render.text.count_text import count_text

        click.echo(count_text(model, layer, scheme))
    _draw(model, **picture)


def _draw(model: Model, svg: str | None, force: bool) -> None:
    if svg is not None:
        from ..render.svg.treemap_svg import treemap_svg
        from .save_file import save

        save(svg, treemap_svg(model), force)


def _header(found: HeaderCount, unfold: bool, form: str | None, rest: bool) -> None:
    if rest:
        raise click.UsageError(f"{found.reason}; without a family there is only --json, --unfold and the table")
    if form == "json":
        import json

        click.echo(json.dumps(found.to_json()))
    else:
        from ..render.text.count_text import header_count_text

        for line in header_count_text(found, unfold):
            click.echo(line)
