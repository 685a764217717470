"""Read the parts of a diffusers pipeline: `model_index.json`, and for each part its class,
configuration and files of weights.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...utils.errors import FormatError, safe
from ...utils.record_type import Record
from ..formats.checkpoint_files import read_files, read_index
from ..formats.folder import LocalFolder, check_file_name
from ..formats.folder_kind import MODEL_INDEX
from ..formats.manifest import Manifest

_STEMS = r"(?P<stem>diffusion_pytorch_model|model|pytorch_model|adapter_model)"
_WEIGHTS = re.compile(
    _STEMS + r"(?:\.(?P<variant>\w{1,20}))?(?:-\d{5}-of-\d{5})?(?:\.(?P<late>\w{1,20}))?"
    r"\.(?P<extension>safetensors|bin)",
    re.ASCII,
)
_INDEX = re.compile(
    _STEMS + r"\.(?P<extension>safetensors"
    r"|bin)\.index(?:\.(?P<variant>\w{1,20}))?\.json",
    re.ASCII,
)
_CONFIGS = (
    "config.json",
    "scheduler_config.json",
    "preprocessor_config.json",
    "tokenizer_config.json",
    "feature_extractor_config.json",
)
_NO_WEIGHTS = re.compile(
    r"Scheduler|Tokenizer|FeatureExtractor|ImageProcessor|Processor$"
    r"|VideoProcessor"
)
"""Classes without weights, by a part of their names."""
_MAX_PARTS = 200


class WeightFiles(NamedTuple):
    """Files of weights of one precision and format."""

    variant: str  # fp16, ema, or empty
    extension: str
    index_file: str  # name of the index; empty for a single file
    names: tuple[str, ...]

    @property
    def title(self) -> str:
        """The variant and format in words."""
        return f"{self.variant or 'default'} {self.extension}"


class PipelinePart(Record):
    """A part of a pipeline."""

    name: str
    library: str
    class_name: str
    folder: str
    exists: bool
    config: str = ""  # name of its configuration file
    weights: tuple[WeightFiles, ...] = ()  # safetensors first, default before variants
    onnx: bool = False

    @property
    def needs_weights(self) -> bool:
        """Whether its class is one with weights, as far as its name shows."""
        return self.library in ("diffusers", "transformers") and not _NO_WEIGHTS.search(
            self.class_name
        )


class Pipeline(Record):
    """A pipeline: its class, and its parts that are not null."""

    class_name: str
    version: str
    parts: tuple[PipelinePart, ...]
    missing: tuple[str, ...] = ()  # names of optional parts that are null


def read_pipeline(path: str) -> Pipeline:
    """Read `model_index.json` and find the files of each part."""
    return parse_pipeline(LocalFolder(path).json(MODEL_INDEX), path)


def parse_pipeline(index: Mapping[str, Any], path: str) -> Pipeline:
    """Return the parts that an index names, with the files in their folders."""
    parts: list[PipelinePart] = []
    missing: list[str] = []
    for name, value in index.items():
        if (
            name.startswith("_")
            or not isinstance(value, list)
            or len(value) != 2
            or not all(isinstance(x, str | None) for x in value)
        ):
            continue
        library, part_class = value
        if part_class is None:
            missing.append(name)
            continue
        if len(parts) == _MAX_PARTS:
            raise FormatError(
                "too_large", f"{safe(path)}: {MODEL_INDEX} names more than {_MAX_PARTS} parts"
            )
        parts.append(_find_part(path, check_file_name(name), library or "", part_class))
    if not parts:
        raise FormatError("pipeline", f"{safe(path)}: expected parts in {MODEL_INDEX}, found none")
    class_name, version = _text(index, "_class_name"), _text(index, "_diffusers_version")
    return Pipeline(
        class_name=class_name, version=version, parts=tuple(parts), missing=tuple(missing)
    )


def _text(index: Mapping[str, Any], key: str) -> str:
    value = index.get(key)
    return value if isinstance(value, str) else ""


def _find_part(path: str, name: str, library: str, class_name: str) -> PipelinePart:
    folder = os.path.join(path, name)
    if os.path.islink(folder) or not os.path.isdir(folder):
        return PipelinePart(
            name=name, library=library, class_name=class_name, folder=folder, exists=False
        )
    entries = LocalFolder(folder).names()
    return PipelinePart(
        name=name,
        library=library,
        class_name=class_name,
        folder=folder,
        exists=True,
        config=next((x for x in _CONFIGS if x in entries), ""),
        weights=tuple(_weight_sets(entries)),
        onnx=any(x.endswith(".onnx") for x in entries),
    )


def _weight_sets(entries: Sequence[str]) -> list[WeightFiles]:
    """Return the sets of files, one for each variant and format."""
    files: dict[tuple[str, str], list[str]] = {}
    for x in entries:
        if match := _WEIGHTS.fullmatch(x):
            files.setdefault(
                (match["extension"], match["variant"] or match["late"] or ""), []
            ).append(x)
    indexes: dict[tuple[str, str], str] = {}
    for x in entries:
        if match := _INDEX.fullmatch(x):
            indexes[match["extension"], match["variant"] or ""] = x
    keys = sorted({*files, *indexes}, key=lambda x: (x[0] != "safetensors", x[1] != "", x[1]))
    return [
        WeightFiles(
            variant, kind, indexes.get((kind, variant), ""), tuple(files.get((kind, variant), ()))
        )
        for kind, variant in keys
    ]


def read_weights(
    part: PipelinePart, weights: WeightFiles, problems: list[FormatError] | None = None
) -> Manifest:
    """Read the headers of one set of files."""
    folder = LocalFolder(part.folder)
    return (
        read_index(folder, weights.index_file, problems)
        if weights.index_file
        else read_files(folder, weights.names, problems)
    )
