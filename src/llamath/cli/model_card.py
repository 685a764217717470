"""The card of a checkpoint for the README of its repository, as Markdown or as JSON-LD: what is in
its files, if these match their config.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from ..api import facts, hash_weights, ls, verify
from ..utils.errors import Call, LlamathError, safe
from ..utils.number_format import format_count, short_bytes
from ..utils.record_type import Record
from ..utils.write_whole_file import write_whole_file

BEGIN, END = "<!-- llamath begin -->", "<!-- llamath end -->"
"""Between these two lines of a README its card stands."""
_MAX_README = 8 * 2**20
_AS_JSON = (".json", ".jsonld")


class ContradictsConfig(LlamathError):
    """The files of a checkpoint do not match its config."""


class StoredDtype(Record):
    """The tensors of one dtype in the files."""

    dtype: str
    tensors: int
    parameters: int
    bytes: int


class ModelCard(Record):
    """Facts of a checkpoint whose files match its config."""

    name: str
    description: str
    format: str
    files: int
    total: int
    active: int
    dtypes: tuple[StoredDtype, ...]
    bytes: int
    context: int | None
    kv_per_token: int | None
    kv_dtype: str
    hash: str
    definition: str
    version: str

    def facts(self) -> tuple[tuple[str, str], ...]:
        """The facts, each with its name."""
        active = "" if self.active == self.total else f", {self.active:,} of them for a token"
        stored = (
            f"{safe(x.dtype)}: {x.parameters:,} parameters in {format_count(x.tensors, 'tensor')}, "
            f"{x.bytes:,} bytes"
            for x in self.dtypes
        )
        kv = (
            "not computed for this family"
            if self.kv_per_token is None
            else f"{short_bytes(self.kv_per_token)} per token in {self.kv_dtype}"
        )
        length = "" if self.context is None else f"; context {self.context:,} tokens"
        return (
            ("parameters", f"{self.total:,}{active}"),
            ("weights", "; ".join(stored)),
            ("KV cache", f"{kv}{length}"),
            ("files", f"{self.files:,} × {self.format}, {self.bytes:,} bytes of tensors"),
            ("hash of the weights", f"{self.hash} ({self.definition})"),
        )

    def markdown(self) -> str:
        """The section of a README, with a badge and between the lines that mark it."""
        badge = (
            f"https://img.shields.io/badge/{quote('parameters')}-{quote(f'{self.total:,}')}-3a7d44"
        )
        rows = (f"| {name} | {_escaped(text)} |" for name, text in self.facts())
        return "\n".join(
            (
                BEGIN,
                f"![{self.total:,} parameters]({badge})",
                "",
                _escaped(self.description),
                "",
                "| what | in these files and their config |",
                "| --- | --- |",
                *rows,
                "",
                f"Names, shapes and dtypes match the config: `llamath verify`, {self.version}.",
                END,
                "",
            )
        )

    def json_ld(self) -> dict[str, Any]:
        """The card in the vocabulary of schema.org, as search engines read it."""
        values: dict[str, int | str | None] = {
            "parameters": self.total,
            "active parameters": self.active,
            "bytes of tensors": self.bytes,
            "context": self.context,
            f"KV cache bytes per token, {self.kv_dtype}": self.kv_per_token,
            f"sha256 of the weights, {self.definition}": self.hash,
            **{f"parameters in {x.dtype}": x.parameters for x in self.dtypes},
        }
        return {
            "@context": "https://schema.org",
            "@type": "SoftwareSourceCode",
            "name": self.name,
            "description": self.description,
            "encodingFormat": self.format,
            "additionalProperty": [
                {"@type": "PropertyValue", "name": name, "value": value}
                for name, value in values.items()
                if value is not None
            ],
            "creditText": f"counted by llamath {self.version}",
        }


def _escaped(text: str) -> str:
    """Return text that is no markup in a cell of a table."""
    return re.sub(r"[\\`*|\[\]<&_]", lambda x: f"&#{ord(x[0])};", text)


def card_of(
    folder: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
) -> ModelCard:
    """Return the card of a checkpoint; one that does not match its config has none."""
    report = verify(folder)
    if not report.ok:
        raise ContradictsConfig(f"no card: {report.summary}", hint=f"{Call('verify')} says what")
    listing, sheet = ls(folder).to_json(), facts(folder)
    hashed = hash_weights(folder, progress=progress)
    name = os.path.basename(os.path.abspath(os.fspath(folder)))
    return ModelCard(
        name=safe(name),
        description=sheet.description,
        format=listing["format"],
        files=len(listing["files"]),
        total=sheet.total,
        active=sheet.active,
        dtypes=tuple(_stored(name, x) for name, x in listing["dtypes"].items()),
        bytes=listing["bytes"],
        context=sheet.context,
        kv_per_token=sheet.kv_per_token,
        kv_dtype=sheet.kv_dtype,
        hash=hashed.hash,
        definition=hashed.definition,
        version=version("llamath"),
    )


def _stored(dtype: str, found: Mapping[str, Any]) -> StoredDtype:
    return StoredDtype(
        dtype=dtype,
        tensors=found["tensors"],
        parameters=found["parameters"],
        bytes=found["bytes"],
    )


def write_card(card: ModelCard, path: str, *, force: bool) -> None:
    """Write a card: JSON-LD where the name of the file says so, else Markdown, of a file with the
    two lines that mark a card in place of what stands between them.
    """
    if path.endswith(_AS_JSON):
        content = json.dumps(card.json_ld(), indent=2, ensure_ascii=False) + "\n"
        write_whole_file(path, content.encode(), overwrite=force)
        return
    if not os.path.isfile(path) or force:
        write_whole_file(path, card.markdown().encode(), overwrite=force)
        return
    if os.path.getsize(path) > _MAX_README:
        raise LlamathError(f"{safe(path)} is longer than a README")
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise LlamathError(f"{safe(path)} cannot be read as UTF-8: {safe(str(error))}") from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in after or END in after:
        raise LlamathError(
            f"{safe(path)} exists; a card is put between the lines {BEGIN} and {END}",
            hint="add both lines once, where the card should stand",
        )
    content = before + card.markdown().rstrip("\n") + after
    write_whole_file(path, content.encode(), overwrite=True)
