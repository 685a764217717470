"""`llamath mcp`."""

from __future__ import annotations

import click

from ..utils.errors import MissingExtra
from .command_group import command as make_command
from .output import echo_json

_EXAMPLES = (
    "llamath mcp --root ~/models  # started by an agent, which writes to its stdin",
    "llamath mcp --json  # the tools and their parameters",
)


@make_command("mcp", _EXAMPLES)
@click.option(
    "--root",
    metavar="DIR",
    help="The folder whose files the tools may read.  [default: the current folder]",
)
@click.option(
    "--hub", is_flag=True, help="Allow repositories on the Hugging Face Hub: configs and headers."
)
@click.option(
    "--allow-urls", is_flag=True, help="Allow http:// and https:// addresses of public servers."
)
def command(*, root: str | None, hub: bool, allow_urls: bool, form: str | None) -> None:
    """Offer the reports to an agent as tools over stdio, by the Model Context Protocol, until its
    input ends.

    The tools have the parameters of the commands. They write no files, run no models, and read
    presets and the files under --root. With --json, the tools are listed instead.
    """
    if form == "json":
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
        raise MissingExtra("mcp", "mcp") from None
    from .mcp_server import serve_tools
    from .tool_process import agent_access

    serve_tools(agent_access(root, hub=hub, urls=allow_urls))
