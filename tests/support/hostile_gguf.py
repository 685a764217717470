"""GGUF bytes written by hand: a writer of inconsistent files, a valid file, a corpus of hostile ones, and unusual ones that must be read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Self

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
TOP = (1 << 64) - 1
HALF = 1 << 63


class Gguf:
    """A file assembled field by field without checks."""

    def __init__(self, version: int = 3, order: str = "<", align: int = 32) -> None:
        self.version, self.order, self.align = version, order, align
        self.keys: list[bytes] = []
        self.tensors: list[bytes] = []
        self.size = 0

    def pack(self, codes: str, *values: float) -> bytes:
        return struct.pack(self.order + codes, *values)

    def string(self, value: str | bytes, length: int | None = None) -> bytes:
        data = value.encode() if isinstance(value, str) else value
        return self.pack("Q", len(data) if length is None else length) + data

    def key(self, name: str | bytes, kind: int, payload: bytes, length: int | None = None) -> Self:
        self.keys.append(self.string(name, length) + self.pack("I", kind) + payload)
        return self

    def number(self, name: str, kind: int, value: float) -> Self:
        return self.key(name, kind, self.pack("BbHhIifB  Qqd"[kind], value))

    def text(self, name: str, value: str | bytes, length: int | None = None) -> Self:
        return self.key(name, STR, self.string(value, length))

    def array(self, name: str, kind: int, payload: bytes, count: int) -> Self:
        return self.key(name, ARR, self.pack("IQ", kind, count) + payload)

    def texts(self, name: str, *values: str | bytes) -> Self:
        return self.array(name, STR, b"".join(map(self.string, values)), len(values))

    def tensor(
        self,
        name: str | bytes,
        *dims: int,
        kind: int = 0,
        offset: int | None = None,
        size: int = 32,
    ) -> Self:
        """`dims` as in the file, innermost first; `size` is the increment of the running offset."""
        shape = self.pack(f"I{len(dims)}Q", len(dims), *dims)
        self.tensors.append(
            self.string(name)
            + shape
            + self.pack("IQ", kind, self.size if offset is None else offset)
        )
        self.size += size + -size % self.align
        return self

    def raw(self, tensor: bytes) -> Self:
        self.tensors.append(tensor)
        return self

    def header(self, tensors: int | None = None, keys: int | None = None) -> bytes:
        counts = (
            len(self.tensors) if tensors is None else tensors,
            len(self.keys) if keys is None else keys,
        )
        return (
            b"GGUF"
            + self.pack("IQQ", self.version, *counts)
            + b"".join(self.keys)
            + b"".join(self.tensors)
        )

    def bytes(self, tensors: int | None = None, keys: int | None = None) -> bytes:
        header = self.header(tensors, keys)
        return header + bytes(-len(header) % self.align + self.size) if self.tensors else header


def valid(version: int = 3, order: str = "<") -> Gguf:
    """Return a file with a value of every type; its last byte belongs to a tensor."""
    file = (
        Gguf(version, order)
        .text("general.architecture", "llama")
        .number("general.alignment", U32, 32)
    )
    for kind, value in {
        U8: 255,
        I8: -128,
        U16: 65535,
        I16: -32768,
        U32: 4096,
        I32: -7,
        F32: 0.5,
        U64: TOP,
        I64: -HALF,
        F64: 1e-5,
    }.items():
        file.number(f"n.{kind}", kind, value)
    file.number("yes", BOOL, 1).texts("tokens", "<s>", "", "é", b"\xff").array(
        "types", I32, file.pack("3i", 3, 1, -1), 3
    )
    file.array("flags", BOOL, b"\0\1", 2).array("none", F64, b"", 0)
    file.tensor("token_embd.weight", 32, 3, kind=8, size=102).tensor(
        "blk.0.ffn_up_exps.weight", 4, 2, 2, 3, size=192
    )
    return file.tensor("scalar", kind=24, size=1).tensor("output_norm.weight", 8, size=32)


def hostile() -> dict[str, tuple[str, Callable[[], bytes]]]:
    """Return for each name the expected error code and the bytes."""
    return (
        _preambles()
        | _keys()
        | _values()
        | _arrays()
        | _alignments()
        | _names()
        | _shapes()
        | _offsets()
    )


def _preambles() -> dict[str, tuple[str, Callable[[], bytes]]]:
    whole = valid().bytes()
    little, big = valid().header(), valid(order=">").header()
    counts = Gguf().header
    starts = {
        "empty file": b"",
        "one byte": b"G",
        "three bytes": b"GGU",
        "lower case": b"gguf",
        "reversed": b"FUGG",
        "ggjt": b"tjgg\3\0\0\0",
        "zip": b"PK\3\4" + bytes(60),
        "lfs pointer": b"version https://git-lfs.github.com/spec/v1\n",
        "safetensors": b"\x40\0\0\0\0\0\0\0{}",
        "elf": b"\x7fELF" + bytes(60),
        "zeros": bytes(64),
    }
    versions = {
        "0": 0,
        "1": 1,
        "4": 4,
        "2^16": 1 << 16,
        "2^24": 1 << 24,
        "2^31": 1 << 31,
        "2^32-1": (1 << 32) - 1,
        "0x0202": 0x0202,
    }
    return {
        **{f"magic: {name}": ("magic", lambda data=data: data) for name, data in starts.items()},
        **{
            f"version {name}": ("version", lambda v=v: b"GGUF" + struct.pack("<I", v) + whole[8:])
            for name, v in versions.items()
        },
        "version 1, big endian": ("version", lambda: Gguf(1, ">").bytes()),
        "version 4, big endian": ("version", lambda: Gguf(4, ">").bytes()),
        "magic and nothing": ("truncated", lambda: b"GGUF"),
        "23 bytes": ("truncated", lambda: whole[:23]),
        "little version, big rest": ("count", lambda: little[:8] + big[8:]),
        "big version, little rest": ("count", lambda: big[:8] + little[8:]),
        "little counts, big keys": ("key", lambda: little[:24] + big[24:]),
        "big counts, little keys": ("key", lambda: big[:24] + little[24:]),
        "tensor count 2^63": ("count", lambda: counts(tensors=HALF)),
        "tensor count 2^64-1": ("count", lambda: counts(tensors=TOP)),
        "tensor count 2^32": ("count", lambda: counts(tensors=1 << 32)),
        "key count 2^63": ("count", lambda: counts(keys=HALF)),
        "key count 2^64-1": ("count", lambda: counts(keys=TOP)),
        "both counts 2^64-1": ("count", lambda: counts(TOP, TOP)),
        "counts that wrap to nothing": ("count", lambda: counts(tensors=TOP // 24 + 1)),
        "one key where nothing fits": ("count", lambda: counts(keys=1)),
        "one tensor where nothing fits": ("count", lambda: counts(tensors=1)),
        "one key too many": ("name", lambda: valid().bytes(keys=len(valid().keys) + 1)),
        "one key too few": ("dims", lambda: Gguf().text("a", "b").tensor("t", 8).bytes(keys=0)),
        "one tensor too many": ("duplicate_tensor", lambda: Gguf().tensor("", 8).bytes(tensors=2)),
        "more keys than any model has": (
            "too_large",
            lambda: Gguf().header(keys=1 << 17) + bytes(14 << 17),
        ),
        "more tensors than any model has": (
            "too_large",
            lambda: Gguf().header(tensors=1 << 19) + bytes(24 << 19),
        ),
    }


def _keys() -> dict[str, tuple[str, Callable[[], bytes]]]:
    def named(name: bytes, length: int | None = None) -> Callable[[], bytes]:
        return lambda: Gguf().key(name, U8, b"\1", length).bytes() + bytes(32)

    bad = {
        "latin-1": b"caf\xe9",
        "overlong": b"\xc0\x80",
        "surrogate": b"\xed\xa0\x80",
        "cut": b"\xf0\x9f\xa6",
        "byte order mark of UTF-16": b"\xff\xfeA\0",
    }
    return {
        **{
            f"key in {name}": ("nul" if b"\0" in data else "utf8", named(data))
            for name, data in bad.items()
        },
        "key empty": ("key", named(b"")),
        "key of 65,536 bytes": ("key", named(b"k" * 65_536)),
        "key length 2^63": ("key", named(b"k", HALF)),
        "key length 2^64-1": ("key", named(b"k", TOP)),
        "key length beyond the end": ("truncated", named(b"k", 60_000)),
        "key with NUL": ("nul", named(b"general.alignment\0x")),
        "key ends in NUL": ("nul", named(b"general.name\0")),
        "key twice": (
            "duplicate_key",
            lambda: Gguf().number("a", U8, 1).number("a", U8, 1).bytes(),
        ),
        "key twice, of two types": (
            "duplicate_key",
            lambda: Gguf().number("a", U8, 1).text("b", "").text("a", "x").bytes(),
        ),
        "alignment twice": (
            "duplicate_key",
            lambda: (
                Gguf()
                .number("general.alignment", U32, 32)
                .number("general.alignment", U32, 64)
                .bytes()
            ),
        ),
        "keys of 65,535 bytes, 17 MB of them": ("too_large", lambda: _many_long_keys().bytes()),
    }


def _many_long_keys() -> Gguf:
    file = Gguf()
    for index in range(260):
        file.number(f"{index:065535d}", U8, 0)
    return file


def _values() -> dict[str, tuple[str, Callable[[], bytes]]]:
    def typed(kind: int) -> Callable[[], bytes]:
        return lambda: Gguf().key("a", kind, bytes(64)).bytes()

    def string(length: int) -> Callable[[], bytes]:
        return lambda: Gguf().text("a", "x" * 40, length).bytes()

    lengths = {"2^63": HALF, "2^64-1": TOP, "2^64-8": TOP - 7, "2^32": 1 << 32, "one too long": 41}
    types = {
        "13": 13,
        "255": 255,
        "2^31": 1 << 31,
        "2^32-1": (1 << 32) - 1,
        "big-endian 8": 8 << 24,
    }
    return {
        **{f"value type {name}": ("value_type", typed(kind)) for name, kind in types.items()},
        **{
            f"string length {name}": ("truncated", string(length))
            for name, length in lengths.items()
        },
        "number cut": ("truncated", lambda: Gguf().number("abc", U64, 1).bytes()[:-1]),
        "boolean 2": ("bool", lambda: Gguf().key("a", BOOL, b"\2").bytes()),
        "boolean 255": ("bool", lambda: Gguf().key("a", BOOL, b"\xff").bytes()),
        "split.no is UINT32": ("key_type", lambda: Gguf().number("split.no", U32, 0).bytes()),
        "split.count is INT32": ("key_type", lambda: Gguf().number("split.count", I32, 2).bytes()),
        "split.count is a string": ("key_type", lambda: Gguf().text("split.count", "2").bytes()),
        "split.tensors.count is UINT64": (
            "key_type",
            lambda: Gguf().number("split.tensors.count", U64, 2).bytes(),
        ),
    }


def _arrays() -> dict[str, tuple[str, Callable[[], bytes]]]:
    def array(kind: int, count: int, payload: bytes = bytes(64)) -> Callable[[], bytes]:
        return lambda: Gguf().array("a", kind, payload, count).bytes()

    def strings(*lengths: int) -> Callable[[], bytes]:
        return array(
            STR, len(lengths), b"".join(Gguf().string(b"xy", length) for length in lengths)
        )

    def nested(depth: int) -> bytes:
        return struct.pack("<IQ", ARR, 1) * depth + struct.pack("<IQB", U8, 1, 0)

    return {
        **{
            f"array of type {kind}": ("value_type", array(kind, 1))
            for kind in (13, 255, 1 << 31, (1 << 32) - 1)
        },
        **{
            f"array of 2^64-1, type {kind}": ("count", array(kind, TOP))
            for kind in (U8, BOOL, F32, STR, U64)
        },
        **{f"array of 2^63, type {kind}": ("count", array(kind, HALF)) for kind in (U8, STR, F64)},
        "array of 2^61 numbers, whose bytes wrap to 0": ("count", array(U64, 1 << 61)),
        "array of 2^30+1 bytes": ("count", array(U8, (1 << 30) + 1)),
        "array of 2^30 bytes": ("truncated", array(U8, 1 << 30)),
        "array one byte too long": ("truncated", array(U8, 65)),
        "array one number too long": ("truncated", array(F64, 9)),
        "array of more strings than bytes": ("truncated", array(STR, 9)),
        "array of arrays": ("nested_array", array(ARR, 1, nested(0))),
        "array of no arrays": ("nested_array", array(ARR, 0)),
        "arrays nested 100,000 deep": ("nested_array", array(ARR, 1, nested(100_000))),
        "array of 2^63 arrays": ("nested_array", array(ARR, HALF)),
        "array of booleans with a 2": ("bool", array(BOOL, 3, b"\0\1\2")),
        "string in an array of 2^63 bytes": ("truncated", strings(2, 2, HALF, 2)),
        "string in an array of 2^64-1 bytes": ("truncated", strings(2, TOP, 2)),
        "string in an array of 2^64-8 bytes, which wraps to itself": (
            "truncated",
            strings(2, TOP - 7, 2),
        ),
        "string in an array that leads back": ("truncated", strings(2, TOP - 17, 2)),
        "string in an array one byte too long": ("truncated", strings(2, 2, 3)),
        "late string in an array of 2^63 bytes": ("truncated", strings(*[2] * 600, HALF, 2)),
        "late string in an array of 2^63-1 bytes": ("truncated", strings(*[2] * 600, HALF - 1, 2)),
        "late string in an array of 2^64-8 bytes": ("truncated", strings(*[2] * 600, TOP - 7, 2)),
        "late string in an array one byte too long": ("truncated", strings(*[2] * 600, 3)),
        "more strings than any vocabulary": (
            "too_large",
            lambda: Gguf().array("a", STR, bytes(8 << 22) + bytes(8), (1 << 22) + 1).bytes(),
        ),
    }


def _alignments() -> dict[str, tuple[str, Callable[[], bytes]]]:
    def aligned(kind: int, value: float) -> Callable[[], bytes]:
        return lambda: (
            Gguf().number("general.alignment", kind, value).tensor("t", 8).bytes() + bytes(64)
        )

    kinds = {
        "UINT8": U8,
        "INT8": I8,
        "UINT16": U16,
        "INT32": I32,
        "FLOAT32": F32,
        "BOOL": BOOL,
        "UINT64": U64,
        "FLOAT64": F64,
    }
    return {
        **{
            f"alignment {value}": ("alignment", aligned(U32, value))
            for value in (0, 3, 6, 31, 33, 48, (1 << 31) + 1, (1 << 32) - 1)
        },
        **{
            f"alignment of type {name}": ("key_type", aligned(kind, 1))
            for name, kind in kinds.items()
        },
        "alignment 2^31": ("truncated", aligned(U32, 1 << 31)),
        "alignment 2^16, file too short": ("truncated", aligned(U32, 1 << 16)),
        "alignment of type STRING": (
            "key_type",
            lambda: Gguf().text("general.alignment", "32").bytes(),
        ),
        "alignment of type ARRAY": (
            "key_type",
            lambda: Gguf().array("general.alignment", U32, bytes(4), 1).bytes(),
        ),
        "alignment last": (
            "misaligned",
            lambda: (
                Gguf().tensor("a", 8).tensor("b", 8).number("general.alignment", U32, 64).bytes()
            ),
        ),
    }


def _names() -> dict[str, tuple[str, Callable[[], bytes]]]:
    def named(*names: bytes) -> Callable[[], bytes]:
        file = Gguf()
        for name in names:
            file.tensor(name, 8)
        return file.bytes

    def length(value: int) -> Callable[[], bytes]:
        return lambda: Gguf().tensor("t", 8).raw(struct.pack("<Q", value) + bytes(64)).bytes()

    return {
        "tensor name of 64 bytes": ("name", named(b"n" * 64)),
        "tensor name of 64 bytes in 16 letters": ("name", named("🦙".encode() * 16)),
        "tensor name of 1 MB": ("name", named(b"n" * 1_000_000)),
        "tensor name length 2^63": ("name", length(HALF)),
        "tensor name length 2^64-1": ("name", length(TOP)),
        "tensor name not UTF-8": ("utf8", named(b"blk.\xff.weight")),
        "tensor name with surrogates": ("utf8", named(b"\xed\xb0\x80")),
        "tensor name with NUL": ("nul", named(b"a\0b")),
        "tensor name of one NUL": ("nul", named(b"\0")),
        "tensor names that a NUL makes equal": ("nul", named(b"a", b"a\0b")),
        "tensor twice": ("duplicate_tensor", named(b"a", b"a")),
        "tensor twice, far apart": (
            "duplicate_tensor",
            named(b"a", *(b"%d" % i for i in range(50)), b"a"),
        ),
        "tensor twice, no name": ("duplicate_tensor", named(b"", b"")),
    }


def _shapes() -> dict[str, tuple[str, Callable[[], bytes]]]:
    def shaped(*dims: int, kind: int = 0) -> Callable[[], bytes]:
        return lambda: Gguf().tensor("t", *dims, kind=kind).bytes() + bytes(4096)

    def dimensions(count: int) -> Callable[[], bytes]:
        return lambda: Gguf().raw(Gguf().string("t") + struct.pack("<I", count) + bytes(64)).bytes()

    dropped = (4, 5, 31, 32, 33, 36, 37, 38)
    return {
        **{
            f"{count} dimensions": ("dims", dimensions(count))
            for count in (5, 6, 255, 1 << 31, (1 << 32) - 1)
        },
        **{f"dropped type {kind}": ("tensor_type", shaped(256, kind=kind)) for kind in dropped},
        **{
            f"unknown type {kind}": ("tensor_type", shaped(256, kind=kind))
            for kind in (43, 255, 1 << 24, 1 << 31, (1 << 32) - 1)
        },
        "dimension 0": ("dims", shaped(0)),
        "inner dimension 0": ("dims", shaped(0, 8)),
        "outer dimension 0": ("dims", shaped(8, 0)),
        "dimensions 0 and 2^63": ("dims", shaped(HALF, 0)),
        "dimension 2^63": ("overflow", shaped(HALF)),
        "dimension -1": ("overflow", shaped(TOP)),
        "dimensions -1 and -1": ("overflow", shaped(TOP, TOP)),
        "dimension 2^63-1": ("overflow", shaped(HALF - 1)),
        "dimensions whose product is 2^63": ("overflow", shaped(1 << 21, 1 << 21, 1 << 21)),
        "dimensions whose product wraps to 0": ("overflow", shaped(1 << 32, 1 << 32)),
        "dimensions whose product wraps to 8": (
            "overflow",
            shaped(8, (TOP // 3), 3 * (TOP // 3), 1),
        ),
        "dimensions whose bytes wrap to 0": ("overflow", shaped(1 << 62)),
        "dimensions far beyond the file": ("truncated", shaped(1 << 20, 1 << 20)),
        "one row beyond the file": ("truncated", shaped(8, 200)),
        "quantized row of 31": ("block", shaped(31, kind=2)),
        "quantized row of 33": ("block", shaped(33, kind=2)),
        "quantized row of 16, whole blocks in all": ("block", shaped(16, 4, kind=2)),
        "K-quant row of 128, whole blocks in all": ("block", shaped(128, 2, kind=12)),
        "K-quant row of 32": ("block", shaped(32, kind=12)),
        "NVFP4 row of 32": ("block", shaped(32, kind=40)),
        "Q1_0 row of 64": ("block", shaped(64, kind=41)),
        "quantized scalar": ("block", shaped(kind=8)),
    }


def _offsets() -> dict[str, tuple[str, Callable[[], bytes]]]:
    def placed(*offsets: int) -> Callable[[], bytes]:
        file = Gguf()
        for index, offset in enumerate(offsets):
            file.tensor(f"t{index}", 8, offset=offset)
        return lambda: file.bytes() + bytes(256)

    header = len(Gguf().tensor("t", 8).header())
    return {
        "offset 2^64-1": ("misaligned", placed(TOP)),
        "offset 2^64-32": ("gap", placed(TOP - 31)),
        "offset 2^63": ("gap", placed(HALF)),
        "offset 1": ("misaligned", placed(1)),
        "offset 16": ("misaligned", placed(0, 16)),
        "second offset 33": ("misaligned", placed(0, 33)),
        "second offset 2^64-32, which wraps before the data": ("gap", placed(0, TOP - 31)),
        "first tensor after a gap": ("gap", placed(32)),
        "second tensor after a gap": ("gap", placed(0, 64)),
        "two tensors in one place": ("overlap", placed(0, 0)),
        "third tensor over the second": ("overlap", placed(0, 32, 32)),
        "two tensors in the wrong order": ("gap", placed(32, 0)),
        "big-endian offset": ("gap", placed(0, 32 << 56)),
        "overlap by a long first tensor": (
            "overlap",
            lambda: Gguf().tensor("a", 9, size=36).tensor("b", 8, offset=32).bytes() + bytes(64),
        ),
        "no data": ("truncated", lambda: Gguf().tensor("t", 8).header()),
        "padding and no data": ("truncated", lambda: Gguf().tensor("t", 8).bytes()[:-32]),
        "padding cut": ("truncated", lambda: Gguf().tensor("t", 8).bytes()[: header + 1]),
        "last byte of the data missing": ("truncated", lambda: valid().bytes()[:-1]),
        "data where the header should be padded": (
            "truncated",
            lambda: Gguf().tensor("t", 8).header() + bytes(32),
        ),
    }


def odd() -> dict[str, bytes]:
    """Return by name the bytes that llama.cpp reads and that must be read here."""
    return {
        "nothing in it": Gguf().bytes(),
        "version 2": valid(2).bytes(),
        "version 2, big endian": valid(2, ">").bytes(),
        "version 3, big endian": valid(3, ">").bytes(),
        "keys only": Gguf().text("a", "b").bytes(),
        "alignment 2^31 and no tensors": Gguf().number("general.alignment", U32, 1 << 31).bytes(),
        "alignment 1": Gguf(align=1)
        .number("general.alignment", U32, 1)
        .tensor("a", 3, kind=24, size=3)
        .tensor("b", 1, kind=24, size=1)
        .bytes(),
        "alignment 4,096": Gguf(align=4096)
        .number("general.alignment", U32, 4096)
        .tensor("a", 3)
        .tensor("b", 1)
        .bytes(),
        "last tensor not padded": Gguf().tensor("a", 3, size=12).bytes()[:-20],
        "bytes after the last tensor": Gguf().tensor("a", 8).bytes() + b"trailer",
        "tensor without a name": Gguf().tensor("", 8).bytes(),
        "tensor name of 63 bytes": Gguf().tensor("n" * 63, 8).bytes(),
        "names with escapes": Gguf()
        .text("\x1b[2Jkey", "\x1b]0;title\x07")
        .tensor("\x1b[31mred\x1b[0m\r\n", 8)
        .bytes(),
        "names that turn the line round": Gguf()
        .text("\u202ekey", "\u2066x\u2069")
        .tensor("\u202egnp.exe\u2069", 8)
        .bytes(),
        "names in emoji": Gguf().text("🦙", "🦙").tensor("🦙" * 15, 8).bytes(),
        "key of 65,535 bytes": Gguf().number("k" * 65_535, U8, 1).bytes(),
        "string of 1 MB": Gguf().text("long", "x" * 1_000_000).number("after", U8, 7).bytes(),
        "string not UTF-8": Gguf().text("a", b"\xff\xfe\0caf\xe9").bytes(),
        "string of NULs": Gguf().text("a", b"\0" * 9).bytes(),
        "array of nothing": Gguf().array("a", STR, b"", 0).array("b", U64, b"", 0).bytes(),
        "array of 5,000 strings, some long": Gguf()
        .texts("a", *(b"x" * (i % 1500) for i in range(5000)))
        .number("after", U8, 7)
        .bytes(),
        "NaN and infinity": Gguf()
        .number("a", F32, float("nan"))
        .number("b", F64, float("-inf"))
        .bytes(),
        "four dimensions of one": Gguf().tensor("a", 1, 1, 1, 1, size=4).bytes(),
        "a path for a name": Gguf()
        .text("general.name", "../../etc/passwd")
        .tensor("../../x", 8)
        .bytes(),
        "a template for a value": Gguf()
        .text("tokenizer.chat_template", "{{ ''.__class__.__mro__ }}")
        .bytes(),
    }
