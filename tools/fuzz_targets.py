"""Fuzz targets: for every reader of untrusted bytes, its seeds, its dictionary, and a run that ends in a result or a LlamathError.

An input may begin with a byte that says how the rest is wrapped, so that checksums and lengths which a mutation breaks are made good.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from support import hostile_gguf, hostile_index, hostile_pth, hostile_safetensors  # noqa: E402

MAX_BYTES = 8192
"""Bytes of an input; what only long ones could do is in the hostile corpora."""


class Differs(Exception):
    """A file that is read here and not, or otherwise, by the reference."""


class Target(NamedTuple):
    """One reader."""

    modules: tuple[str, ...]  # what to watch for coverage
    seeds: Callable[[], Iterator[bytes]]
    words: Callable[[], Iterable[bytes]]
    run: Callable[[bytes], object]
    json: bool = False  # whether tokens, not only bytes, are worth exchanging
    packages: tuple[str, ...] = ()  # references that it is compared with


def _made(corpora: Iterable[Iterable[bytes | Callable[[], bytes]]], wraps: int) -> Iterator[bytes]:
    """Every short file of the corpora behind each of the bytes that say how it is wrapped."""
    for corpus in corpora:
        for seed in corpus:
            data = seed() if callable(seed) else seed
            if len(data) < MAX_BYTES:
                yield from (bytes([i]) + data for i in range(wraps))


# safetensors: as it is, or a header whose length is right and whose data are there

_ENDS = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d+\s*,\s*(\d{1,4})\s*\]')


def _safetensors_seeds() -> Iterator[bytes]:
    files = [*(make for _, make in hostile_safetensors.hostile().values()), *hostile_safetensors.odd().values()]
    for data in (make() for make in files):
        if len(data) < MAX_BYTES:
            yield from (b"\0" + data, b"\1" + data[8:])
    yield from (b"\0" + data for data in islice(hostile_safetensors.mutants(0), 300))


def _safetensors(data: bytes) -> object:
    import safetensors

    from llamath.checkpoint.formats.safetensors import read
    from llamath.checkpoint.formats.source import Bytes

    wrap, data = data[:1], data[1:]
    if wrap == b"\1":
        end = max(map(int, _ENDS.findall(data)), default=0)
        data = hostile_safetensors.file(data, bytes(i % 251 for i in range(end)))
    manifest = read(Bytes(data))
    try:
        theirs = safetensors.deserialize(data)
    except safetensors.SafetensorError as error:
        raise Differs(f"safetensors refuses: {error}") from None
    same = sorted((name, x["dtype"], tuple(x["shape"]), bytes(x["data"])) for name, x in theirs)
    if same != sorted((x.name, x.dtype, x.shape, data[x.start : x.end]) for x in manifest.tensors):
        raise Differs("safetensors reads something else")
    return manifest


# GGUF: as it is, or with zeros after it


def _gguf_seeds() -> Iterator[bytes]:
    whole = [hostile_gguf.valid(version, order).bytes() for version in (2, 3) for order in "<>"]
    return _made(([make for _, make in hostile_gguf.hostile().values()], hostile_gguf.odd().values(), whole), 2)


def _gguf(data: bytes) -> object:
    from llamath.checkpoint.formats.gguf import Array, read, values
    from llamath.checkpoint.formats.source import Bytes

    source = Bytes(data[1:] + bytes(4096 if data[:1] == b"\1" else 0))
    manifest = read(source)
    for value in manifest.metadata.values():
        if isinstance(value, Array):
            for _ in islice(values(source, value), 1000):
                pass
    for x in manifest.tensors:
        if not 0 <= x.start <= x.end <= source.size:
            raise Differs(f"a tensor's bytes {x.start} to {x.end} are not in the file")
    return manifest


# torch: as it is, or a pickle stream in a sound archive, or in the older container


def _pth_seeds() -> Iterator[bytes]:
    yield from _made([(data for data, _ in {**hostile_pth.archives(), **hostile_pth.old()}.values())], 1)
    streams = [hostile_pth.VALID, hostile_pth.VALID_OLD, *(data for data, _ in hostile_pth.streams().values())]
    yield from (bytes([i]) + data for data in streams if len(data) < MAX_BYTES for i in (1, 2))
    yield from (b"\0" + data for data in (hostile_pth.zipped(hostile_pth.VALID), hostile_pth.legacy(hostile_pth.VALID_OLD)))


def _pth(data: bytes) -> object:
    from llamath.checkpoint.formats.source import Bytes
    from llamath.checkpoint.formats.torch_checkpoint import read

    wrap, data = data[:1], data[1:]
    if wrap in (b"\1", b"\2"):
        data = hostile_pth.zipped(data, {"0": hostile_pth.SIX, "1": b""}) if wrap == b"\1" else hostile_pth.legacy(data)
    manifest = read(Bytes(data))
    for x in manifest.tensors:
        if not 0 <= x.start <= x.end <= len(data):
            raise Differs(f"a tensor's bytes {x.start} to {x.end} are not in the file")
    return manifest


def _pth_words() -> Iterator[bytes]:
    from llamath.checkpoint.formats import torch_objects as rebuild

    yield from (hostile_pth.named(name) for name in (*rebuild.CALLS, *rebuild.STORAGES, *rebuild.DTYPES))
    yield from (hostile_pth.storage(), hostile_pth.HOOKS, hostile_pth.PROTO, b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\6\7")


# indexes and configurations: JSON


def _index_seeds() -> Iterator[bytes]:
    return (
        data
        for data in (make() for make in [*(x for _, x in hostile_index.hostile().values()), *hostile_index.odd().values()])
        if len(data) < MAX_BYTES
    )


def _index(data: bytes) -> object:
    from llamath.checkpoint.formats.checkpoint_files import read_index
    from llamath.checkpoint.formats.folder import Folder, check_file_name
    from llamath.checkpoint.formats.source import Bytes, Source
    from llamath.core.strict_json import parse_json

    class Memory(Folder):
        """A folder of one shard."""

        name = "memory"

        def open(self, name: str) -> Source | None:
            return Bytes(hostile_safetensors.valid(), name) if check_file_name(name) == hostile_index.SHARD else None

        def json(self, name: str) -> dict[str, Any]:
            return parse_json(data, name)

    folder = read_index(Memory(), "x.index.json")
    for name in folder.index.weight_map.values():
        if any(x in "/\\:" or unicodedata.category(x) in ("Cc", "Cs") for x in name) or name in ("", ".", ".."):
            raise Differs(f"the shard {name!r} was taken for a plain name")
    return folder


def _configs() -> Iterator[Mapping[str, Any]]:
    for path in sorted((TESTS / "tiny").glob("*.json")):
        yield from json.loads(path.read_text()).values()
    yield {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 128, "multiple_of": 16, "norm_eps": 1e-5}


def _config_seeds() -> Iterator[bytes]:
    return (json.dumps(config).encode() for config in _configs())


def _config_words() -> Iterator[bytes]:
    names: set[str] = set()
    for config in _configs():
        names |= {json.dumps(x) for x in config} | {json.dumps(x) for x in config.values()}
    yield from (x.encode() for x in sorted(names))
    yield from _odd_words()


def _config(data: bytes) -> object:
    from llamath.core.strict_json import parse_json
    from llamath.loading import load

    model = load(parse_json(data, "fuzz"))
    return model.parameters.total, list(model.config.unread())


# sums: text; values: a dtype, a shape, and bytes that arrive in pieces


def _sums_seeds() -> Iterator[bytes]:
    digest = "0123456789abcdef" * 4
    lines = (f"{digest}  a.bin", f"{digest} *./b c", f"SHA256 (d) = {digest}", f"SHA256 (e) = f) = {digest}", "# x", "", digest)
    yield from (f"{x}\n{y}\n".encode() for x in lines for y in lines)


def _sums(data: bytes) -> object:
    from llamath.checkpoint.file_sums import parse_sums
    from llamath.core.errors import FormatError

    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise FormatError("utf8", "not text") from None
    sums = parse_sums(text, "fuzz")
    if not all(name and len(x) == 64 and set(x) <= set("0123456789abcdef") for name, x in sums.items()):
        raise Differs(f"malformed sums were read: {sums}")
    return sums


_VALUE_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "", "F8_E4M3": "", "F8_E5M2": "", "F8_E4M3FNUZ": "", "U8": "u1"}


def _values_seeds() -> Iterator[bytes]:
    for kind in range(len(_VALUE_TYPES)):
        for width in (1, 3, 16, 40):
            yield bytes((kind, width, 7)) + bytes(range(256)) * 3
            yield bytes((kind, width, 1)) + b"\xff\x7f\x00\x00" * 100 + bytes(400)


def _float_words() -> Iterator[bytes]:
    """Bit patterns around the largest finite numbers, zeros, and the smallest numbers."""
    for x in (0x7F, 0x80, 0xFF, 0x7C00, 0x7BFF, 0xFC00, 0x7F80, 0x7F7F, 0xFF80, 0x8000, 1, 0x7F800000, 0xFF7FFFFF, 0x80000000):
        yield x.to_bytes(4, "little").rstrip(b"\0") * 3
    yield from (b"\0" * 64, b"\0\0\0\0\0\0\xf0\x7f", b"\xff\xff\xff\xff\xff\xff\xef\xff")


def _values(data: bytes) -> object:
    import numpy as np

    from llamath.checkpoint.formats.dtypes import PLAIN
    from llamath.checkpoint.formats.manifest import Tensor
    from llamath.checkpoint.formats.number_arrays import float8_table
    from llamath.checkpoint.tensor_stats import TensorStats
    from llamath.core.errors import FormatError

    if len(data) < 16:
        raise FormatError("short", "too short")
    dtype, width, step, data = list(_VALUE_TYPES)[data[0] % len(_VALUE_TYPES)], 1 + data[1] % 64, 1 + data[2], data[3:]
    rows = len(data) // (width * PLAIN[dtype].bytes)
    data = bytearray(data[: rows * width * PLAIN[dtype].bytes])
    if not rows:
        raise FormatError("short", "no whole row")
    stats = TensorStats(Tensor("x", dtype, (rows, width), 0, 0, len(data)), dtype if dtype != "U8" else "packed")
    for at in range(0, len(data), step):
        stats.feed(memoryview(data)[at : at + step])
    stats.finish()
    if dtype == "BF16":
        values = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    elif dtype.startswith("F8_"):
        values = float8_table(dtype)[np.frombuffer(data, "u1")]
    else:
        values = np.frombuffer(data, _VALUE_TYPES[dtype])
    with np.errstate(all="ignore"):
        values = values.astype("f8")
        is_zero = not (values != 0).any()
        norm = float(np.linalg.norm(values / max(1e-300, float(np.abs(values).max())))) * float(np.abs(values).max())
    if dtype == "U8":
        return stats.complete
    found = stats.nan, stats.infinite, stats.is_zero
    expected = int(np.isnan(values).sum()), int(np.isinf(values).sum()), is_zero
    if found != expected:
        raise Differs(f"{dtype}: found {found}, numpy {expected}")
    if not any(expected[:2]) and 1e-150 < norm < 1e150 and abs(stats.norm() - norm) > 1e-3 * norm:
        raise Differs(f"{dtype}: the norm is {stats.norm()}, numpy {norm}")
    return found


_ODD = '{ } [ ] : , 0 1 2 3 7 64 -1 1.5 1e999 1e-9 true false null "" "a" "\\ud800" {} [] [0] {"a":1}'.split()
_ODD += [str(2**63), str(2**64), "9" * 40, '"' + "n" * 300 + '"', '"../x"', '"\\u001b[2J"', " ", "\n"]


def _odd_words() -> Iterable[bytes]:
    return (x.encode() for x in _ODD)


def _fields() -> Iterator[bytes]:
    yield from (f'"{x}"'.encode() for x in "dtype shape data_offsets __metadata__ U8 F32 F4 F6_E2M3 BOOL C64".split())
    yield from (b"[0,1]", b"[1]", b"[]", b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}', *_odd_words())


def _kinds() -> Iterator[bytes]:
    yield from (b"general.alignment", b"split.no", b"split.count", b"GGUF", b"\2\0\0\0", b"\3\0\0\0", b"\0\0\0\3")
    yield from (i.to_bytes(size, order) for i in (0, 1, 8, 9, 32, 2**31, 2**32 - 1) for size in (4, 8) for order in ("little", "big"))
    yield from ((2**64 - i).to_bytes(8, "little") for i in (1, 8, 32, 1 << 63))


_FORMATS, _JSON = "llamath.checkpoint.formats.", ("llamath.core.strict_json",)
TARGETS = {
    "safetensors": Target((f"{_FORMATS}safetensors",), _safetensors_seeds, _fields, _safetensors, json=True, packages=("safetensors",)),
    "gguf": Target((f"{_FORMATS}gguf", f"{_FORMATS}source"), _gguf_seeds, _kinds, _gguf),
    "pth": Target(
        tuple(_FORMATS + x for x in ("torch_checkpoint", "torch_zip", "pickle_reader", "torch_objects")), _pth_seeds, _pth_words, _pth
    ),
    "index": Target((*_JSON, f"{_FORMATS}checkpoint_files", f"{_FORMATS}folder"), _index_seeds, _odd_words, _index, json=True),
    "sums": Target(("llamath.checkpoint.file_sums",), _sums_seeds, lambda: (b"SHA256 (", b") = ", b"  ", b" *", b"./"), _sums),
    "values": Target(("llamath.checkpoint.tensor_stats",), _values_seeds, _float_words, _values, packages=("numpy",)),
    "config": Target(
        (*_JSON, "llamath.core.config", "llamath.loading", "llamath.checkpoint.meta_args", "llamath.families"),
        _config_seeds,
        _config_words,
        _config,
        json=True,
    ),
}
