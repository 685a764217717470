"""`export`: the page of one or two models as one HTML file, the poster of one, or the gallery of
several.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, cast

from ..analysis.understand.fact_sheet import fact_sheet
from ..checkpoint.open import is_remote_name, names_checkpoint
from ..embedded import resolve_name
from ..loading import Source
from ..model import FamilyModel
from ..render.png import is_png, svg_to_png
from ..render.report import Report
from ..render.svg.poster.poster_svg import FORMATS, PosterFormat, parse_poster, poster_svg
from ..render.tables import Column, Table
from ..utils.errors import LlamathError, safe
from ..utils.write_whole_file import check_target, write_whole_file
from .gallery.site_files import GallerySite, write_gallery
from .page_data.checkpoint_data import load_with_checkpoint
from .page_data.live.live_data import LiveParts, bundled_live_parts, live_parts
from .server.model_ids import refuse_huge
from .server.page_html import model_page

_ONE_LIVE_MODEL = "a page runs one model, found {}"
_COLUMNS = (Column("model"), Column("output"), Column("bytes", "count"))


class ExportedPage(Report):
    """The file with the page of one or two models, or with the poster of one."""

    json_fields: ClassVar[tuple[str, ...]] = ("model", "models", "output", "bytes")

    models: tuple[str, ...]
    output: str
    bytes: int

    @property
    def model(self) -> str:
        """The first model."""
        return self.models[0]

    @property
    def summary(self) -> str:
        """The models, the file and its size."""
        return f"{' and '.join(self.models)}: {self.output}, {self.bytes:,} bytes"

    def tables(self) -> Iterator[Table]:
        """The models with their file."""
        rows = tuple((x, self.output, self.bytes) for x in self.models)
        yield Table(columns=_COLUMNS, rows=rows)


def export(
    models: Source | Sequence[Source],
    target: str | os.PathLike[str],
    *,
    live: bool = False,
    poster: str = "",
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ExportedPage | GallerySite:
    """Write the interactive page of a model, or of a list of two, as one HTML file that needs no
    network. With `live` it holds the weights of a small checkpoint and runs it; the page of the
    bundled model always does. With `poster`, `wide`, `square` or `a3`, or one of them with `-dark`,
    the target is a picture of a model, an SVG or a PNG by its ending.

    Of a list with more models, or of an empty one for all presets, the target is the folder of a
    gallery, and a model is a preset or the path of a file. `poster` is then the address at which
    the folder will be: each page gets a picture, which links to it show. `force` overwrites an
    existing file; `progress` is called with the numbers of finished models and of all.
    """
    path = os.fspath(target)
    several = models if isinstance(models, list | tuple) else (models,)
    sources = cast("Sequence[Source]", several)
    if not 1 <= len(sources) <= 2:
        if live:
            raise LlamathError(_ONE_LIVE_MODEL.format(f"{len(sources):,} models"))
        return _export_gallery(sources, path, poster, force, progress)
    check_target(path, overwrite=force)
    if poster:
        if live:
            raise LlamathError("a poster runs no model", hint="live with a page")
        return _export_poster(sources, path, poster, force)
    loaded = [load_with_checkpoint(x) for x in sources]
    for model in loaded:
        refuse_huge(model)
    content = model_page(loaded, _live_parts(sources, loaded, live)).encode()
    write_whole_file(path, content, overwrite=force)
    names = tuple(
        os.fspath(source) if isinstance(source, str | os.PathLike) else model.name
        for source, model in zip(sources, loaded, strict=True)
    )
    return ExportedPage(models=names, output=path, bytes=len(content))


def poster_of(sources: Sequence[Source], poster: str) -> tuple[FamilyModel, PosterFormat, str]:
    """Return the one model, and its poster in a format and a theme, `a3-dark`."""
    form, theme = parse_poster(poster)
    if len(sources) != 1:
        raise LlamathError(f"a poster is of one model, found {len(sources):,}")
    model = load_with_checkpoint(sources[0])
    return model, FORMATS[form], poster_svg(fact_sheet(model), form, theme)


def _export_poster(sources: Sequence[Source], path: str, poster: str, force: bool) -> ExportedPage:
    as_png = is_png(path)
    model, form, svg = poster_of(sources, poster)
    content = svg_to_png(svg, form.pixels) if as_png else svg.encode()
    write_whole_file(path, content, overwrite=force)
    return ExportedPage(models=(model.name,), output=path, bytes=len(content))


def _live_parts(
    sources: Sequence[Source], models: Sequence[FamilyModel], live: bool
) -> LiveParts | None:
    """Return what the page needs to run its model."""
    if not live:
        return bundled_live_parts(models)
    if len(sources) > 1:
        raise LlamathError(_ONE_LIVE_MODEL.format("two models"))
    (source,) = sources
    path = os.fspath(source) if isinstance(source, str | os.PathLike) else ""
    if not path or is_remote_name(path) or not names_checkpoint(resolve_name(path)):
        found = safe(path) if path else "a model in memory"
        raise LlamathError(
            f"a page runs a checkpoint with its weights, found {found}",
            hint="give the folder or the file of a small checkpoint",
        )
    return live_parts(resolve_name(path))


def _export_gallery(
    sources: Sequence[Source],
    folder: str,
    poster: str,
    force: bool,
    progress: Callable[[int, int], None] | None,
) -> GallerySite:
    if folder.endswith((".html", ".htm")):
        raise LlamathError(
            f"{safe(folder)} is no name for the folder of a gallery; a page is of one model or two"
        )
    paths = [os.fspath(x) for x in sources if isinstance(x, str | os.PathLike)]
    if len(paths) < len(sources) or "-" in paths:
        raise LlamathError("a gallery is of presets and files, not of models in memory or input")
    return write_gallery(folder, paths, poster=poster, force=force, on_progress=progress)
