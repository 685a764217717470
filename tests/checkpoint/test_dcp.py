"""FSDP and DCP folders: what torch.distributed.checkpoint saved, and every way in which shards fail to cover a tensor."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from llamath import StructureReport, verify
from llamath.analysis.check.kinds.dcp_check import cover_problem
from llamath.checkpoint.folders.dcp import parse_metadata, read_dcp
from llamath.checkpoint.formats.folder import LocalFolder
from llamath.checkpoint.formats.source import Bytes
from llamath.cli import cli
from llamath.utils.errors import FormatError, LlamathError
from support.dcp_ranks import save_with_two_ranks
from support.hostile_folders import VALID, dcp

torch = pytest.importorskip("torch")

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "I64": torch.int64, "F16": torch.float16}
TWO_RANKS = (
    '{"model": {"rows": put(torch.arange(28.).reshape(7, 4), Shard(0)),'
    ' "columns": put(torch.ones(2, 6), Shard(1)), "one": put(torch.ones(1, 4).bfloat16(), Shard(0)),'
    ' "whole": put(torch.ones(3), Replicate())}, "step": 5}'
)


def run(*args: str) -> Any:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, args)


def save(folder: Path, state: dict[str, Any]) -> Path:
    import torch.distributed.checkpoint as checkpoint

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint.save(state, checkpoint_id=str(folder), no_dist=True)
    return folder


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = {
        "model": {
            "w": torch.randn(6, 4),
            "b": torch.zeros(4, dtype=torch.bfloat16),
            "n": torch.zeros(0, 3),
            "s": torch.tensor(3),
        },
        "step": 3,
        "optimizer": {"state": {"w": {"exp_avg": torch.zeros(6, 4).half()}}, "lr": [1e-3]},
    }
    return save(tmp_path_factory.mktemp("dcp") / "one", state)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that two processes saved."""
    return save_with_two_ranks(tmp_path_factory.mktemp("dcp") / "two", TWO_RANKS)


def findings(path: Path) -> dict[str, str]:
    report = verify(path)
    assert isinstance(report, StructureReport)
    return {x.code: x.message for x in report.findings}


def change_metadata(folder: Path, change: Any) -> None:
    """Rewrite `.metadata` with torch's own classes."""
    with (folder / ".metadata").open("rb") as file:
        metadata = pickle.load(file)
    change(metadata)
    with (folder / ".metadata").open("wb") as file:
        pickle.dump(metadata, file)


@pytest.mark.parametrize("which", ["one", "two"])
def test_tensors_are_those_that_torch_describes(which: str, request: pytest.FixtureRequest) -> None:
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    folder = request.getfixturevalue(which)
    ours, theirs = read_dcp(LocalFolder(str(folder))), FileSystemReader(folder).read_metadata()
    expected = {
        name: x
        for name, x in theirs.state_dict_metadata.items()
        if isinstance(x, TensorStorageMetadata)
    }
    assert {x.name: (DTYPES[x.dtype], x.shape) for x in ours.tensors} == {
        k: (x.properties.dtype, tuple(x.size)) for k, x in expected.items()
    }
    for x in ours.tensors:
        assert [(y.offsets, y.sizes) for y in x.chunks] == [
            (tuple(y.offsets), tuple(y.sizes)) for y in expected[x.name].chunks
        ]
    stored = {
        (k.fqn, None if k.offset is None else tuple(k.offset)): (
            v.relative_path,
            v.offset,
            v.length,
        )
        for k, v in theirs.storage_data.items()
    }
    chunks = {
        (x.name, y.offsets): (y.file, y.start, y.length) for x in ours.tensors for y in x.chunks
    }
    chunks |= {(name, None): (y.file, y.start, y.length) for name, y in ours.objects.items()}
    assert chunks == stored and set(ours.objects) == set(theirs.state_dict_metadata) - set(expected)


@pytest.mark.parametrize("which", ["one", "two"])
def test_saved_checkpoints_are_whole(which: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(which)
    assert findings(folder) == {}
    report = json.loads(run("verify", str(folder), "--json").stdout)
    assert (
        report["ok"]
        and report["kind"] == "fsdp"
        and report["facts"]["ranks"] == (2 if which == "two" else 1)
    )
    assert "distributed checkpoint" in run("verify", str(folder), "--brief").stdout
    assert report["matched"] == report["expected"] == (4 if which == "two" else 5)


def test_lists_have_global_shapes(two: Path) -> None:
    listed = json.loads(run("ls", str(two), "--json").stdout)
    assert {x["name"]: x["shape"] for x in listed["tensors"]} == {
        "model.rows": [7, 4],
        "model.columns": [2, 6],
        "model.one": [1, 4],
        "model.whole": [3],
    }
    assert json.loads(run("count", str(two), "--json").stdout)["parameters"]["total"] == 47


def test_commands_for_one_model_name_the_kind(two: Path, tmp_path: Path) -> None:
    assert "180" in run("memory", str(two)).stdout
    assert (
        "a distributed checkpoint"
        in run("convert", str(two), str(tmp_path / "x"), "--names", "hf").stderr
    )
    with pytest.raises(LlamathError, match="another kind"):
        verify(two, against="llama-3-8b")


def copied(folder: Path, target: Path) -> Path:
    target.mkdir()
    for x in folder.iterdir():
        (target / x.name).write_bytes(x.read_bytes())
    return target


def test_missing_and_extra_files_are_named(two: Path, tmp_path: Path) -> None:
    folder = copied(two, tmp_path / "x")
    (folder / "__1_0.distcp").rename(folder / "__7_0.distcp")
    found = findings(folder)
    assert "1 of 2 files named in .metadata is missing: __1_0.distcp" in found["missing_shard"]
    assert "__7_0.distcp" in found["extra_file"]


def test_truncated_and_exchanged_files_are_named(two: Path, tmp_path: Path) -> None:
    cut = copied(two, tmp_path / "cut")
    (cut / "__1_0.distcp").write_bytes((cut / "__1_0.distcp").read_bytes()[:-700])
    assert "reaches beyond the end of __1_0.distcp" in findings(cut)["item"]
    exchanged = copied(two, tmp_path / "exchanged")
    data = [(exchanged / f"__{i}_0.distcp").read_bytes() for i in (0, 1)]
    for i in (0, 1):
        (exchanged / f"__{i}_0.distcp").write_bytes(data[1 - i])
    assert "item" in findings(exchanged)


def test_other_chunks_of_a_tensor_are_named(two: Path, tmp_path: Path) -> None:
    def without_one(metadata: Any) -> None:
        del metadata.state_dict_metadata["model.rows"].chunks[1]

    def moved(metadata: Any) -> None:
        x = metadata.state_dict_metadata["model.columns"].chunks[1]
        x.offsets = torch.Size((0, 2))

    def unstored(metadata: Any) -> None:
        for index in [x for x in metadata.storage_data if x.fqn == "model.whole"]:
            del metadata.storage_data[index]

    for i, (change, code, text) in enumerate(
        [
            (without_one, "cover", "have 16 elements, the tensor 28"),
            (moved, "cover", "overlap, and leave other elements out"),
            (unstored, "storage", "model.whole"),
        ]
    ):
        folder = copied(two, tmp_path / str(i))
        change_metadata(folder, change)
        assert text in findings(folder)[code]


def test_exact_covers_agree_with_counting_every_element() -> None:
    chance = random.Random(1)
    kinds = set()
    for _ in range(4000):
        shape = tuple(chance.randint(0, 3) for _ in range(chance.randint(0, 3)))
        chunks = []
        for _ in range(chance.randint(0, 4)):
            offsets = tuple(chance.randint(0, n) for n in shape)
            chunks.append(
                (
                    offsets,
                    tuple(chance.randint(0, n - at) for n, at in zip(shape, offsets, strict=True)),
                )
            )
        cells = dict.fromkeys(itertools.product(*map(range, shape)), 0)
        for offsets, sizes in chunks:
            for cell in itertools.product(
                *(range(at, at + n) for at, n in zip(offsets, sizes, strict=True))
            ):
                cells[cell] += 1
        exact = all(n == 1 for n in cells.values())
        kinds.add((exact, len(shape), len(chunks)))
        assert (not cover_problem(shape, chunks)) == exact, (shape, chunks)
    assert {(True, 3, 2), (True, 2, 3), (False, 3, 4)} <= kinds


def test_chunks_outside_of_a_tensor_are_named() -> None:
    assert "reach outside" in cover_problem((4,), [((2,), (3,))])
    assert "have 1 dimensions, the tensor 2" in cover_problem((4, 4), [((2,), (3,))])
    grid = [((i,) * 1 + (0,) * 6, (1,) + (2,) * 6) for i in range(2)]
    assert cover_problem((2,) * 7, grid) == ""


def test_metadata_written_by_hand_is_read() -> None:
    tensors, objects, version = parse_metadata(Bytes(VALID))
    assert [(x.name, x.dtype, x.shape, len(x.chunks)) for x in tensors] == [("w", "F32", (4, 2), 2)]
    assert (
        tensors[0].chunks[1].start == 64
        and objects["step"].file == "__1_0.distcp"
        and version == "1.0.0"
    )


@pytest.mark.parametrize("name", dcp())
def test_hostile_metadata_are_refused(name: str) -> None:
    data, code = dcp()[name]
    with pytest.raises(FormatError) as caught:
        parse_metadata(Bytes(data))
    assert caught.value.code == code and str(caught.value).isprintable()


def test_hostile_file_names_stay_in_the_folder(tmp_path: Path) -> None:
    from support.hostile_folders import HALVES, key, metadata, place, size

    (tmp_path / "__0_0.distcp").write_bytes(b"")
    stored = [(key("w", size(0, 0)), place("../x.distcp"))]
    (tmp_path / ".metadata").write_bytes(metadata({"w": HALVES["w"]}, stored))
    with pytest.raises(FormatError, match="expected a plain file name"):
        verify(tmp_path)
