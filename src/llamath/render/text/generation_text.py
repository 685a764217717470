"""What models say, on a terminal and for programs; and how fast they said it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core.errors import safe

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that steer a terminal rather than stand on it; a line's end and a tab may do so."""
FINISH_REASONS = {
    "stop": "the model ended it",
    "length": "cut at its longest",
    "string": "a stop string ended it",
    "interrupted": "interrupted",
}
"""Why a text is over, in words."""


def printable(text: str) -> str:
    """Text that leaves a terminal as it is."""
    return CONTROL.sub("\ufffd", text)


def speed_text(tokens: int, prompt: int, seconds: float, rate: float) -> str:
    """`41 tokens, 93.4 tokens/s; prompt of 12 tokens read in 0.05 s`."""
    several = f"{tokens:,} token{'s' if tokens != 1 else ''}"
    return f"{several}, {rate:,.1f} tokens/s; prompt of {prompt:,} token{'s' if prompt != 1 else ''} read in {seconds:.2f} s"


def finish_text(finish: str) -> str:
    """Why a text is over, in words."""
    return FINISH_REASONS[finish]


def sampling_text(how: Mapping[str, float | None], seed: int, theirs: bool) -> str:
    """How tokens were drawn: what differs from taking the likeliest, and the seed to have them again."""
    usual = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    said = [f"{name.replace('_', '-')} {how[name]:g}" for name, x in usual.items() if how[name] != x]
    if not how["temperature"]:
        return ", ".join(["the likeliest tokens", *said])
    return f"{', '.join(said)}{' (generation_config.json)' if theirs else ''}, seed {seed}"


TokenText = Callable[[int], str]
"""A token's text."""
Top = Sequence[tuple[int, float]]


def completion_json(made: Any, words: TokenText | None = None) -> dict[str, Any]:
    """`--json`: the text and its figures; with `words` each token with its logarithm of a probability."""
    found = {
        "text": made.text,
        "tokens": len(made.ids),
        "finish": made.finish,
        "prompt_tokens": made.prompt_tokens,
        "tokens_per_second": round(made.tokens_per_second, 3),
        "ids": list(made.ids),
    }
    if words is not None:
        tops = made.top or [()] * len(made.ids)
        found["logprobs"] = [_logprob_json(*x, words) for x in zip(made.ids, made.logprobs, tops, strict=True)]
    return found


def _logprob_json(token: int, logprob: float, top: Top, words: TokenText) -> dict[str, Any]:
    others = [{"id": i, "token": words(i), "logprob": round(x, 6)} for i, x in top]
    return {"id": token, "token": words(token), "logprob": round(logprob, 6)} | ({"top": others} if top else {})


def logprob_text(token: int, logprob: float, top: Top, words: TokenText) -> str:
    """One token on a line: its logarithm of a probability, its text, the likeliest others."""
    others = "  ".join(f"{_quoted(words(i))} {x:.2f}" for i, x in top if i != token)
    return f"{logprob:8.3f}  {_quoted(words(token)):<16}{f'  {others}' if others else ''}".rstrip()


def _quoted(text: str) -> str:
    shown = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace('"', '\\"')
    return f'"{safe(shown)}"'
