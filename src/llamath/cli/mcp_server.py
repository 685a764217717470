"""The tools of `llamath serve --mcp`: each runs a command and returns what it prints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Self

import mcp_types as types
from anyio import EndOfStream
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from ..utils.access import Access
from .report_tools import FORMATS, TOOLS, ReportTool, agent_schema
from .tool_process import ToolRunner

_INSTRUCTIONS = (
    "Exact facts about language models of the Llama kind: parameters weight by weight, memory, "
    "FLOPs, which GPUs run them and how fast at "
    "most, differences between models, dimensions for a size, and the contents of checkpoints. "
    "Numbers are computed, not looked up: prefer "
    "them to estimates. `models` lists the presets; any config.json is accepted."
)
_CANCELLED = "notifications/cancelled"


def serve_tools(access: Access) -> None:
    """Serve the tools over stdin and stdout until stdin ends; they read what `access` allows."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(access))


async def _serve(access: Access) -> None:
    runner = ToolRunner(access)
    server = create_server(runner)
    try:
        async with stdio_server() as (received, sent):
            requests = _OpenRequests()
            answers = _Sent(sent, requests)
            streams = _Received(received, requests, answers), answers
            await server.run(*streams, server.create_initialization_options())
    finally:
        await runner.close()


class _OpenRequests:
    """The requests that were read and are not answered yet."""

    def __init__(self) -> None:
        self._ids, self._none = set[Any](), asyncio.Event()
        self._none.set()

    def note_received(self, message: object) -> None:
        """Note a request, or that the client has cancelled one."""
        if isinstance(message, types.JSONRPCRequest):
            self._ids.add(message.id)
            self._none.clear()
        elif isinstance(message, types.JSONRPCNotification) and message.method == _CANCELLED:
            self._close((message.params or {}).get("requestId"))

    def note_sent(self, message: object) -> None:
        """Note an answer."""
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._close(message.id)

    def _close(self, request: Any) -> None:
        self._ids.discard(request)
        if not self._ids:
            self._none.set()

    async def wait_for_answers(self) -> None:
        """Wait until each request is answered."""
        await self._none.wait()


class _Stream:
    """A stream of the SDK with other methods."""

    def __init__(self, stream: Any, requests: _OpenRequests) -> None:
        self._stream, self._requests = stream, requests

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stream.aclose()


class _Sent(_Stream):
    """The messages on stdout."""

    async def send(self, item: Any) -> None:
        """Write a message."""
        await self._stream.send(item)
        self._requests.note_sent(item.message)


class _Received(_Stream):
    """The messages on stdin; they end when each request is answered, as a pipe ends at once."""

    def __init__(self, stream: Any, requests: _OpenRequests, answers: _Sent) -> None:
        super().__init__(stream, requests)
        self._answers = answers

    async def receive(self) -> Any:
        """Return the next message; a line that is none is answered here, as the SDK drops it."""
        try:
            while isinstance(item := await self._stream.receive(), Exception):
                await self._answers.send(SessionMessage(_unreadable(item)))
        except EndOfStream:
            await self._requests.wait_for_answers()
            raise
        self._requests.note_received(item.message)
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None


def _unreadable(error: Exception) -> types.JSONRPCError:
    """Return the answer to a line that is no JSON, or no message."""
    # what pydantic found, by which the SDK reads a line
    found = [x["type"] for x in getattr(error, "errors", list)()]
    code, says = (
        (types.INVALID_REQUEST, "the line is no message of JSON-RPC 2.0")
        if found and "json_invalid" not in found
        else (types.PARSE_ERROR, "the line is no JSON")
    )
    return types.JSONRPCError(
        jsonrpc="2.0", id=None, error=types.ErrorData(code=code, message=says)
    )


def create_server(runner: ToolRunner) -> Server[Any]:
    """Return the server with its tools."""

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(x) for x in TOOLS.values()])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await call(runner, params.name, params.arguments or {})

    return Server(
        "llamath",
        version=version("llamath"),
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _tool(tool: ReportTool) -> types.Tool:
    hints = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=True)
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=agent_schema(tool),
        annotations=hints,
    )


async def call(runner: ToolRunner, name: str, arguments: Mapping[str, Any]) -> types.CallToolResult:
    """Run a tool; its notes follow its answer."""
    if name not in TOOLS:
        return _result(
            f"there is no tool {name!r}: the tools are {', '.join(TOOLS)}", is_error=True
        )
    form = arguments.get("format", "json")
    if form not in FORMATS:
        return _result(f"format should be json, text or brief, found {form!r}", is_error=True)
    values = list(_texts({key: x for key, x in arguments.items() if key != "format"}))
    found = await runner.run(name, values, form)
    return _result(
        found.text,
        *found.notes,
        is_error=found.is_error,
        structured=_as_object(json.loads(found.text)) if found.is_json else None,
    )


def _as_object(answer: Any) -> Any:
    """Return an answer as the protocol wants it, an object."""
    return {"result": answer} if isinstance(answer, list) else answer


def _result(
    text: str, *notes: str, is_error: bool = False, structured: Any = None
) -> types.CallToolResult:
    content: list[types.ContentBlock] = [
        types.TextContent(type="text", text=x) for x in (text.rstrip("\n"), *notes) if x
    ]
    return types.CallToolResult(content=content, structured_content=structured, is_error=is_error)


def _texts(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each value; a list has several."""
    for name, value in arguments.items():
        for x in value if isinstance(value, list) else [] if value is None else [value]:
            yield name, x if isinstance(x, str) else json.dumps(x)
