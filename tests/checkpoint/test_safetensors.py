"""Safetensors headers: bytes written by hand, hostile files, every prefix, every flipped bit, and comparisons with the reference."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamath.checkpoint.formats.checkpoint_files import read_checkpoint
from llamath.checkpoint.formats.dtypes import PLAIN
from llamath.checkpoint.formats.manifest import Manifest
from llamath.checkpoint.formats.safetensors import MAX_HEADER, read
from llamath.checkpoint.formats.source import Bytes, LocalFile, Source
from llamath.utils.errors import FormatError, safe
from support import hostile_safetensors
from support.cost_limits import peak_bytes, within_calls
from support.each_case import each
from support.hostile_safetensors import entry, file, header, mutants, valid
from support.release import usual

safetensors = pytest.importorskip("safetensors")
numpy = pytest.importorskip("safetensors.numpy")

HOSTILE = hostile_safetensors.hostile()
ODD = hostile_safetensors.odd()
FLOODS = [
    name
    for name in HOSTILE
    if re.search(r"\d{2,3},\d{3}|16 M|million|starts of|spaces between|tensors without", name)
]
MIB = 1 << 20

STRICTER = {
    "space first", "newline first", "tensor is a sequence, as serde would take it", "a fourth field", "a fourth field first",
    "a fourth field, nested", "strides", "field without a name", "65 dimensions", "name of 1 MB", "name of 65,537 letters",
    "dtype is an object, as serde would take it", "name twice, in one place", "metadata key twice", "a million dimensions",
    "metadata key twice, once escaped", "metadata of 100,000 strings",
}  # fmt: skip
"""Hostile files that the reference accepts, as it does files of several MiB that are refused here because of their cost."""


def attempt(data: bytes | Source) -> Manifest | FormatError:
    try:
        return read(Bytes(data) if isinstance(data, bytes) else data)
    except FormatError as error:
        return error


def refusal(data: bytes | Source) -> FormatError:
    outcome = attempt(data)
    assert isinstance(outcome, FormatError)
    return outcome


def reference(data: bytes) -> list[tuple[str, str, tuple[int, ...], bytes]] | None:
    """Read a file with the Rust crate: name, dtype, shape and bytes of every tensor."""
    try:
        tensors = safetensors.deserialize(data)
    except safetensors.SafetensorError:
        return None
    return sorted((name, x["dtype"], tuple(x["shape"]), bytes(x["data"])) for name, x in tensors)


def check_against_reference(data: bytes, manifest: Manifest) -> None:
    """Check that the reference reads the same tensors from these bytes."""
    assert reference(data) == sorted(
        (x.name, x.dtype, x.shape, data[x.start : x.end]) for x in manifest.tensors
    ), data


def check_metadata(data: bytes, manifest: Manifest, path: Path) -> None:
    path.write_bytes(data)
    with safetensors.safe_open(path, "numpy") as theirs:
        assert (theirs.metadata() or {}) == dict(manifest.metadata), data


def flip(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


class Sparse(Source):
    """Some bytes and a larger declared size; counts the reads."""

    def __init__(self, start: bytes, size: int) -> None:
        self.name, self.start, self.size, self.calls, self.bytes = "sparse", start, size, 0, 0

    def fetch(self, start: int, length: int) -> bytes:
        self.calls, self.bytes = self.calls + 1, self.bytes + length
        return self.start[start : start + length].ljust(length, b"\0")


# valid files


def test_all_fields_of_a_handwritten_file_are_read() -> None:
    data = valid()
    base = len(data) - 38
    manifest = read(Bytes(data, "a.safetensors"))
    assert [
        (t.name, t.dtype, t.shape, t.start - base, t.bytes, t.file, t.strides, t.storage)
        for t in manifest.tensors
    ] == [
        ("w", "F32", (2, 3), 0, 24, 0, None, ""),
        ("b", "BF16", (3,), 24, 6, 0, None, ""),
        ("none", "I64", (0, 7), 30, 0, 0, None, ""),
        ("s", "F64", (), 30, 8, 0, None, ""),
    ]
    assert manifest.metadata == {"format": "pt", "by": "hand"}
    assert (manifest.format, manifest.files, manifest.index) == (
        "safetensors",
        (("a.safetensors", len(data), base),),
        None,
    )


@pytest.mark.parametrize("name", ODD)
def test_reader_agrees_with_the_reference(name: str, tmp_path: Path) -> None:
    data = ODD[name]()
    manifest = read(Bytes(data))
    check_against_reference(data, manifest)
    check_metadata(data, manifest, tmp_path / "a.safetensors")


def test_tensors_are_in_header_order() -> None:
    assert [x.name for x in read(Bytes(ODD["out of order"]())).tensors] == ["b", "a"]


def test_types_equal_the_reference() -> None:
    for name, dtype in PLAIN.items():
        assert reference(
            file(
                header(entry("a", f'"{name}"', f"[{dtype.block}]", f"[0,{dtype.bytes}]")),
                bytes(dtype.bytes),
            )
        )
    with pytest.raises(safetensors.SafetensorError, match="unknown variant") as caught:
        safetensors.deserialize(file(header(entry(dtype='"X"')), b"x"))
    assert set(re.findall("`([A-Z0-9_]+)`", str(caught.value))) - {"X"} == PLAIN.keys()


def test_files_of_the_reference_are_read(tmp_path: Path) -> None:
    import numpy as np

    arrays = {
        f"layers.{i}.w": np.full((i, 3), i, kind)
        for i in range(4)
        for kind in ("float32", "int8", "bool")
    }
    data = numpy.save(
        arrays | {"scalar": np.array(7.0), "é\n\x1b": np.zeros(2, "uint16")},
        {"format": "np", "quoted": '"\\\n'},
    )
    manifest = read(Bytes(data))
    check_against_reference(data, manifest)
    check_metadata(data, manifest, tmp_path / "a.safetensors")


def test_header_is_read_in_two_reads() -> None:
    sizes = [1 << 40] * 300
    entries = [
        entry(f"t{i}", shape=f"[{n}]", offsets=f"[{i << 40},{i + 1 << 40}]")
        for i, n in enumerate(sizes)
    ]
    start = file(header(*entries))
    source = Sparse(start, len(start) + sum(sizes))
    assert len(read(source).tensors) == 300
    assert (source.calls, source.bytes) == (2, len(start))
    lying = Sparse((1 << 40).to_bytes(8, "little"), 1 << 62)
    assert refusal(lying).code == "header_length" and lying.bytes == 8


# hostile files


@each("name", HOSTILE)
@pytest.mark.slow
def test_a_hostile_file_is_refused(name: str) -> None:
    code, make = HOSTILE[name]
    data = make()
    error = within_calls(2_500_000, lambda: refusal(data))
    assert error.code == code, error
    assert (error.manifest is not None) == (code in LAYOUT and len(data) >= 8)
    assert len(str(error)) < 1500 and str(error).isprintable()
    if len(data) < 4 * MIB:
        assert (reference(data) is not None) == (name in STRICTER)


def test_corpus_of_hostile_files_is_large() -> None:
    assert len(HOSTILE) > 350 and len(FLOODS) > 20


@pytest.mark.parametrize("name", usual(*list(FLOODS)[::4], release=FLOODS))
@pytest.mark.slow
def test_huge_headers_use_little_memory(name: str) -> None:
    source = Bytes(HOSTILE[name][1]())
    assert peak_bytes(lambda: attempt(source)) < 160 * MIB


@pytest.mark.slow
def test_largest_header_costs_few_calls() -> None:
    form = '"%06d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    data = file("{" + ",".join(form % i for i in range(1 << 18)) + "}")
    assert (
        len(within_calls(20_000, lambda: read(Bytes(data))).tensors) == 1 << 18
    )  # callbacks of the collector count as calls
    values = file('{"__metadata__":{"\U0001f999":"' + "a" * (MAX_HEADER - 40) + '"}}')
    assert peak_bytes(lambda: read(Bytes(values))) < 200 * MIB


def test_every_prefix_is_refused() -> None:
    data = valid()
    for size in range(len(data)):
        error = refusal(data[:size])
        assert error.code == (
            "truncated" if size < 8 or size >= len(data) - 38 else "header_length"
        )
        if size >= len(data) - 38:
            assert f"is {len(data) - size} bytes short" in str(error)


def test_flipped_bits_are_refused_or_agree_with_the_reference() -> None:
    data = valid()
    accepted = 0
    for bit in range(len(data) * 8):
        flipped = flip(data, bit)
        outcome = attempt(flipped)
        if isinstance(outcome, Manifest):
            check_against_reference(flipped, outcome)
            accepted += 1
    assert accepted > 38 * 8


LAYOUT = {"hole", "overlap", "truncated", "trailing"}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, (code, _) in HOSTILE.items()
        if code in LAYOUT and not name.startswith("file of")
    ],
)
def test_position_errors_carry_the_manifest(name: str) -> None:
    data = HOSTILE[name][1]()
    manifest = refusal(data).manifest
    assert isinstance(manifest, Manifest)
    base = manifest.files[0].header_bytes
    entries = json.loads(data[8:base])
    entries.pop("__metadata__", None)
    assert entries == {
        x.name: {
            "dtype": x.dtype,
            "shape": [*x.shape],
            "data_offsets": [x.start - base, x.end - base],
        }
        for x in manifest.tensors
    }


def test_truncated_file_error_counts_the_missing_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file(header(entry(shape="[5000]", offsets="[0,5000]")), bytes(3766)))
    with LocalFile(path) as source:
        error = refusal(source)
    assert str(error).startswith(f"{path} is 1,234 bytes short: a ends at byte ")


def test_untrusted_text_is_escaped() -> None:
    for name in ("name with terminal escapes", "name that turns the line round"):
        manifest = read(Bytes(ODD[name]()))
        assert safe(manifest.tensors[0].name).isprintable()


# the reference


def compare_readers(files: Callable[[], bytes], count: int, path: Path) -> Counter[str]:
    """Read this many files with both readers; return the counts of the outcomes."""
    seen: Counter[str] = Counter()
    for i in range(count):
        data = files()
        outcome = attempt(data)
        seen[outcome.code if isinstance(outcome, FormatError) else "read"] += 1
        if isinstance(outcome, Manifest):
            check_against_reference(data, outcome)
            if i % 40 == 0:
                check_metadata(data, outcome, path)
    return seen


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_accepted_files_equal_the_reference(
    seed: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count = 50_000 if request.config.getoption("all") else 10_000
    seen = compare_readers(mutants(seed).__next__, count, tmp_path / "a.safetensors")
    assert seen["read"] > 2000 and len(seen) > 7


NAMES = st.text(max_size=8)


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Mostly valid files, as `json` writes them; in some of them one byte is changed."""
    at, entries = 0, dict[str, object]()
    if draw(st.booleans()):
        entries["__metadata__"] = draw(st.dictionaries(NAMES, NAMES, max_size=3))
    for name in draw(st.lists(NAMES, max_size=4, unique=True)):
        dtype = PLAIN[draw(st.sampled_from([*PLAIN]))]
        shape = [dtype.block, *draw(st.lists(st.integers(0, 4), max_size=3))]
        size = dtype.size(shape[0])
        for n in shape[1:]:
            size *= n
        entries[name] = {"dtype": dtype.name, "shape": shape, "data_offsets": [at, at := at + size]}
    space = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n")]))
    text = json.dumps(entries, ensure_ascii=draw(st.booleans()), separators=space)
    data = bytearray(file(text.encode("utf-8", "surrogatepass"), bytes(i % 251 for i in range(at))))
    if draw(st.integers(0, 3)) == 0:
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@settings(max_examples=500, deadline=None)
@given(files())
@pytest.mark.slow
def test_json_written_headers_equal_the_reference(data: bytes) -> None:
    outcome = attempt(data)
    if isinstance(outcome, Manifest):
        check_against_reference(data, outcome)
    else:
        assert reference(data) is None or outcome.code in ("duplicate", "header_text")


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", file("{}")[:9], valid()[:100], valid()]))
@pytest.mark.slow
def test_random_bytes_give_a_manifest_or_an_error(data: bytes, start: bytes) -> None:
    outcome = attempt(start + data)
    if isinstance(outcome, Manifest):
        check_against_reference(start + data, outcome)


def test_generated_files_are_distinct() -> None:
    assert len(set(islice(mutants(7), 2000))) > 1700


@pytest.mark.parametrize("k", range(3))
def test_header_whose_length_begins_like_a_pickle_is_read(k: int, tmp_path: Path) -> None:
    length = 640 + 65_536 * k  # its first two bytes are 80 02, as those of a pickle
    path = tmp_path / "model.safetensors"
    path.write_bytes(file(header(entry()).ljust(length), b"x"))
    assert path.read_bytes()[:2] == b"\x80\x02"
    assert [x.name for x in read_checkpoint(str(path)).tensors] == ["a"]


@pytest.mark.parametrize(
    "shape",
    [
        "[" + " " * 1_000_000 + "1 1]",
        "[1" + " ,1" * 400_000 + "]",
        "[1" + "\n" * 1_000_000 + "]" + "]",
        "[" + "1" * 1_000_000,
        "[" * 1_000_000,
    ],
    ids=lambda x: x[:4].strip(),
)
def test_malformed_shape_of_any_length_costs_few_calls(shape: str) -> None:
    data = file(header(entry(shape=shape)), b"x")
    assert within_calls(50_000, lambda: attempt(data)).code == "header_text"  # type: ignore[union-attr]
