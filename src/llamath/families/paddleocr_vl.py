"""The text model of PaddleOCR-VL: ERNIE 4.5 with rotary halves."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder
from ..core.config import Config
from .ernie4_5 import ernie_decoder
from .registry import family


@family("paddleocr_vl_text", hf=HF)
def paddleocr_vl(c: Config) -> Decoder:
    return ernie_decoder(c, interleaved=False)
