"""Safetensors bytes written by hand: a writer of inconsistent files, a valid file, a corpus of hostile ones, and unusual ones that must be read."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from itertools import permutations

TOP = (1 << 64) - 1
HALF = 1 << 63
HEADER = 16 << 20

Corpus = dict[str, tuple[str, Callable[[], bytes]]]


def file(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """Return length, header and data without checks."""
    text = header.encode("utf-8", "surrogatepass") if isinstance(header, str) else header
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(name: str = "a", dtype: str = '"U8"', shape: str = "[1]", offsets: str = "[0,1]") -> str:
    """Return the JSON entry of one tensor from these texts."""
    return f'"{name}":{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}'


def header(*entries: str) -> str:
    return f"{{{','.join(entries)}}}"


def one(**changes: str) -> Callable[[], bytes]:
    """Return a file of one tensor of one byte, with changes."""
    return lambda: file(header(entry(**changes)), b"x")


def text(header: str | bytes, data: bytes = b"x") -> Callable[[], bytes]:
    return lambda: file(header, data)


def valid() -> bytes:
    """A small valid file: metadata, four tensors, a scalar, one without elements, a pad of spaces."""
    entries = (
        '"__metadata__":{"format":"pt","by":"hand"}',
        entry("w", '"F32"', "[2,3]", "[0,24]"),
        entry("b", '"BF16"', "[3]", "[24,30]"),
        entry("none", '"I64"', "[0,7]", "[30,30]"),
        entry("s", '"F64"', "[]", "[30,38]"),
    )
    return file(header(*entries) + "   ", bytes(range(38)))


def hostile() -> Corpus:
    """Return for each name the expected error code and the bytes."""
    return short() | _floods()


def short() -> Corpus:
    """Return those of `hostile` whose bytes are made at once."""
    return (
        _lengths()
        | _starts()
        | _json()
        | _fields()
        | _dims()
        | _offsets()
        | _dtypes()
        | _names()
        | _metadata()
        | _layouts()
    )


def _lengths() -> Corpus:
    whole = header(entry())
    lengths = {"0": 0, "1": 1, "one short": len(whole) - 1, "one short of the file": len(whole) + 1}
    beyond = {
        "size − 7": len(whole) + 2,
        "size": len(whole) + 9,
        "2^31": 1 << 31,
        "2^63": HALF,
        "2^64-8": TOP - 7,
        "2^64-1": TOP,
    }
    return {
        **{
            f"length {name}": ("header_text", lambda n=n: file(whole, b"x", n))
            for name, n in lengths.items()
        },
        **{
            f"length {name}": ("header_length", lambda n=n: file(whole, b"x", n))
            for name, n in beyond.items()
        },
        **{
            f"file of {size} bytes": ("truncated", lambda size=size: bytes([1] * size))
            for size in (0, 1, 7)
        },
        "length in big endian": (
            "header_length",
            lambda: len(whole).to_bytes(8, "big") + whole.encode() + b"x",
        ),
        "eight zeros": ("header_text", lambda: bytes(8)),
        "4 KiB of zeros": ("header_text", lambda: bytes(4096)),
        "4 KiB of ones": ("header_length", lambda: b"\xff" * 4096),
        "header one byte over the limit": (
            "header_length",
            text("{" + " " * (HEADER - 1) + "}", b""),
        ),
        "header of 100 MB + 1, as the file says": (
            "header_length",
            lambda: (100_000_001).to_bytes(8, "little") + whole.encode(),
        ),
    }


def _starts() -> Corpus:
    whole = header(entry())
    return {
        "no header": ("header_text", text("", b"")),
        "header of one space": ("header_text", text(" ", b"")),
        "space first": ("header_text", text(" " + whole)),
        "newline first": ("header_text", text("\n" + whole)),
        "byte order mark": ("header_text", text("\ufeff" + whole)),
        "UTF-16": ("header_text", text(whole.encode("utf-16"))),
        "UTF-16 without mark": ("header_text", text(whole.encode("utf-16-le"))),
        "UTF-32": ("header_text", text(whole.encode("utf-32-le"))),
        "latin-1 name": ("header_text", text(header(entry("\xe4")).encode("latin-1"))),
        "overlong brace": ("header_text", text(b"\xc1\xbb" + whole[1:].encode())),
        "overlong NUL in a name": (
            "header_text",
            text(whole.encode().replace(b"a", b"\xc0\x80", 1)),
        ),
        "surrogate in UTF-8": (
            "header_text",
            text(whole.encode().replace(b'"a"', b'"\xed\xa0\x80"', 1)),
        ),
        "beyond Unicode": (
            "header_text",
            text(whole.encode().replace(b'"a"', b'"\xf4\x90\x80\x80"', 1)),
        ),
        "cut within a letter": ("header_text", text(header(entry("é")).encode()[:3], b"")),
        "NUL padding": ("header_text", text(whole + "\0\0\0")),
        "NUL first": ("header_text", text("\0" + whole)),
        "NUL in the middle": ("header_text", text(whole.replace(":", "\0:", 1))),
        "a pickle": ("header_length", lambda: b"\x80\x02}q\x00." + bytes(8)),
        "a zip": ("header_length", lambda: b"PK\x03\x04" + bytes([255]) * 30),
        "a GGUF": ("header_length", lambda: b"GGUF\3\0\0\0" + bytes(30)),
        "an LFS pointer": (
            "header_length",
            lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
        ),
        "an HTML page": ("header_length", lambda: b"<!DOCTYPE html><html>404</html>"),
    }


def _json() -> Corpus:
    a, b = entry(), entry("b", offsets="[1,2]")
    tops = {
        "array": "[]",
        "array of objects": "[{}]",
        "string": '"a"',
        "number": "1",
        "null": "null",
        "true": "true",
        "key": '{"a"}',
    }
    broken = {
        "open object": "{",
        "open object, comma": "{" + a + ",",
        "open tensor": header(a)[:-2],
        "object not closed": header(a)[:-1],
        "trailing comma": "{" + a + ",}",
        "trailing comma in a tensor": header(a.replace("}", ",}")),
        "trailing comma in a shape": header(entry(shape="[1,]")),
        "leading comma": "{," + a + "}",
        "two commas": "{" + a + ",," + b + "}",
        "missing comma": "{" + a + b + "}",
        "missing comma, space": "{" + a + " " + b + "}",
        "missing comma between fields": header(a.replace(',"shape"', '"shape"')),
        "missing comma in a shape": header(entry(shape="[1 1]")),
        "missing colon": header(a.replace(":", "", 1)),
        "two colons": header(a.replace(":", "::", 1)),
        "semicolon": "{" + a + ";" + b + "}",
        "two objects": header(a) + header(a),
        "two objects, space": header(a) + " {}",
        "bracket after the object": header(a) + "]",
        "brace after the object": header(a) + "}",
        "letter after the object": header(a) + "x",
        "form feed after the object": header(a) + "\f",
        "no-break space after the object": header(a) + "\u00a0",
        "line separator between": "{" + a + ",\u2028" + b + "}",
        "vertical tab between": "{" + a + ",\v" + b + "}",
        "comment": "{/**/" + a + "}",
        "comment at the end": header(a) + "//",
        "single quotes": header(a).replace('"', "'"),
        "bare name": header(a).replace('"a"', "a", 1),
        "name is a number": header(a).replace('"a"', "1", 1),
        "name is null": header(a).replace('"a"', "null", 1),
        "name not closed": header(a).replace('"a"', '"a', 1),
        "name with a raw newline": header(entry("a\nb")),
        "name with a raw tab": header(entry("a\tb")),
        "name with a raw NUL": header(entry("a\0b")),
        "name with a raw escape": header(entry("\x1b[2J")),
        "name with an unknown escape": header(entry("\\x41")),
        "name with a cut escape": header(entry("\\u00")),
        "name with a signed escape": header(entry("\\u+041")),
        "name that escapes its quote": header(entry("a\\")),
        "array closed by a brace": header(entry(shape="[1}")),
        "tensor closed by a bracket": header(a.replace("}", "]")),
    }
    return {
        **{f"a JSON {name}": ("header_text", text(value, b"")) for name, value in tops.items()},
        **{name: ("header_text", text(value)) for name, value in broken.items()},
    }


def _fields() -> Corpus:
    def of(fields: str) -> Callable[[], bytes]:
        return text('{"a":' + fields + "}")

    d, s, o = '"dtype":"U8"', '"shape":[1]', '"data_offsets":[0,1]'
    values = {
        "null": "null",
        "a number": "7",
        "a string": '"U8"',
        "an array": "[]",
        "an empty object": "{}",
        "true": "true",
    }
    return {
        **{f"tensor is {name}": ("header_text", of(value)) for name, value in values.items()},
        "tensor is a sequence, as serde would take it": ("header_text", of('["U8",[1],[0,1]]')),
        "no dtype": ("header_text", of(f"{{{s},{o}}}")),
        "no shape": ("header_text", of(f"{{{d},{o}}}")),
        "no offsets": ("header_text", of(f"{{{d},{s}}}")),
        "dtype alone": ("header_text", of(f"{{{d}}}")),
        "a fourth field": ("header_text", of(f'{{{d},{s},{o},"x":1}}')),
        "a fourth field first": ("header_text", of(f'{{"x":null,{d},{s},{o}}}')),
        "a fourth field, nested": ("header_text", of(f'{{{d},{s},{o},"x":{{"y":[[]]}}}}')),
        "strides": ("header_text", of(f'{{{d},{s},"strides":[1],{o}}}')),
        "dtype twice": ("duplicate", of(f"{{{d},{d},{s},{o}}}")),
        "dtype twice, different": ("duplicate", of(f'{{"dtype":"F32",{d},{s},{o}}}')),
        "shape twice": ("duplicate", of(f"{{{d},{s},{o},{s}}}")),
        "offsets twice": ("duplicate", of(f"{{{d},{s},{o},{o}}}")),
        "dtype twice, once escaped": ("duplicate", of(f'{{{d},{s},{o},"d\\u0074ype":"U8"}}')),
        "field in capitals": ("header_text", of(f'{{"DTYPE":"U8",{s},{o}}}')),
        "field with a space": ("header_text", of(f'{{"dtype ":"U8",{s},{o}}}')),
        "field in another alphabet": ("header_text", of(f'{{"dtyp\u0435":"U8",{s},{o}}}')),
        "field without a name": ("header_text", of(f'{{"":"U8",{d},{s},{o}}}')),
        "second tensor null": ("header_text", text(header(entry(), '"b":null'))),
        "second tensor without a shape": ("header_text", text(header(entry(), f'"b":{{{d},{o}}}'))),
    }


NUMBERS = {
    x: x
    for x in "-2 -0 +1 2.0 1. .5 1e0 1E2 1e999 -1e999 01 00 0x1 1_0 NaN Infinity true null".split()
} | {
    "2^64": str(1 << 64),
    "2^64+1": str((1 << 64) + 1),
    "10^19 · 2": "2" + "0" * 19,
    "10^30": "1" + "0" * 30,
    "5,000 digits": "1" * 5000,
    "a string": '"1"',
    "nested": "[1]",
    "an object": "{}",
    "arabic": "\u0661",
    "full width": "\uff11",
    "nothing": "",
}
"""Texts that are not unsigned 64-bit integers."""
_BEYOND = ("2^64", "2^64+1", "10^19 · 2")  # twenty digits: an integer by its looks


def _dims() -> Corpus:
    shapes = {
        "null": "null",
        "a number": "1",
        "a string": '"1"',
        "an object": "{}",
        "true": "true",
        "missing": "",
        "open": "[1",
    }
    products = {
        "2^64-1": f"[{TOP}]",
        "2^63 · 2": f"[{HALF},2]",
        "2^32 · 2^32": f"[{1 << 32},{1 << 32}]",
        "2^61 bytes as bits": f"[{1 << 61}]",
        "wrapping to 1": "[6700417,274177,1]"[:-1] + f",{TOP}]",
        "64 times 2^63": f"[{','.join([str(HALF)] * 64)}]",
        "too large before the zero": f"[{HALF},4,0]",
    }
    return {
        **{
            f"dim {name}": ("overflow" if name in _BEYOND else "header_text", one(shape=f"[{n}]"))
            for name, n in NUMBERS.items()
            if n
        },
        **{
            f"second dim {name}": (
                "overflow" if name in _BEYOND else "header_text",
                one(shape=f"[1,{n}]"),
            )
            for name, n in NUMBERS.items()
        },
        **{f"shape {name}": ("header_text", one(shape=value)) for name, value in shapes.items()},
        **{f"elements {name}": ("overflow", one(shape=value)) for name, value in products.items()},
        "elements 2^58 of 64 bits, as bits": ("overflow", one(dtype='"F64"', shape=f"[{1 << 58}]")),
        "65 dimensions": ("header_text", one(shape=f"[{','.join('1' * 65)}]")),
        "a million dimensions": ("header_text", one(shape=f"[{','.join('1' * 1_000_000)}]")),
        "dim over the size": ("span", one(shape="[2]")),
        "dim of 0 with a byte": ("span", one(shape="[0]")),
        "scalar of another size": ("span", one(dtype='"F32"', shape="[]")),
        "2^40 elements of one byte": ("span", one(shape=f"[{1 << 40}]")),
    }


def _offsets() -> Corpus:
    counts = {
        "none": "[]",
        "one": "[1]",
        "three": "[0,1,1]",
        "null": "null",
        "a number": "0",
        "a string": '"0,1"',
        "nested": "[[0,1]]",
    }
    return {
        **{
            f"offsets {name}": ("header_text", one(offsets=value)) for name, value in counts.items()
        },
        **{
            f"first offset {name}": (
                "span" if name in _BEYOND else "header_text",
                one(offsets=f"[{n},1]"),
            )
            for name, n in NUMBERS.items()
        },
        **{
            f"last offset {name}": (
                "span" if name in _BEYOND else "header_text",
                one(offsets=f"[0,{n}]"),
            )
            for name, n in NUMBERS.items()
        },
        "offsets reversed": ("span", one(offsets="[1,0]")),
        "offsets negative": ("header_text", one(offsets="[-1,0]")),
        "offsets 2^64-1": ("hole", one(shape="[0]", offsets=f"[{TOP},{TOP}]")),
        "offsets 2^64": ("overflow", one(shape="[0]", offsets=f"[{1 << 64},{1 << 64}]")),
        "offsets that end at 2^64": ("overflow", one(offsets=f"[{TOP},{1 << 64}]")),
        "offsets that wrap": ("span", one(shape="[2]", offsets=f"[{TOP},1]")),
        "last offset 2^64-1": ("span", one(offsets=f"[0,{TOP}]")),
        "offsets wider than the shape": ("span", one(offsets="[0,2]")),
        "offsets for bits": ("span", one(shape="[8]", offsets="[0,1]")),
    }


def _dtypes() -> Corpus:
    names = (
        *"U9 f32 float32 F128 U128 BF8 I4 U4 Q8_0 F6 F8 NaN torch.float32".split(),
        "",
        "F32 ",
        "F32\\u0000",
        "\\u001b[2J",
    )
    values = {
        "null": "null",
        "a number": "32",
        "an array": '["F32"]',
        "true": "true",
        "unquoted": "U8",
    }
    values |= {"an object, as serde would take it": '{"U8":null}'}
    return {
        **{f"dtype {name or 'empty'}": ("dtype", one(dtype=f'"{name}"')) for name in names},
        **{f"dtype is {name}": ("header_text", one(dtype=value)) for name, value in values.items()},
        "dtype of 1 MB": ("dtype", one(dtype=f'"{"F" * 1_000_000}"')),
        "one F4": ("span", one(dtype='"F4"')),
        "three F4 in two bytes": (
            "span",
            lambda: file(header(entry("a", '"F4"', "[3]", "[0,2]")), b"xx"),
        ),
        "scalar of F4": ("span", one(dtype='"F4"', shape="[]")),
        "two F6 in two bytes": (
            "span",
            lambda: file(header(entry("a", '"F6_E2M3"', "[2]", "[0,2]")), b"xx"),
        ),
        "six F6 in five bytes": (
            "span",
            lambda: file(header(entry("a", '"F6_E3M2"', "[6]", "[0,5]")), bytes(5)),
        ),
        "four F6 in four bytes": (
            "span",
            lambda: file(header(entry("a", '"F6_E3M2"', "[4]", "[0,4]")), bytes(4)),
        ),
    }


def _names() -> Corpus:
    def two(first: str, second: str) -> Callable[[], bytes]:
        return lambda: file(header(entry(first), entry(second, offsets="[1,2]")), b"xx")

    many = [entry(f"t{i}", offsets=f"[{i},{i + 1}]") for i in range(3000)]
    return {
        "name twice": ("duplicate", two("a", "a")),
        "name twice, in one place": ("duplicate", lambda: file(header(entry(), entry()), b"x")),
        "name twice, once escaped": ("duplicate", two("a", "\\u0061")),
        "name twice, escaped in two ways": ("duplicate", two("/", "\\/")),
        "name twice, a pair of surrogates": ("duplicate", two("\U0001f999", "\\ud83e\\udd99")),
        "no name twice": ("duplicate", two("", "")),
        "name twice, far apart": (
            "duplicate",
            lambda: file(header(*many, entry("t0", offsets="[3000,3001]")), bytes(3001)),
        ),
        "name twice, with terminal escapes": (
            "duplicate",
            two("\\u001b[2J\u202e", "\\u001b[2J\u202e"),
        ),
        "lone high surrogate": ("header_text", one(name="\\ud800")),
        "lone low surrogate": ("header_text", one(name="\\udc00x")),
        "surrogates the wrong way round": ("header_text", one(name="\\udd99\\ud83e")),
        "high surrogate, raw": ("header_text", one(name="\ud83e")),
        "name of 1 MB": ("too_large", one(name="n" * 1_000_000)),
        "name of 65,537 letters": ("too_large", one(name="é" * 65_537)),
        "name of 16 MB": ("too_large", one(name="n" * (HEADER - 100))),
        "name of 16 MB, not closed": ("header_text", text('{"' + "n" * (HEADER - 2), b"")),
        "__metadata__ escaped, as a tensor": (
            "header_text",
            text('{"__metadata_\\u005f":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'),
        ),
    }


def _metadata() -> Corpus:
    values = {
        "a number": "1",
        "null": "null",
        "true": "true",
        "an array": '["pt"]',
        "an object": "{}",
        "a float": "1.5",
    }
    tops = {
        "a word": "nul",
        "null and more": "nullx",
        "a string": '"pt"',
        "an array": '[{"a":"b"}]',
        "a number": "1",
        "false": "false",
    }
    plain, a = '"__metadata__":{"k":"v"}', entry()
    return {
        **{
            f"metadata value {name}": (
                "header_text",
                text(header(f'"__metadata__":{{"k":{value}}}', a)),
            )
            for name, value in values.items()
        },
        **{
            f"metadata is {name}": ("header_text", text(header(f'"__metadata__":{value}', a)))
            for name, value in tops.items()
        },
        "metadata twice": ("duplicate", text(header(plain, plain, a))),
        "metadata first and last": ("duplicate", text(header(plain, a, plain))),
        "metadata twice, once escaped": (
            "duplicate",
            text(header(plain, a, '"\\u005f_metadata__":{}')),
        ),
        "metadata twice, empty": (
            "duplicate",
            text(header('"__metadata__":{}', a, '"__metadata__":{}')),
        ),
        "metadata key twice": ("duplicate", text(header('"__metadata__":{"k":"v","k":"w"}', a))),
        "metadata key twice, once escaped": (
            "duplicate",
            text(header('"__metadata__":{"k":"v","\\u006b":"w"}', a)),
        ),
        "metadata is a tensor": ("header_text", text(header(a.replace('"a"', '"__metadata__"')))),
        "metadata is a tensor, second": (
            "header_text",
            text(header(a, a.replace('"a"', '"__metadata__"'))),
        ),
        "metadata open": ("header_text", text('{"__metadata__":{"k":"v"', b"")),
        "metadata and a missing comma": ("header_text", text("{" + plain + a + "}")),
        "metadata and a trailing comma": ("header_text", text("{" + plain + ",}", b"")),
        "metadata without a value": ("header_text", text('{"__metadata__":}', b"")),
        "metadata with a lone surrogate": (
            "header_text",
            text(header('"__metadata__":{"k":"\\udfff"}', a)),
        ),
        "metadata with a raw newline": (
            "header_text",
            text(header('"__metadata__":{"k":"a\nb"}', a)),
        ),
        "metadata nested 100,000 deep": (
            "header_text",
            text('{"__metadata__":' + '{"k":' * 100_000 + '"v"' + "}" * 100_001, b""),
        ),
        "metadata of 100,000 strings": (
            "too_large",
            text('{"__metadata__":{' + ",".join(f'"{i}":""' for i in range(100_000)) + "}}", b""),
        ),
    }


def _layouts() -> Corpus:
    def laid(*spans: tuple[int, int], data: int) -> Callable[[], bytes]:
        entries = [
            entry(f"t{i}", shape=f"[{end - start}]", offsets=f"[{start},{end}]")
            for i, (start, end) in enumerate(spans)
        ]
        return lambda: file(header(*entries), bytes(data))

    end = 1 << 60
    return {
        "hole at the start": ("hole", laid((1, 5), data=5)),
        "all shifted by eight": ("hole", laid((8, 12), (12, 16), data=16)),
        "hole in the middle": ("hole", laid((0, 4), (5, 9), data=9)),
        "hole in the middle, out of order": ("hole", laid((5, 9), (0, 4), data=9)),
        "hole before an empty tensor": ("hole", laid((0, 4), (5, 5), data=5)),
        "empty tensor in a hole at the start": ("hole", laid((4, 4), (4, 8), data=8)),
        "hole of exabytes": ("hole", laid((0, 4), (end, end + 4), data=8)),
        "overlap": ("overlap", laid((0, 4), (3, 7), data=7)),
        "overlap, out of order": ("overlap", laid((3, 7), (0, 4), data=7)),
        "one inside the other": ("overlap", laid((0, 8), (2, 4), data=8)),
        "two in one place": ("overlap", laid((0, 4), (0, 4), data=4)),
        "three, the last over the first": ("overlap", laid((0, 4), (4, 8), (0, 8), data=8)),
        "empty tensor inside another": ("overlap", laid((0, 4), (2, 2), data=4)),
        "no data": ("truncated", laid((0, 4), data=0)),
        "one byte short": ("truncated", laid((0, 4), (4, 8), data=7)),
        "exabytes short": ("truncated", laid((0, end), data=8)),
        "one byte more": ("trailing", laid((0, 4), data=5)),
        "bytes and no tensor": ("trailing", text("{}", b"x")),
        "bytes and empty tensors alone": ("trailing", laid((0, 0), (0, 0), data=1)),
        "twice the data": ("trailing", laid((0, 4), data=8)),
        "a second file after the first": ("trailing", lambda: valid() + valid()),
        "together more than 2^64 bytes": (
            "overflow",
            laid(*((i * end, (i + 1) * end) for i in range(17)), data=4),
        ),
    }


def _floods() -> Corpus:
    """Return headers of the maximum length with content that could cost time or memory."""

    def flood(unit: str, start: str = "{", end: str = "", between: str = "") -> Callable[[], bytes]:
        count = (HEADER - len(start.encode()) - len(end.encode())) // len((unit + between).encode())
        return lambda: file(start + between.join([unit] * count) + end)

    def numbered(form: str, count: int, end: str = "}") -> Callable[[], bytes]:
        return lambda: file(
            "{" + ",".join(form % ((i,) * form.count("%")) for i in range(count)) + end
        )

    first = header(entry(shape="[0]", offsets="[0,0]"))[:-1] + ","
    spaced = first.replace(":", " :")
    wide = ',"\U0001f999":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},}'
    small = '"%06d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    dims = ",".join(["999"] * 62)
    return {
        "objects nested 100,000 deep": (
            "header_text",
            lambda: file('{"a":' * 100_000 + "}" * 100_000),
        ),
        "arrays nested 100,000 deep": (
            "header_text",
            lambda: file('{"a":' + "[" * 100_000 + "]" * 100_000 + "}"),
        ),
        "arrays nested 100,000 deep in a shape": (
            "header_text",
            lambda: one(shape="[" * 100_000 + "]" * 100_000)(),
        ),
        "arrays nested 16 million deep": ("header_text", flood("[", '{"a":')),
        "5 million empty objects": ("header_text", flood("{}", '{"a":[', "]}", ",")),
        "5 million empty objects, each with the empty name": (
            "header_text",
            flood('"":{}', between=","),
        ),
        "16 MiB of quotes": ("header_text", flood('"', first)),
        "16 MiB of backslashes": ("header_text", flood("\\", '{"')),
        "16 MiB of letters in a name": ("header_text", flood("a", first + '"')),
        "16 MiB of spaces and a letter": ("header_text", flood(" ", spaced, "x")),
        "16 MiB of NULs": ("header_text", flood("\0", "{}")),
        "16 MiB of digits": ("header_text", flood("1", first + '"b":{"dtype":"U8","shape":[')),
        "16 MiB of digits for an offset": (
            "header_text",
            flood("1", first + '"b":{"dtype":"U8","shape":[0],"data_offsets":[0,', "]}}"),
        ),
        "8 million dimensions": (
            "header_text",
            flood("1", first + '"b":{"dtype":"U8","shape":[', '],"data_offsets":[0,0]}}', ","),
        ),
        "spaces between two digits": (
            "header_text",
            flood(" ", spaced + '"b":{"dtype":"U8","shape":[1', "2]}}"),
        ),
        "starts of tensors": ("header_text", flood('"a":{"dtype":"U8","shape":[', first)),
        "starts of tensors with long spaces": ("header_text", flood('"a" :' + " " * 1000, spaced)),
        "tensors without an end": (
            "header_text",
            flood('"a":{"dtype":"U8","shape":[0],"data_offsets":[0,', first),
        ),
        "270,000 tensors": ("too_large", numbered(small, 270_000)),
        "262,144 tensors, one of them twice": (
            "duplicate",
            numbered(small, 262_143, ',"000000":' + entry(shape="[0]", offsets="[0,0]")[4:] + "}"),
        ),
        "262,143 tensors and a comma": ("too_large", numbered(small, 262_143, ",}")),
        "200,000 tensors, an emoji and a comma": ("too_large", numbered(small, 200_000, wide)),
        "200,000 different shapes": (
            "too_large",
            numbered('"%d":{"dtype":"U8","shape":[0,%d],"data_offsets":[0,0]}', 200_000),
        ),
        "52,000 shapes of 64 dimensions": (
            "too_large",
            numbered(
                '"%d":{"dtype":"U8","shape":[0,' + dims + ',1%05d],"data_offsets":[0,0]}', 52_000
            ),
        ),
        "200,000 tensors with escaped names": (
            "too_large",
            numbered('"\\u0061%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}', 200_000),
        ),
    }


def odd() -> dict[str, Callable[[], bytes]]:
    """Return by name the bytes that the reference reads and that must be read here."""
    a, b = entry(), entry("b", offsets="[1,2]")
    spaces = (
        header(a, b)
        .replace(":", " : ")
        .replace(",", " ,\t")
        .replace("{", "{\n")
        .replace("[", "[ ")
        .replace("]", "\r\n]")
        + " \n\t\r"
    )
    fields = {
        "dtype": '"dtype":"U8"',
        "shape": '"shape":[1]',
        "data_offsets": '"data_offsets":[0,1]',
    }
    mixed = ',"b":{"shape":[1],"data_offsets":[1,2],"dtype":"U8"}'
    dtypes = "BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ U16 I16 F16 BF16 U32 I32 F32 U64 I64 F64 C64".split()
    sizes = [1] * 8 + [2] * 4 + [4] * 3 + [8] * 4
    at = [sum(sizes[:i]) for i in range(len(sizes))]
    every = [
        entry(name, f'"{name}"', "[]", f"[{start},{start + size}]")
        for name, size, start in zip(dtypes, sizes, at, strict=True)
    ]
    packed = [
        entry("f4", '"F4"', "[3,2]", "[0,3]"),
        entry("f6", '"F6_E2M3"', "[4]", "[3,6]"),
        entry("g6", '"F6_E3M2"', "[2,4]", "[6,12]"),
    ]
    return {
        "empty": text("{}", b""),
        "empty, spaces": text("{ \n\t\r } \n", b""),
        "empty, a MiB of spaces": text("{" + " " * (1 << 20) + "}", b""),
        "metadata only": text('{"__metadata__":{"format":"pt"}}', b""),
        "metadata empty": text('{"__metadata__":{}}', b""),
        "metadata null": text(header('"__metadata__":null', a)),
        "metadata empty, and a tensor": text(header('"__metadata__":{}', a)),
        "metadata last": text(header(a, '"__metadata__":{"k":"v"}')),
        "metadata in the middle": text(header(a, '"__metadata__":{"k":"v"}', b), b"xx"),
        "metadata with escapes": text(
            header('"__metadata__":{"\\"k\\"":"\\u00e9\\n\\ud83e\\udd99\\\\"}', a)
        ),
        "metadata that looks like tensors": text(
            header(
                '"__metadata__":{"k":"\\"a\\":{\\"dtype\\":\\"U8\\"","dtype":"U8","shape":":{"}', a
            )
        ),
        "metadata of 1 MB": text(header(f'"__metadata__":{{"k":"{"v" * 1_000_000}"}}', a)),
        "metadata under an escaped name": text('{"__metad\\u0061ta__":{"k":"v"}}', b""),
        "scalar": one(shape="[]"),
        "64 dimensions": one(shape=f"[{','.join('1' * 64)}]"),
        "zero elements": lambda: file(header(entry(shape="[0]", offsets="[0,0]"))),
        "zero elements of a huge shape": lambda: file(
            header(entry(shape=f"[0,{TOP},{TOP}]", offsets="[0,0]"))
        ),
        "zero elements between": lambda: file(
            header(a, entry("z", shape="[3,0]", offsets="[1,1]"), b), b"xx"
        ),
        "zero elements at the end, first": lambda: file(
            header(entry("z", shape="[0]", offsets="[2,2]"), a, b), b"xx"
        ),
        "several without elements": lambda: file(
            header(*(entry(f"z{i}", shape="[0]", offsets="[0,0]") for i in range(9)))
        ),
        "out of order": lambda: file(header(b, a), b"xx"),
        "spaces and newlines everywhere": lambda: file(spaces, b"xx"),
        "padded to 64": lambda: file(header(a).ljust(64), b"x"),
        **{
            f"fields {', '.join(order)}": text('{"a":{' + ",".join(fields[x] for x in order) + "}}")
            for order in permutations(fields)
        },
        "fields in two orders": lambda: file(header(a)[:-1] + mixed + "}", b"xx"),
        "fields escaped": text(header(a).replace("dtype", "d\\u0074ype").replace("U8", "\\u00558")),
        "no name": one(name=""),
        "name escaped": one(name='\\u0061\\n\\t\\/\\\\\\"\\b\\f\\r'),
        "name escaped, second": lambda: file(header(a, entry("\\u0062", offsets="[1,2]")), b"xx"),
        "name of 65,536 letters": one(name="n" * 65_536),
        "name in emoji": one(name="\U0001f999\u00e9\u4e2d"),
        "name in emoji, escaped": one(name="\\ud83e\\udd99"),
        "name with terminal escapes": one(name="\\u001b[2J\\u001b]0;title\\u0007"),
        "name that turns the line round": one(name="\u202egnp.exe\u2069"),
        "name with DEL": one(name="\x7f"),
        "name with NUL, escaped": one(name="a\\u0000b"),
        "name is a path": one(name="../../etc/passwd"),
        "names like fields": lambda: file(
            header(entry("dtype"), entry("shape", offsets="[1,2]")), b"xx"
        ),
        "name like metadata": one(name="__metadata__ "),
        "a noncharacter for a name": one(name="\uffff"),
        "every dtype of whole bytes": lambda: file(header(*every), bytes(sum(sizes))),
        "dtypes of 4 and 6 bits": lambda: file(header(*packed), bytes(12)),
        "2,000 tensors": lambda: file(
            header(*(entry(f"t{i}", offsets=f"[{i},{i + 1}]") for i in range(2000))), bytes(2000)
        ),
        "2,000 tensors, backwards": lambda: file(
            header(*(entry(f"t{i}", offsets=f"[{i},{i + 1}]") for i in range(2000)[::-1])),
            bytes(2000),
        ),
        "the valid one": valid,
    }


SIZES = {
    "BOOL": 8,
    "U8": 8,
    "F8_E4M3": 8,
    "BF16": 16,
    "F32": 32,
    "I64": 64,
    "C64": 64,
    "F4": 4,
    "F6_E2M3": 6,
}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[0-9]+|\s+|.', re.DOTALL)
_POOL = (
    *'{ } [ ] : , 0 1 2 3 8 24 64 -1 1.0 1e1 01 true null {} [] [1] [0,1] "" "a" "b" "\\u0061" "\\ud800" "dtype" "shape"'.split(),
    *'"data_offsets" "__metadata__" "U8" "F32" "F4" "F33" "x":{} "k":"v" \x1b é \ufeff \0 / \\'.split(),
    *(
        " ",
        "\n",
        "\t",
        "\r",
        "\f",
        "\u00a0",
        str(TOP),
        str(TOP + 1),
        str(HALF),
        entry(),
        "," + entry(),
        entry("c", shape="[0]"),
    ),
)


def _base(rng: random.Random) -> tuple[list[str], bytes]:
    """Return a valid header as tokens, and its data, in which each byte depends on its position."""
    entries, at = [], 0
    gap = rng.choice(["", "", "", " ", "\n "])
    for i in range(rng.randrange(5)):
        dtype = rng.choice([*SIZES])
        shape = [rng.choice([0, 1, 1, 2, 3, 4]) for _ in range(rng.randrange(4))]
        bits = SIZES[dtype]
        for n in shape:
            bits *= n
        if bits % 8:
            shape, bits = [*shape, 4], bits * 4
        end = at + bits // 8
        parts = [
            f'"dtype":{gap}"{dtype}"',
            f'"shape":{gap}{shape}',
            f'"data_offsets":[{at},{gap}{end}]',
        ]
        if rng.random() < 0.2:
            rng.shuffle(parts)
        name = rng.choice(["a", "b", "layers.0.weight", "é", "\\u00e9", "dtype", ""]) + str(i)
        entries.append(f'"{name}":{gap}{{{f",{gap}".join(parts)}}}'.replace(", ", "," + gap))
        at = end
    if rng.random() < 0.3:
        rng.shuffle(entries)
    if rng.random() < 0.5:
        entries.insert(
            rng.choice([0, 0, 0, len(entries)]),
            '"__metadata__":' + rng.choice(['{"format":"pt"}', "{}", '{"a":"\\n","b":"é"}']),
        )
    return _TOKEN.findall("{" + f",{gap}".join(entries) + "}" + " " * rng.choice([0, 0, 3])), bytes(
        i % 251 for i in range(at)
    )


def mutants(seed: int, bases: int = 500) -> Iterator[bytes]:
    """Yield files forever: valid ones, and files that differ from a valid one in a token, a byte or a length."""
    rng = random.Random(seed)
    known = [_base(rng) for _ in range(bases)]
    while True:
        tokens, data = rng.choice(known)
        tokens, lie = tokens.copy(), 0
        for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 3])):
            i, kind = rng.randrange(len(tokens)), rng.randrange(13)
            if kind < 3:
                tokens[i] = rng.choice(_POOL) if kind else rng.choice(tokens)
            elif kind < 5:
                tokens.insert(i, rng.choice(_POOL) if kind == 3 else rng.choice(tokens))
            elif kind == 5:
                del tokens[i : i + rng.choice([1, 1, 2, 4])]
            elif kind == 6:
                data = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data + b"x"
            elif kind == 7:
                lie = rng.choice([-9, -8, -1, 1, 7, 8, 1 << 40])
            elif kind < 10:
                tokens.insert(i, rng.choice(" \t\n\r") * rng.randrange(9))
            elif (
                kind < 12 and tokens[i][:1] == '"' and len(tokens[i]) > 2 and "\\" not in tokens[i]
            ):
                j = rng.randrange(1, len(tokens[i]) - 1)
                tokens[i] = f"{tokens[i][:j]}\\u{ord(tokens[i][j]):04x}{tokens[i][j + 1 :]}"
            elif tokens[i]:
                j = rng.randrange(len(tokens[i]))
                tokens[i] = (
                    tokens[i][:j]
                    + chr(ord(tokens[i][j]) ^ 1 << rng.randrange(8))
                    + tokens[i][j + 1 :]
                )
            if not tokens:
                tokens = ["{}"]
        text = "".join(tokens).encode("utf-8", "surrogatepass")
        yield max(0, len(text) + lie).to_bytes(8, "little") + text + data
