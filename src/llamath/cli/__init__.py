"""The command line: one module per command, imported when it is called for, and click with it."""

from __future__ import annotations

import gc
import sys
from io import TextIOWrapper
from typing import Any

from ..core.errors import LlamathError
from .output import complain, leave, quiet, say
from .quick import quick

COMMANDS = {
    "chat": "a conversation with a model",
    "config": "the configuration, as HF keys and as Meta's ModelArgs, each explained",
    "convert": "a checkpoint as safetensors, as Meta's .pth or as GGUF",
    "count": "count the parameters, weight by weight, with the formula",
    "design": "dimensions for a number of parameters, by the habits of a series",
    "diff": "why one model is larger than another, cause by cause and matrix by matrix",
    "explain": "which model, changed how, has so many parameters",
    "export": "a page of one model or two, as one file",
    "fit": "does it fit these GPUs, what else would, and how fast at the very most",
    "gpus": "GPUs and other accelerators: memory, bandwidth, dense FLOP/s, links, sources",
    "flops": "the FLOPs of prefill, decode and training, and the MFU by every convention",
    "logits": "do two checkpoints compute the same, and where do they part?",
    "ls": "what is in a checkpoint: tensors, types, shapes, bytes",
    "memory": "weights, cache, activations: what inference needs, line by line with formulas",
    "models": "list the presets",
    "run": "let a model go on from a text, or answer it",
    "serve": "the page of one model or two, for a browser on this machine",
    "trace": "a forward pass step by step: shapes, weights, FLOPs, what is cached and what comes next",
    "verify": "is a checkpoint what its configuration says?",
    "plan": "how to lay a model over a cluster: layouts, memory, predicted MFU, ranked",
    "names": "the names of the tensors in files",
}


def main() -> None:
    """Run the command line; a user's mistake ends with a sentence and exit code 2, never with a traceback."""
    gc.disable()  # a process this short has no use for it, and 45,000 tensors set it off again and again
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="replace")
    try:
        status = quick(sys.argv[1:])
        if status is not None:
            leave(status)
        from .command_group import run
        from .generation_options import started

        run()
        sys.stdout.flush()
        if started():
            leave(0)  # threads of torch's process group outlive it now and then, and abort
    except LlamathError as error:
        complain(str(error), error.hint)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        quiet(0)
    except OSError as error:
        say(f"error: the output cannot be written: {error.strerror}", err=True)
        quiet(2)


def __getattr__(name: str) -> Any:
    if name != "cli":
        raise AttributeError(f"{__name__} has no {name}")
    from .command_group import cli

    return cli
