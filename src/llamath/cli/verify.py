"""`llamath verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..checkpoint.open import find_repo
from ..questions.file_questions import VerifyQuestion
from ..render.progress import Bar, Progress
from ..utils.errors import LlamathError, safe
from ..utils.write_whole_file import check_target
from .command_group import command as make_command
from .model_options import MODEL, local_model, output_option, parse_changes, set_option, via_option
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
    "llamath verify consolidated.00.pth llama-2-7b",
    "llamath verify ./my-adapter ./my-checkpoint",
)


@make_command("verify", _EXAMPLES, brief=True, formats=TABLES)
@click.argument("path", type=MODEL)
@asks(VerifyQuestion)
@set_option
@via_option
@output_option
def command(
    path: str,
    *,
    asked: Asked,
    output: str | None,
    changes: tuple[str, ...],
    via: Via | None,
    force: bool,
    form: str | None,
) -> int:
    """Check the checkpoint at PATH against its config or MODEL, an adapter against its base model,
    and with --full its values. -o writes the SHA-256 sums of its files, as sha256sum does; --full
    compares with a SHA256SUMS next to them.

    Exit code 0: complete and matching, 1: findings, 2: unreadable.
    """
    from ..analysis.check.verify_path import verify_path

    if output is not None and find_repo(path) is not None:
        raise LlamathError(
            f"the sums are those of local files, and {safe(path)} is on the Hub",
            hint="give a folder",
        )
    if output is not None:
        check_target(output, overwrite=force)
    question = asked.parse(VerifyQuestion)
    if question.full and find_repo(path) is not None:
        path = local_model(path)
    if question.full or output is not None:
        with Bar("reading headers") as bar:
            report = verify_path(
                path,
                question.against,
                parse_changes(changes),
                full=question.full,
                all_sums=output is not None,
                progress=bar.update,
                via=via,
            )
    else:
        with Progress("reading headers"):
            report = verify_path(path, question.against, parse_changes(changes), via=via)
    if output is not None:
        _write_sums(report, output, force=force)
    if report.note:
        echo(report.note, err=True)
    echo_report(report, form)
    return int(not report)


def _write_sums(report: VerifyReport | StructureReport, target: str, *, force: bool) -> None:
    """Write the sums, unless the files are known to be damaged."""
    from ..checkpoint.file_sums import format_sums

    assert report.full is not None
    if any(x.severity == "error" for x in (*report.findings, *report.full.findings)):
        note(f"{safe(target)} was not written, because of the errors")
        return
    write_file(
        target,
        format_sums({x.name: x.sha256 for x in report.full.files if x.sha256}),
        overwrite=force,
    )
