"""1,000 random questions have one answer: of the function, the command, the JSON API and the tool for agents."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from typing import Any
from urllib.parse import urlencode

import pytest

import llamath
from llamath.cli.tool_process import ToolRunner, agent_access
from llamath.utils.errors import LlamathError
from support.random_questions import (
    Question,
    command_words,
    random_questions,
    tool_arguments,
)
from support.serving import served
from support.typed_commands import Typed


def of_function(question: Question) -> tuple[int, Any]:
    """Ask the function; return what the command exits with, and its JSON."""
    name, model, values = question
    try:
        report = getattr(llamath, name)(model, **values)
    except LlamathError:
        return 2, None
    return int(not report), json.loads(json.dumps(report.to_json()))


@pytest.mark.slow
def test_every_door_gives_one_answer(typed: Typed, request: pytest.FixtureRequest) -> None:
    """Eight questions, and before a release 1,000."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("mcp")
    from llamath.cli.mcp_server import call

    number = 1000 if request.config.getoption("--all") else 8
    codes: Counter[int] = Counter()
    with served([]) as place, asyncio.Runner() as loop:
        runner = ToolRunner(agent_access(None))
        for question in random_questions(31, number):
            tool, values = tool_arguments(question)
            words = command_words(question)
            printed = typed(*words)
            _, headers, data = place.ask_bytes(f"{place.path}api/{tool}?{query(values)}")
            assert headers["llamath-exit-code"] == str(printed.status), words
            same: Any = as_argument if printed.status == 2 else str
            assert same(data.decode()) == same(printed.out), words
            agent = loop.run(call(runner, tool, values))
            code, answer = of_function(question)
            found = json.loads(printed.out)
            if printed.status == 2:
                assert agent.is_error and code == 2, words
                message = found["error"]["message"]
                assert message in agent.content[0].text, words
            else:
                whole = {"result": found} if isinstance(found, list) else found
                assert agent.structured_content in (whole, None), words  # None: too long
                assert not agent.is_error and (code, answer) == (printed.status, found), words
            codes[printed.status] += 1
        loop.run(runner.close())
    assert codes[2] < number / 4 < codes[0] and codes[1] > number / 20, codes


def as_argument(text: str) -> tuple[str, str]:
    """The code of an error, and its message with arguments in place of options: `--kv-dtype` is
    `kv_dtype`. Its hint is worded for each door.
    """
    error = json.loads(text)["error"]
    named = re.sub(r"--([a-z][a-z-]*)", lambda x: x[1].replace("-", "_"), error["message"])
    return error["code"], named


def query(values: dict[str, Any]) -> str:
    texts = {name: str(x).lower() if isinstance(x, bool) else str(x) for name, x in values.items()}
    return urlencode(texts)
