"""Every reader executes a number of lines that grows linearly with the bytes of a hostile file."""

from __future__ import annotations

import io
import json
import struct
import sys
import zipfile
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from llamath.analysis.check.kinds.dcp_check import cover_problem
from llamath.checkpoint.adapters import read_adapter
from llamath.checkpoint.file_sums import parse_sums
from llamath.checkpoint.folders import dcp, deepspeed
from llamath.checkpoint.formats import gguf, npz, safetensors
from llamath.checkpoint.formats.manifest import Manifest, Tensor
from llamath.checkpoint.formats.sentencepiece import parse_sentencepiece
from llamath.checkpoint.formats.source import Bytes
from llamath.checkpoint.formats.tokenizer_model import _after
from llamath.checkpoint.formats.torch_files import torch_checkpoint
from llamath.checkpoint.hub.hub_repo import resolve_commit
from llamath.checkpoint.repo_id import Repo
from llamath.utils.errors import LlamathError
from llamath.utils.linear_regex import LinearRegex
from llamath.utils.strict_json import parse_json
from support import hostile_folders
from support.hostile_safetensors import entry, file, header

_SIZE = 2000
_LINEAR = 2.6
"""The largest growth that counts as linear when a file doubles; constant parts make it less than 2, a square approaches 4."""


def irregular_entries(n: int) -> bytes:
    return file(
        header(*(entry(f"t{i}", shape="[ 1,1 ]", offsets=f"[{i}, {i + 1} ]") for i in range(n))),
        bytes(n),
    )


def overlapping_entries(n: int) -> bytes:
    return file(
        header(*(entry(f"t{i}", offsets=f"[{n - i},{n - i + 1}]") for i in range(n))), bytes(n)
    )


def gguf_keys(n: int) -> bytes:
    keys = b"".join(struct.pack("<Q", 8) + b"%08d" % i + struct.pack("<IB", 0, 1) for i in range(n))
    return b"GGUF" + struct.pack("<IQQ", 3, 0, n + 1) + keys


def gguf_tensors(n: int) -> bytes:
    infos = b"".join(
        struct.pack("<Q", 8) + b"%08d" % i + struct.pack("<IQIQ", 1, 32, 0, 0) for i in range(n)
    )
    return b"GGUF" + struct.pack("<IQQ", 3, n + 1, 0) + infos


def nested_gguf_arrays(n: int) -> bytes:
    return (
        b"GGUF"
        + struct.pack("<IQQ", 3, 0, 1)
        + struct.pack("<Q", 1)
        + b"k"
        + struct.pack("<I", 9)
        + struct.pack("<IQ", 9, 1) * n
    )


def pickle_of(body: bytes) -> bytes:
    system = b"}(X\x10\x00\x00\x00protocol_versionM\xe9\x03X\x0d\x00\x00\x00little_endian\x88u."
    return (
        b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02"
        + system
        + b"\x80\x02"
        + body
    )


def lora_names(n: int, config: dict[str, Any]) -> bytes:
    name = "base_model.model.model.layers.%d.q_proj.lora_%s.weight"
    shapes = {
        name % (i, x): shape for i in range(n) for x, shape in (("A", [4, 16]), ("B", [16, 4]))
    }
    return json.dumps([{"peft_type": "LORA", "r": 4, "lora_alpha": 8, **config}, shapes]).encode()


def read_lora(data: bytes) -> object:
    config, shapes = json.loads(data)
    tensors = tuple(Tensor(name, "F32", tuple(shape), 0, 0, 0) for name, shape in shapes.items())
    return read_adapter(Manifest(format="safetensors", files=(), tensors=tensors), config)


def npz_members(n: int) -> bytes:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".ljust(117) + b"\n"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        for i in range(n):
            members.writestr(f"{i}.npy", b"\x93NUMPY\1\0v\0" + header + b"abcd")
    return archive.getvalue()


CASES: dict[str, tuple[Callable[[bytes], object], Callable[[int], bytes]]] = {
    "safetensors, irregular entries": (lambda x: safetensors.read(Bytes(x)), irregular_entries),
    "safetensors, overlaps": (lambda x: safetensors.read(Bytes(x)), overlapping_entries),
    "safetensors, one name": (
        lambda x: safetensors.read(Bytes(x)),
        lambda n: file(header(*[entry()] * n), b"x"),
    ),
    "safetensors, keys of one tensor": (
        lambda x: safetensors.read(Bytes(x)),
        lambda n: file('{"a":{' + '"dtype":"U8",' * n, b"x"),
    ),
    "safetensors, metadata": (
        lambda x: safetensors.read(Bytes(x)),
        lambda n: file(
            '{"__metadata__":{' + ",".join(f'"{i}":"\\u0041"' for i in range(n)) + "} 1", b""
        ),
    ),
    "gguf, keys": (lambda x: gguf.read(Bytes(x)), gguf_keys),
    "gguf, tensors": (lambda x: gguf.read(Bytes(x)), gguf_tensors),
    "gguf, nested arrays": (lambda x: gguf.read(Bytes(x)), nested_gguf_arrays),
    "pickle, nested lists": (
        lambda x: torch_checkpoint.read(Bytes(x)),
        lambda n: pickle_of(b"]" * n + b"a" * (n - 1) + b"."),
    ),
    "pickle, doubled values": (
        lambda x: torch_checkpoint.read(Bytes(x)),
        lambda n: pickle_of(
            b"]q\x00"
            + b"".join(b"](h%ch%ce" % (i % 200, i % 200) + b"q%c" % (i + 1) for i in range(200))
            * (n // 200)
            + b"."
        ),
    ),
    "pickle, tuples": (
        lambda x: torch_checkpoint.read(Bytes(x)),
        lambda n: pickle_of(b"(" + b"K\x01" * n + b"t" + b"\x85" * n + b"."),
    ),
    "sentencepiece, pieces": (
        lambda x: parse_sentencepiece(x, "x"),
        lambda n: b"\x0a\x05\x0a\x01a\x18\x01" * n + b"\x0a",
    ),
    "sentencepiece, long varints": (lambda x: parse_sentencepiece(x, "x"), lambda n: b"\x80" * n),
    "dcp, chunks": (
        lambda x: dcp.parse_metadata(Bytes(x)),
        lambda n: hostile_folders.many_chunks(n // 4),
    ),
    "dcp, shared chunks": (
        lambda x: dcp.parse_metadata(Bytes(x)),
        lambda n: hostile_folders.shared_chunks(n // 4),
    ),
    "dcp, nested tuples": (
        lambda x: dcp.parse_metadata(Bytes(x)),
        lambda n: b"\x80\x02)" + b"\x85" * n + b".",
    ),
    "cover, chunks": (
        lambda x: cover_problem((len(x),), [((i,), (1,)) for i in range(len(x))]),
        bytes,
    ),
    "deepspeed, objects": (
        lambda x: deepspeed.parse_optimizer(Bytes(x), deepspeed.RankFile("x", 0, 0)),
        lambda n: pickle_of(b"cx\ny\n)R" + b"\x85Rcx\ny\n" * n + b"."),
    ),
    "npz, arrays": (
        lambda x: npz.read(Bytes(x)),
        lambda n: hostile_folders.npz(
            {f"{i}.npy": hostile_folders.npy(shape="()", data=bytes(4)) for i in range(n // 10)}
        ),
    ),
    "npz, digits": (
        lambda x: npz.read(Bytes(x)),
        lambda n: hostile_folders.npz({"a.npy": hostile_folders.npy(shape=f"({'1' * n},)")}),
    ),
    "npz, records": (
        lambda x: npz.read(Bytes(x)),
        lambda n: hostile_folders.npz({"a.npy": hostile_folders.npy("[" + ", " * n + "]")}),
    ),
    "adapter, names": (read_lora, lambda n: lora_names(n, {})),
    "adapter, patterns": (
        read_lora,
        lambda n: lora_names(n // 10, {"rank_pattern": {"(a*)*" * 20: 4, "q_proj": 4}}),
    ),
    "regular expression, nested": (
        lambda x: LinearRegex("((a+)+)+b").fullmatch(x.decode()),
        lambda n: b"a" * n,
    ),
    "regular expression, alternatives": (
        lambda x: LinearRegex(x.decode()).fullmatch("a"),
        lambda n: b"|".join([b"a"] * n),
    ),
    "npz, members": (lambda x: npz.read(Bytes(x)), npz_members),
    "dcp, nested lists": (
        lambda x: dcp.parse_metadata(Bytes(x)),
        lambda n: b"\x80\x02" + b"]" * n + b"a" * (n - 1) + b".",
    ),
    "dcp, keys": (
        lambda x: dcp.parse_metadata(Bytes(x)),
        lambda n: b"\x80\x04}(" + b"".join(b"\x8c\x08%08dK\x01" % i for i in range(n)) + b"u.",
    ),
    "dcp, tuples": (
        lambda x: dcp.parse_metadata(Bytes(x)),
        lambda n: b"\x80\x04(" + b"K\x01" * n + b"t" + b"\x85" * n + b".",
    ),
    "dcp, memo": (
        lambda x: dcp.parse_metadata(Bytes(x)),
        lambda n: b"\x80\x04]\x94" + b"h\x00a" * n + b".",
    ),
    "sums, lines": (
        lambda x: parse_sums(x.decode(), "x"),
        lambda n: b"".join(b"%064d  %d\n" % (i, i) for i in range(n)),
    ),
    "hub, names of files": (
        lambda x: resolve_commit(json.loads(x), Repo("a/b")),
        lambda n: json.dumps(
            {"sha": "0" * 40, "siblings": [{"rfilename": f"{i}/{i}.json"} for i in range(n)]}
        ).encode(),
    ),
    "tokenizer, tokens": (
        lambda x: _after(x, "vocab", "x"),
        lambda n: b'{"vocab":{' + b"".join(b'"%d":1,' % i for i in range(n)),
    ),
    "json, nested": (lambda x: parse_json(x, "x"), lambda n: b'{"a":' * n),
    "json, keys": (
        lambda x: parse_json(x, "x"),
        lambda n: json.dumps({f"k{i}": [i] for i in range(n)}).encode()[:-1],
    ),
    "json, duplicate keys": (
        lambda x: parse_json(x, "x"),
        lambda n: b'{"a":1' + b',"a":1' * n + b"}",
    ),
}


def lines_of(work: Callable[[bytes], object], data: bytes) -> int:
    """Return the number of lines that a reader executes, whether it accepts the file or not."""
    lines = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        work(data)
    except LlamathError:
        pass
    finally:
        sys.settrace(previous)
    return lines


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_lines_of_a_reader_grow_linearly(name: str) -> None:
    read, make = CASES[name]
    lines_of(read, make(10))  # imports and caches
    few, many = (lines_of(read, make(n * _SIZE)) for n in (1, 2))
    assert many <= _LINEAR * max(few, 100), (
        f"{few:,} lines, and {many:,} for a file of twice the size"
    )
