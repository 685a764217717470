"""`write_gallery`: write the static site of models into a folder, in several processes, at once
or not at all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from itertools import permutations
from multiprocessing import get_context
from typing import Any, ClassVar

from ...analysis.understand.diff.model_diff import diff
from ...analysis.understand.fact_sheet import fact_sheet
from ...catalog import slugs
from ...core.tree import CountedOnly
from ...embedded import MODEL_NAME
from ...model import FamilyModel
from ...render.png import check_png, svg_to_png
from ...render.report import Report
from ...render.svg.poster.poster_svg import FORMATS, PREVIEW, poster_svg
from ...render.tables import Column, Table
from ...utils.errors import Argument, LlamathError, safe, writing
from ...utils.number_format import format_count
from ..forms.page_forms import with_family_forms
from ..page_data.checkpoint_data import load_with_checkpoint
from ..page_data.live.live_data import bundled_live_parts
from ..page_data.page_data import build_page_data, causes_of
from ..server.model_ids import load_preset, refuse_huge
from ..server.page_html import read_asset
from .gallery_entry import gallery_entry, kinship_entry
from .gallery_page import gallery_data, plain_links
from .known_forms import FORMS, form_of, forms_script
from .library_site import PYODIDE, LibrarySite
from .site_pages import site_assets, site_page

EMBED = "embed.js"
"""The script that shows one figure of a model in the page of another site."""
MARKER = "llamath-gallery.json"
"""The file by which a folder is recognized as a gallery: the files that the command wrote there."""
_COLUMNS = (
    Column("output"),
    *(Column(x, "count") for x in ("models", "files", "bytes")),
    Column("left out", "count", "left_out"),
)
_LINK = "models/{id}.html"
_URL = re.compile(r"https?://[!$-.0-;=@-~][!$-;=@-~]{0,500}")
_MOST_COMPARED = 8
"""The most models of a gallery that has the causes of the difference of each pair."""
_Written = tuple[dict[str, Any], dict[str, Any] | None]
"""The entry of a model, and its closed forms if there are any."""
_OnProgress = Callable[[int, int], None]
"""Is called with the number of finished models and of all."""


class GallerySite(Report):
    """What was written."""

    json_fields: ClassVar[tuple[str, ...]] = ("output", "models", "files", "bytes", "left_out")

    output: str
    models: int
    files: int
    bytes: int
    left_out: int = 0  # presets that are counted only, of which a page would have no passes

    @property
    def summary(self) -> str:
        """The numbers of models and bytes."""
        left = (
            f"; without {format_count(self.left_out, 'preset')} that are counted only"
            if self.left_out
            else ""
        )
        return (
            f"{format_count(self.models, 'model')} in {format_count(self.files, 'file')}, "
            f"{self.bytes / 1e6:,.1f} MB{left}"
        )

    def tables(self) -> Iterator[Table]:
        """The numbers of the folder."""
        cells = (self.output, self.models, self.files, self.bytes, self.left_out)
        yield Table(columns=_COLUMNS, rows=(cells,))


def write_gallery(
    folder: str,
    sources: Sequence[str] = (),
    *,
    poster: str = "",
    force: bool = False,
    processes: int | None = None,
    on_progress: _OnProgress | None = None,
) -> GallerySite:
    """Write the gallery of some models, or of all presets, into a folder.

    A folder that is a gallery is replaced, and keeps the files that are not of the gallery; any
    other folder that is not empty is refused unless `force` is given, which overwrites the files of
    the same names. With the address at which it will be as `poster`, each page has a picture, which
    links to it show; `wide` is for an address that is not known.
    """
    address = _address(poster)
    folder = os.path.realpath(folder)
    old_files = _check_folder(folder, force)
    library = LibrarySite.of_folder(folder)
    # what is written into a folder is moved within it, and so on one disk; a whole gallery takes
    # the place of another one
    parent = folder if os.path.isdir(folder) and not old_files else os.path.dirname(folder)
    created: list[str] = []
    new = ""
    try:
        with writing(folder):
            while not os.path.isdir(top := _first_missing(parent)):
                os.mkdir(top)
                created.append(top)
            new = tempfile.mkdtemp(prefix=f".{os.path.basename(folder)}.", dir=parent)
        found = _write_pages(
            new, sources, address, library, processes, on_progress or (lambda *_: None)
        )
        written = [x for x in found if x is not None]
        entries = [entry for entry, _ in written]
        causes = _causes(_ids_of(sources)) if 1 < len(sources) <= _MOST_COMPARED else {}
        _write_shared(new, entries, [form for _, form in written if form], causes, library)
        files = sorted(
            os.path.relpath(os.path.join(where, x), new)
            for where, _, names in os.walk(new)
            for x in names
        )
        size = sum(os.path.getsize(os.path.join(new, x)) for x in files)
        _write(new, MARKER, json.dumps({"llamath_gallery": 1, "files": files}, indent=0))
        os.chmod(new, 0o777 & ~_umask())
        with writing(folder):
            _move_into_place(new, folder, old_files)
        created = []
    finally:
        if new:
            shutil.rmtree(new, ignore_errors=True)
        for path in reversed(created):
            with suppress(OSError):
                os.rmdir(path)
    return GallerySite(
        output=folder,
        models=len(entries),
        files=len(files) + 1,
        bytes=size,
        left_out=len(found) - len(written),
    )


def _first_missing(path: str) -> str:
    """Return the outermost folder of a path that does not exist, or the path."""
    while not os.path.isdir(path) and not os.path.isdir(parent := os.path.dirname(path)):
        path = parent
    return path


def _check_folder(folder: str, force: bool) -> list[str]:
    """Return the files of the gallery that a folder holds."""
    if os.path.isdir(folder):
        try:
            with open(os.path.join(folder, MARKER), encoding="utf-8") as file:
                found = json.load(file)
            if found["llamath_gallery"] == 1:
                return [str(x) for x in found["files"]]
        except (OSError, ValueError, KeyError, TypeError):
            pass
        if {*os.listdir(folder)} - {PYODIDE} and not force:
            raise LlamathError(
                f"{safe(folder)} is a folder that is not a gallery",
                hint=f"an empty or new folder, or {Argument('force', True)} to write into it",
            )
    elif os.path.lexists(folder):
        raise LlamathError(f"{safe(folder)} is not a folder", hint="the name of a new folder")
    return []


def _address(poster: str) -> str | None:
    """Return where the pictures of pages are, as crawlers want it, in full, or from a page if its
    address is not known; None without pictures.
    """
    if not poster:
        return None
    if not _URL.fullmatch(poster) and poster != PREVIEW:
        raise LlamathError(
            "expected the address at which the gallery will be, "
            f"https://example.org/models, found {safe(repr(poster), 200)}",
            hint=f"{Argument('poster', PREVIEW)} if it is not known",
        )
    check_png()
    return "" if poster == PREVIEW else f"{poster.rstrip('/')}/models/"


def _write_pages(
    new: str,
    sources: Sequence[str],
    address: str | None,
    library: LibrarySite | None,
    processes: int | None,
    on_progress: _OnProgress,
) -> list[_Written | None]:
    """Write the page of each model, and return their entries and closed forms; None of a preset
    that is counted only.
    """
    with writing("models"):
        os.mkdir(os.path.join(new, "models"))
    # the bundled model is the one that a page can run without a file
    ids = _ids_of(sources) if sources else {MODEL_NAME: MODEL_NAME} | dict.fromkeys(slugs(), "")
    offer: dict[str, object] = {} if library is None else {"library": library.offer("../")}
    tasks = [
        (new, model_id, source, bool(sources), address, offer) for model_id, source in ids.items()
    ]
    written: list[_Written | None] = []
    most = min(
        processes or len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        len(tasks),
    )
    on_progress(0, len(tasks))
    if most == 1:
        for task in tasks:
            written.append(_write_model(task))
            on_progress(len(written), len(tasks))
        return written
    with ProcessPoolExecutor(most, mp_context=get_context("spawn")) as pool:
        try:
            for pair in pool.map(_write_model, tasks, chunksize=4):
                written.append(pair)
                on_progress(len(written), len(tasks))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return written


def _ids_of(sources: Sequence[str]) -> dict[str, str]:
    """Return the source of each model by its id, which is a file name: the slug of a preset,
    else a part of its path.
    """
    ids: dict[str, str] = {}
    known = frozenset(slugs())
    for source in sources:
        words = (
            re.sub(r"[^a-z0-9.]+", "-", os.path.basename(source.rstrip("/")).lower()).strip("-.")
            or "model"
        )
        model_id = (
            source
            if source in known
            else words
            if words not in known | ids.keys()
            else f"{words}-{len(ids) + 1}"
        )
        if model_id in ids:
            raise LlamathError(f"{safe(source)} is given twice", hint="each MODEL once")
        ids[model_id] = "" if source in known else source
    return ids


def _write_model(
    task: tuple[str, str, str, bool, str | None, dict[str, object]],
) -> _Written | None:
    """Write one page, and return the model's entry and closed forms; None of one that is counted
    only, unless it was asked for.
    """
    new, model_id, source, is_wanted, address, offer = task
    model = _model_of(model_id, source)
    refuse_huge(model)
    links = {
        "all": "../index.html",
        "with": f"../index.html#with={model_id}",
        "forms": f"../{FORMS}",
        "link": "{id}.html",
        **offer,
    }
    live = bundled_live_parts([model])
    try:
        data = with_family_forms(build_page_data([model], live)) | {"gallery": links}
    except CountedOnly:
        if is_wanted:
            raise
        return None
    name = str(data["models"][0]["name"])
    text = site_page(
        name,
        data,
        "page",
        "../",
        [f"{model.parameters.total:,} parameters", '<a href="../index.html">All models</a>'],
        live,
        "" if address is None else f"{address}{model_id}.png",
    )
    _write(new, f"models/{model_id}.html", text)
    if address is not None:
        picture = svg_to_png(poster_svg(fact_sheet(model), PREVIEW), FORMATS[PREVIEW].pixels)
        _write(new, f"models/{model_id}.png", picture)
    preset = None if model.preset is None else model.preset.slug
    entry = gallery_entry(model, model_id) | {"preset": preset}
    return entry, form_of(model_id, name, data["models"][0]["design"])


def _model_of(model_id: str, source: str) -> FamilyModel:
    return load_with_checkpoint(source) if source else load_preset(model_id)


def _causes(ids: Mapping[str, str]) -> dict[str, Any]:
    """Return the causes of the difference of each pair of models."""
    models = {model_id: _model_of(model_id, source) for model_id, source in ids.items()}
    return {
        f"{a} {b}": causes_of(models[a], models[b], diff(models[a], models[b]))
        for a, b in permutations(models, 2)
    }


def _with_kinship(entries: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield entries with their ancestors in the place of their presets; an id of a preset's may
    have another name than it.
    """
    shown = {x["preset"]: x for x in reversed(entries)}
    for x in entries:
        preset, entry = x["preset"], {key: value for key, value in x.items() if key != "preset"}
        if preset is not None:
            entry["kin"] = kin = kinship_entry(preset)["kin"]
            if kin and (of := shown.get(kin["of"])):
                entry["kin"] = kin | {"of": of["id"], "name": of["name"]}
        yield entry


def _write_shared(
    new: str,
    entries: list[dict[str, Any]],
    forms: list[dict[str, Any]],
    causes: Mapping[str, Any],
    library: LibrarySite | None,
) -> None:
    """Write the first page, the closed forms, the scripts and styles, and the library."""
    with writing("assets"):
        os.mkdir(os.path.join(new, "assets"))
    for name, text in site_assets().items():
        _write(new, f"assets/{name}", text)
    _write(new, FORMS, forms_script(forms))
    _write(new, EMBED, read_asset(EMBED))
    entries = list(_with_kinship(entries))
    for name, content in {} if library is None else library.files(_LINK).items():
        _write(new, name, content)
    data = gallery_data(
        entries,
        link=_LINK,
        forms=FORMS,
        causes=causes,
        library=None if library is None else library.offer(),
    )
    _write(
        new,
        "index.html",
        site_page("Gallery of language models", data, "gallery", "", plain_links(entries, _LINK)),
    )


def _write(new: str, name: str, content: str | bytes) -> None:
    with writing(name), open(os.path.join(new, name), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def _move_into_place(new: str, folder: str, old_files: list[str]) -> None:
    """Put the new folder in the place of the old one, which keeps files that are not of the
    gallery.
    """
    if not os.path.isdir(folder):
        os.rename(new, folder)
        return
    if not old_files:  # an empty folder, or one that is written into by force
        _move_entries(new, folder)
        return
    own = {os.path.normpath(x) for x in (*old_files, MARKER)}
    for where, folders, names in os.walk(folder):
        links = [x for x in folders if os.path.islink(os.path.join(where, x))]
        for name in (*names, *links):
            path = os.path.relpath(os.path.join(where, name), folder)
            if path not in own and not os.path.lexists(target := os.path.join(new, path)):
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy2(os.path.join(where, name), target, follow_symlinks=False)
    aside = tempfile.mkdtemp(prefix=f".{os.path.basename(folder)}.", dir=os.path.dirname(folder))
    old = os.path.join(aside, "old")
    os.rename(folder, old)
    try:
        os.rename(new, folder)
    except OSError:
        os.rename(old, folder)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _move_entries(new: str, folder: str) -> None:
    """Move what is in a folder into another one, over files of the same names, without a new
    file for which a disk can be too full.
    """
    for name in os.listdir(new):
        source, target = os.path.join(new, name), os.path.join(folder, name)
        if os.path.isdir(source) and os.path.isdir(target) and not os.path.islink(target):
            _move_entries(source, target)
        else:
            os.replace(source, target)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
