"""`llamath same --logits`: whether two checkpoints compute the same logits."""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING, Any

import click

from ..render.progress import Progress
from ..runtime.open_llama import is_installed
from ..utils.errors import LlamathError, MissingExtra, safe
from .model_options import local_model, parse_changes
from .output import note, print_error

if TYPE_CHECKING:
    from ..analysis.check.verify.logits_agreement import LogitsComparison
    from ..analysis.check.verify.verified_checkpoint import VerifiedCheckpoint
    from ..torch.debug.activations import Activations

_TEXT = (
    "The river was low that summer, and on the 14th of July the children walked across it "
    "without wetting their knees. "
    'Anna counted the stones (there were 27) and said: "If the rain comes back, we shall need a '
    'boat."\n'
    "def area(width, height):\n    return width * height\n"
)
"""The text that both read if no prompt is given."""
_RANDOM_IDS = re.compile(r"random:(\d{1,7})(?:,(\d{1,18}))?", re.ASCII)
_IDS = "ids:"
_NUM_RANDOM_IDS, _MAX_IDS = 64, 1 << 20


def compare_logits(
    a: str,
    b: str,
    *,
    prompt: str | None,
    tolerance: float | None,
    dtype: str | None,
    device: str,
    engine: str | None,
    changes: tuple[str, ...],
) -> tuple[LogitsComparison, str]:
    """Compare what two checkpoints compute; `changes` are of the second. Returns the name of the
    first model, too.
    """
    from ..analysis.check.verify.verified_checkpoint import open_verified
    from ..checkpoint.formats.dtypes import parse_dtype

    if prompt == "":
        raise LlamathError(
            "the prompt is empty", hint="leave it out for a built-in text, or give ids:1,2,3"
        )
    a, b = local_model(a), local_model(b)
    with Progress("reading headers"):
        sources = [open_verified(a), open_verified(b, parse_changes(changes))]
    tokens, text = _tokens(sources, prompt)
    dtype = parse_dtype(dtype or "fp32", ("F32", "F16", "BF16", "F64"), "computation").name
    default = 1e-4 if dtype in ("F32", "F64") else 2e-2
    limit = default if tolerance is None else tolerance
    report = (
        None
        if engine == "torch" or device != "cpu" or dtype == "F64"
        else _compare_natively(sources, tokens, text, dtype, limit, engine)
    )
    if report is None or (not report.same and engine is None and is_installed("torch")):
        # it finds the module where they first differ
        report = _compare_on_torch(sources, tokens, text, dtype, limit, device)
    return report, sources[0].model.name


def _compare_natively(
    sources: list[VerifiedCheckpoint],
    tokens: list[int],
    text: str,
    dtype: str,
    tolerance: float,
    engine: str | None,
) -> LogitsComparison | None:
    """Compare on the native engine; None if it cannot run a model and torch can."""
    from ..generation.bus_error import exit_on_bus_error
    from ..native.library import NoLibrary
    from ..native.lowering import NotExpressible
    from ..native.native_comparison import compare_natively, compute_outputs

    exit_on_bus_error(print_error)
    outputs = []
    try:
        for source in sources:
            with Progress(f"running {safe(source.path)}"):
                outputs.append(compute_outputs(source, tokens, dtype))
    except (NoLibrary, NotExpressible) as error:
        if engine == "native" or not is_installed("torch"):
            raise
        note(f"using torch: {error}")
        return None
    with Progress("comparing"):
        return compare_natively(outputs[0], outputs[1], tokens, text, tolerance)


def _compare_on_torch(
    sources: list[VerifiedCheckpoint],
    tokens: list[int],
    text: str,
    dtype: str,
    tolerance: float,
    device: str,
) -> LogitsComparison:
    """Compare module by module on torch."""
    from ..torch.debug.compare_runs import compare_activations
    from ..torch.memory_budget import parse_dtype as parse_torch_dtype

    torch_dtype = parse_torch_dtype(dtype)
    ours, theirs = (_capture(x, tokens, torch_dtype, device) for x in sources)
    with Progress("comparing"):
        return compare_activations(ours, theirs, tokens, text, tolerance)


def _capture(source: VerifiedCheckpoint, tokens: list[int], dtype: Any, device: str) -> Activations:
    """Return the activations of one checkpoint; its weights are released."""
    from ..generation.bus_error import exit_on_bus_error
    from ..render.progress import Bar
    from ..torch.debug.activations import capture_activations
    from ..torch.weights.open_model import load_verified

    exit_on_bus_error(print_error)

    with Bar("loading the weights") as bar:
        loaded = load_verified(source, dtype, device, bar.update)
    with Progress(f"running {safe(source.path)}"):
        return capture_activations(loaded, source.path, tokens)


def _tokens(sources: list[VerifiedCheckpoint], prompt: str | None) -> tuple[list[int], str]:
    """Return the token ids that both read, and their text if there is one; `ids:1,2,3` and
    `random:64` are no text.
    """
    smallest = min(sources, key=lambda x: int(x.model.tree.vocab))
    vocabulary = int(smallest.model.tree.vocab)
    random = _RANDOM_IDS.fullmatch(prompt or "")
    if random:
        tokens, text = [], ""
    elif prompt is not None and prompt.startswith(_IDS):
        tokens, text = _parse_ids(prompt.removeprefix(_IDS)), ""
    else:
        tokens, text = _encode(sources, prompt)
    if not tokens:
        count, seed = (int(random[1]), int(random[2] or 0)) if random else (_NUM_RANDOM_IDS, 0)
        if not 1 <= count <= _MAX_IDS:
            raise LlamathError(f"random:{count}: expected 1 to {_MAX_IDS:,} ids")
        generator = Random(seed)
        tokens = [generator.randrange(vocabulary) for _ in range(count)]
    if prompt is None or random:
        tokens = tokens[
            : min(
                (int(x.model.tree.context) for x in sources if x.model.tree.context), default=None
            )
        ]
    if max(tokens) >= vocabulary:
        name = safe(smallest.path)
        raise LlamathError(
            f"token {max(tokens):,} is not in the vocabulary of {name}, which has {vocabulary:,} "
            "tokens",
            hint="ids:1,2,3 are for both",
        )
    return tokens, text


def _parse_ids(text: str) -> list[int]:
    parts = [x.strip() for x in text.split(",")]
    if wrong := [x for x in parts if not (x.isascii() and x.isdigit() and len(x) < 10)]:
        raise click.UsageError(
            "ids: expects numbers separated by commas, as ids:1,2,3, found "
            f"{safe(repr(wrong[0]), 60)}"
        )
    return [int(x) for x in parts]


def _encode(sources: list[VerifiedCheckpoint], prompt: str | None) -> tuple[list[int], str]:
    """Return the ids of the text by the first tokenizer that can be read; none if there is no
    tokenizer and no prompt.
    """
    from ..tokenizers import load_tokenizer

    text, read = _TEXT if prompt is None else prompt, []
    for source in sources:
        try:
            read.append(
                load_tokenizer(source.folder).encode(text, parse_special_tokens=prompt is not None)
            )
        except LlamathError as error:
            if prompt is not None and source is sources[-1] and not read:
                raise
            problem = error
    if not read:
        why = (
            problem
            if isinstance(problem, MissingExtra)
            else ("neither checkpoint has a tokenizer that can be read")
        )
        note(f"comparing on random token ids: {why}")
    elif read[0] != read[-1]:
        note("the tokenizers of A and B encode the text differently; using the ids of A")
    return (read[0], text) if read else ([], "")
