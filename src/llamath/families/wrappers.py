"""Models that hold a text model beside eyes or ears: where the text model's tensors stand in their files."""

from __future__ import annotations

from ..names.scheme import Scheme

WRAPPERS = {
    "gemma3": ("", "language_model."),
    "llama4": ("", "language_model."),
    "llava": ("", "language_model."),
    "mistral3": ("", "language_model."),
    "qwen3_vl": ("model.", "model.language_model."),
}
"""Outer model type → which beginning of a name becomes which."""

TEXT_KEYS = ("text_config", "llm_config", "language_config")
"""Under which keys the text model's configuration is found."""


def within(scheme: Scheme, wrapper: str) -> Scheme:
    """The scheme of a text model inside this wrapper; unchanged where the wrapper is not known."""
    old, new = WRAPPERS.get(wrapper, ("", ""))

    def moved(name: str) -> str:
        return new + name.removeprefix(old) if name.startswith(old) else name

    return scheme.replace(layer=moved(scheme.layer), outside={path: moved(name) for path, name in scheme.outside.items()})
