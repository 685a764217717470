"""`llamath verify`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from ..core.errors import LlamathError, safe
from ..render.progress import Bar, Progress
from .command_group import command as make_command
from .model_options import MODEL, force_option, parse_changes, set_option
from .output import echo, echo_json, note, write_file

if TYPE_CHECKING:
    from ..analysis.verify.check_checkpoint import VerifyReport

_EXAMPLES = (
    "llamath verify ./my-checkpoint",
    "llamath verify ./my-checkpoint --full",
    "llamath verify hf://owner/name",
    "llamath verify consolidated.00.pth --as llama-2-7b",
)


@make_command("verify", _EXAMPLES, brief=True)
@click.argument("path", type=MODEL)
@click.option("--as", "model", type=MODEL, metavar="MODEL", help="The expected model.  [default: the config next to the files]")
@click.option("--full", is_flag=True, help="Read every byte: NaN, zero rows, duplicates, norms, and the sums of the files.")
@click.option("--write-sums", is_flag=True, help="Write SHA256SUMS next to the files.")
@set_option
@force_option
def command(path: str, *, model: str | None, full: bool, write_sums: bool, changes: tuple[str, ...], force: bool, form: str | None) -> int:
    """Check the checkpoint at PATH against its config, and with --full its values. Exit code 0: correct, 1: it is not, 2: unreadable."""
    from ..analysis.verify.check_checkpoint import verify_checkpoint
    from ..render.text.verify_text import verify_text

    if force and not write_sums:
        raise click.UsageError("--force goes with --write-sums")
    if full or write_sums:
        if write_sums and not force:
            _refuse_existing_sums(path)
        with Bar("reading headers") as bar:
            report = verify_checkpoint(path, model, parse_changes(changes), full=full, all_sums=write_sums, progress=bar.update)
        if write_sums:
            _write_sums(report, force=force)
    else:
        with Progress("reading headers"):
            report = verify_checkpoint(path, model, parse_changes(changes))
    if report.note:
        echo(report.note, err=True)
    if form == "json":
        echo_json(report.to_json())
    else:
        echo(report.summary if form == "brief" else verify_text(report))
    return int(not report.ok)


def _refuse_existing_sums(path: str) -> None:
    """Refuse to replace the sums of local files before everything is read."""
    from ..checkpoint.file_sums import SUMS_FILE
    from ..embedded import resolve_name

    path = resolve_name(path)
    target = os.path.join(path if os.path.isdir(path) else os.path.dirname(path), SUMS_FILE)
    if os.path.lexists(path) and os.path.lexists(target):
        raise LlamathError(
            f"{safe(target)} already exists", hint=f"llamath verify {safe(path)} --full compares with it; --force overwrites it"
        )


def _write_sums(report: VerifyReport, *, force: bool) -> None:
    """Write the sums, unless the files are known to be damaged."""
    from ..checkpoint.file_sums import SUMS_FILE, format_sums

    target = os.path.join(report.checkpoint.folder, SUMS_FILE)
    if any(x.severity == "error" for x in report.findings) or report.full is None:
        note(f"{safe(target)} was not written, because of the errors")
        return
    write_file(target, format_sums({x.name: x.sha256 for x in report.full.files if x.sha256}), overwrite=force)
