"""`llamath serve`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..web.server.server import ServerAddress


@click.command("serve")
@click.argument("models", nargs=-1, metavar="[MODEL …]")
@click.option("--hub", is_flag=True, help="Let the page ask the hub for configurations, by owner/name.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; by default this machine alone can ask.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, show_default=True, help="0: any that is free.")
@click.option("--browser/--no-browser", default=None, help="Open it in the browser; by default where there are a terminal and a screen.")
def command(models: tuple[str, ...], *, hub: bool, host: str, port: int, browser: bool | None) -> None:
    """Open the page of one model or two in the browser; without MODEL, or with more, a page on which to choose.

    The address is printed; it holds a token that is new with each launch, and nothing is answered without it. Ctrl-C ends it.
    """
    if models.count("-") > 1:
        raise click.UsageError("standard input is one MODEL, not two")
    from ..web.page_data.checkpoint_data import opened
    from ..web.server.server import is_loopback, serve

    if not is_loopback(host):
        click.echo(f"listening on {host}: whoever reaches this machine and has the address sees the page, unencrypted", err=True)

    def ready(where: ServerAddress) -> None:
        click.echo(where.address)
        sys.stdout.flush()
        if attended() if browser is None else browser:
            show(where.one_time_address)

    serve([opened(x) for x in models], host, port, ready, hub=hub)


def attended() -> bool:
    """Whether somebody sits before a terminal and a screen."""
    if "CI" in os.environ or not (sys.stdout.isatty() and sys.stdin.isatty()):
        return False
    screen = any(os.environ.get(x) for x in ("DISPLAY", "WAYLAND_DISPLAY"))
    return screen or (sys.platform in ("darwin", "win32") and "SSH_CONNECTION" not in os.environ)


def show(address: str) -> None:
    """The address in the browser, unless that is one for the terminal; nobody waits for it."""
    import webbrowser
    from threading import Thread

    try:
        if type(webbrowser.get()) is not webbrowser.GenericBrowser:
            Thread(target=webbrowser.open, args=[address], daemon=True).start()
    except webbrowser.Error:
        pass
