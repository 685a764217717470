"""Which formats of weights and KV caches programs run on a device, and how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....checkpoint.quantization.format_names import compute_rate
from ....checkpoint.quantization.weight_format import PLAIN_FORMATS, WeightFormat
from ....hardware import Device
from ....utils.errors import Call, Name
from ....utils.number_format import format_list
from ..memory.speed_limits import find_roof

_BITS = {
    "fp8": 8,
    "nvfp4": 4,
    "awq": 4,
    "q8_0": 8,
    "q6_k": 6,
    "q5_k_m": 5,
    "q4_k_m": 4,
    "q3_k_m": 3,
    "q2_k": 2,
}
"""Format of weights → the bits of a value, without scales."""
_GGUF = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k")
_SUGGESTED = ("fp8", "nvfp4", "awq", *_GGUF)
_GGUF_VENDORS = frozenset({"NVIDIA", "AMD", "Apple", "Intel", ""})
"""Vendors whose GPUs llama.cpp runs on; "" is a GPU given by its figures."""
_PACKED_VENDORS = frozenset({"NVIDIA", "AMD", "Intel", ""})
"""Vendors whose GPUs have kernels for AWQ, GPTQ and bitsandbytes."""
_MARLIN_SM = 75
"""The least compute capability of Marlin's kernels: `is_fp8_marlin_supported` of vLLM."""
_MARLIN_RATES = ("fp8", "fp4")
"""The dtypes that those kernels unpack."""
_MAX_NAMED = 3
"""Names of GPUs in a note."""
DEQUANTIZED = (
    "no {rate} arithmetic on {gpu}: engines dequantize the weights to {to} (vLLM with Marlin "
    "kernels) or refuse them; speed limits are at the {to} rate"
)
NO_KERNELS = "no kernels for {format} on {gpu} are known"


def is_supported(device: Device, name: str) -> bool:
    """Return whether programs run weights in this format on a device: at its own rate, or
    unpacked by their kernels.
    """
    if name in PLAIN_FORMATS:
        return True
    if "+" in name:
        return all(is_supported(device, x) for x in name.split("+"))
    if name == "fp8":
        return "fp8" in device.flops or _unpacks_floats(device)
    if name == "nvfp4":
        return _unpacks_floats(device)
    if name == "mxfp4":
        return device.vendor in ("NVIDIA", "AMD")
    if name.startswith("mlx-"):
        return device.vendor == "Apple"
    if name.startswith(("awq", "gptq", "bnb-")):
        return device.vendor in _PACKED_VENDORS
    return device.vendor in _GGUF_VENDORS


def _unpacks_floats(device: Device) -> bool:
    """Return whether Marlin's kernels of vLLM and SGLang unpack weights in FP8 and FP4 on a device,
    if it has no products of these.
    """
    return device.sm >= _MARLIN_SM


def suggested_bits(name: str) -> int | None:
    """Return the bits of a value in a format that can be suggested, without scales; None for any
    other.
    """
    return _BITS.get(name)


def supported_formats(device: Device) -> tuple[str, ...]:
    """Return the formats of weights below 16 bits that are suggested for a device: floats only
    where products are computed in them.
    """
    rates = {"fp8": "fp8", "nvfp4": "fp4"}
    return tuple(
        x for x in _SUGGESTED if is_supported(device, x) and rates.get(x, "") in ("", *device.flops)
    )


def supported_kv_dtypes(device: Device) -> tuple[str, ...]:
    """Return the dtypes of 8 bits or fewer in which a device can hold the KV cache."""
    return (("fp8",) if "fp8" in device.flops else ()) or (
        ("q8_0",) if device.vendor in _GGUF_VENDORS else ()
    )


def lacks_rate(device: Device, name: str) -> bool:
    """Return whether programs run a format on a device of the catalog that has no products in
    the float of fewer than 16 bits that it stores.
    """
    rate = compute_rate(name)
    is_missing = rate in _MARLIN_RATES and rate not in device.flops
    return is_missing and bool(device.vendor) and is_supported(device, name)


def format_notes(weights: WeightFormat, gpus: Iterable[Device]) -> Iterator[str]:
    """Note on which devices weights in a format are dequantized, and on which no program is known
    to run them.
    """
    among = {y.title: y for x in gpus for y in x.members or (x,) if y.vendor}.values()
    yield from dequantizing_notes(weights, among)
    for unknown in among:
        if not is_supported(unknown, weights.name):
            no_kernels = NO_KERNELS.format(format=weights.name, gpu=unknown.title)
            others = Call("quants", Name("model"), on=unknown.name)
            yield (
                f"it fits by its size, but {no_kernels}: {others} lists the formats that have some"
            )


def dequantizing_notes(weights: WeightFormat, gpus: Iterable[Device]) -> Iterator[str]:
    """Note on which devices weights are dequantized, as these have no products in their format."""
    lacking = {x.title: x for x in gpus if lacks_rate(x, weights.name)}
    if lacking:
        first, *_ = lacking.values()
        to = find_roof(first, weights.name, weights.compute_dtype).dtype
        rate = compute_rate(weights.name).upper()
        yield DEQUANTIZED.format(rate=rate, gpu=format_list(lacking, _MAX_NAMED), to=to)
