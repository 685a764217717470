"""Sequences, layouts and numbers of GPUs as text."""

from __future__ import annotations

from ....hardware import Device
from ....questions.layout import Layout
from ....utils.number_format import format_count


def format_sequences(batch: int, context: int) -> str:
    """Return the number and the length of sequences as text."""
    return f"{format_count(batch, 'sequence')} of {format_count(context, 'token')}"


def split_text(layout: Layout) -> str:
    """Return how a model is split over GPUs: `TP 8 × PP 2`."""
    return layout.axes or "whole on one GPU"


def gpus_option(count: int, device: Device) -> str:
    """Return a number of GPUs as the option `--on` takes it."""
    return device.name if count == 1 or "+" in device.name else f"{count}x{device.name}"
