"""The questions of serving: what it costs, where the weights go, and whether a draft belongs to a
model.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Literal

from ..utils.record_type import Record
from .settings import Question, ask
from .shared_fields import BATCH, CONTEXT, DTYPE, KV_DTYPE, PART
from .value_kinds import GPU_NAMES, RATE, SIZE, TOKENS, TRAINING_TOKENS, Kind, integer, text

if TYPE_CHECKING:
    from ..hardware import Device

RAM_BANDWIDTH = 89_600_000_000
"""Two channels of DDR5-5600, in bytes per second."""


class Price(Record):
    """The price of a GPU for an hour."""

    amount: float
    currency: str = ""  # a sign, or empty if none was given


def _read_price(value: object) -> Price:
    if isinstance(value, Price):
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match = re.fullmatch(
        r"([$€£¥₹]?)(\d{1,6}(?:\.\d{1,6})?)(?:/h)?",
        str(value) if is_number or isinstance(value, str) else "",
    )
    if match is None or not float(match[2]):
        raise ValueError
    return Price(amount=float(match[2]), currency=match[1])


_PRICE = Kind(
    _read_price,
    expected="a price for an hour of a GPU, such as 2.5/h or $2.5/h",
    annotation="float | str | Price",
    metavar="PRICE",
)


class Ram(Record):
    """The RAM of a machine: its bytes, its bandwidth in bytes per second, and that of a disk on
    which what does not fit may stay (0: nothing may).
    """

    memory: int
    bandwidth: int = RAM_BANDWIDTH
    disk: int = 0


def _read_ram(value: object) -> Ram:
    if isinstance(value, Ram):
        disk = RATE.read(value.disk) if value.disk else 0
        return Ram(memory=SIZE.read(value.memory), bandwidth=RATE.read(value.bandwidth), disk=disk)
    if not isinstance(value, str):
        return Ram(memory=SIZE.read(value))
    size, *rest = (x.strip(" ,") for x in re.split(r"[ ,](?=[a-z]+=)", value))
    rates = {key: rate for key, _, rate in (x.partition("=") for x in rest)}
    if len(rates) < len(rest) or not rates.keys() <= {"bw", "disk"}:
        raise ValueError
    bandwidth, disk = (RATE.read(rates[x]) if x in rates else 0 for x in ("bw", "disk"))
    return Ram(memory=SIZE.read(size), bandwidth=bandwidth or RAM_BANDWIDTH, disk=disk)


_RAM = Kind(
    _read_ram,
    expected="RAM such as '64GiB' or '64GiB bw=89.6GB/s disk=7GB/s'",
    annotation="Size | Ram",
    metavar="RAM",
    schema=SIZE.schema,
)


class CostQuestion(Question):
    """Estimate what a million generated tokens cost on GPUs, prompts included, and a training run:
    intervals with their assumptions.
    """

    function: ClassVar[str] = "cost"
    report: ClassVar[str] = "CostReport"
    about: ClassVar[str] = "the cost"

    on: tuple[int, Device] = ask(
        GPU_NAMES, help="GPUs: 8xh100, rtx-4090, or '8x mem=80GiB bw=2TB/s bf16=300TF power=700W'."
    )
    price: Price | None = ask(
        _PRICE, default=None, help="Price of a GPU for an hour: 2.5/h, $2.5/h."
    )
    max_tokens: int = ask(
        TOKENS,
        default=256,
        help="Generated tokens of a sequence; the rest of {context} is its prompt.",
    )
    batch: int | None = ask(
        integer(), default=None, default_text="as many as fit", help="Sequences at once."
    )
    tokens: int | None = ask(
        TRAINING_TOKENS, default=None, help="Also the cost of training on this many tokens: 15T."
    )
    dtype: str = DTYPE
    kv_dtype: str = KV_DTYPE
    context: int | str | None = CONTEXT
    part: Literal["text", "main"] | None = PART


class PlaceQuestion(Question):
    """Tell where each weight goes on GPUs, RAM and disk, with flags for llama.cpp, transformers and
    KTransformers, and bound decode.
    """

    function: ClassVar[str] = "place"
    report: ClassVar[str] = "Placement"
    about: ClassVar[str] = "the placement"

    on: tuple[int, Device] = ask(
        GPU_NAMES, help="GPUs of the machine: rtx-3060-12gb, 2xrtx-4090, 3090+4090."
    )
    ram: Ram = ask(
        _RAM,
        help=f"RAM of the machine: 64GiB, or with its bandwidth and that of a disk, on which what "
        f"does not fit may stay: '64GiB bw={RAM_BANDWIDTH / 10**9:g}GB/s disk=7GB/s'.",
    )
    context: int | str | None = CONTEXT
    batch: int = BATCH
    dtype: str = DTYPE
    kv_dtype: str = KV_DTYPE
    part: Literal["text", "main"] | None = PART


class PairQuestion(Question):
    """Tell whether a draft belongs to a target for speculative decoding, and how much faster it can
    be at most.

    `draft` is a model, or `"eagle"`, `"eagle3"` or `"mtp"` for a head of the target's shape.
    """

    function: ClassVar[str] = "pair"
    report: ClassVar[str] = "PairReport"
    about: ClassVar[str] = "a draft"
    models: ClassVar[tuple[str, ...]] = ("target", "draft")
    loader: ClassVar[str] = ""

    engine: tuple[str, ...] = ask(
        text("vllm").several(),
        default=(),
        default_text="all",
        help="Engines whose rules are asked: vllm, sglang, llama.cpp, transformers, trtllm.",
    )
    context: int | str | None = CONTEXT
    kv_dtype: str = KV_DTYPE
