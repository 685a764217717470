"""`llamath serve --mcp`: the SDK's own client, over stdio, gets what the commands print."""

from __future__ import annotations

import asyncio
import builtins
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from llamath.cli.report_tools import TOOLS, input_schema, parameters
from support.typed_commands import Typed

T = TypeVar("T")
SOURCES = Path(__file__).parents[2] / "src"
FOLDER = str(Path(__file__).parents[2] / "examples" / "tiny-llama")
HANG_S = 120


def ask(question: Callable[[Any], Awaitable[T]]) -> T:
    """Start `llamath serve --mcp` and ask it with the SDK's client."""
    mcp = pytest.importorskip("mcp")
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "llamath", "serve", "--mcp"],
        env=os.environ | {"PYTHONPATH": str(SOURCES), "HF_HUB_OFFLINE": "1"},
    )

    async def run() -> T:
        transport = importlib.import_module("mcp.client.stdio").stdio_client(
            server, errlog=sys.__stderr__
        )
        async with mcp.Client(transport, read_timeout_seconds=HANG_S) as client:
            return await question(client)

    return asyncio.run(asyncio.wait_for(run(), HANG_S))


CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("count", {"model": "llama-3-8b"}, "count llama-3-8b"),
    ("count", {"model": FOLDER}, f"count {FOLDER}"),
    (
        "memory",
        {"model": "llama-3-8b", "context": [8192, "16k"], "batch": 2},
        "memory llama-3-8b --context 8192 --context 16k --batch 2",
    ),
    (
        "memory",
        {"model": "gpt2", "training": "optimizer=adamw", "context": [128]},
        "memory gpt2 --training --context 128",
    ),
    ("flops", {"model": "gpt2", "context": 512}, "flops gpt2 --context 512"),
    (
        "fit",
        {"model": "llama-3.1-8b", "on": "rtx-4090", "context": "32k"},
        "fit llama-3.1-8b --on rtx-4090 --context 32k",
    ),
    ("diff", {"models": ["llama-2-7b", "llama-3-8b"]}, "diff llama-2-7b llama-3-8b"),
    (
        "diff",
        {"models": ["gpt2"], "set": ["n_layer=13", "n_head=16"]},
        "diff gpt2 --set n_layer=13 --set n_head=16",
    ),
    (
        "design",
        {"target": 8000000000, "set": ["num_hidden_layers=32"], "top": 3},
        "design 8000000000 --set num_hidden_layers=32 --top 3",
    ),
    ("facts", {"model": "llama-3-8b"}, "facts llama-3-8b"),
    ("models", {"words": ["llama-3.1"]}, "models llama-3.1"),
    ("explain", {"number": "3540389888"}, "explain 3540389888"),
    ("names", {"model": "llama-3-8b", "names": "meta"}, "names llama-3-8b --names meta"),
    ("code", {"model": "llama-3-8b", "part": "MLP"}, "code llama-3-8b --part MLP"),
    (
        "plan",
        {"model": "llama-3-8b", "on": "8xh100", "serve": True},
        "plan llama-3-8b --on 8xh100 --serve",
    ),
    (
        "quants",
        {"model": "llama-3.1-8b", "on": "rtx-3060-12gb"},
        "quants llama-3.1-8b --on rtx-3060-12gb",
    ),
    (
        "fit",
        {"model": "llama-3.1-8b", "on": "h100", "price": "2"},
        "fit llama-3.1-8b --on h100 --price 2",
    ),
    (
        "fit",
        {"model": "llama-3.1-8b", "on": "rtx-3060-12gb", "ram": "64GiB"},
        "fit llama-3.1-8b --on rtx-3060-12gb --ram 64GiB",
    ),
    ("config", {"model": "llama-3.1-8b"}, "config llama-3.1-8b"),
    ("gpus", {"words": ["h100"]}, "gpus h100"),
    ("ls", {"path": FOLDER}, f"ls {FOLDER}"),
    ("verify", {"path": FOLDER}, f"verify {FOLDER}"),
]


@pytest.mark.slow
def test_tools_answer_what_the_commands_print(typed: Typed) -> None:
    async def question(client: Any) -> list[Any]:
        return [await client.call_tool(name, arguments) for name, arguments, _ in CALLS]

    for result, (_, _, line) in zip(ask(question), CALLS, strict=True):
        printed = typed(*line.split(), "--json")
        assert not result.is_error and result.content[0].text + "\n" == printed.out, line
        assert result.structured_content == json.loads(printed.out), line
        assert [x.text for x in result.content[1:]] == [x for x in [printed.err.strip()] if x], line
    assert {name for name, _, _ in CALLS} == set(TOOLS)


def test_no_tool_has_an_option_that_writes_a_file() -> None:
    writing = {"output", "o", "out", "picture", "force"}
    options = {
        x.lstrip("-") for tool in TOOLS.values() for p in parameters(tool).values() for x in p.opts
    }
    commands = {
        x.lstrip("-") for tool in TOOLS.values() for p in tool.command.params for x in p.opts
    }
    assert not options & writing and commands >= {"output", "o", "force"}


@pytest.mark.slow
def test_listed_tools_have_the_parameters_of_the_commands() -> None:
    async def question(client: Any) -> Any:
        return await client.list_tools(), client.server_info, client.instructions

    found, server, instructions = ask(question)
    assert server.name == "llamath" and "models" in instructions
    jsonschema = pytest.importorskip("jsonschema")
    schemas = {x.name: x.input_schema for x in found.tools}
    assert list(schemas) == list(TOOLS) and all(
        x.annotations.read_only_hint and x.description for x in found.tools
    )
    for name, arguments, _ in CALLS:
        jsonschema.Draft202012Validator(schemas[name]).validate(arguments)
    for name, schema in schemas.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert set(schema["properties"]) == {*parameters(TOOLS[name]), "format"}
        assert not set(schema["properties"]) & {"picture", "force", "json", "brief", "out"}
        assert all(x["description"] for x in schema["properties"].values())


@pytest.mark.slow
def test_errors_and_notes_reach_the_agent(typed: Typed) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("fit", {"model": "llama-3-8x"}),
        ("fit", {"modell": "gpt2"}),
        ("fit", {"model": "-"}),
        ("memory", {"model": "gpt2", "batch": "x"}),
        ("fit", {"model": "gpt2", "format": "xml"}),
        ("run", {"model": "gpt2"}),
        ("fit", {"model": "llama-3-8b", "on": "rtx-3060-12gb", "context": "128k"}),
        ("fit", {"model": "llama-3-8b", "on": "rtx-3060-12gb", "format": "text"}),
        ("count", {"model": "gpt2", "format": "brief"}),
        ("count", {"model": "deepseek-v3"}),
    ]

    async def question(client: Any) -> list[Any]:
        return [await client.call_tool(name, arguments) for name, arguments in calls]

    found = ask(question)
    texts = [x.content[0].text for x in found]
    assert [x.is_error for x in found] == [True] * 6 + [False] * 4
    assert json.loads(texts[0]) == json.loads(typed("fit", "llama-3-8x", "--json").out)
    assert (
        "did you mean model?" in texts[1]
        and "standard input" in texts[2]
        and "batch should" in texts[3]
    )
    assert "json, text or brief" in texts[4] and "there is no tool 'run'" in texts[5]
    assert (
        found[6].content[1].text
        == "warning: 131,072 tokens are more than the model's own context, 8,192"
    )
    assert texts[7] + "\n" == typed("fit", "llama-3-8b", "--on", "rtx-3060-12gb").out and texts[
        8
    ].startswith("GPT-2 small, 124,439,808")
    assert (
        texts[9].startswith("DeepSeek V3: 671,026,419,200 parameters")
        and found[9].structured_content is None
    )
    assert "13,158,883 characters" in found[9].content[1].text


def test_calls_of_a_pipe_are_answered_before_it_ends() -> None:
    pytest.importorskip("mcp")
    client = {"name": "pipe", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    call = {"name": "count", "arguments": {"model": "gpt2", "format": "brief"}}
    requests = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        *({"id": i, "method": "tools/call", "params": call} for i in (2, 3)),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "llamath", "serve", "--mcp"],
        input='{"no json\n[]\n'
        + "".join(json.dumps({"jsonrpc": "2.0", **x}) + "\n" for x in requests),
        env=os.environ | {"PYTHONPATH": str(SOURCES), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    lines = [json.loads(x) for x in done.stdout.splitlines()]
    refused = [(x["jsonrpc"], x["error"]["code"]) for x in lines if x["id"] is None]
    assert refused == [("2.0", -32700), ("2.0", -32600)]
    answers = {x["id"]: x for x in lines}
    for i in (2, 3):
        (content,) = answers[i]["result"]["content"]
        assert content["text"].startswith("GPT-2 small, 124,439,808")


def test_without_the_sdk_the_error_says_what_to_install(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "mcp":
            raise ImportError(name=name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    found = typed("serve", "--mcp")
    assert found.status == 2 and not found.out and "pip install 'llamath[mcp]'" in found.err


@pytest.mark.slow
def test_json_lists_the_tools_that_the_server_offers(typed: Typed) -> None:
    async def question(client: Any) -> Any:
        return await client.list_tools()

    listed = json.loads(typed("serve", "--mcp", "--json").out)["tools"]
    assert [(x["name"], x["description"], x["inputSchema"]) for x in listed] == [
        (x.name, x.description, x.input_schema) for x in ask(question).tools
    ]


@pytest.mark.parametrize("name", list(TOOLS))
def test_schemas_follow_the_options_of_the_command(name: str) -> None:
    tool = TOOLS[name]
    schema = input_schema(tool, "a preset")
    for option, parameter in parameters(tool).items():
        described = schema["properties"][option]
        assert described["description"] and (described.get("type") == "array") == (
            parameter.nargs == -1 or parameter.multiple
        )
    assert schema["additionalProperties"] is False
