"""`trace_tokens` and `trace_prompt`: a trace by shapes alone, and one of a prompt with weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ...analysis.graph.image_pass import Images, image_pass
from ...checkpoint.open import local_copy, open_checkpoint
from ...loading import load_family
from ...model import FamilyModel
from ...tokenizers import Tokenizer, load_tokenizer
from ...utils.errors import FormatError, LlamathError, safe
from ..module import Decoder
from ..torch_session import check_tokenizer
from ..weights.open_model import open_model
from .trace_run import Trace, trace

_TOP = 5
"""How many likely next tokens are shown."""


def trace_tokens(
    model: FamilyModel, tokens: int, layer: int | None, images: Images | None
) -> Trace:
    """Trace a prompt of some tokens and of images, by shapes alone."""
    if images is not None:
        tokens += image_pass(model.tree, images).tokens
    return trace(model, [0] * tokens, layer=layer, images=images)


def trace_prompt(
    path: str,
    prompt: str,
    layer: int | None,
    device: str,
    changes: Mapping[str, Any],
    progress: Callable[[int, int], None],
) -> Trace:
    """Trace a prompt in a checkpoint, with the likely next tokens; in a folder without weights, by
    shapes alone.
    """
    if not prompt.strip():
        raise LlamathError("the prompt is empty: a pass needs at least one token")
    path = local_copy(path)
    if _has_weights(path):
        opened = open_model(path, None, device, progress, changes)
        tokenizer = load_tokenizer(opened.folder)
        check_tokenizer(tokenizer, opened.module.embed.weight.shape[0])
        return _trace_text(
            opened.model.replace(notes=opened.notes), opened.module, tokenizer, prompt, layer
        )
    model = load_family(path, changes=changes)
    if not os.path.isdir(path):
        raise LlamathError(
            f"{safe(path)} has no tokenizer for the prompt",
            hint="leave out the prompt to see the shapes, or give a folder with weights and a "
            "tokenizer",
        )
    return _trace_text(model, None, load_tokenizer(path), prompt, layer)


def _trace_text(
    model: FamilyModel, module: Decoder | None, tokenizer: Tokenizer, prompt: str, layer: int | None
) -> Trace:
    ids = tokenizer.encode(prompt, parse_special_tokens=True)
    found = trace(model, ids, module, layer, _TOP)
    shown = (*ids, *(x for x, _ in found.top_tokens))
    texts = {x: tokenizer.decode([x], keep_special_tokens=True) for x in shown}
    return found.replace(texts=texts)


def _has_weights(location: str) -> bool:
    """Return whether this is a checkpoint, and not a preset, a config or a folder without
    tensors.
    """
    if not os.path.lexists(location) or location.endswith(".json"):
        return False
    try:
        open_checkpoint(location)
    except FormatError as error:
        return error.code != "no_checkpoint"
    return True
