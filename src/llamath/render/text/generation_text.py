"""Generated text on a terminal and as JSON, with the speed of its generation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...utils.errors import safe

if TYPE_CHECKING:
    from ...generation.session import Completion

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal, except newline and tab."""
_FINISH_REASONS = {
    "stop": "stop token",
    "length": "maximum length",
    "string": "stop string",
    "interrupted": "interrupted",
}
"""The reasons why a sequence ended, as text."""


def printable(text: str) -> str:
    """Replace the characters that control a terminal."""
    return CONTROL.sub("\ufffd", text)


def speed_text(tokens: int, prompt: int, seconds: float, rate: float) -> str:
    """Format `41 tokens, 93.4 tokens/s; prompt of 12 tokens processed in 0.05 s`."""
    count = f"{tokens:,} token{'s' if tokens != 1 else ''}"
    return (
        f"{count}, {rate:,.1f} tokens/s; prompt of {prompt:,} "
        f"token{'s' if prompt != 1 else ''} processed in {seconds:.2f} s"
    )


def finish_text(finish: str) -> str:
    """Describe why a sequence ended."""
    return _FINISH_REASONS[finish]


def sampling_text(sampling: Mapping[str, float | None], seed: int, from_config: bool) -> str:
    """Describe the sampling parameters that are not the defaults, and the seed that reproduces
    the text.
    """
    defaults = {
        "temperature": 0.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }
    changed = [
        f"{name.replace('_', '-')} {sampling[name]:g}"
        for name, x in defaults.items()
        if sampling[name] != x
    ]
    if not sampling["temperature"]:
        return ", ".join(["greedy", *changed])
    return f"{', '.join(changed)}{' (generation_config.json)' if from_config else ''}, seed {seed}"


_TokenText = Callable[[int], str]
"""Returns the text of a token."""
Top = Sequence[tuple[int, float]]


def completion_json(completion: Completion, token_text: _TokenText | None = None) -> dict[str, Any]:
    """Return the JSON of a completion; with `token_text`, each token with its log-probability."""
    document = completion.to_json()
    if token_text is not None:
        tops = completion.top or [()] * len(completion.ids)
        document["logprobs"] = [
            _logprob_json(*x, token_text)
            for x in zip(completion.ids, completion.logprobs, tops, strict=True)
        ]
    return document


def _logprob_json(token: int, logprob: float, top: Top, token_text: _TokenText) -> dict[str, Any]:
    others = [{"id": i, "token": token_text(i), "logprob": round(x, 6)} for i, x in top]
    return {"id": token, "token": token_text(token), "logprob": round(logprob, 6)} | (
        {"top": others} if top else {}
    )


def logprob_text(token: int, logprob: float, top: Top, token_text: _TokenText) -> str:
    """Format one token on a line: its log-probability, its text, and the most likely other
    tokens.
    """
    others = "  ".join(f"{_quoted(token_text(i))} {x:.2f}" for i, x in top if i != token)
    line = f"{logprob:8.3f}  {_quoted(token_text(token)):<16}{f'  {others}' if others else ''}"
    return line.rstrip()


def _quoted(text: str) -> str:
    shown = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace('"', '\\"')
    return f'"{safe(shown)}"'
