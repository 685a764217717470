"""Multimodal models with a known text model and unknown towers: mostly models of speech."""

from __future__ import annotations

from ..multimodal_registry import LANGUAGE_MODEL, WHOLE, Wrapper, declare_wrapper

for _wrapper in (
    Wrapper(
        types="audioflamingo3 musicflamingo qwen2_audio vibevoice_asr",
        text_type="qwen2",
        prefix=WHOLE,
    ),
    Wrapper(types="glmasr voxtral", text_type="llama", prefix=WHOLE),
    Wrapper(types="granite_speech", text_type="granite", prefix=WHOLE),
    Wrapper(types="granite_speech_plus", text_type="granite"),
    Wrapper(types="kimi_vl", prefix=WHOLE),
    Wrapper(types="moss_transcribe_diarize", text_type="qwen3", prefix=LANGUAGE_MODEL),
    Wrapper(types="qwen3_asr", text_type="qwen3"),
    Wrapper(types="vibevoice", text_type="qwen2"),
):
    declare_wrapper(_wrapper)
