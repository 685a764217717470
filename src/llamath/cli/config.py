"""`llamath config`."""

from __future__ import annotations

import click

from ..model import Model
from .model_options import takes_model


@click.command("config")
@takes_model
@click.option("--json", "form", flag_value="json", help="For programs.")
@click.option("--params-json", "form", flag_value="params", help="As Meta's params.json.")
def command(model: Model, *, form: str | None) -> None:
    """Say MODEL's configuration as HF keys and as Meta's ModelArgs, and what each key moves."""
    from ..analysis.config_report import config_report
    from ..render.text.config_text import config_text, params_json_text

    report = config_report(model)
    if form == "json":
        import json

        click.echo(json.dumps(report.to_json()))
    elif form == "params":
        click.echo(params_json_text(model))
        for remark in report.remarks:
            click.echo(f"note: {remark}", err=True)
    else:
        click.echo(config_text(report))
