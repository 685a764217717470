"""Short files for fuzzing what stands in the place of a checkpoint."""

from __future__ import annotations

import json

LFS = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4976698672\n"
)
BROKEN = (
    LFS,
    b"# xet version 0\n",
    b"/annex/objects/SHA256E\n",
    b"\xef\xbb\xbf <!-- x --><html><title>Sign in</title>",
    b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>",
    b'{"error":"Repository not found"}',
    b"Entry not found",
    b"",
    bytes(64),
    b"\x1f\x8b\x08",
    b"\x80\x04\x95\x00",
    b"tjgg",
    b"plain text\n",
)


def _safetensors(length: int) -> bytes:
    text = (
        json.dumps({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})
        .ljust(length)
        .encode()
    )
    return len(text).to_bytes(8, "little") + text + b"x"


VALID = (_safetensors(60), _safetensors(640), _safetensors(1152), b"\x02" + bytes(7) + b"{}")
