"""`merge_adapter`: write a checkpoint with an adapter merged into its weights.

The weights that the adapter changes are computed in float64, as `same` computes them, and rounded
to their dtype; every other tensor is copied. Files are written as a conversion writes them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from ..analysis.check.same.adapted_side import AdaptedSide
from ..checkpoint.adapters import Adapter, open_adapter
from ..checkpoint.formats.dtypes import parse_dtype
from ..checkpoint.formats.number_arrays import require_numpy
from ..checkpoint.naming.stored_layouts import LayoutParams, apply_layout, join_tensors
from ..checkpoint.tensor_reader import MergedTensor, TensorReader
from ..core.tree import Leaf
from ..utils.errors import Argument, Call, ConvertError, Name, safe
from ..utils.strict_json import read_json
from .conversion_source import ConversionSource, open_source
from .convert_checkpoint import ConversionReport, WrittenFile
from .copy_tokenizer import find_tokenizer_files, read_tokenizer_file
from .float_cast import FLOAT_BYTES
from .source_files import SourceFiles, take_stamps
from .source_tensors import PackedTensor, PlainTensor, Shape, row_width
from .tensor_pieces import RowRange, encode
from .tensor_plan import OutputTensor, StoredGroup, TargetTypes, TensorPlan, plan_tensors
from .write.output_files import ConcatFile, OutputFile
from .write.write_hf import (
    MAX_SHARD_SIZE,
    STALE_HF_FILES,
    config_json,
    json_file,
    safetensors_files,
)
from .write.write_output import Output, OutputFolder, Progress, write_error, write_output

_CHUNK_ELEMENTS = 1 << 18
"""Elements computed at once where a tensor's layout is that of its weights."""


class MergedWeights(NamedTuple):
    """The weights of a stored tensor, or of one expert in it, some of which the adapter changes."""

    side: AdaptedSide
    paths: tuple[str, ...]
    shape: Shape
    layouts: tuple[str, ...]
    params: LayoutParams
    modules: tuple[str, ...]

    @property
    def source_name(self) -> str:
        """The weight that an error is about."""
        return self.paths[0]

    def chunks(self, dtype: str, _reader: TensorReader) -> Iterator[bytes]:
        """Yield the merged numbers in this dtype."""
        np = require_numpy()
        if not any(self.layouts):
            for path in self.paths:
                weight = self.side.weights[path]
                step = max(1, _CHUNK_ELEMENTS // weight.width)
                for first in range(0, weight.rows, step):
                    data = _as_float32(
                        np, self.side.read(weight, first, min(first + step, weight.rows)).values
                    )
                    yield from encode(data.tobytes(), "F32", dtype)
            return
        parts = []
        for path, layout, module in zip(self.paths, self.layouts, self.modules, strict=True):
            weight = self.side.weights[path]
            values = _as_float32(np, self.side.read(weight, 0, weight.rows).values)
            shape = (
                (weight.rows, weight.width)
                if weight.width > 1 or len(self.shape) > 1
                else (weight.rows,)
            )
            parts.append(apply_layout(values.reshape(shape), layout, self.params, module, np))
        joined = join_tensors(parts, self.layouts[0], self.params, np, self.shape)
        yield from encode(np.ascontiguousarray(joined).tobytes(), "F32", dtype)

    def identity(self) -> str:
        """Return text that identifies the weights; the adapter is part of the conversion's
        fingerprint.
        """
        return repr(self[1:])


def _as_float32(np: Any, values: Any) -> Any:
    with np.errstate(over="ignore"):
        found = np.asarray(values, dtype=np.float32)
    if not np.isfinite(found).all() and np.isfinite(np.asarray(values, dtype=np.float64)).all():
        raise ConvertError("the merged values are larger than float32 can represent")
    return found


def merge_adapter(
    base: str,
    adapter: str,
    target: str,
    *,
    dtype: str = "",
    force: bool = False,
    dry_run: bool = False,
    progress: Progress = lambda _done, _all: None,
) -> ConversionReport:
    """Write the base model with the adapter merged; `dtype` casts, and dequantizes packed
    weights.
    """
    opened_adapter = open_adapter(adapter)
    folder = adapter if os.path.isdir(adapter) else os.path.dirname(adapter) or "."
    adapter_files = SourceFiles(
        path=adapter,
        folder=folder,
        manifest=opened_adapter.manifest,
        reader=TensorReader(opened_adapter.manifest),
        stamps=take_stamps(adapter, folder, opened_adapter.manifest),
    )
    source = open_source(base, {})
    try:
        with AdaptedSide(opened_adapter, base) as side:
            name = parse_dtype(dtype, FLOAT_BYTES, "merge").name if dtype else ""
            plan = _plan(source, side, name)
            notes = [
                *source.notes,
                *opened_adapter.notes,
                *plan.notes,
                *_changed_notes(side, opened_adapter),
            ]
            files = _files(source, plan, notes)
            _check_target(target, folder)
            both = SourceFiles(
                path=source.path,
                folder=source.folder,
                manifest=source.manifest,
                reader=source.reader,
                stamps=source.stamps,
                origins=(source, adapter_files),
                changes_digest=repr((adapter_files.stamps, opened_adapter.targets)),
            )
            output = OutputFolder(path=target, force=force, stale=STALE_HF_FILES)
            (kept,) = write_output([Output(both, files, output)], progress, dry_run=dry_run)
    except OSError as error:
        raise write_error(error, target) from None
    finally:
        source.reader.close()
        adapter_files.reader.close()
    return ConversionReport(
        model=source.model.name,
        folder=target,
        files=tuple(WrittenFile(os.path.join(target, x.name), x.size) for x in files),
        kept=kept,
        tensors=len(plan.tensors),
        dtype=plan.dtype,
        notes=tuple(dict.fromkeys(notes)),
        dry_run=dry_run,
    )


def _plan(source: ConversionSource, side: AdaptedSide, dtype: str) -> TensorPlan:
    """Plan the tensors of the merged checkpoint, under the names of the base model."""
    if not source.scheme.name.startswith("hf"):
        call = Call("convert", source.path, Name("folder"), names="hf")
        hint = f"convert it first: {call}"
        raise ConvertError(
            f"{safe(source.path)}: expected a base model in Hugging Face format, found "
            f"{source.scheme.name} names",
            hint=hint,
        )
    packed = {x.kind for x in source.tensors.values() if isinstance(x, PackedTensor)}
    if packed and not dtype:
        raise ConvertError(
            f"{safe(source.path)} is packed as {', '.join(sorted(packed))}: merged weights "
            "cannot keep it",
            hint=f"give {Argument('dtype', 'bf16')} to dequantize the weights",
        )
    changed = side.changed_paths

    def replace(group: StoredGroup, shape: Shape, params: LayoutParams) -> MergedWeights | None:
        if not any(x.path in changed for x in group.leaves):
            return None
        return MergedWeights(
            side=side,
            paths=tuple(x.path for x in group.leaves),
            shape=shape,
            layouts=tuple(source.scheme.layout_of(x.pattern) for x in group.leaves),
            params=params,
            modules=tuple(map(_module, group.leaves)),
        )

    plan = plan_tensors(source, source.scheme, TargetTypes(dtype), replace=replace)
    known = {x.name for x in plan.tensors} | {
        y for x in source.tensors.values() if isinstance(x, PackedTensor) for y in x.parts
    }
    known |= {y for x in source.mtp.values() if isinstance(x, PackedTensor) for y in x.parts}
    others = [x for x in source.manifest.tensors if x.name not in known]
    if source.model.tree.head is not None and source.model.tree.head.weight.tied:
        # a copy of the embedding
        others = [x for x in others if x.name != source.scheme.stored_name("head.weight")]
    copies = []
    for x in others:
        merged = MergedTensor(x.name, x.dtype, x.shape, (x,))
        rows = RowRange(
            PlainTensor(merged), 0, prod(x.shape) // row_width(x.shape) if prod(x.shape) else 0
        )
        copies.append(OutputTensor(x.name, x.dtype, x.shape, (rows,)))
    return plan.replace(tensors=(*plan.tensors, *copies))


def _module(leaf: Leaf) -> str:
    return leaf.path.split(".", 3)[-1]


def _changed_notes(side: AdaptedSide, adapter: Adapter) -> Iterator[str]:
    n = len(side.changed_paths)
    yield f"{adapter.title}: changed {'1 weight' if n == 1 else f'{n:,} weights'}"


def _files(source: ConversionSource, plan: TensorPlan, notes: list[str]) -> list[OutputFile]:
    """Return the files to write; the configuration is the last one."""
    path = os.path.join(source.folder, "config.json")
    keys: Mapping[str, Any] = (
        read_json(path) if source.model.wrapper else config_json(source, plan, {}, with_mtp=True)
    )
    copies = [
        ConcatFile(name, [read_tokenizer_file(x)])
        for name, x in find_tokenizer_files(source.folder).items()
    ]
    if not any(x.name in ("tokenizer.json", "tokenizer.model", "vocab.json") for x in copies):
        notes.append("the checkpoint has no tokenizer")
    return [
        *safetensors_files(plan.tensors, MAX_SHARD_SIZE),
        *copies,
        json_file("config.json", keys),
    ]


def _check_target(target: str, adapter_folder: str) -> None:
    """Refuse to write into the adapter's folder."""
    inside, folder = os.path.realpath(target), os.path.realpath(adapter_folder)
    if inside == folder or inside.startswith(os.path.join(folder, "")):
        raise ConvertError(
            f"{safe(target)} is inside the adapter's folder {safe(adapter_folder)}",
            hint="write to another folder",
        )
