"""Torch checkpoint headers: real files against torch.load, hostile files by hand, every prefix, every flipped bit, and mutated streams."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamath.checkpoint.formats.manifest import Manifest
from llamath.checkpoint.formats.source import Bytes, LocalFile, Source
from llamath.checkpoint.formats.torch_files import pickle_reader
from llamath.checkpoint.formats.torch_files.torch_checkpoint import (
    FIRST_WINDOW,
    MAX_PICKLE_BYTES,
    read,
    siblings,
)
from llamath.utils.errors import FormatError
from support import hostile_pth
from support.cost_limits import within_calls
from support.each_case import each
from support.hostile_pth import (
    APPEND,
    BUILD,
    DICT,
    FALSE,
    HOOKS,
    LIST,
    MARK,
    NONE,
    REDUCE,
    SETITEM,
    SIX,
    STOP,
    TRUE,
    TUPLE,
    UNIT,
    VALID,
    VALID_OLD,
    archive,
    called,
    get,
    legacy,
    listed,
    mapped,
    named,
    number,
    parts,
    put,
    storage,
    stream,
    tensor,
    text,
    tupled,
    zipped,
)

torch = pytest.importorskip("torch")

HOSTILE = hostile_pth.hostile()
SRC = str(Path(__file__).parents[2] / "src")
NAMES = {
    "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint8": "U8", "bool": "BOOL", "complex64": "C64", "uint16": "U16", "uint32": "U32", "uint64": "U64", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
}  # fmt: skip


def refusal(data: bytes | Source) -> FormatError:
    """Return the error of reading; fail without one."""
    with pytest.raises(FormatError) as caught:
        read(Bytes(data) if isinstance(data, bytes) else data)
    return caught.value


def attempt(data: bytes) -> Manifest | FormatError:
    """Return the manifest, or the error of reading."""

    def work() -> Manifest | FormatError:
        try:
            return read(Bytes(data))
        except FormatError as error:
            return error

    return within_calls(800_000, work)


def flip(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def save(value: Any, new: bool = True) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(value, file, _use_new_zipfile_serialization=new)
    return file.getvalue()


def load(data: bytes) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # protocol 3
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def leaves(value: Any, prefix: str = "", keyed: bool = False) -> Iterator[tuple[str, Any, bool]]:
    """Yield the leaves of torch's object by dotted name, with an independent implementation of the naming rule."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{prefix}{key}.", True)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(item, f"{prefix}{index}.", False)
    else:
        yield prefix[:-1], value, keyed


def check_against_torch(data: bytes, manifest: Manifest) -> Any:
    """Check a manifest against what torch loads from the same bytes: names, types, shapes, strides, sharing, bytes, values."""
    value = load(data)
    all_leaves = list(leaves(value))
    expected = [(name, leaf) for name, leaf, _ in all_leaves if isinstance(leaf, torch.Tensor)]
    assert [x.name for x in manifest.tensors] == [name for name, _ in expected]
    places: dict[str, int] = {}
    for mine, (_, theirs) in zip(manifest.tensors, expected, strict=True):
        assert mine.dtype == NAMES[str(theirs.dtype).removeprefix("torch.")]
        assert mine.shape == tuple(theirs.shape)
        assert mine.strides == (None if theirs.is_contiguous() else theirs.stride())
        if not theirs.numel():
            assert mine.start == mine.end <= len(data)
            continue
        storage_bytes = theirs.untyped_storage()
        assert places.setdefault(mine.storage, storage_bytes.data_ptr()) == storage_bytes.data_ptr()
        first = theirs.storage_offset()
        last = first + sum(
            (size - 1) * stride for size, stride in zip(theirs.shape, theirs.stride(), strict=True)
        )
        whole = torch.empty(0, dtype=torch.uint8).set_(storage_bytes).numpy().tobytes()
        assert (
            data[mine.start : mine.end]
            == whole[first * theirs.element_size() : (last + 1) * theirs.element_size()]
        )
    assert len(set(places.values())) == len(places)
    plain = (bool, int, float, str, type(None), torch.dtype)
    values = {name: leaf for name, leaf, keyed in all_leaves if keyed and isinstance(leaf, plain)}
    assert repr(manifest.metadata["values"]) == repr(
        {k: str(v) if isinstance(v, torch.dtype) else v for k, v in values.items()}
    )
    return value


def check_both_containers(value: Any) -> Manifest:
    """Check the manifests of both containers; return that of the archive."""
    data = save(value)
    manifest = read(Bytes(data, "a.pth"))
    check_against_torch(data, manifest)
    older = save(value, new=False)
    parsed = read(Bytes(older, "b.pth"))
    check_against_torch(older, parsed)
    assert [x[:3] for x in parsed.tensors] == [x[:3] for x in manifest.tensors]
    assert (parsed.metadata["container"], parsed.metadata["version"]) == ("legacy", 1001)
    return manifest


# real files


class Tied(torch.nn.Module):
    """A model with a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(11, 4)
        self.block = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4, bias=False)
        )
        self.head = torch.nn.Linear(4, 11, bias=False)
        self.head.weight = self.embed.weight


def test_state_dict_of_a_tied_model_is_read() -> None:
    manifest = check_both_containers(Tied().state_dict())
    kept = {tensor.name: tensor for tensor in manifest.tensors}
    assert (
        kept["head.weight"].storage
        == kept["embed.weight"].storage
        != kept["block.0.weight"].storage
    )
    assert kept["head.weight"].start == kept["embed.weight"].start
    assert kept["block.1.num_batches_tracked"][1:3] == ("I64", ())
    assert manifest.metadata == {
        "container": "zip",
        "version": 3,
        "byteorder": "little",
        "values": {},
    }
    assert (
        manifest.files[0].size - manifest.files[0].header_bytes
        == 4 * (11 * 4 + 8 * 4 + 8 + 4 * 8 + 32) + 8
    )


def test_checkpoint_with_optimizer_is_read() -> None:
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3, 3])
    model.block(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    schedule.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "epoch": 3,
        "name": "été",
    }
    manifest = check_both_containers(
        state
        | {
            "best": 0.5,
            "args": {"dim": 4, "tied": True, "none": None},
            "rng": torch.get_rng_state(),
        }
    )
    names = [tensor.name for tensor in manifest.tensors]
    assert "model.embed.weight" in names and "optimizer.state.1.exp_avg" in names
    values = manifest.metadata["values"]
    assert (values["epoch"], values["name"], values["args.tied"], values["args.none"]) == (
        3,
        "été",
        True,
        None,
    )
    assert values["optimizer.param_groups.0.lr"] == 3e-4


BASE = torch.arange(60, dtype=torch.float32)
KINDS: dict[str, Any] = {
    "views": {"all": BASE, "middle": BASE[10:20], "square": BASE.view(6, 10)[1:4, 2:5], "column": BASE.view(6, 10)[:, 3]},
    "transposed": {"a": BASE.view(6, 10).t(), "b": BASE.view(3, 4, 5).permute(2, 0, 1), "c": BASE[::7], "d": BASE.view(6, 10)},
    "expanded": {"a": torch.ones(1).expand(5), "b": torch.ones(3, 1).expand(3, 4)},
    "empty": {"a": torch.zeros(0), "b": torch.zeros(3, 0), "c": torch.ones(4, 4)[4:, 2:], "d": BASE[60:]},
    "one empty storage as two types": [torch.empty(0), (e := torch.empty(0)), e.view(torch.int32)],
    "scalars": {"a": torch.tensor(1.5), "b": torch.tensor(7), "c": BASE[3], "d": torch.tensor(True)},
    "sizes of one": {"a": BASE.view(1, 60), "b": BASE.view(60, 1).t(), "c": BASE[:1].expand(1), "d": BASE.as_strided((1, 3), (7, 1))},
    "channels last": {"a": torch.ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)},
    "parameters": {"a": torch.nn.Parameter(torch.ones(3)), "b": torch.nn.Parameter(torch.ones(3, dtype=torch.int8), requires_grad=False)},
    "a gradient": {"a": torch.ones(3, requires_grad=True), "c": torch.ones(2, dtype=torch.complex64, requires_grad=True)},
    "lists": [torch.ones(2), (torch.zeros(3), {"x": torch.ones(1)}), [[torch.tensor(1)]]],
    "one tensor": torch.ones(2, 2),
    "nothing": {},
    "no tensor": {"a": 1, "b": "x", "c": [1, 2], "d": None},
    "a number": 7,
    "number keys": {0: torch.ones(1), -5: {1 << 40: torch.zeros(2)}},
    "odd names": {"": torch.ones(1), "a.b": torch.ones(1), "…\u202e\n": torch.ones(1), "x" * 300: torch.ones(1)},
    "plain values": {
        "int": 1 << 100, "negative": -(1 << 31) - 1, "float": float("nan"), "inf": float("-inf"), "text": "é" * 300, "bytes": b"a\xff",
        "tuple": (1, 2), "set": {1, "a", None}, "complex": 2j, "bytearray": bytearray(b"ab"), "counter": Counter("aab"), "type": torch.int8,
        "device": torch.device("cuda", 0), "size": torch.Size([1, 2]), "layout": torch.strided, "long": list(range(3000)),
        "empty": [(), [], {}], "ordered": OrderedDict(a=1), "cpu": torch.device("cpu"),
    },
    "one list twice": {"a": (shared := [1, {"x": torch.ones(1)}]), "b": shared},
    "400 tensors": {f"layers.{index}.weight": torch.full((2,), index) for index in range(400)},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_real_files_read_as_torch_loads_them(kind: str) -> None:
    check_both_containers(KINDS[kind])


@pytest.mark.parametrize("dtype", NAMES)
def test_every_dtype_is_read(dtype: str) -> None:
    value = {
        "a": torch.arange(48, dtype=torch.uint8).view(getattr(torch, dtype))
        if dtype != "bool"
        else torch.tensor([True, False])
    }
    value["b"] = value["a"][1:]
    data = save(value)
    check_against_torch(data, read(Bytes(data)))
    older = save(value, new=False)
    try:
        load(older)
    except (
        AttributeError
    ):  # torch cannot load these types from its older container, so they are not read either
        assert refusal(older).code == "storage"
    else:
        check_against_torch(older, read(Bytes(older)))


def test_tensor_spans_are_inside_shared_storages() -> None:
    first, second, third, _ = check_both_containers(KINDS["views"]).tensors
    assert first.storage == second.storage == third.storage
    assert (second.start - first.start, second.bytes) == (40, 40)
    assert (third.start - first.start, third.strides, third.bytes) == (48, (10, 1), 92)


def test_pickled_module_is_refused_by_its_class() -> None:
    for new in (True, False):
        error = refusal(save(torch.nn.Linear(2, 2), new))
        assert error.code == "global" or (error.code == "persistent" and not new)
    assert "torch.nn.modules.linear.Linear" in str(refusal(save(torch.nn.Linear(2, 2))))


def with_attribute(value: Any) -> Any:
    value.note = "x"
    return value


REFUSED = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse rows": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "meta": lambda: torch.ones(3, device="meta"),
    "conjugate": lambda: torch.ones(3, dtype=torch.complex64).conj(),
    "dtype": lambda: torch.ones(3, dtype=torch.complex128),
    "storage": lambda: torch.ones(3).untyped_storage(),
    "attributes": lambda: with_attribute(torch.nn.Parameter(torch.ones(3))),
    "attributes on a tensor": lambda: with_attribute(torch.ones(3)),
    "global": lambda: b"",
    "global frozen": lambda: frozenset([1]),
    "global path": lambda: Path("x"),
    "key": lambda: {(1, 2): torch.ones(1)},
    "duplicate_name": lambda: {"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)},
    "argument": lambda: torch.zeros(2, dtype=torch.float8_e4m3fn, requires_grad=True),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_unsupported_torch_objects_are_refused_by_name(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = REFUSED[kind]()
    assert refusal(save({"w": torch.ones(1), "x": value})).code == kind.split()[0]


def test_other_protocols_are_refused_as_torch_refuses_them() -> None:
    for protocol in (0, 1, 3, 4, 5):
        file = io.BytesIO()
        torch.save({"w": torch.ones(2)}, file, pickle_protocol=protocol)
        if protocol == 3:
            check_against_torch(file.getvalue(), read(Bytes(file.getvalue())))
        else:
            error = refusal(file.getvalue())
            assert error.code == "protocol" and (protocol < 2 or "weights_only" in error.hint)


def test_an_archive_written_again_by_zipfile_is_read() -> None:
    data = save({"w": BASE, "e": torch.zeros(0), "n": 3})
    for how, wide in (
        (zipfile.ZIP_STORED, False),
        (zipfile.ZIP_STORED, True),
        (zipfile.ZIP_DEFLATED, False),
    ):
        file = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w", how) as new:
            for entry in old.infolist():
                with new.open(
                    zipfile.ZipInfo(entry.filename)
                    if how == zipfile.ZIP_STORED
                    else entry.filename,
                    "w",
                    force_zip64=wide,
                ) as out:
                    out.write(old.read(entry))
        if how == zipfile.ZIP_STORED:
            check_against_torch(file.getvalue(), read(Bytes(file.getvalue())))
        else:
            assert refusal(file.getvalue()).code == "compressed"


class Pipe(io.RawIOBase):
    """A write-only file without seeking, so that sizes follow the data."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += data
        return len(data)


def test_an_archive_written_to_a_pipe_is_read() -> None:
    data, pipe = save({"w": BASE, "e": torch.zeros(0), "n": 3}), Pipe()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(pipe, "w") as new:  # type: ignore[arg-type]
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    manifest = read(Bytes(bytes(pipe.data)))
    check_against_torch(bytes(pipe.data), manifest)


def test_an_archive_without_checksums_is_read() -> None:
    torch.serialization.set_crc32_options(False)
    try:
        data = save({"w": BASE})
    finally:
        torch.serialization.set_crc32_options(True)
    check_against_torch(data, read(Bytes(data)))


def test_twelve_gigabyte_file_is_read_at_its_ends(tmp_path: Path) -> None:
    path = tmp_path / "big.pth"
    shapes = {"a": (3, 1 << 30), "b": (5,), "c": (2, 1 << 31), "d": (7,), "e": (0,), "f": (1,)}
    with torch._subclasses.fake_tensor.FakeTensorMode():
        state = {
            name: torch.empty(shape, dtype=torch.bfloat16 if name != "c" else torch.uint8)
            for name, shape in shapes.items()
        }
    with torch.serialization.skip_data(materialize_fake_tensors=True):
        torch.save(state, path)
    with LocalFile(path) as source:
        manifest = read(source)
    oracle = torch._C.PyTorchFileReader(str(path))
    assert manifest.files[0].size > 10 << 30
    assert [tensor.shape for tensor in manifest.tensors] == list(shapes.values())
    assert [tensor.start for tensor in manifest.tensors] == [
        oracle.get_record_offset(f"data/{key}") for key in range(6)
    ]
    assert [tensor.bytes for tensor in manifest.tensors] == [6 << 30, 10, 4 << 30, 14, 0, 2]


class Counting(Bytes):
    """Records the reads."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.spans: list[tuple[int, int]] = []

    def fetch(self, start: int, length: int) -> bytes:
        self.spans.append((start, start + length))
        return super().fetch(start, length)


def test_no_tensor_bytes_are_read_from_an_archive() -> None:
    source = Counting(save({str(index): torch.ones(1000) for index in range(50)}))
    manifest = read(source)
    for x in manifest.tensors:
        assert not any(start < x.end and x.start < end for start, end in source.spans)
    assert sum(end - start for start, end in source.spans) < 50 * 500


def test_legacy_file_is_read_in_growing_windows() -> None:
    state = {f"layers.{index}.weight": torch.full((2,), index) for index in range(60)} | {
        "steps": 3,
        "last": "y" * 999,
    }
    expected = read(Bytes(save(state, new=False))).tensors
    for cut in (20, 61, 117, 400, 999, 2048, 5000):
        data = save({"padding": "x" * (FIRST_WINDOW - cut)} | state, new=False)
        source = Counting(data)
        assert [(x.name, x.shape) for x in read(source).tensors] == [
            (x.name, x.shape) for x in expected
        ]
        assert (0, FIRST_WINDOW) in source.spans and (0, len(data)) in source.spans


def test_pickle_streams_over_the_limit_are_refused() -> None:
    assert (
        refusal(save({"padding": "x" * MAX_PICKLE_BYTES, "w": torch.ones(2)}, new=False)).code
        == "truncated"
    )


def test_streams_of_python_2_are_read() -> None:
    """Python 2's cPickle wrote short byte strings, memo indices from 1, and OrderedDict from a list of lists."""
    storage_bytes = tensor(storage(more=NONE))
    pair = LIST + b"U\1w" + put(1) + APPEND + storage_bytes + APPEND
    data = legacy(
        stream(
            called("collections.OrderedDict", listed(pair, listed(text("n"), number(1)))) + put(2)
        )
    )
    check_against_torch(data, read(Bytes(data)))


def test_old_tensor_rebuild_function_is_supported() -> None:
    first = called(
        "torch._utils._rebuild_tensor", storage(), number(1), tupled(number(5)), tupled(number(1))
    )
    no_hooks = tensor(tail=FALSE + NONE)
    data = zipped(
        stream(
            mapped(
                {
                    "a": first,
                    "b": no_hooks,
                    "c": tensor(tail=FALSE + HOOKS + DICT),
                    "d": tensor(tail=FALSE + HOOKS + NONE),
                }
            )
        )
    )
    check_against_torch(data, read(Bytes(data)))


# hostile files


@each("name", HOSTILE)
def test_a_hostile_file_is_refused(name: str) -> None:
    data, code = HOSTILE[name]
    error = within_calls(20_000_000, lambda: refusal(data))
    assert error.code == code, error
    assert str(error).startswith("<bytes>: ") and len(str(error)) < 400
    assert str(error).isprintable()


def test_there_are_many_hostile_files() -> None:
    assert len(HOSTILE) > 400
    assert len({code for _, code in HOSTILE.values()}) > 30


def test_hostile_files_use_memory_in_proportion() -> None:
    for name, (data, _) in HOSTILE.items():
        tracemalloc.start()
        refusal(data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 200_000 + 100 * len(data), name


def test_opcodes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 million are allowed; a file with as many takes seconds, so that one has 10,000 here."""
    assert pickle_reader._MAX_OPCODES == 1 << 22
    monkeypatch.setattr(pickle_reader, "_MAX_OPCODES", 10_000)
    many, fewer = (zipped(stream(LIST + (NONE + APPEND) * n)) for n in (5_000, 4_990))
    assert refusal(many).code == "limit"
    assert getattr(attempt(fewer), "code", "") != "limit"


def test_nothing_is_imported_opened_or_run(tmp_path: Path) -> None:
    """An audit hook records every import, system call and opened file while the corpus is read, from memory and from disk."""
    for index, (data, _) in enumerate(
        [*HOSTILE.values(), (zipped(VALID), ""), (legacy(VALID_OLD), "")]
    ):
        (tmp_path / f"{index}.pth").write_bytes(data)
    code = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from llamath.utils.errors import FormatError
from llamath.checkpoint.formats.torch_files.torch_checkpoint import read
from llamath.checkpoint.formats.source import Bytes, LocalFile
files = sorted(Path(sys.argv[2]).iterdir())
contents = [path.read_bytes() for path in files]
names, events, modules, on = [str(path) for path in files], [], set(sys.modules), False
def hook(event, args):
    if on:
        events.append([event, *map(repr, args)])
sys.addaudithook(hook)
accepted, on = 0, True
for name, data in zip(names, contents):
    for make, what in ((Bytes, data), (LocalFile, name)):
        try:
            source = make(what)
            read(source)
            accepted += 1
        except FormatError:
            pass
        finally:
            source.close()
on = False
print(json.dumps([accepted, len(names), events, sorted(set(sys.modules) - modules)]))
"""
    run = subprocess.run(
        [sys.executable, "-c", code, SRC, str(tmp_path)], capture_output=True, text=True, check=True
    )
    accepted, count, events, modules = json.loads(run.stdout)
    assert (accepted, count) == (4, len(HOSTILE) + 2)
    assert not modules
    assert {event for event, *_ in events} <= {"open", "builtins.id"}
    opened = [args for event, *args in events if event == "open"]
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    assert {path.strip("'") for path, _, _ in opened} == {str(path) for path in tmp_path.iterdir()}
    assert not any(int(flags) & writing for _, _, flags in opened)


# unusual valid files


def test_colliding_keys_are_read_in_linear_time() -> None:
    """Python's hash of n·(2⁶¹ - 1) is 0 for every n: 30,000 such keys keep a dictionary busy for half a minute."""
    keys = b"".join(number(index * ((1 << 61) - 1)) + NONE for index in range(1, 30_001))
    outcome = attempt(zipped(stream(DICT + MARK + keys + b"u")))
    assert isinstance(outcome, Manifest)
    assert len(outcome.metadata["values"]) == 30_000


def test_unused_deep_nesting_is_dropped() -> None:
    deep = NONE + b"\x85" * 200_000
    outcome = attempt(zipped(stream(HOOKS + DICT + text("_metadata") + deep + SETITEM + BUILD)))
    assert isinstance(outcome, Manifest)


def test_attributes_of_an_ordered_dict_are_dropped() -> None:
    state = mapped({"_metadata": HOOKS, "items": number(1), "__class__": number(2)})
    data = zipped(stream(HOOKS + MARK + text("w") + tensor() + b"u" + state + BUILD))
    assert [tensor.name for tensor in read(Bytes(data)).tensors] == ["w"]


def test_zero_stride_equals_torch() -> None:
    data = zipped(stream(mapped({"w": tensor(shape=(1 << 40, 6), strides=(0, 1))})))
    check_against_torch(data, manifest := read(Bytes(data)))
    assert (manifest.tensors[0].elements, manifest.tensors[0].bytes) == (6 << 40, 24)


class Sparse(Source):
    """Zeros, and an end record that declares a directory of a terabyte."""

    def __init__(self, data: bytes, size: int) -> None:
        self.name, self.tail, self.size, self.bytes = "sparse", data, size, 0

    def fetch(self, start: int, length: int) -> bytes:
        self.bytes += length
        assert length <= 64 << 20
        storage_bytes = b"PK\3\4" if start == 0 else b""
        if start + length > self.size - len(self.tail):
            return self.tail[len(self.tail) - (self.size - start) :][:length]
        return storage_bytes[:length].ljust(length, b"\0")


def test_terabyte_directory_is_refused_unread() -> None:
    size = 1 << 40
    for count, length in (((1 << 40) // 46 - 9, size - 98), (1 << 20, 65 << 20)):
        tail = archive(
            [], count=count, here=count, size=length, start=size - 98 - length, where=size - 98
        )
        source = Sparse(tail, size)
        assert refusal(source).code == "directory"
        assert source.bytes < 1000


def test_gigabyte_stream_is_refused_unread() -> None:
    members = parts(VALID)
    members[0] = hostile_pth.Part(b"a/data.pkl", bytes((64 << 20) + 1))
    assert refusal(archive(members)).code == "too_large"


# truncated and flipped files

SMALL = {"new": zipped(VALID), "old": legacy(VALID_OLD)}


@pytest.mark.parametrize("kind", ["new", "old", "saved", "saved old"])
def test_every_prefix_is_refused(kind: str) -> None:
    data = SMALL.get(kind) or save({"w": torch.ones(2), "b": torch.zeros(0)}, kind == "saved")
    assert isinstance(attempt(data), Manifest)
    for end in range(len(data)):
        assert isinstance(attempt(data[:end]), FormatError)


@pytest.mark.parametrize("kind", SMALL)
def test_flipped_bits_are_refused_or_agree_with_torch(kind: str) -> None:
    """Every bit of the file except those of the tensor's data is flipped."""
    data = SMALL[kind]
    (tensor,) = read(Bytes(data)).tensors
    accepted = 0
    for bit in range(8 * len(data)):
        if not 8 * tensor.start <= bit < 8 * tensor.end:
            flipped = flip(data, bit)
            outcome = attempt(flipped)
            if isinstance(outcome, Manifest):
                check_against_torch(flipped, outcome)
                accepted += 1
    fields = (
        4 * (16 + 32 + 64 + 16 + 16 + 32 + 16 + 31) + 32
    )  # of members: versions, times, padding, attributes; of the end: versions
    assert accepted == (fields if kind == "new" else accepted) and accepted < len(data) * 2


def test_flipped_bits_with_valid_checksum_are_refused_or_agree() -> None:
    accepted = 0
    for bit in range(8 * len(VALID)):
        data = zipped(flip(VALID, bit))
        outcome = attempt(data)
        if isinstance(outcome, Manifest):
            check_against_torch(data, outcome)
            accepted += 1
    assert 0 < accepted < 2 * len(VALID)


# accepted files equal those that torch loads

DTYPES = [getattr(torch, name) for name in NAMES]


@st.composite
def tensors(draw: st.DrawFn, pool: list[Any]) -> Any:
    """Return a new tensor, or a view of an existing one."""
    if pool and draw(st.booleans()):
        base = draw(st.sampled_from(pool))
        for _ in range(draw(st.integers(0, 3))):
            base = draw(st.sampled_from(VIEWS))(base)
        return base
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    dtype = draw(st.sampled_from(DTYPES))
    size = torch.empty(0, dtype=dtype).element_size()
    count = size
    for dim in shape:
        count *= dim
    values = torch.arange(count).to(torch.uint8)
    values = (
        values.to(torch.bool).view(shape)
        if dtype == torch.bool
        else values.view(dtype).view(shape)
        if count
        else torch.empty(shape, dtype=dtype)
    )
    pool.append(values)
    return values


VIEWS = [
    lambda t: t[1:] if t.dim() else t,
    lambda t: t[::2] if t.dim() else t,
    lambda t: t.transpose(0, -1) if t.dim() else t,
    lambda t: t.unsqueeze(0),
    lambda t: t.unsqueeze(0).expand(3, *t.shape),
    lambda t: t[..., :1] if t.dim() else t,
    lambda t: torch.nn.Parameter(t, requires_grad=False),
]
KEYS = st.text(
    st.characters(exclude_characters=".", exclude_categories=["Cs"]), max_size=5
) | st.integers(-(1 << 70), 1 << 70)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
    | st.binary(min_size=1)
)


@st.composite
def states(draw: st.DrawFn) -> Any:
    pool: list[Any] = []
    leaf = st.deferred(lambda: tensors(pool)) | PLAIN | st.sampled_from(DTYPES)
    inner = st.recursive(
        leaf, lambda x: st.lists(x, max_size=3) | st.dictionaries(KEYS, x, max_size=3), max_leaves=8
    )
    return draw(st.dictionaries(KEYS, inner, max_size=6))


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(states())
def test_any_state_reads_as_torch_loads_it(state: Any) -> None:
    names = [name for name, _, _ in leaves(state)]
    data = save(state)
    if len(set(names)) == len(names):
        check_against_torch(data, read(Bytes(data)))
    elif isinstance(outcome := attempt(data), FormatError):
        assert outcome.code == "duplicate_name"


FRAGMENTS = [
    NONE, DICT, LIST, MARK, TUPLE, REDUCE, BUILD, STOP, APPEND, SETITEM, b")", b"u", b"e", b"Q", b"\x85", b"\x86", b"\x87", b"\x88",
    HOOKS, number(0), number(1), number(300), number(-1), text("w"), text("0"), put(0), put(1), get(0), get(1), tensor(), storage(),
    b"U\1a", b"G" + bytes(8), storage(key="1"), storage("torch.IntStorage"), b"\x80\2",
]  # fmt: skip


class Writer:
    """Writes nearly valid streams: values are nested, repeated and shared, and sometimes a number or an opcode is wrong."""

    def __init__(self, seed: int, old: bool) -> None:
        self.chance, self.memo, self.more = random.Random(seed), 0, NONE if old else b""

    def stream(self) -> bytes:
        body = self.filled(HOOKS if self.chance.random() < 0.5 else DICT, 3)
        if self.chance.random() < 0.25:
            at = self.chance.randrange(len(body))
            body = (
                body[:at] + self.chance.choice(FRAGMENTS) + body[at + self.chance.randint(0, 2) :]
            )
        return stream(body)

    def value(self, depth: int) -> bytes:
        kinds = [self.plain, self.plain, self.tensor, self.tensor, self.tensor, self.again]
        kinds += [
            lambda: self.filled(DICT, depth - 1),
            lambda: self.filled(HOOKS, depth - 1),
            lambda: self.listed(depth - 1),
        ] * (depth > 0)
        value = self.chance.choice(kinds)()
        if self.chance.random() < 0.2:
            value += put(self.memo)
            self.memo += 1
        return value

    def plain(self) -> bytes:
        return self.chance.choice(
            [
                NONE,
                TRUE,
                number(7),
                number(-(1 << 80)),
                text("é"),
                b"G" + bytes(8),
                UNIT,
                named("torch.int8"),
                b"U\1a",
            ]
        )

    def again(self) -> bytes:
        return get(self.chance.randrange(self.memo)) if self.memo else NONE

    def listed(self, depth: int) -> bytes:
        items = [self.value(depth) for _ in range(self.chance.randrange(3))]
        return listed(*items) if self.chance.random() < 0.5 else tupled(*items)

    def filled(self, target: bytes, depth: int) -> bytes:
        keys = [
            self.chance.choice([text, lambda x: number(ord(x))])(self.chance.choice("abcdefghijkl"))
            for _ in range(self.chance.randrange(5))
        ]
        opcodes = target + MARK + b"".join(key + self.value(depth) for key in keys) + b"u"
        return (
            opcodes + mapped({"_metadata": NONE}) + BUILD
            if target == HOOKS and self.chance.random() < 0.5
            else opcodes
        )

    def tensor(self) -> bytes:
        pick, dims = self.chance.choice, self.chance.randrange(3)
        sizes, steps = (
            [pick([0, 1, 1, 2, 2, 3]) for _ in range(dims)],
            [pick([0, 1, 1, 2, 3]) for _ in range(dims)],
        )
        key, kind, count = pick(
            [("0", "torch.FloatStorage", 6)] * 8
            + [("1", "torch.HalfStorage", 0), ("1", "torch.IntStorage", 0)]
        )
        opcodes = tensor(
            storage(kind, key, count, self.more, pick(["cpu", "cuda:0"])),
            pick([0, 0, 1, 2]),
            sizes,
            steps,
            pick(TAILS),
        )
        return (
            called("torch._utils._rebuild_parameter", opcodes, pick([TRUE, FALSE]), HOOKS)
            if self.chance.random() < 0.2
            else opcodes
        )


PLAINS = [
    NONE,
    TRUE,
    number(7),
    number(-(1 << 80)),
    text("é"),
    b"G" + bytes(8),
    UNIT,
    named("torch.int8"),
    b"U\1a",
]
TAILS = [FALSE + HOOKS, FALSE + HOOKS, FALSE + NONE, TRUE + HOOKS, FALSE + HOOKS + DICT]


def mutants(seeds: range) -> int:
    """Check this many generated streams in both containers; return the number of accepted ones."""
    accepted = 0
    for seed in seeds:
        original = Writer(seed, seed % 3 == 0).stream()
        keys = [key for key in "01" if text("storage") in original and text(key) in original]
        storage_bytes = b"".join(
            hostile_pth.struct.pack("<q", 6) + SIX if key == "0" else bytes(8) for key in keys
        )
        data = (
            legacy(original, listed(*map(text, keys)), storage_bytes)
            if seed % 3 == 0
            else zipped(original, {"0": SIX, "1": b""})
        )
        outcome = attempt(data)
        if isinstance(outcome, Manifest):
            check_against_torch(data, outcome)
            accepted += 1
    return accepted


def test_mutants_are_refused_or_agree_with_torch() -> None:
    assert mutants(range(3000)) > 1000


def test_damaged_files_are_refused_or_agree_with_torch() -> None:
    """Change, remove or insert up to three bytes, mostly in the directory and the end records."""
    whole = [
        *SMALL.values(),
        *(
            save({"w": torch.ones(2), "n": {"x": 1}, "e": torch.zeros(0)}, new)
            for new in (True, False)
        ),
    ]
    accepted = 0
    for seed in range(4000):
        chance = random.Random(seed)
        data = chance.choice(whole)
        for _ in range(chance.choice([1, 1, 2, 3])):
            at = (
                chance.randrange(len(data))
                if chance.random() < 0.5
                else len(data) - chance.randrange(1, min(len(data), 900))
            )
            new = chance.choice(
                [
                    chance.randbytes(1),
                    b"",
                    b"\0\0",
                    b"\xff" * 4,
                    b"PK\3\4",
                    b"PK\1\2",
                    b"PK\5\6",
                    bytes(8),
                    b"\1\0",
                ]
            )
            data = data[:at] + new + data[at + chance.choice([len(new), len(new), 1, 0]) :]
        outcome = attempt(data)
        if isinstance(outcome, Manifest):
            check_against_torch(data, outcome)
            accepted += 1
    assert accepted > 100


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"PK\3\4", b"\x80\2", SMALL["new"][:200], SMALL["old"][:180]]),
    st.integers(0, 98),
)
def test_random_bytes_give_a_manifest_or_an_error(data: bytes, start: bytes, tail: int) -> None:
    attempt(start + data + SMALL["new"][len(SMALL["new"]) - tail :])


# sets of shards


def test_meta_shard_names_are_in_order() -> None:
    listing = [
        "params.json",
        *(f"consolidated.{index:02}.pth" for index in (2, 0, 3, 1)),
        "consolidated.00.pth.bak",
        "tokenizer.model",
    ]
    expected = [f"consolidated.{index:02}.pth" for index in range(4)]
    assert siblings("consolidated.02.pth", listing) == expected
    assert siblings("consolidated.00.pth", iter(listing)) == expected
    assert siblings("consolidated.00.pth", []) == ["consolidated.00.pth"]
    assert siblings("model.pth", listing) == ["model.pth"]
    assert siblings("consolidated.0.pth", listing) == ["consolidated.0.pth"]
    assert siblings("consolidated.٠٠.pth", listing) == ["consolidated.٠٠.pth"]


@pytest.mark.parametrize("present", [(1,), (0, 2), (1, 2, 3), (0, 1, 3)])
def test_set_with_a_missing_shard_is_refused(present: tuple[int, ...]) -> None:
    listing = [f"consolidated.{index:02}.pth" for index in present]
    with pytest.raises(FormatError, match=r"consolidated\.0\d\.pth is missing") as caught:
        siblings(listing[-1], listing)
    assert caught.value.code == "shards"
