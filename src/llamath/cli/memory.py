"""`llamath memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..core.errors import safe
from ..core.units import parse_bytes, parse_tokens, tokens_note
from ..model import Model
from .model_options import takes_checkpoint
from .output import say
from .training_options import trains

if TYPE_CHECKING:
    from ..analysis.count.header_count import HeaderCount
    from ..analysis.inference.inference_memory import MemoryCalculator

SCHEMES = "fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4, awq, gptq, mxfp4, GGUF's q4_k_m, iq3_xs, …"


@click.command("memory")
@takes_checkpoint
@click.option("--dtype", default="", metavar="NAME", help=f"What the weights are in, if not what MODEL says: {SCHEMES}")
@click.option("--kv-dtype", default="", metavar="NAME", help="What keys and values are in: bf16, fp8, int8, q8_0, q4_0, …")
@click.option("--context", default="", metavar="TOKENS", help="Tokens of each sequence: 4096, 128k; several with commas make a table.")
@click.option("--batch", type=int, default=1, show_default=True, help="Sequences at once.")
@click.option("--chunk", default="", metavar="TOKENS", help="Tokens of prompts read at once: 2048, unless it is said; or all.")
@click.option("--imatrix/--no-imatrix", default=None, help="GGUF's types as they are chosen with an importance matrix, or without.")
@click.option("--in", "within", metavar="SIZE", help="What fits in 24GiB or 24GB: the longest context, the largest batch.")
@click.option("--json", "form", flag_value="json", help="For programs: bytes.")
@trains
@click.pass_context
def command(ctx: click.Context, /, model: Model | HeaderCount, *, within: str | None, form: str | None, **asked: Any) -> None:
    """What inference with MODEL needs: weights, key/value cache, activations, logits, each with its formula.

    Of a checkpoint the weights are the bytes that are really there, unless --dtype says otherwise.
    """
    if not isinstance(model, Model):
        _header(model, form, rest=any(x not in ("", None, 1) for x in (within, *asked.values())))
        return
    from ..analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
    from ..analysis.inference.weight_bytes import read_stored_weights

    contexts = _contexts(asked.pop("context"))
    request = MemoryRequest(**asked | {"chunk": _chunk(asked["chunk"]), "context": max(contexts, default=None)})
    calculator = MemoryCalculator(model, request, None if request.dtype else read_stored_weights(str(ctx.params.get("model") or "")))
    report = calculator.report(contexts, None if within is None else parse_bytes(within))
    warn(model, calculator.context)
    doubt(calculator)
    if form == "json":
        import json

        say(json.dumps(report.to_json()))
    else:
        from ..render.text.memory_text import memory_text

        say(memory_text(report))


def _contexts(text: str) -> list[int]:
    for part in text.split(",") if text else []:
        if note := tokens_note(part):
            say(f"note: {note}", err=True)
    return [parse_tokens(part) for part in text.split(",")] if text else []


def _chunk(text: str) -> int:
    from ..analysis.inference.inference_memory import MAX_TOKENS, PREFILL_CHUNK

    return PREFILL_CHUNK if not text else MAX_TOKENS - 1 if text == "all" else parse_tokens(text)


def warn(model: Model, context: int) -> None:
    """Say where a context is beyond the model's own, or the model is silent on it."""
    own = model.tree.context
    if own and context > own:
        say(f"warning: {context:,} tokens are more than the model's own context, {own:,}", err=True)
    elif not own:
        say(f"note: the model does not say its context; {context:,} tokens are taken", err=True)


def doubt(sizes: MemoryCalculator) -> None:
    """Say where a configuration packs its weights in a way that is not known here."""
    if sizes.unknown_quantization:
        name = safe(sizes.unknown_quantization, 40)
        say(f"warning: unknown quantization method {name} in quantization_config: assuming {sizes.packer.name}", err=True)


def _header(found: HeaderCount, form: str | None, rest: bool) -> None:
    """The weights alone, of a checkpoint that no family fits."""
    if rest:
        raise click.UsageError(f"{found.reason}; without a family only the bytes of the weights are known")
    from ..analysis.inference.inference_memory import WeightsReport
    from ..analysis.inference.weight_bytes import stored_weights
    from ..render.text.memory_text import weights_only_text

    report = WeightsReport(name=safe(found.name), lines=stored_weights(found.listing).lines, reason=found.reason)
    if form == "json":
        import json

        say(json.dumps(report.to_json()))
    else:
        say(weights_only_text(report))
