"""The gallery of the local server: the page at once with what the catalog knows, and the
computed facts in chunks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...catalog import presets, read_preset, slugs
from ...loading import load_family
from ...model import FamilyModel
from ..server.page_html import document
from .gallery_entry import catalog_entry, gallery_entry, kinship_entry
from .gallery_page import gallery_data, plain_links

_CHUNK = 24
"""Models of one request, which takes about a second."""
_LINK = "model/{id}"


class LiveGallery:
    """The gallery of the models of this launch and the presets."""

    def __init__(self, own: Mapping[str, FamilyModel], hub: bool) -> None:
        self.own, self.hub = own, hub

    @property
    def num_chunks(self) -> int:
        """The number of chunks: first of the entries, then of who is nearest to whom."""
        return 2 * _num_parts()

    def page(self, posted: Sequence[dict[str, Any]] = ()) -> str:
        """Return the page, with the models of this launch, the entries of configs that were
        sent, and what the catalog knows of presets.
        """
        own = [gallery_entry(model, model_id) for model_id, model in self.own.items()]
        entries = [*own, *posted, *map(catalog_entry, presets())]
        data = gallery_data(
            entries, link=_LINK, pair_link="models/{a}/{b}", chunks=self.num_chunks, hub=self.hub
        )
        return document(
            "Choose a model", data, "gallery", plain_links(entries, _LINK), connects=True
        )

    def chunk(self, i: int) -> dict[str, Any]:
        """Return the entries of the presets of one chunk, or their ancestors."""
        is_kinship, part = divmod(i, _num_parts())
        some = slugs()[part * _CHUNK : (part + 1) * _CHUNK]
        if is_kinship:
            return {"models": [kinship_entry(slug) for slug in some]}
        return {"models": [gallery_entry(load_family(read_preset(slug)), slug) for slug in some]}


def _num_parts() -> int:
    return -(-len(slugs()) // _CHUNK)
