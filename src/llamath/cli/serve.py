"""`llamath serve`."""

from __future__ import annotations

import click

from ..loading import load


@click.command("serve")
@click.argument("models", nargs=-1, metavar="[MODEL [MODEL]]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; by default this machine alone can ask.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, show_default=True, help="0: any that is free.")
def command(models: tuple[str, ...], *, host: str, port: int) -> None:
    """Open the page of one model or two for a browser on this machine; without MODEL, a list of the presets.

    The address is printed; it holds a token that is new with each launch, and nothing is answered without it.
    """
    if len(models) > 2:
        raise click.UsageError("a page shows one MODEL or two")
    from ..web.server import loopback, serve

    if not loopback(host):
        click.echo(f"listening on {host}: whoever reaches this machine and has the address sees the page, unencrypted", err=True)
    serve([load(x) for x in models], host, port, lambda address: click.echo(address))
