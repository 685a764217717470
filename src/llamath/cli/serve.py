"""`llamath serve`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from ..render.progress import Progress
from ..utils.errors import MissingExtra
from .command_group import command as make_command
from .model_options import MODEL, note_broken_files
from .output import echo, echo_json, warn

if TYPE_CHECKING:
    from ..loading import Source
    from ..web.server.json_api import Api, ApiFunction, ModelResolver
    from ..web.server.server import ServerAddress


_MODEL_OVER_HTTP = (
    "a preset's name or public id, ~1 for the first model of the command line, ModelArgs "
    "(dim=4096,n_layers=32,…), or with --allow hub owner/name"
)
_EXAMPLES = (
    "llamath serve llama-3-8b",
    "llamath serve llama-2-7b llama-3-8b",
    "llamath serve --allow hub --port 8080 --no-browser",
    "llamath serve --mcp --root ~/models  # started by an agent, which writes to its stdin",
)
HOST = "127.0.0.1"
_PAGE_OPTIONS = ("models", "port", "browser")


class _Port(click.ParamType[tuple[str, int]]):
    """A port, perhaps after an address: 8080, 0.0.0.0:8080, [::]:8080."""

    name = "port"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        address, colon, number = str(value).rpartition(":")
        if not re.fullmatch(r"\d{1,5}", number, re.ASCII) or int(number) > 65_535:
            self.fail(f"{value!r} is no port: expected 8080, or 0.0.0.0:8080", param, ctx)
        if colon and not address:
            self.fail(f"{value!r} has no address before its colon", param, ctx)
        return address.removeprefix("[").removesuffix("]") or HOST, int(number)


@make_command("serve", _EXAMPLES)
@click.argument("models", nargs=-1, metavar="[MODEL …]", type=MODEL)
@click.option(
    "--allow",
    type=click.Choice(["hub", "urls"]),
    multiple=True,
    help="Let the page or the tools read configs from the Hugging Face Hub, or the tools addresses "
    "of public servers; may be repeated.",
)
@click.option(
    "--port",
    type=_Port(),
    default="0",
    show_default=True,
    metavar="[ADDRESS:]N",
    help="Port to listen on, 0 picks a free one; without an address, from this machine only.",
)
@click.option(
    "--no-browser",
    "browser",
    is_flag=True,
    flag_value=False,
    default=None,
    help="Print the address only; a browser opens if there are a terminal and a screen.",
)
@click.option(
    "--mcp", is_flag=True, help="Offer the reports to an agent as tools over stdio, and no page."
)
@click.option(
    "--root",
    metavar="DIR",
    help="The folder whose files the tools may read.  [default: the current folder]",
)
@click.pass_context
def command(
    ctx: click.Context,
    models: tuple[str, ...],
    *,
    allow: tuple[str, ...],
    port: tuple[str, int],
    browser: bool | None,
    mcp: bool,
    root: str | None,
    form: str | None,
) -> None:
    """Serve the interactive page of one or two models; without MODEL, or with more, a page to
    choose from.

    Prints the URL. It contains a token, new at each start, that every request needs. Ctrl-C stops
    the server.

    With --mcp, an agent gets the reports as tools with the parameters of the commands, by the Model
    Context Protocol, until its input ends. The tools write no files, run no models, and read
    presets and the files under --root; with --allow hub also configs and headers on the Hub. With
    --json, they are listed instead.
    """
    _check_options(ctx, mcp)
    hub, urls = "hub" in allow, "urls" in allow
    if mcp:
        _serve_tools(root, hub=hub, urls=urls, as_json=form == "json")
        return
    if urls:
        raise click.UsageError("--allow urls is for the tools of --mcp", ctx)
    if models.count("-") > 1:
        raise click.UsageError("only one MODEL can come from standard input")

    def announce(address: str) -> None:
        if form == "json":
            echo_json({"model": models[0] if models else None, "models": models, "url": address})
        else:
            echo(address)

    address, number = port
    _serve_pages(models, announce, host=address, port=number, hub=hub, browser=browser)


def serve(
    *models: Source,
    host: str = HOST,
    port: int = 0,
    hub: bool = False,
    browser: bool | None = None,
) -> None:
    """Serve the interactive page of one or two models until Ctrl-C, and print its address; without
    models, or with more, a page to choose from.

    The address contains a token, new at each start, that every request needs. Port 0 is a free one.
    With `hub`, the page loads configs from the Hugging Face Hub. `browser` opens the page, by
    default if there is a terminal and a screen. In a notebook, `show` is the page.
    """
    with suppress(KeyboardInterrupt):
        _serve_pages(models, echo, host=host, port=port, hub=hub, browser=browser)


def _serve_pages(
    models: Sequence[Source],
    announce: Callable[[str], object],
    *,
    host: str,
    port: int,
    hub: bool,
    browser: bool | None,
) -> None:
    """Serve until interrupted; `announce` is called with the address."""
    from ..web.page_data.checkpoint_data import load_with_checkpoint
    from ..web.server.model_ids import refuse_huge
    from ..web.server.server import is_loopback, serve

    if not is_loopback(host):
        warn(
            f"listening on {host}: anyone who can reach this machine and knows the URL can read "
            "the page, unencrypted"
        )

    def ready(where: ServerAddress) -> None:
        announce(where.address)
        if is_interactive() if browser is None else browser:
            open_browser(where.one_time_address)

    with Progress("loading models"):
        pages = [load_with_checkpoint(x) for x in models]
        for page in pages:
            refuse_huge(page)
    note_broken_files(*(x if isinstance(x, str) else y for x, y in zip(models, pages, strict=True)))
    serve(pages, host, port, ready, api=api_functions, hub=hub)


def _check_options(ctx: click.Context, mcp: bool) -> None:
    """Refuse the options of the page with --mcp, and those of the tools without it."""
    typed = [
        x
        for x in ctx.command.params
        if ctx.get_parameter_source(x.name or "") is click.core.ParameterSource.COMMANDLINE
    ]
    wrong = _PAGE_OPTIONS if mcp else ("root",)
    names = [
        "MODEL" if isinstance(x, click.Argument) else x.opts[0] for x in typed if x.name in wrong
    ]
    if names:
        verb = "are" if len(names) > 1 else "is"
        what = "the page, not for --mcp" if mcp else "the tools of --mcp"
        raise click.UsageError(f"{' and '.join(names)} {verb} for {what}", ctx)


def _serve_tools(root: str | None, *, hub: bool, urls: bool, as_json: bool) -> None:
    if as_json:
        from .report_tools import TOOLS, agent_schema

        tools = [
            {"name": x.name, "description": x.description, "inputSchema": agent_schema(x)}
            for x in TOOLS.values()
        ]
        echo_json({"tools": tools})
        return
    try:
        import mcp  # noqa: F401
    except ImportError:
        raise MissingExtra("serve --mcp", "mcp") from None
    from .mcp_server import serve_tools
    from .tool_process import agent_access

    serve_tools(agent_access(root, hub=hub, urls=urls))


def api_functions() -> Api:
    """Return the functions that answer `/api/NAME`: the commands themselves, for models that the
    server finds.
    """
    from ..web.server.json_api import ApiAnswer, ApiTool
    from ..web.server.model_ids import refuse_huge
    from .report_tools import TOOLS, ReportTool, answer, input_schema, parameter_of_models

    def answers(tool: ReportTool) -> ApiFunction:
        def call(values: Sequence[tuple[str, str]], resolve: ModelResolver) -> ApiAnswer:
            return answer(tool, values, resolve, local=False, check=refuse_huge).extended(ApiAnswer)

        return call

    return {
        name: ApiTool(
            answer=answers(tool),
            models=parameter_of_models(tool),
            summary=tool.description,
            schema=input_schema(tool, _MODEL_OVER_HTTP),
        )
        for name, tool in TOOLS.items()
        if not tool.local
    }


def is_interactive() -> bool:
    """Return whether there are a terminal and a screen."""
    if "CI" in os.environ or not (sys.stdout.isatty() and sys.stdin.isatty()):
        return False
    screen = any(os.environ.get(x) for x in ("DISPLAY", "WAYLAND_DISPLAY"))
    return screen or (sys.platform in ("darwin", "win32") and "SSH_CONNECTION" not in os.environ)


def open_browser(url: str) -> None:
    """Open a URL in the browser without waiting for it, unless it is a browser for the terminal."""
    import webbrowser
    from threading import Thread

    try:
        if type(webbrowser.get()) is not webbrowser.GenericBrowser:
            Thread(target=webbrowser.open, args=[url], daemon=True).start()
    except webbrowser.Error:
        pass
