"""`Reply`: what a model has generated from a prompt, with its statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..generation.session import Completion
from ..render.report import Report
from ..render.tables import Column, Table
from ..render.text.generation_text import completion_json, logprob_text, printable

_COLUMNS = (Column("id", "count"), Column("token"), Column("logprob"))


class Reply(Report):
    """The generated text for a prompt: `print` writes the text, or with log
    probabilities the tokens; `summary` has the statistics.
    """

    model: str | None
    prompt: str
    completion: Completion
    statistics: tuple[str, ...]  # speed, engine, the reason why it ended, sampling
    token_texts: Mapping[int, str]

    @property
    def text(self) -> str:
        """The generated text."""
        return self.completion.text

    @property
    def finish(self) -> str:
        """The reason why it ended: stop, length, string or interrupted."""
        return self.completion.finish

    @property
    def summary(self) -> str:
        """The statistics in one line."""
        return "; ".join(self.statistics)

    def terminal_text(self) -> str:
        """The text; with log probabilities, a line for each token."""
        found = self.completion
        if not found.logprobs:
            return printable(found.text)
        tops = found.top or [()] * len(found.ids)
        lines = (
            logprob_text(*x, self.token_texts.__getitem__)
            for x in zip(found.ids, found.logprobs, tops, strict=True)
        )
        return printable("\n".join(lines))

    def tables(self) -> Iterator[Table]:
        """The tokens, with their log probabilities if these were asked for."""
        found = self.completion
        logprobs = found.logprobs or [None] * len(found.ids)
        rows = tuple(
            (x, self.token_texts[x], logprob)
            for x, logprob in zip(found.ids, logprobs, strict=True)
        )
        yield Table(columns=_COLUMNS, rows=rows)

    def json_items(self) -> Iterator[tuple[str, Any]]:
        """The model, the text and its statistics, and the log probabilities if there are any."""
        yield "model", self.model
        token_text = self.token_texts.__getitem__ if self.completion.logprobs else None
        yield from completion_json(self.completion, token_text).items()
