"""Arguments and options that several commands share: MODEL, --set, --on, --context, dtypes, and
KEY=VALUE lists; with completion.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ..render.progress import Progress
from ..utils.errors import Argument, FormatError, LlamathError, RemoteError, UnknownModel, safe
from .command_group import shared_option
from .output import PictureFile, echo_report, note, warn

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ..analysis.size.fit.fit_comparison import FitComparison
    from ..analysis.size.fit.fit_report import FitReport
    from ..analysis.size.fit.gpu_ranking import GPURanking
    from ..analysis.size.memory.inference_memory import MemoryReport
    from ..analysis.understand.count.header_count import HeaderCount
    from ..loading import Via
    from ..model import FamilyModel, Model


class CompletedText(click.ParamType[str]):
    """Text with words that the shell completes; after the last comma or count if there are any."""

    name = "text"

    def __init__(self, words: Callable[[], Iterable[tuple[str, str]]], files: bool = False) -> None:
        self.words, self.files = words, files

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        return str(value)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        match = re.fullmatch(r"((?:.*,)?(?:\d+x)?)(.*)", incomplete, re.DOTALL)
        before, start = (
            (match[1], match[2].lower()) if match and not self.files else ("", incomplete.lower())
        )
        items = [
            CompletionItem(before + word, help=text)
            for word, text in self.words()
            if word.startswith(start)
        ]
        return [*items, CompletionItem(incomplete, type="file")] if self.files else items


_resolver: ContextVar[Callable[[str], Model | str] | None] = ContextVar("resolver", default=None)


@contextmanager
def resolve_models(resolve: Callable[[str], Model | str]) -> Iterator[None]:
    """Let `resolve` find the models that commands of this thread name, in place of paths,
    presets and repositories.
    """
    before = _resolver.set(resolve)
    try:
        yield
    finally:
        _resolver.reset(before)


class ModelName(CompletedText):
    """The name of a model; a command gets the model itself where `resolve_models` is in force."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if (resolve := _resolver.get()) is not None and isinstance(value, str):
            return resolve(value)
        return value if _resolver.get() else super().convert(value, param, ctx)


class SeriesName(CompletedText):
    """The name of a series or family, or of a model."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        if _resolver.get() is not None and (
            os.path.lexists(text)
            or re.search(
                r"[/\\=]|^-$"
                r"|\.json$",
                text,
            )
        ):
            raise UnknownModel(
                f"{safe(repr(text), 60)} is not a series, family or preset",
                hint="llama-3, qwen3, mixtral, …",
            )
        return text


def _presets() -> Iterable[tuple[str, str]]:
    from ..catalog import presets

    return [(x.slug, x.name) for x in presets()]


MODEL = ModelName(_presets, files=True)
SERIES = SeriesName(_presets, files=True)
COMPUTE_DTYPE = CompletedText(lambda: [(x, "") for x in ("fp32", "bf16", "fp16", "int8")])

TARGET_DTYPE = CompletedText(
    lambda: [(x, "") for x in ("fp32", "bf16", "fp16", "q8_0", "q4_0", "q4_k", "q6_k", "q4_k_m")]
)


def set_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --set; the command gets `changes`."""
    return shared_option("--set", "changes")(command)


def via_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --via, for a command that needs names and shapes only."""
    return shared_option("--via")(command)


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add -o and --force, for a command that can write its answer to a file."""
    return shared_option("--output")(force_option(command))


def force_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --force, for a command that writes a file."""
    return shared_option("--force")(command)


def dry_run_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --dry-run, for a command that writes a checkpoint."""
    return shared_option("--dry-run")(command)


def unfold_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --all, for a command that prints a table of tensors."""
    return shared_option("--all", "unfold")(command)


def picture_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add -o and --force; the command gets `picture`, a `PictureFile` or None."""

    @wraps(command)
    def wrapper(*arguments: Any, picture: str | None, force: bool, **rest: Any) -> Any:
        file = None if picture is None else PictureFile(picture, force)
        return command(*arguments, picture=file, **rest)

    return shared_option("--output", "picture")(force_option(wrapper))


def context_option(
    text: str, multiple: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --context; the command gets a number of tokens, `max`, None, or with `multiple` a
    tuple of these.
    """

    def read(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        if multiple:
            return tuple(map(_tokens, value))
        return None if value is None else _tokens(value)

    return click.option("--context", callback=read, multiple=multiple, metavar="TOKENS", help=text)


def _tokens(text: str) -> int | str:
    if text == "max":
        return text
    if not text:
        raise click.UsageError(f"{Argument('context')} is empty")
    from ..utils.units import parse_tokens

    try:
        return parse_tokens(text)
    except LlamathError as error:
        if "," in text:
            raise LlamathError(
                str(error), hint="one number, like 8k; memory takes several"
            ) from None
        raise


def takes_model(
    command: Callable[..., int | None],
    header: bool = False,
    reads_files: bool = False,
    built: bool = False,
    any_model: bool = False,
) -> Callable[..., int | None]:
    """Add MODEL and --set; the command gets a `FamilyModel` first, or with `header` perhaps a
    `HeaderCount`. With `any_model`, a model without a family is not refused; with `built` neither,
    and the command has --via.

    Of a command that reads the config alone, and not with `reads_files` the weight files, too,
    broken files are noted here.
    """
    from ..model import with_family

    @wraps(command)
    def wrapper(
        model: str | Model | None, changes: tuple[str, ...], via: Via | None = None, **rest: Any
    ) -> int | None:
        new = parse_changes(changes)
        try:
            found = load_model(model, new, via)
            loaded: Model | HeaderCount = found if built or any_model else with_family(found)
            if not reads_files:
                note_broken_files(model)
        except UnknownModel as error:
            if not header or not isinstance(model, str) or not model or new or via:
                raise
            loaded = _count_header(model, error)
        return command(loaded, **rest)

    return click.argument("model", required=False, type=MODEL)(
        set_option(via_option(wrapper) if built else wrapper)
    )


def takes_built_model(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Like `takes_model`, for a command that needs names and shapes only; it has --via."""
    return takes_model(command, built=True)


def takes_checkpoint(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """Like `takes_built_model`, for a command that can also answer from the header of a
    checkpoint of an unknown family.
    """
    return takes_model(command, header=True, reads_files=True, built=True)


def load_model(
    model: str | Model | None, changes: Mapping[str, Any], via: Via | None = None
) -> Model:
    """Load the MODEL of a command."""
    if model is None:
        raise click.UsageError(
            "which MODEL? A preset (llama-3-8b), a repository on the Hub (owner/name), a "
            "config.json, params.json or folder, "
            "- for standard input, or dim=…"
        )
    from ..loading import load

    with (
        Progress("building the model with transformers" if via else "reading the config")
        if model != "-"
        else nullcontext()
    ):
        return load(model, changes=changes, via=via)


def note_broken_files(*models: str | Model | None) -> None:
    """Write a warning about each broken file next to a config that was read, and the command
    that fixes it.
    """
    for model in models:
        path = model if isinstance(model, str) or model is None else model.location
        if path and os.path.lexists(path):
            from ..checkpoint.broken_files import broken_file_notes

            for line in broken_file_notes(path):
                warn(line)


def local_model(model: str) -> str:
    """Return the local path of a MODEL whose weights are needed; a repository on the Hub is
    downloaded.
    """
    from ..checkpoint.open import local_copy

    return local_copy(model, note)


def _count_header(model: str, error: UnknownModel) -> HeaderCount:
    """Return the count from the checkpoint's header; raise the error again if there is no
    checkpoint.
    """
    from ..analysis.understand.count.header_count import count_header
    from ..checkpoint.open import names_checkpoint

    if not names_checkpoint(model):
        raise error
    try:
        with Progress("reading headers"):
            return count_header(model, str(error))
    except RemoteError:
        raise error from None
    except FormatError as problem:
        raise (error if problem.code == "no_checkpoint" else problem) from None


def parse_changes(texts: Iterable[str]) -> dict[str, Any]:
    """Return the keys and values of all --set: JSON values where they are JSON, else text."""
    return dict(map(_parse_change, texts))


def _parse_change(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(
            f"{Argument('changes')} expects KEY=VALUE, found {safe(repr(text), 60)}"
        )
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


def note_context(
    model: FamilyModel, context: int, given: object, form: str | None, *, enough: bool = False
) -> None:
    """Note the default context beside the model's own, if the answer could change with that, and
    warn if a context is longer, or if the model has none.
    """
    own = model.tree.context
    if own and context < own and not given and form != "json" and not enough:
        note(f"{context:,} tokens; the model supports {own:,}: {Argument('context', 'max')}")
    elif own and context > own:
        warn(f"{context:,} tokens are more than the model's own context, {own:,}")
    elif not own and not given:
        note(f"no context length is known; using {context:,} tokens")


def print_inference(
    report: MemoryReport | FitReport | FitComparison | GPURanking, form: str | None
) -> None:
    """Print a report on inference; in its brief form, warn if the files differ from the model."""
    echo_report(report, form)
    for line in report.checkpoint_notes if form == "brief" else ():
        warn(line)
