"""The catalog of presets: published models as JSON files with name, public ids, release date, license, source, parameters and config."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..utils.errors import UnknownModel, nearest, safe
from ..utils.record_type import Record

FOLDER = os.path.dirname(__file__)


class Preset(Record):
    """A published model."""

    slug: str
    name: str
    ids: tuple[str, ...]
    aliases: tuple[str, ...]
    released: str | None  # YYYY-MM-DD or YYYY-MM, when the weights of the first id became available; None if unknown
    license: str | None  # as the repository of the first id names it; None if unknown
    organization: str | None  # that made the model; None if unknown
    source: str
    parameters: int
    config: Mapping[str, Any]


def normalize_name(name: str) -> str:
    """Return a name without case and punctuation, for comparison."""
    return "".join(x for x in name.lower() if x.isalnum())


def normalize_with_dots(name: str) -> str:
    """Return a name without case and punctuation except dots: OPT 1.3B is not OPT 13B."""
    return "".join(x for x in name.lower() if x.isalnum() or x == ".")


FORMS = (normalize_with_dots, normalize_name)
"""The ways in which names are compared, the stricter first."""


def slugs() -> list[str]:
    """Return the names of all presets."""
    return sorted(entry[:-5] for entry in os.listdir(FOLDER) if entry.endswith(".json"))


def read_preset(slug: str) -> Preset:
    """Read one preset."""
    from ..utils.strict_json import read_json
    from .organizations import ORGANIZATIONS

    data = read_json(os.path.join(FOLDER, f"{slug}.json"))
    return Preset(
        slug=slug,
        name=data["name"],
        ids=tuple(data["ids"]),
        aliases=tuple(data.get("aliases", ())),
        released=data.get("released"),
        license=data.get("license"),
        organization=data.get("organization") or ORGANIZATIONS.get(next(iter(data["ids"]), "").partition("/")[0]),
        source=data["source"],
        parameters=data["parameters"],
        config=data["config"],
    )


def presets() -> Iterator[Preset]:
    """Yield all presets, by slug."""
    return map(read_preset, slugs())


def find_public_id(text: str) -> Preset | None:
    """Return the preset of a public id, or None; the Hub ignores case in ids, too, but not punctuation."""
    wanted = text.lower()
    return next((x for x in presets() if any(known.lower() == wanted for known in x.ids)), None)


def nearest_ids(public_id: str) -> list[str]:
    """Return the public ids of presets that are most similar to another id."""
    known = {normalize_name(x): x for preset in presets() for x in preset.ids}
    return [known[x] for x in nearest(normalize_name(public_id), known, cutoff=0.8)]


def find_preset(name: str) -> Preset:
    """Find a preset by name, alias or public id, ignoring case and punctuation; the error for an unknown name lists the nearest."""
    for form in FORMS:
        by_slug = {form(slug): slug for slug in slugs()}
        if (normalized := form(name)) in by_slug:
            return read_preset(by_slug[normalized])
    all_presets = list(presets())
    for form in FORMS:
        for preset in all_presets:
            if form(name) in {form(x) for x in (*preset.ids, *preset.aliases, *(x.rpartition("/")[2] for x in preset.ids))}:
                return preset
    known = {normalize_name(x): x for preset in all_presets for x in (*preset.ids, preset.slug)}
    near = [known[x] for x in nearest(normalize_name(name), known)]
    hint = f"did you mean {', '.join(near)}?" if near else "llamath.models() lists the presets; a repository on the Hub is owner/name"
    raise UnknownModel(f"{safe(name)!r} is not a file, folder, preset or known public id", hint=hint)
