"""The shares of the limits that published runs reached, from which costs are estimated;
`tests/truth/published_runs.json` has the runs.
"""

from __future__ import annotations

from typing import NamedTuple

from ....utils.record_type import Record


class Interval(Record):
    """A least and a greatest value."""

    low: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """Return the interval times a positive factor."""
        return Interval(low=self.low * factor, high=self.high * factor)


class _Shares(NamedTuple):
    """The middle half of the shares that runs of one kind reached, and where they are from."""

    low: float
    high: float
    source: str


GENERATION = _Shares(
    0.46,
    0.75,
    "the middle half of 19 runs of Llama 2 on H100, L40S and A100: TensorRT-LLM, "
    "docs/source/performance.md at 138f96d",
)
"""Output tokens per second over the bound, prompts included."""
TRAINING = _Shares(
    0.37,
    0.46,
    "the middle half of 11 whole runs with published GPU-hours: Llama 1, 2 and 3.1, DeepSeek-V3",
)
"""Model FLOPs of a whole run over the peak of its GPUs in bf16, failures and pauses included."""
