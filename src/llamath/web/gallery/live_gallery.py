"""The gallery of the local server: the page at once with what the catalog knows and the pictures
of the first screen, the other pictures and the computed facts in chunks, newest models first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...catalog import presets, read_preset
from ...loading import load_family
from ...model import FamilyModel
from ..server.page_html import document
from .gallery_entry import catalog_entry, gallery_entry, kinship_entry, picture_entry
from .gallery_page import gallery_data, plain_links

_FIRST = 24
"""Models whose pictures come with the page: those of the first screen."""
_LINK = "model/{id}"
_Entry = Callable[[str], dict[str, Any]]


class _Chunk(NamedTuple):
    """Some presets, and what is computed of each; a chunk takes about a second."""

    entry: _Entry
    slugs: Sequence[str]


def _cut(entry: _Entry, slugs: Sequence[str], size: int) -> Iterator[_Chunk]:
    for i in range(0, len(slugs), size):
        yield _Chunk(entry, slugs[i : i + size])


def _newest() -> list[str]:
    """Return the presets in the order in which the page shows them."""
    return [x.slug for x in sorted(presets(), key=lambda x: x.released or "", reverse=True)]


def _chunks() -> list[_Chunk]:
    """Return the facts of the first screen, the other pictures, the other facts, and then who is
    nearest to whom.
    """
    newest = _newest()
    first, rest = newest[:_FIRST], newest[_FIRST:]
    return [
        _Chunk(_facts, first),
        *_cut(_picture, rest, 160),
        *_cut(_facts, rest, 24),
        *_cut(kinship_entry, newest, 24),
    ]


def _facts(slug: str) -> dict[str, Any]:
    return gallery_entry(load_family(read_preset(slug)), slug)


def _picture(slug: str) -> dict[str, Any]:
    return picture_entry(load_family(read_preset(slug)), slug)


class LiveGallery:
    """The gallery of the models of this launch and the presets."""

    def __init__(self, own: Mapping[str, FamilyModel], hub: bool) -> None:
        self.own, self.hub = own, hub

    @property
    def num_chunks(self) -> int:
        """The number of chunks."""
        return len(_chunks())

    def page(self, posted: Sequence[dict[str, Any]] = ()) -> str:
        """Return the page, with the models of this launch, the entries of configs that were
        sent, and what the catalog knows of presets.
        """
        own = [gallery_entry(model, model_id) for model_id, model in self.own.items()]
        first = {slug: _picture(slug) for slug in _newest()[:_FIRST]}
        listed = (catalog_entry(x) | first.get(x.slug, {}) for x in presets())
        entries = [*own, *posted, *listed]
        data = gallery_data(
            entries, link=_LINK, pair_link="models/{a}/{b}", chunks=self.num_chunks, hub=self.hub
        )
        return document(
            "Choose a model", data, "gallery", plain_links(entries, _LINK), connects=True
        )

    def chunk(self, i: int) -> dict[str, Any]:
        """Return what a chunk has of its presets."""
        entry, slugs = _chunks()[i]
        return {"models": [entry(x) for x in slugs]}
