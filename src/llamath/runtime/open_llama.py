"""`open_llama`: a checkpoint with its tokenizer, on the engine that computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..checkpoint.open import local_copy
from ..generation.session import LlamaBase
from ..render.progress import Bar, Progress
from ..utils.errors import LlamathError


def open_llama(
    model: str,
    dtype: str | None = None,
    device: Any = "cpu",
    engine: str | None = None,
    *,
    changes: Mapping[str, Any],
    will_chat: bool = False,
    report: Callable[[str], object] = lambda _: None,
) -> LlamaBase:
    """Open a path or a repository, which is downloaded: on the native engine on a CPU where it can
    run the model, else on torch; `engine` chooses.

    `device` may be a mesh of torch. With `will_chat`, a chat template is parsed meanwhile. `report`
    is called with lines about a download and the choice of the engine.
    """
    if device != "cpu" or engine == "torch":
        return _open_on_torch(model, dtype, device, changes, report)
    from ..analysis.check.verify.verified_checkpoint import open_verified
    from ..native.library import NoLibrary, load_library
    from ..native.lowering import NotExpressible
    from ..native.native_session import NativeLlama

    try:
        with Progress("compiling the native engine, once"):
            load_library()
        checkpoint = open_verified(local_copy(model, report), changes)
        return NativeLlama.from_verified(checkpoint, dtype, will_chat=will_chat)
    except (NoLibrary, NotExpressible) as error:
        if engine == "native":
            raise
        _require_torch(error)
        report(f"using torch: {error}{error.hint and f' ({error.hint})'}")
    return _open_on_torch(model, dtype, device, changes, report)


def is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    from importlib.util import find_spec

    return find_spec(package) is not None


def _require_torch(error: LlamathError) -> None:
    """Raise the native engine's error where torch is not installed."""
    if not is_installed("torch"):
        raise LlamathError(
            f"{error}; torch, which would compute instead, is not installed",
            hint=error.hint or "pip install 'llamath[torch]'",
        )


def _open_on_torch(
    model: str,
    dtype: str | None,
    device: Any,
    changes: Mapping[str, Any],
    report: Callable[[str], object],
) -> LlamaBase:
    from ..torch import Llama, limit_threads

    path = local_copy(model, report)
    with Bar("opening the checkpoint") as bar:
        llama = Llama.open(path, dtype, device, progress=bar.update, changes=changes)
    limit_threads(llama.module)
    return llama
