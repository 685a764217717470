"""`count_files`: the model of a checkpoint with notes on its files, or the count of a named file
that holds something else.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ....checkpoint.open import beside_note
from ....model import FamilyModel
from ....utils.errors import safe
from ...check.file_differences import differences_at
from .header_count import CAVEAT, HeaderCount, count_from_header


class CountedFiles(NamedTuple):
    """What is counted, with notes on how files differ from their config."""

    counted: FamilyModel | HeaderCount  # whose notes include these
    notes: tuple[str, ...] = ()


def count_files(model: FamilyModel) -> CountedFiles:
    """Return a model with notes on how its files differ from its config.

    For a file that was named and that does not hold the model of the config next to it (a shard, an
    optimizer), the file itself is counted.
    """
    found = differences_at(model)
    if found is None:
        return CountedFiles(model)
    location = found.opened.name
    if (
        found.is_folder
        or location.endswith(".index.json")
        or found.opened.manifest.format == "gguf"
    ):
        return CountedFiles(
            model.replace(notes=tuple(dict.fromkeys((*model.notes, *found.notes)))), found.notes
        )
    if found.same_parameters:
        own = [x for x in model.notes if x != beside_note(model.source, model.location)]
        return CountedFiles(
            model.replace(notes=tuple(dict.fromkeys((*own, *found.notes)))), found.notes
        )
    parameters = f"{model.parameters.total:,} parameters"
    reason = (
        f"this file does not hold the model of {safe(model.source)} next to it, which has "
        f"{parameters}"
    )
    opened, name = found.opened, safe(os.path.basename(location))
    counted = count_from_header(
        name, safe(location), opened.manifest, opened.packing_config, reason
    ).replace(has_family=True)
    return CountedFiles(counted, tuple(x for x in counted.notes if x != CAVEAT))
