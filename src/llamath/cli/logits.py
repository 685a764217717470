"""`llamath logits`."""

from __future__ import annotations

import sys
from random import Random
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import LlamathError, MissingExtra, safe
from .model_options import changed
from .output import say

if TYPE_CHECKING:
    from ..run.debug.activations import Activations
    from ..run.weights.verified_checkpoint import VerifiedCheckpoint

TEXT = (
    "The river was low that summer, and on the 14th of July the children walked across it without wetting their knees. "
    'Anna counted the stones (there were 27) and said: "If the rain comes back, we shall need a boat."\n'
    "def area(width, height):\n    return width * height\n"
)
"""What is read where nothing else is asked for."""


@click.command("logits")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.argument("prompt", required=False)
@click.option("--ids", metavar="1,2,3", help="Token ids to read, instead of a text.")
@click.option("--tokens", type=click.IntRange(1, 1 << 20), default=64, show_default=True, help="How many random ids, without a tokenizer.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random ids.")
@click.option("--tolerance", type=click.FloatRange(0), default=None, help="Share of the largest number; default 1e-4, 2e-2 in 16 bits.")
@click.option("--dtype", default="float32", show_default=True, help="The type that both compute in.")
@click.option("--device", default="cpu", show_default=True, help="Where both compute.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a configuration key of B; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(a: str, b: str, *, prompt: str | None, ids: str | None, tolerance: float | None, as_json: bool, **how: Any) -> None:
    """Do the checkpoints A and B compute the same? Exit code 0 yes, 1 no, 2 unreadable."""
    from ..run.debug.compare_runs import compare_activations
    from ..run.memory_budget import parse_dtype
    from ..run.weights.verified_checkpoint import open_verified

    if prompt is not None and ids is not None:
        raise click.UsageError("either a PROMPT or --ids, not both")
    if prompt == "":
        raise LlamathError("the prompt is empty", hint="leave it out for a text of its own, or give --ids")
    sources = [open_verified(a), open_verified(b, dict(changed(x) for x in how.pop("changes")))]
    tokens, text = _tokens(sources, prompt, ids, (how.pop("tokens"), how.pop("seed")))
    dtype = parse_dtype(how["dtype"])
    ours, theirs = (_heard(x, tokens, dtype, how["device"]) for x in sources)
    usual = 1e-4 if dtype.itemsize > 2 else 2e-2
    found = compare_activations(ours, theirs, tokens, text, usual if tolerance is None else tolerance)
    if as_json:
        import json

        say(json.dumps(found.to_json()))
    else:
        from ..render.text.logits_text import logits_text

        say(logits_text(found))
    sys.exit(0 if found.same else 1)


def _heard(source: VerifiedCheckpoint, tokens: list[int], dtype: Any, device: str) -> Activations:
    """What one of them says; nothing of it stays in memory."""
    from ..render.progress import Bar
    from ..run.debug.activations import capture_activations
    from ..run.weights.open_model import load_verified

    with Bar() as bar:
        found = load_verified(source, dtype, device, bar.update)
    return capture_activations(found, source.path, tokens)


def _tokens(sources: list[VerifiedCheckpoint], prompt: str | None, ids: str | None, random: tuple[int, int]) -> tuple[list[int], str]:
    """The ids that both read, and the text that they stand for, if there is one."""
    if ids is not None:
        found, text = _listed(ids), ""
    else:
        found, text = _read(sources, prompt)
    least = min(sources, key=lambda x: int(x.model.tree.vocab))
    most = int(least.model.tree.vocab)
    if not found:
        generator = Random(random[1])
        found = [generator.randrange(most) for _ in range(random[0])]
    if prompt is None and ids is None:
        found = found[: min((int(x.model.tree.context) for x in sources if x.model.tree.context), default=None)]
    if max(found) >= most:
        raise LlamathError(f"there is no token {max(found):,} in {safe(least.path)}, whose vocabulary has {most:,}", hint="--ids for both")
    return found, text


def _listed(text: str) -> list[int]:
    parts = [x.strip() for x in text.split(",")]
    if wrong := [x for x in parts if not (x.isascii() and x.isdigit() and len(x) < 10)]:
        raise click.UsageError(f"--ids wants numbers with commas between them, not {wrong[0]!r}")
    return [int(x) for x in parts]


def _read(sources: list[VerifiedCheckpoint], prompt: str | None) -> tuple[list[int], str]:
    """The text by the tokenizer of the first that has one; nothing where neither has one and none is needed."""
    from ..tokenizers import load_tokenizer

    text, read = TEXT if prompt is None else prompt, []
    for source in sources:
        try:
            read.append(load_tokenizer(source.folder).encode(text, parse_special_tokens=prompt is not None))
        except LlamathError as error:
            if prompt is not None and source is sources[-1] and not read:
                raise
            problem = error
    if not read:
        why = problem if isinstance(problem, MissingExtra) else "neither has a tokenizer that can be read"
        say(f"note: random ids are read, for {why}", err=True)
    elif read[0] != read[-1]:
        say("note: the tokenizers of A and B read the text differently; the ids are those of A's", err=True)
    return (read[0], text) if read else ([], "")
