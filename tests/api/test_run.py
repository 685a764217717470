"""`llamath.run`: replies are what the command prints, in batches too, and its settings are checked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath import LlamathError
from llamath.cli import cli

pytest.importorskip("tokenizers")
STORY = "Anna had a red ball. She"


def command(*words: str) -> str:
    done = CliRunner().invoke(cli, ["run", *words], standalone_mode=False)
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("words", "ask"),
    [
        ([STORY], {}),
        ([STORY, "--chat-template", "none", "--max-tokens", "9"], {"chat": False, "max_tokens": 9}),
        ([STORY, "--max-tokens", "5", "--logprobs", "2"], {"max_tokens": 5, "logprobs": 2}),
        ([STORY, "--stop", "ball", "--logprobs", "0"], {"stop": "ball", "logprobs": 0}),
        (
            [STORY, "--temperature", "0.8", "--seed", "3", "--top-k", "9"],
            {"sampling": "temperature=0.8,seed=3,top_k=9"},
        ),
        ([STORY, "--top-p", "0.9", "--seed", "4"], {"sampling": "top_p=0.9,seed=4"}),
    ],
    ids=lambda x: " ".join(x[1:]) if isinstance(x, list) else "",
)
def test_reply_is_what_the_command_prints(words: list[str], ask: dict[str, Any]) -> None:
    reply = llamath.run("embedded", STORY, **ask)
    assert f"{reply}\n" == command(*words)
    ours, theirs = reply.to_json(), json.loads(command(*words, "--json"))
    speed = ours.pop("tokens_per_second"), theirs.pop("tokens_per_second")
    assert ours == theirs and min(speed) > 0
    assert len(reply) == ours["tokens"] and [x["id"] for x in reply] == ours["ids"]
    assert reply and f"{ours['tokens']} tokens" in repr(reply)


def test_several_prompts_are_one_batch() -> None:
    prompts = [STORY, "Tom went to the"]
    replies = llamath.run("embedded", prompts, max_tokens=12)
    assert [x.prompt for x in replies] == prompts
    assert [x.text for x in replies] == [
        llamath.run("embedded", x, max_tokens=12).text for x in prompts
    ]


def test_sampling_is_text_or_a_record() -> None:
    settings = llamath.Sampling(temperature=0.7, top_p=0.9, seed=1)
    texts = {
        llamath.run("embedded", STORY, sampling=x, max_tokens=20).text
        for x in ("temperature=0.7,top_p=0.9,seed=1", settings)
    }
    assert len(texts) == 1
    greedy = llamath.run("embedded", STORY, sampling=llamath.Sampling(top_p=0.9), max_tokens=20)
    assert greedy.text == llamath.run("embedded", STORY, max_tokens=20).text


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ({"max_tokens": 0}, "max_tokens should be a positive integer, found 0"),
        ({"logprobs": 101}, "logprobs should be an integer from 0 to 100"),
        ({"sampling": "temprature=1"}, "sampling: unknown key 'temprature'"),
        ({"sampling": "top_p=2"}, "sampling: top_p=2: expected a number from 0 to 1"),
        ({"sampling": 3}, "sampling should be text such as"),
        ({"chat": False, "system": "Be brief."}, "system is for an answer"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": []}, "expected at least one prompt"),
        ({"model": "nowhere"}, "nowhere"),
        ({"model": "llama-3-8b"}, "is a preset, which has a configuration and no weights"),
    ],
    ids=lambda x: "" if isinstance(x, dict) else x[:30],
)
def test_wrong_settings_are_named(ask: dict[str, Any], message: str) -> None:
    with pytest.raises(LlamathError) as found:
        llamath.run(**({"model": "embedded", "prompt": STORY} | ask))
    assert message in str(found.value)
