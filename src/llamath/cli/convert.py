"""`llamath convert`."""

from __future__ import annotations

import re
from typing import Any

import click

from .model_options import changed

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


class Size(click.ParamType[int]):
    """A number of bytes: 5GB is 5·10⁹, 5GiB is 5·2³⁰."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d{1,15})(?:\.(\d{1,3}))?\s*([KMGT]?I?)B?", str(value).upper())
        if found is None or found[3] not in UNITS:
            self.fail(f"{value!r} is no size: 5GB, 500MB and 2GiB are", param, ctx)
        size = int(found[1] + (found[2] or "")) * UNITS[found[3]] // int(10 ** len(found[2] or ""))
        if not size:
            self.fail("a shard has at least one byte", param, ctx)
        return size


@click.command("convert")
@click.argument("source", metavar="SRC")
@click.argument("target", metavar="DST")
@click.option("--to", required=True, type=click.Choice(["hf", "meta", "gguf"]), help="safetensors, consolidated.00.pth or GGUF.")
@click.option("--dtype", help="Data type of the weights: fp32, fp16 or bf16; default: as stored.")
@click.option("--max-shard-size", type=Size(), default="5GB", show_default=True, help="Of a safetensors file.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a configuration key; may be repeated.")
@click.option("--force", is_flag=True, help="Write over what is at DST.")
@click.option("--dry-run", is_flag=True, help="Check SRC, say what would be written, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(source: str, target: str, *, to: str, dtype: str | None, changes: tuple[str, ...], as_json: bool, **rest: Any) -> None:
    """Write the Llama-family checkpoint SRC anew as DST: a folder, or for GGUF a file."""
    from ..conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
    from ..render.progress import Bar
    from ..render.text.convert_text import format_conversion

    options = ConvertOptions(to=to, dtype=dtype or "", changes=dict(changed(x) for x in changes), **rest)
    try:
        with Bar() as bar:
            done = convert_checkpoint(source, target, options, bar.update)
    except KeyboardInterrupt as stopped:
        for note in getattr(stopped, "__notes__", ()):
            click.echo(f"stopped: {note}", err=True)
        raise
    if as_json:
        import json

        click.echo(json.dumps(done.to_json()))
    else:
        click.echo(format_conversion(done, bar.seconds, options.dry_run))
