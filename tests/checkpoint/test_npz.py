""".npz archives: what numpy reads, without loading; pickled objects, overlapping members and broken headers are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from llamath.checkpoint.formats import npz
from llamath.checkpoint.formats.source import Bytes
from llamath.checkpoint.tensor_reader import TensorReader
from llamath.cli import cli
from llamath.utils.errors import FormatError
from support.hostile_folders import ARRAYS, hostile_npz

numpy = pytest.importorskip("numpy")

NAMES = {
    "F32": "float32",
    "F16": "float16",
    "F64": "float64",
    "I8": "int8",
    "U8": "uint8",
    "I64": "int64",
    "BOOL": "bool",
    "C64": "complex64",
}


def run(*args: str) -> Any:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, args)


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_are_those_of_numpy(compressed: bool, tmp_path: Path) -> None:
    chance = numpy.random.default_rng(1)
    shapes = [(), (5,), (3, 4), (2, 3, 4), (0, 3), (1, 1)]
    arrays = {
        f"layers.{i}.{dtype}": (chance.random(shape) * 99).astype(dtype)
        for dtype in NAMES.values()
        for i, shape in enumerate(shapes)
    }
    arrays |= {f"F.{name}": numpy.asfortranarray(x) for name, x in arrays.items()}
    path = tmp_path / "x.npz"
    (numpy.savez_compressed if compressed else numpy.savez)(path, **arrays)
    data = path.read_bytes()
    manifest = npz.read(Bytes(data, "x.npz"))
    assert {x.name: (NAMES[x.dtype], x.shape) for x in manifest.tensors} == {
        name: (str(x.dtype), x.shape) for name, x in arrays.items()
    }
    assert sum(x.bytes for x in manifest.tensors) == sum(x.nbytes for x in arrays.values())
    for x in [] if compressed else manifest.tensors:
        stored = numpy.frombuffer(data[x.start : x.end], NAMES[x.dtype])
        strides = None if x.strides is None else [n * stored.itemsize for n in x.strides]
        theirs = arrays[x.name]
        ours = (
            stored.reshape(x.shape)
            if strides is None
            else numpy.lib.stride_tricks.as_strided(stored, x.shape, strides)
        )
        assert (ours == theirs).all()


@pytest.mark.parametrize("name", ARRAYS)
def test_archives_written_by_hand_read_as_in_numpy(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(ARRAYS[name])
    manifest = npz.read(Bytes(ARRAYS[name]))
    with numpy.load(tmp_path / "x.npz") as theirs:
        texts = str(manifest.metadata.get("text arrays", "")).split()
        assert {x.name: x.shape for x in manifest.tensors} == {
            x: theirs[x].shape for x in theirs.files if x not in texts
        }


@pytest.mark.parametrize("name", hostile_npz())
def test_hostile_archives_are_refused(name: str) -> None:
    data, code = hostile_npz()[name]
    with pytest.raises(FormatError) as caught:
        npz.read(Bytes(data))
    assert caught.value.code == code and str(caught.value).isprintable()


def test_commands_read_archives(tmp_path: Path) -> None:
    numpy.savez(
        tmp_path / "x.npz",
        **{"a.weight": numpy.zeros((3, 4), numpy.float32), "b": numpy.zeros(2, numpy.float16)},
    )
    assert "a.weight  F32    [3, 4]" in run("ls", str(tmp_path / "x.npz")).stdout
    assert json.loads(run("count", str(tmp_path), "--json").stdout)["parameters"]["total"] == 14
    numpy.savez(tmp_path / "o.npz", a=numpy.array([{}], dtype=object))
    done = run("ls", str(tmp_path / "o.npz"))
    assert done.exit_code == 2 and "pickled Python objects" in done.stderr
    numpy.savez(tmp_path / "b.npz", a=numpy.zeros(3, ">f4"))
    done = run("ls", str(tmp_path / "b.npz"))
    assert f"{tmp_path / 'b.npz'}: a has the unsupported dtype" in " ".join(done.stderr.split())
    assert "save .astype('<f4')" in " ".join(done.stderr.split())


def test_deflated_arrays_are_listed_and_not_read_in_place(tmp_path: Path) -> None:
    numpy.savez_compressed(tmp_path / "x.npz", a=numpy.zeros((30, 4), numpy.float32))
    assert "120" in run("ls", str(tmp_path / "x.npz")).stdout
    with pytest.raises(FormatError, match="deflated"):
        TensorReader(npz.read(Bytes((tmp_path / "x.npz").read_bytes())))
