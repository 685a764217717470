"""`llamath verify`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from ..checkpoint.open import find_repo
from ..questions.file_questions import VerifyQuestion
from ..render.progress import Bar, Progress
from ..utils.errors import LlamathError, safe
from .command_group import command as make_command
from .model_options import MODEL, force_option, local_model, parse_changes, set_option, via_option
from .output import TABLES, echo, echo_report, note, write_file
from .question_options import Asked, asks

if TYPE_CHECKING:
    from ..analysis.check.verify.check_checkpoint import VerifyReport
    from ..analysis.check.verify.structure_report import StructureReport
    from ..loading import Via

_EXAMPLES = (
    "llamath verify ./my-checkpoint",
    "llamath verify ./my-checkpoint --full",
    "llamath verify owner/name",
    "llamath verify consolidated.00.pth --against llama-2-7b",
    "llamath verify ./my-adapter --base ./my-checkpoint",
)


@make_command("verify", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("path", type=MODEL)
@asks(VerifyQuestion)
@click.option("--write-sums", is_flag=True, help="Write SHA256SUMS next to the files.")
@set_option
@via_option
@force_option
def command(
    path: str,
    *,
    asked: Asked,
    write_sums: bool,
    changes: tuple[str, ...],
    via: Via | None,
    force: bool,
    form: str | None,
) -> int:
    """Check the checkpoint at PATH against its config, or an adapter against its base model, and
    with --full its values.

    Exit code 0: complete and matching, 1: findings, 2: unreadable.
    """
    from ..analysis.check.verify_path import verify_path

    if force and not write_sums:
        raise click.UsageError("--force goes with --write-sums")
    if write_sums and find_repo(path) is not None:
        raise LlamathError(
            f"--write-sums writes next to local files, and {safe(path)} is on the Hub",
            hint="leave it out, or give a folder",
        )
    if write_sums and not force:
        _refuse_existing_sums(path)
    question = asked.parse(VerifyQuestion)
    if question.full and find_repo(path) is not None:
        path = local_model(path)
    if question.full or write_sums:
        with Bar("reading headers") as bar:
            report = verify_path(
                path,
                question.against,
                parse_changes(changes),
                question.base,
                full=question.full,
                all_sums=write_sums,
                progress=bar.update,
                via=via,
            )
    else:
        with Progress("reading headers"):
            report = verify_path(
                path, question.against, parse_changes(changes), question.base, via=via
            )
    if write_sums:
        _write_sums(report, force=force)
    if report.note:
        echo(report.note, err=True)
    echo_report(report, form)
    return int(not report)


def _refuse_existing_sums(path: str) -> None:
    """Refuse to replace the sums of local files before everything is read."""
    from ..checkpoint.file_sums import SUMS_FILE
    from ..embedded import resolve_name

    path = resolve_name(path)
    target = os.path.join(path if os.path.isdir(path) else os.path.dirname(path), SUMS_FILE)
    if os.path.lexists(path) and os.path.lexists(target):
        hint = f"llamath verify {safe(path)} --full compares with it; --force overwrites it"
        raise LlamathError(f"{safe(target)} already exists", hint=hint)


def _write_sums(report: VerifyReport | StructureReport, *, force: bool) -> None:
    """Write the sums, unless the files are known to be damaged."""
    from ..checkpoint.file_sums import SUMS_FILE, format_sums

    assert report.full is not None
    target = os.path.join(report.full.folder, SUMS_FILE)
    if any(x.severity == "error" for x in (*report.findings, *report.full.findings)):
        note(f"{safe(target)} was not written, because of the errors")
        return
    write_file(
        target,
        format_sums({x.name: x.sha256 for x in report.full.files if x.sha256}),
        overwrite=force,
    )
