"""`Layout`: the degrees of parallelism over GPUs, and the options that save memory."""

from __future__ import annotations

from typing import Literal

from ..core.expr import floor_div
from .settings import Settings, ask
from .value_kinds import YES_OR_NO, choice, integer

Recompute = Literal["none", "selective", "op", "full"]
_DEGREE = integer(1, 10**9 - 1)
RECOMPUTE = choice("none", "selective", "op", "full")


class Layout(Settings):
    """The ranks along each axis, and the options that save memory."""

    tp: int = ask(_DEGREE, default=1, help="Tensor parallelism.", example="8")
    pp: int = ask(_DEGREE, default=1, help="Pipeline parallelism.", example="4")
    cp: int = ask(_DEGREE, default=1, help="Context parallelism.")
    ep: int = ask(_DEGREE, default=1, help="Expert parallelism, within data and context.")
    dp: int = ask(_DEGREE, default=1, help="Data parallelism.", example="16")
    etp: int | None = ask(
        _DEGREE, default=None, help="Tensor parallelism inside an expert; by default tp."
    )
    zero: int = ask(
        integer(0, 3),
        default=0,
        help="Data parallelism shards: 1 optimizer states, 2 also gradients, 3 also weights "
        "(FSDP).",
        example="3",
    )
    sequence_parallel: bool = ask(
        YES_OR_NO,
        default=True,
        option="sp",
        help="Activations between tensor-parallel regions are split along the sequence.",
    )
    interleave: int = ask(
        _DEGREE, default=1, help="Virtual stages (runs of layers) in each stage of the pipeline."
    )
    microbatch: int = ask(_DEGREE, default=1, help="Sequences of a microbatch on each GPU.")
    microbatches: int | None = ask(
        _DEGREE, default=None, help="Microbatches per step and pipeline; by default one per stage."
    )
    recompute: Recompute = ask(
        RECOMPUTE, default="none", help="Activations that are computed again."
    )
    flash: bool = ask(YES_OR_NO, default=True, help="Attention without materialized scores.")

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return self.tp * self.pp * self.cp * self.dp

    @property
    def axes(self) -> str:
        """The degrees whose product is the number of GPUs, and over how many of these the experts
        of a layer are distributed: `TP 8 × DP 4, experts over 8`; empty for one GPU.
        """
        degrees = (("TP", self.tp), ("PP", self.pp), ("CP", self.cp), ("DP", self.dp))
        product = " × ".join(f"{name} {n:,}" for name, n in degrees if n > 1)
        return product + (f", experts over {self.ep:,}" if self.ep > 1 else "")

    @property
    def tp_and_pp(self) -> dict[str, int]:
        """The degrees that serving uses."""
        return {"tp": self.tp, "pp": self.pp}

    @property
    def expert_tp(self) -> int:
        """The ranks over which one expert is split."""
        return self.tp if self.etp is None else self.etp

    @property
    def replicas(self) -> int:
        """The ranks with the same dense weights, over which ZeRO shards them."""
        return self.dp * self.cp

    @property
    def expert_replicas(self) -> int:
        """The ranks with the same expert weights."""
        return floor_div(self.dp * self.cp * self.tp, self.ep * self.expert_tp)

    @property
    def count(self) -> int:
        """The microbatches of a step."""
        return self.pp if self.microbatches is None else self.microbatches
