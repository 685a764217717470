"""`llamath ls`."""

from __future__ import annotations

import click

from ..render.progress import Progress
from ..utils.errors import safe
from ..utils.number_format import format_count
from .command_group import command as make_command
from .model_options import MODEL, unfold_option
from .output import TABLES, echo, echo_report, warn

_EXAMPLES = (
    "llamath ls ./my-checkpoint",
    "llamath ls model.gguf --format tree",
    "llamath ls owner/name --all --format csv",
)


@make_command("ls", _EXAMPLES, brief=True, formats=(*TABLES, "tree"))
@click.argument("path", type=MODEL)
@unfold_option
def command(path: str, *, unfold: bool, form: str | None) -> None:
    """List the tensors in the checkpoint at PATH: a file, an index, a folder, a repository on
    the Hub, or a URL. --format tree draws a tree.
    """
    from ..analysis.storage.listing import list_checkpoint
    from ..analysis.storage.listing_tables import listing_tables
    from ..checkpoint.open import file_notes

    with Progress("reading headers"):
        listing = list_checkpoint(path)
    for remark in listing.remarks:
        echo(remark, err=True)
    if form == "json":
        # no control character of a file's names reaches the terminal
        echo(listing.json_text().replace("\x7f", "\\u007f"))
    elif form == "brief":
        for text in file_notes(listing.manifest):
            warn(text)
        size = sum(x.size for x in listing.files)
        files = format_count(len(listing.files), f"{listing.manifest.format} file")
        in_gib = f" ({size / 2**30:,.2f} GiB)" if size >= 2**30 // 100 else ""
        echo(
            f"{safe(path)}: {format_count(listing.total.tensors, 'tensor')} in {files}, "
            f"{size:,} bytes{in_gib}"
        )
    else:
        parts = listing_tables(listing, unfold=unfold, tree=form == "tree")
        echo_report(listing, form, parts)
