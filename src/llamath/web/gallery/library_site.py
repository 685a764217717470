"""`LibrarySite`: the files with which a site counts configs by the library itself: Pyodide from the
site's owner, the library's sources, and a page that loads both on demand.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from typing import NamedTuple

from ...utils.errors import LlamathError, safe
from ..server.page_html import read_asset
from .known_forms import FORMS
from .site_pages import COUNT_ASSETS, asset_name, count_page

PYODIDE = "pyodide"
"""The folder of a site with Pyodide's files."""
COUNT_PAGE = "count.html"
_PYODIDE_FILES = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
"""Those files of its npm package that a browser loads."""
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_NOT_NEEDED = os.path.join("web", "static")
_WEIGHTS = ".safetensors"
_DATE = (1980, 1, 1, 0, 0, 0)


class LibrarySite(NamedTuple):
    """The library in a site: its packed sources, and the bytes of Pyodide's files there."""

    sources: bytes
    pyodide_bytes: int

    @classmethod
    def of_folder(cls, folder: str) -> LibrarySite | None:
        """Return what a site in this folder needs; None if its owner has put no Pyodide there."""
        place = os.path.join(folder, PYODIDE)
        if not os.path.isdir(place):
            return None
        paths = [os.path.join(place, x) for x in _PYODIDE_FILES]
        if missing := [x for x in paths if not os.path.isfile(x)]:
            raise LlamathError(
                f"expected {', '.join(_PYODIDE_FILES)} in {safe(place)}, "
                f"{os.path.basename(missing[0])} is missing",
                hint="they are in the npm package pyodide",
            )
        return cls(packed_sources(), sum(map(os.path.getsize, paths)))

    @property
    def _archive(self) -> str:
        return f"assets/llamath-{hashlib.sha256(self.sources).hexdigest()[:12]}.zip"

    @property
    def _megabytes(self) -> str:
        return f"{(self.pyodide_bytes + len(self.sources)) / 1e6:.1f}"

    def offer(self, up: str = "") -> dict[str, str]:
        """Return what a page says of it; `up` leads from it to the site's root."""
        return {"page": f"{up}{COUNT_PAGE}", "megabytes": self._megabytes}

    def files(self, link: str) -> dict[str, bytes | str]:
        """Return the files by their places; `link` is the address of a model's page."""
        links = {"all": "index.html", "forms": FORMS, "link": link, "library": self.offer()}
        data = {
            "pyodide": f"{PYODIDE}/",
            "library": self._archive,
            "megabytes": self._megabytes,
            "links": links,
        }
        return {
            COUNT_PAGE: count_page(data),
            self._archive: self.sources,
            **{f"assets/{asset_name(x)}": read_asset(x) for x in COUNT_ASSETS},
        }


def packed_sources() -> bytes:
    """Return the package as an archive that is the same each time, without weights and the files
    of pages.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _packed_files():
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED, 9)
    return packed.getvalue()


def _packed_files() -> Iterator[tuple[str, bytes]]:
    """Yield what is in the archive: the package, and what says its version."""
    number = version("llamath")
    metadata = f"Metadata-Version: 2.1\nName: llamath\nVersion: {number}\n"
    yield f"llamath-{number}.dist-info/METADATA", metadata.encode()
    for where, folders, names in os.walk(_PACKAGE):
        inner = os.path.relpath(where, _PACKAGE)
        folders[:] = sorted(
            x for x in folders if x != "__pycache__" and os.path.join(inner, x) != _NOT_NEEDED
        )
        for name in sorted(x for x in names if not x.endswith(_WEIGHTS)):
            path = os.path.normpath(os.path.join("llamath", inner, name))
            with open(os.path.join(where, name), "rb") as file:
                yield path.replace(os.sep, "/"), file.read()
