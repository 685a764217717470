"""`join_ranks`: the whole checkpoint of ranks that were cut for tensor parallelism."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import accumulate

from ...checkpoint.formats.folder import LocalFolder, resolve_inside
from ...checkpoint.formats.manifest import Manifest, Tensor
from ...checkpoint.tensor_parallel_shard import SHARD_KEY, TensorParallelShard, parse_shard
from ...checkpoint.tensor_reader import TensorReader
from ...core.blocks import Decoder
from ...loading import load_family
from ...questions.edit_settings import MAX_RANKS
from ...utils.errors import Argument, ConvertError, safe
from ...utils.strict_json import read_json
from ..source_files import SourceFiles
from .edit_source import EditSource, edited_source, open_edit_source
from .edited_tensor import EditedTensor
from .packed_cuts import packed_cuts
from .plan_shards import plan_join, stored_cuts


def join_ranks(path: str) -> tuple[EditSource, int]:
    """Open the ranks in the subfolders of a folder, each of which has to be there once; returns the
    whole checkpoint and their number.
    """
    folders = _find_ranks(path)
    sources: list[EditSource] = []
    try:
        sources.extend(map(open_edit_source, folders))
        config = {key: x for key, x in sources[0].config.items() if key != SHARD_KEY}
        for source in sources[1:]:
            other = {key: x for key, x in source.config.items() if key != SHARD_KEY}
            if other != config:
                key = next(x for x in (*config, *other) if config.get(x) != other.get(x))
                raise _mismatch(
                    sources[0], source, f"different values of {safe(key, 60)} in config.json"
                )
            if source.tensors.keys() != sources[0].tensors.keys():
                name = min(source.tensors.keys() ^ sources[0].tensors.keys())
                raise _mismatch(sources[0], source, f"{safe(name)} in one of them alone")
    finally:
        for source in sources:
            source.reader.close()
    tensors = [
        _numbered(source, first)
        for source, first in zip(sources, _first_files(sources), strict=True)
    ]
    manifest = Manifest(
        format="safetensors",
        files=tuple(file for source in sources for file in source.manifest.files),
        tensors=tuple(x for own in tensors for x in own.values()),
    )
    files = SourceFiles(
        path=path,
        folder=sources[0].folder,
        manifest=manifest,
        reader=TensorReader(manifest),
        stamps=tuple(x for source in sources for x in source.stamps),
        origins=tuple(sources),
    )
    name = safe(os.path.basename(os.path.abspath(path)))
    try:
        planned = _plan_tensors(sources, tensors, load_family(config).text.tree, files.reader)
        return edited_source(files, name, planned, config, sources[0].recipes), len(sources)
    except BaseException:
        files.reader.close()
        raise


def _plan_tensors(
    sources: Sequence[EditSource],
    tensors: Sequence[Mapping[str, Tensor]],
    tree: Decoder,
    reader: TensorReader,
) -> list[EditedTensor]:
    """Plan the tensors of the whole checkpoint."""
    scheme, count = sources[0].scheme, len(sources)
    cuts = [stored_cuts(scheme, tree, TensorParallelShard(rank, count)) for rank in range(count)]
    data: dict[str, bytes] = {}
    for source, own, stored in zip(sources, cuts, tensors, strict=True):
        recipe = source.report.checkpoint.quantization_config
        packed = packed_cuts(
            own,
            stored,
            source.packings,
            recipe,
            lambda x: reader.read_bytes(x, 0, x.bytes),
            is_rank=True,
        )
        own |= packed.cuts
        data = data or packed.data
    return plan_join(tensors, cuts, reader, data)


def _first_files(sources: Sequence[EditSource]) -> list[int]:
    """Return the number of the first file of each rank among the files of all."""
    return [0, *accumulate(len(x.manifest.files) for x in sources)][:-1]


def _numbered(source: EditSource, first: int) -> dict[str, Tensor]:
    """Return the tensors of a rank by name, with their files numbered among those of all ranks."""
    return {name: x._replace(file=x.file + first) for name, x in source.tensors.items()}


def _find_ranks(path: str) -> list[str]:
    """Return the subfolders with the ranks, in the order of the ranks; links are not followed."""
    if not os.path.isdir(path):
        raise ConvertError(
            f"{safe(path)} is not a folder",
            hint=f"{Argument('join_shards')} expects a folder with one subfolder for each rank",
        )
    found: dict[int, str] = {}
    sizes: dict[int, str] = {}
    for name in LocalFolder(path).names():
        folder = os.path.join(path, name)
        if os.path.islink(folder) or not os.path.isfile(os.path.join(folder, "config.json")):
            continue
        shard = parse_shard(
            read_json(resolve_inside(folder, "config.json")),
            safe(os.path.join(folder, "config.json")),
        )
        if shard is None:
            continue
        sizes.setdefault(shard.world_size, folder)
        if shard.rank in found:
            raise ConvertError(
                f"{safe(path)}: {safe(os.path.basename(found[shard.rank]))} and "
                f"{safe(name)} are both rank {shard.rank}"
            )
        found[shard.rank] = folder
    if not found:
        raise ConvertError(
            f"{safe(path)} has no subfolder with one rank of a checkpoint",
            hint=f"{Argument('tp_shards')} writes them; consolidated.NN.pth of Meta are joined "
            f"without {Argument('join_shards')}",
        )
    if len(sizes) > 1:
        raise ConvertError(
            f"{safe(path)}: expected ranks of one cut, found ranks of "
            f"{' and of '.join(map(str, sorted(sizes)))}"
        )
    count = min(next(iter(sizes)), MAX_RANKS)
    if missing := [x for x in range(count) if x not in found]:
        raise ConvertError(
            f"{safe(path)}: rank {missing[0]} of {next(iter(sizes))} is missing, found {len(found)}"
        )
    return [found[x] for x in range(count)]


def _mismatch(a: EditSource, b: EditSource, what: str) -> ConvertError:
    return ConvertError(
        f"{safe(a.path)} and {safe(b.path)}: expected two ranks of one checkpoint, found {what}"
    )
