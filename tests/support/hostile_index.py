"""Index files written by hand: a corpus of hostile ones, and unusual ones that must be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

SHARD = "model-00001-of-00001.safetensors"

Corpus = dict[str, tuple[str, Callable[[], bytes]]]


def index(weight_map: Any, **others: Any) -> Callable[[], bytes]:
    return lambda: json.dumps({**others, "weight_map": weight_map}).encode()


def shard(name: Any) -> Callable[[], bytes]:
    return index({"w": name})


def text(value: str | bytes | Callable[[], str]) -> Callable[[], bytes]:
    def encoded() -> bytes:
        made = value() if callable(value) else value
        return made.encode() if isinstance(made, str) else made

    return encoded


def hostile() -> Corpus:
    """Return for each name the expected error code and the bytes."""
    return _texts() | _maps() | _names()


def _texts() -> Corpus:
    whole = f'{{"weight_map": {{"w": "{SHARD}"}}}}'
    texts: dict[str, str | bytes | Callable[[], str]] = {
        "empty": "",
        "spaces": "   ",
        "not JSON": "hello",
        "cut": whole[:-1],
        "cut in a name": whole[:30],
        "trailing comma": whole[:-1] + ",}",
        "two objects": whole + whole,
        "an array": f"[{whole}]",
        "a string": f'"{SHARD}"',
        "a number": "7",
        "null": "null",
        "NaN": '{"a": NaN, ' + whole[1:],
        "1e999": '{"a": 1e999, ' + whole[1:],
        "5,000 digits": '{"a": ' + "9" * 5000 + ", " + whole[1:],
        "weight_map twice": whole[:-1] + ', "weight_map": {}}',
        "weight_map twice, once escaped": whole[:-1] + ', "weight\\u005fmap": {}}',
        "a tensor twice": f'{{"weight_map": {{"w": "{SHARD}", "w": "{SHARD}"}}}}',
        "metadata key twice": '{"metadata": {"total_size": 1, "total_size": 2}, ' + whole[1:],
        "byte order mark": b"\xef\xbb\xbf" + whole.encode(),
        "UTF-16": whole.encode("utf-16"),
        "latin-1": '{"weight_map": {"\xe4": "a"}}'.encode("latin-1"),
        "NULs": bytes(4096),
        "a safetensors file": b"\2\0\0\0\0\0\0\0{}",
        "objects nested 100,000 deep": '{"weight_map": ' * 100_000 + "}" * 100_000,
        "arrays nested 100,000 deep": '{"weight_map": ' + "[" * 100_000 + "]" * 100_000 + "}",
        "a million empty arrays": lambda: '{"weight_map": [' + ",".join(["[]"] * 1_000_000) + "]}",
        "a million empty objects": lambda: '{"weight_map": [' + ",".join(["{}"] * 1_000_000) + "]}",
        "33 MiB of spaces": lambda: "{" + " " * (33 << 20) + "}",
        "31 MiB of letters and an emoji": lambda: '{"\U0001f999": "' + "a" * (31 << 20) + '"}',
    }
    return {name: ("index", text(value)) for name, value in texts.items()}


def _maps() -> Corpus:
    values = {
        "null": None,
        "a list": [SHARD],
        "a string": SHARD,
        "a number": 1,
        "true": True,
        "empty": {},
    }
    files = {
        "null": None,
        "a number": 1,
        "a list": [SHARD],
        "an object": {"file": SHARD},
        "true": True,
    }
    return {
        "no weight_map": ("index", text("{}")),
        "weight_map in capitals": ("index", text('{"WEIGHT_MAP": {"w": "a"}}')),
        "weight_map inside metadata": ("index", text('{"metadata": {"weight_map": {"w": "a"}}}')),
        **{f"weight_map {name}": ("index", index(value)) for name, value in values.items()},
        **{f"file name {name}": ("index", shard(value)) for name, value in files.items()},
        "second file name null": ("index", index({"w": SHARD, "x": None})),
        "100,001 files": ("index", index({str(i): f"{i}.safetensors" for i in range(100_001)})),
    }


def _names() -> Corpus:
    names = {
        "empty": "",
        "this folder": ".",
        "the folder above": "..",
        "above": "../model.safetensors",
        "above, from below": "x/../../model.safetensors",
        "below": "x/model.safetensors",
        "this folder's": "./" + SHARD,
        "absolute": "/etc/passwd",
        "a device": "/dev/zero",
        "a home": "~/model.safetensors",
        "above, backslash": "..\\model.safetensors",
        "backslash": "x\\model.safetensors",
        "a drive": "C:model.safetensors",
        "a share": "\\\\host\\share\\model.safetensors",
        "a stream": SHARD + ":x",
        "an address": "https://localhost/model.safetensors",
        "file address": "file:///etc/passwd",
        "slash at the end": SHARD + "/",
        "NUL": "a\0.safetensors",
        "NUL at the end": SHARD + "\0",
        "newline": "a\n.safetensors",
        "carriage return": "a\r.safetensors",
        "escape": "\x1b[2J.safetensors",
        "DEL": "a\x7f.safetensors",
        "C1 control": "a\x9b31m.safetensors",
        "turned round": "\u202esrosnetefas.a",
        "zero width": "a\u200b.safetensors",
        "byte order mark": "\ufeff" + SHARD,
        "lone surrogate": "\ud800.safetensors",
        "surrogate for a byte": "\udcff.safetensors",
        "300 letters": "n" * 300,
        "1 MB": "n" * 1_000_000,
    }
    return {f"file name: {name}": ("shard_name", shard(value)) for name, value in names.items()} | {
        "bad file name among good ones": (
            "shard_name",
            index({str(i): f"{i}.safetensors" for i in range(500)} | {"x": "../x"}),
        ),
    }


def odd() -> dict[str, Callable[[], bytes]]:
    """Return by name the bytes of an index that must be read, next to one shard with the tensor `w`."""
    return {
        "no metadata": shard(SHARD),
        **{
            f"metadata {value!r}": index({"w": SHARD}, metadata=value)
            for value in (None, [], "x", 7, {}, {"total_size": "24"}, {"total_size": -1})
        },
        "other keys": index({"w": SHARD}, weight_maps=[], x={"y": [None]}),
        "indented": lambda: json.dumps({"weight_map": {"w": SHARD}}, indent=4).encode() + b"\r\n",
        "escaped": text(
            f'{{"weight\\u005fmap": {{"\\u0077": "{SHARD.replace("m", chr(92) + "u006d")}"}}}}'
        ),
        "tensors with hostile names": index(
            {
                "w": SHARD,
                "\x1b[2J": SHARD,
                "\u202e": SHARD,
                "../x": SHARD,
                "": SHARD,
                "\ud800": SHARD,
            }
        ),
    }
