"""Energy and CO₂ of generated tokens by the convention of EcoLogits 0.11.3
(ecologits/impacts/llm.py, docs/methodology/llm_inference.md).

It knows a model by its parameters alone, in 16 bits, and assumes servers of eight GPUs of 80 GB, 64
requests at once, and a linear regression of measured energy. It is a convention to compare reports
with, independent of the GPUs that are asked about.
"""

from __future__ import annotations

from math import ceil, exp, log2

from ....utils.record_type import Record
from .published_shares import Interval

WORLD_GRID = 0.45829
"""kg of CO₂e per kWh: the world's average, as EcoLogits has it."""
_ENERGY = (1.1665273170451914e-06, -0.011205921025579175, 4.052928146734005e-05)
"""Wh of a GPU for a token: a · e^(b · requests) · billions of active parameters + c."""
_LATENCY = (0.0006785088094353663, 0.0003119310311688259, 0.019473717579473387)
"""Seconds of a token: a · billions of active parameters + b · requests + c."""
_REQUESTS, _BITS, _GPU_GB, _SERVER_GPUS, _SERVER_KW = 64, 16, 80, 8, 1.2
_GPU_EMBODIED, _SERVER_EMBODIED, _LIFETIME = 273, 5700, 3 * 365 * 24 * 3600
"""kg CO₂e of making a GPU and a server without GPUs, and the seconds that they last."""
_PUE = Interval(low=1.09, high=1.2)
"""The power of a data center over that of its computers: the least and the greatest that
EcoLogits has for a provider."""


class EcoLogits(Record):
    """The energy in kWh and the CO₂e in kg of a number of generated tokens."""

    tokens: int
    energy: Interval
    co2: Interval  # of the energy and of making the hardware
    grid: float  # kg CO₂e for a kWh


def ecologits(active: int, parameters: int, tokens: int, grid: float = WORLD_GRID) -> EcoLogits:
    """Return the energy and the CO₂e of generating tokens with a model."""
    billions = active / 1e9
    gpus = 2 ** ceil(log2(ceil(1.2 * parameters / 1e9 * _BITS / 8 / _GPU_GB)))
    seconds = tokens * (_LATENCY[0] * billions + _LATENCY[1] * _REQUESTS + _LATENCY[2])
    gpu_energy = tokens * (_ENERGY[0] * exp(_ENERGY[1] * _REQUESTS) * billions + _ENERGY[2]) / 1000
    server_energy = seconds / 3600 * _SERVER_KW * gpus / _SERVER_GPUS / _REQUESTS
    energy = _PUE.scaled(server_energy + gpus * gpu_energy)
    made = (
        seconds
        / _LIFETIME
        / _REQUESTS
        * (gpus / _SERVER_GPUS * _SERVER_EMBODIED + gpus * _GPU_EMBODIED)
    )
    co2 = Interval(low=energy.low * grid + made, high=energy.high * grid + made)
    return EcoLogits(tokens=tokens, energy=energy, co2=co2, grid=grid)
