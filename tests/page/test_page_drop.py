"""Files dropped on the page: names, shapes and totals equal the library's, and both refuse hostile files."""

from __future__ import annotations

import json
import random
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.size.memory.cache_bytes import kv_cache_size
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.catalog import slugs
from llamath.checkpoint.formats import checkpoint_files as checkpoint
from llamath.checkpoint.formats.manifest import Manifest
from llamath.model import FamilyModel
from llamath.utils.errors import FormatError, LlamathError
from support.browser_page import (
    EMPTY,
    Tab,
    browser,
    go_to,
    lent_page,
    shown_config,
    shown_text,
    visit,
    wait_until_drawn,
)
from support.page_models import page_of
from support.serving import Place, served

__all__ = ["browser"]
U64, U32 = struct.Struct("<Q"), struct.Struct("<I")
LETTERS = dict(zip("bBhHiIfqQd?", (1, 0, 3, 2, 5, 4, 6, 11, 10, 12, 7), strict=True))


def safetensors_file(header: str | bytes, body: int = 0, length: int | None = None) -> bytes:
    """Return a safetensors file with this header."""
    data = header.encode() if isinstance(header, str) else header
    return U64.pack(len(data) if length is None else length) + data + bytes(body)


def entry(dtype: str = "F32", shape: str = "[2,2]", offsets: str = "[0,16]") -> str:
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return U64.pack(len(data)) + data


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + U32.pack(kind) + value


def tensor(
    name: str | bytes = "w", shape: tuple[int, ...] = (4, 2), dtype: int = 0, offset: int = 0
) -> bytes:
    return (
        text(name)
        + U32.pack(len(shape))
        + b"".join(map(U64.pack, shape))
        + U32.pack(dtype)
        + U64.pack(offset)
    )


def gguf(
    keys: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (tensor(),),
    body: int = 32,
    counts: tuple[int, int] | None = None,
    version: int = 3,
) -> bytes:
    """Return a GGUF file with these keys and tensors."""
    counted = counts or (len(tensors), len(keys))
    data = (
        b"GGUF"
        + U32.pack(version)
        + U64.pack(counted[0])
        + U64.pack(counted[1])
        + b"".join(keys)
        + b"".join(tensors)
    )
    return data + bytes(-len(data) % 32) + bytes(body)


ARRAY, STRING = 9, 8


def valid_files() -> Iterator[tuple[str, bytes]]:
    """Yield valid files."""
    yield "empty.safetensors", safetensors_file("{}")
    yield "spaces.safetensors", safetensors_file('{ "a" : ' + entry() + " }  \n", 16)
    yield (
        "order.safetensors",
        safetensors_file('{"b":' + entry(offsets="[16,32]") + ',"a":' + entry() + "}", 32),
    )
    yield (
        "metadata.safetensors",
        safetensors_file(
            '{"__metadata__":{"format":"pt","<b>":"\\u003cimg\\u003e"},"a":' + entry() + "}", 16
        ),
    )
    yield (
        "null.safetensors",
        safetensors_file('{"__metadata__":null,"a":' + entry("BF16", "[]", "[0,2]") + "}", 2),
    )
    yield (
        "small.safetensors",
        safetensors_file(
            '{"a":'
            + entry("F4", "[3,2]", "[0,3]")
            + ',"b":'
            + entry("F6_E2M3", "[4]", "[3,6]")
            + "}",
            6,
        ),
    )
    yield "zero.safetensors", safetensors_file('{"a":' + entry("I64", "[0,7]", "[0,0]") + "}")
    yield (
        "escaped.safetensors",
        safetensors_file('{"\\u00e9\\ud83d\\ude00\\n":' + entry() + "}", 16),
    )
    many = {f"model.layers.{i}.mlp.{x}.weight": {"dtype": "BF16", "shape": [3, 5], "data_offsets": [(2 * i + j) * 30, (2 * i + j + 1) * 30]} for i in range(40) for j, x in enumerate(("up", "down"))}  # fmt: skip
    yield "layers.safetensors", safetensors_file(json.dumps(many), 2400)
    yield "plain.gguf", gguf()
    yield "nothing.gguf", gguf(tensors=(), body=0)
    kinds = tuple(key(f"k.{x}", n, struct.pack(f"<{x}", 1)) for x, n in LETTERS.items())
    yield (
        "kinds.gguf",
        gguf(
            (
                *kinds,
                key("general.name", STRING, text("<script>pwned()</script>")),
                key("general.alignment", 4, U32.pack(64)),
            ),
            body=96,
        ),
    )
    arrays = key(
        "tokens", ARRAY, U32.pack(STRING) + U64.pack(3) + text("a") + text("") + text("é" * 300)
    )
    yield (
        "arrays.gguf",
        gguf(
            (
                arrays,
                key("scores", ARRAY, U32.pack(6) + U64.pack(5) + bytes(20)),
                key("flags", ARRAY, U32.pack(7) + U64.pack(2) + b"\1\0"),
            )
        ),
    )
    yield (
        "long.gguf",
        gguf(
            (
                key("chat", STRING, text("x" * 70_000)),
                key(
                    "tokens",
                    ARRAY,
                    U32.pack(STRING) + U64.pack(60_000) + text("token " * 5) * 60_000,
                ),
            )
        ),
    )
    blocks = (
        tensor("blk.0.attn_q.weight", (256, 3), 12, 0),
        tensor("blk.1.attn_q.weight", (256, 3), 12, 448),
        tensor("output.weight", (32, 2), 8, 896),
    )
    yield "blocks.gguf", gguf((), blocks, body=1000)
    swapped = (
        b"GGUF"
        + struct.pack(">IQQ", 3, 1, 0)
        + struct.pack(">Q", 1)
        + b"w"
        + struct.pack(">IQIQ", 1, 8, 0, 0)
    )
    yield "big-endian.gguf", swapped + bytes(-len(swapped) % 32) + bytes(32)


BOMB = "[" * 5000 + "]" * 5000


def hostile_files() -> Iterator[tuple[str, bytes]]:
    """Yield files that every reader should refuse."""
    for i, data in enumerate(
        (
            b"",
            b"\x02",
            safetensors_file("{}", length=2**63),
            safetensors_file("{}", length=3),
            safetensors_file("{}", length=2**40),
            safetensors_file("", length=0),
        )
    ):
        yield f"length{i}.safetensors", data
    yield "too-long.safetensors", U64.pack(17 << 20) + b"{}" + bytes(18 << 20)
    for i, header in enumerate((
        " {}", "[]", "{", "}", '{"a"', '{"a":', '{"a":1}', '{"a":{}}', '{"a":null}', '{"a":[]}', "{} x", "{},", '{"a":' + BOMB + "}", "\ufeff{}", "{'a':1}", "NaN", '{"__metadata__":{"a":1}}',
        '{"__metadata__":{"a":"b","a":"c"}}', '{"__metadata__":[]}', '{"__metadata__":{},"__metadata__":{}}', '{"__metadata__":"x"}', '{"a\\ud800":' + entry() + "}", '{"a\nb":' + entry() + "}", '{"\\x":' + entry() + "}",
    )):  # fmt: skip
        yield (
            f"header{i}.safetensors",
            safetensors_file(header, 16 if "data_offsets" in header else 0),
        )
    yield "utf8.safetensors", safetensors_file(b'{"\xff":' + entry().encode() + b"}", 16)
    for i, (what, body) in enumerate((
        (entry("F33"), 16), (entry("__proto__"), 16), (entry(shape="[2,2,]"), 16), (entry(shape="[2.0,2]"), 16), (entry(shape="[-2,-2]"), 16), (entry(shape="[2,-0]", offsets="[0,0]"), 0), (entry(shape="[02,2]"), 16),
        (entry(shape='["2","2"]'), 16), (entry(shape="[18446744073709551615,4]"), 16), (entry(shape="[99999999999999999999]"), 16), (entry(shape="4"), 16), (entry(shape=f"[{','.join(['1'] * 65)}]", offsets="[0,4]"), 4),
        (entry(offsets="[0,15]"), 15), (entry(offsets="[0,17]"), 17), (entry(offsets="[16,0]"), 16), (entry(offsets="[4,20]"), 20), (entry(offsets="[0]"), 16), (entry(offsets="[0,16,16]"), 16), (entry(offsets="[0,1e1]"), 16),
        (entry(), 15), (entry(), 17), (entry("F4", "[3]", "[0,1]"), 1), ('{"dtype":"F32","shape":[2,2]}', 16), (entry()[:-1] + ',"x":1}', 16), (entry()[:-1] + ',"dtype":"F32"}', 16), ('{"dtype":1,"shape":[],"data_offsets":[0,4]}', 4),
    )):  # fmt: skip
        yield f"entry{i}.safetensors", safetensors_file(f'{{"a":{what}}}', body)
    yield (
        "twice.safetensors",
        safetensors_file('{"a":' + entry() + ',"a":' + entry(offsets="[16,32]") + "}", 32),
    )
    yield (
        "overlap.safetensors",
        safetensors_file('{"a":' + entry() + ',"b":' + entry(offsets="[8,24]") + "}", 24),
    )
    yield (
        "hole.safetensors",
        safetensors_file('{"a":' + entry() + ',"b":' + entry(offsets="[24,40]") + "}", 40),
    )
    whole = gguf(
        (
            key("general.name", STRING, text("x")),
            key("a", ARRAY, U32.pack(4) + U64.pack(2) + bytes(8)),
        )
    )
    for n in (4, 5, 12, 23, 24, 30, 60, len(whole) - 60, len(whole) - 1):
        yield f"short{n}.gguf", whole[:n]
    for i, (version, counts) in enumerate(
        (
            (1, None),
            (4, None),
            (2**31, None),
            (3, (2**63, 0)),
            (3, (0, 2**63)),
            (3, (2**20, 0)),
            (3, (2, 0)),
            (3, (1, 1)),
        )
    ):
        yield f"count{i}.gguf", gguf(version=version, counts=counts)
    for i, bad in enumerate((
        text(b"\xff") + U32.pack(4) + bytes(4), key("", 4, bytes(4)), key("a\0b", 4, bytes(4)), key("a", 13, bytes(4)), key("a", 2**31, bytes(4)), key("a", 7, b"\2"), key("a", STRING, U64.pack(2**63)), key("a", STRING, U64.pack(2**40)),
        key("a", ARRAY, U32.pack(ARRAY) + U64.pack(1) + U32.pack(ARRAY) + U64.pack(1)), key("a", ARRAY, U32.pack(4) + U64.pack(2**62)), key("a", ARRAY, U32.pack(STRING) + U64.pack(2**31)), key("a", ARRAY, U32.pack(7) + U64.pack(1) + b"\7"),
        key("a", ARRAY, U32.pack(14) + U64.pack(0)), key("general.alignment", 10, U64.pack(32)), key("general.alignment", 4, U32.pack(0)), key("general.alignment", 4, U32.pack(33)), key("general.alignment", STRING, text("32")), U64.pack(2**60) + b"a",
        key("a", ARRAY, U32.pack(STRING) + U64.pack(1) + U64.pack(2**62)), key("x" * 70_000, 4, bytes(4)),
    )):  # fmt: skip
        yield f"key{i}.gguf", gguf((bad,), body=64)
    yield "keys.gguf", gguf((key("a", 4, bytes(4)), key("a", 4, bytes(4))))
    for i, wrong in enumerate((
        tensor("w" * 64), tensor("w\0"), tensor(b"\xff"), tensor(shape=(1, 1, 1, 1, 8)), tensor(shape=(0,)), tensor(shape=(2**62, 2)), tensor(shape=(2**63,)), tensor(dtype=4), tensor(dtype=99), tensor(dtype=2**32 - 1),
        tensor(shape=(31, 2), dtype=8), tensor(offset=32), tensor(offset=1), tensor(offset=2**63), tensor(shape=(2**40,)),
    )):  # fmt: skip
        yield f"tensor{i}.gguf", gguf(tensors=(wrong,), body=4096)
    yield "names.gguf", gguf(tensors=(tensor(), tensor(offset=32)), body=64)
    yield "gap.gguf", gguf(tensors=(tensor("a"), tensor("b", offset=64)), body=128)
    for i, data in enumerate((b"GGML" + bytes(40), b"PK\3\4" + bytes(40), bytes(64), b"\xff" * 64)):
        yield f"other{i}.gguf", data
    for i, config in enumerate((
        b"", b"{", b"[]", b"null", b"\xff{}", b'{"model_type":"llama","model_type":"gpt2"}', BOMB.encode(), b'{"a":' + b"9" * 5000 + b"}", b'{"model_type":"<img src=x onerror=pwned()>"}', b"{}", b'{"model_type":7}', b'{"model_type":"llama"}',
        b'{"a":NaN}', b'{"a":1e999}', b'{"__proto__":{"model_type":"llama"}}', b'{"model_type":"llama","hidden_size":-1}', b'{"model_type":"llama","hidden_size":1.5}', b"{} {}", b'{"model_type":"llama","num_hidden_layers":0}',
    )):  # fmt: skip
        yield f"config{i}.json", config


def drop(tab: Any, path: Path) -> dict[str, Any]:
    """Open a file on the page; return its rows or its error message."""
    tab.set_input_files("#file-input", str(path))
    tab.wait_for_selector(".wrong, .file, [data-part=designed]")
    return dict(tab.evaluate(READ_RESULT))


READ_RESULT = """() => {
  const visible = (x) => { const copy = x?.cloneNode(true); copy?.querySelectorAll('.hidden').forEach((y) => y.remove()); return copy?.textContent ?? null; };
  return {
  wrong: document.querySelector('.wrong')?.textContent ?? null,
  rows: [...document.querySelectorAll('#files .file tr')].map((x) => [...x.cells].map(visible)),
  values: visible(document.querySelector('[data-part=values]')),
  stored: visible(document.querySelector('[data-part=stored]')),
}; }"""


READ_FILES = """(given) => Promise.all(given.map(async ([name, text]) => {
  const packed = new Blob([Uint8Array.from(atob(text), (x) => x.charCodeAt(0))]);
  const plain = packed.stream().pipeThrough(new DecompressionStream("deflate"));
  return pageTest.file(await new Response(plain).arrayBuffer(), name);
}))"""


def read_in_page(tab: Any, paths: list[Path]) -> list[dict[str, Any]]:
    """Read many files with the reader of the page."""
    given = [[x.name, b64encode(zlib.compress(x.read_bytes())).decode()] for x in paths]
    return list(tab.evaluate(READ_FILES, given))


def read(path: Path) -> Manifest | None:
    try:
        return checkpoint.read_checkpoint(str(path))
    except FormatError:
        return None


@pytest.fixture
def tab(browser: Any, tmp_path: Path) -> Iterator[Any]:
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as made:
        yield made


def write_files(folder: Path, files: Iterator[tuple[str, bytes]]) -> list[Path]:
    made = []
    for name, data in files:
        (folder / name).write_bytes(data)
        made.append(folder / name)
    return made


def test_dropped_files_are_read_like_the_library(tab: Any, tmp_path: Path) -> None:
    paths = write_files(tmp_path, valid_files())
    for path, result in zip(paths, read_in_page(tab, paths), strict=True):
        manifest = read(path)
        assert manifest is not None and "wrong" not in result, (path.name, result)
        assert [tuple(x) for x in result["tensors"]] == rows_of(manifest), path.name


def rows_of(manifest: Manifest) -> list[tuple[str, ...]]:
    return [(x.name, x.dtype, *map(str, (x.elements, x.bytes, *x.shape))) for x in manifest.tensors]


def test_dropped_file_is_shown_with_totals(tab: Any, tmp_path: Path) -> None:
    files = {
        name: data for name, data in valid_files() if name in ("layers.safetensors", "blocks.gguf")
    }
    for path in write_files(tmp_path, iter(files.items())):
        result, manifest = drop(tab, path), read(path)
        assert manifest is not None
        tensors = list(manifest.tensors)
        assert result["values"] == f"{sum(x.elements for x in tensors):,}"
        assert result["stored"].startswith(f"{sum(x.bytes for x in tensors):,} bytes")
        rows = [x for x in result["rows"] if len(x) == 7 and x[0] != "tensor"]
        assert sum(int(x[5].replace(",", "")) for x in rows) == sum(x.elements for x in tensors)
        assert sum(int(x[4].replace(",", "")) for x in rows) == len(tensors)
        tab.click("text=Close the file")


def test_hostile_files_are_refused_by_page_and_library(tab: Any, tmp_path: Path) -> None:
    paths = write_files(tmp_path, hostile_files())
    assert len(paths) > 120
    for path, result in zip(paths, read_in_page(tab, paths), strict=True):
        assert result.get("wrong", "?")[0] != "?", (path.name, result)
        if path.suffix == ".json":
            with pytest.raises(LlamathError):
                llamath.load(str(path))
        else:
            assert read(path) is None, path.name


def test_broken_files_are_named_as_by_the_library(tab: Any, tmp_path: Path) -> None:
    from support.broken_files import CONTENTS

    for ending in (".safetensors", ".json"):
        contents = {
            name: x
            for name, x in CONTENTS.items()
            if ending == ".safetensors" or name not in ("text", "json error")
        }
        paths = write_files(
            tmp_path, ((f"{i}{ending}", data) for i, (data, _, _) in enumerate(contents.values()))
        )
        for path, (_, _, message) in zip(paths, contents.values(), strict=True):
            wrong = drop(tab, path)["wrong"]
            words = {
                "is empty": "an empty file",
                "begins with 1,024 zero bytes": "a file of zero bytes",
            }.get(message, message)
            assert ", not " in wrong
            assert words.removeprefix("is ").partition(" (")[0].partition(" to ")[0] in wrong, (
                path,
                wrong,
            )
            tab.click("text=Close the file")


def test_hostile_file_leaves_the_page_unchanged(tab: Any, tmp_path: Path) -> None:
    before = tab.inner_text("#page")
    picked = ("header12.safetensors", "entry1.safetensors", "short30.gguf", "config8.json")
    for path in write_files(tmp_path, (x for x in hostile_files() if x[0] in picked)):
        result = drop(tab, path)
        assert path.name in result["wrong"] and not result["rows"]
        tab.click("text=Close the file")
        assert tab.inner_text("#page") == before and tab.locator("img").count() == 0
    hostile_name = safetensors_file('{"<img src=x onerror=pwned()>":' + entry() + "}", 16)
    (path,) = write_files(tmp_path, iter([("x.safetensors", hostile_name)]))
    assert (
        "<img src=x onerror=pwned()>" in str(drop(tab, path)["rows"])
        and tab.locator("img").count() == 0
    )


def test_only_the_header_of_a_huge_file_is_read(tab: Any, tmp_path: Path) -> None:
    path = tmp_path / "huge.safetensors"
    header = json.dumps(
        {"w": {"dtype": "BF16", "shape": [5 * 10**10], "data_offsets": [0, 10**11]}}
    ).encode()
    with open(path, "wb") as file:
        file.write(U64.pack(len(header)) + header)
        file.truncate(8 + len(header) + 10**11)
    result = drop(tab, path)
    assert result["values"] == "50,000,000,000" and result["stored"].startswith(
        "100,000,000,000 bytes of tensors: 100.00 GB"
    )
    path.unlink()


def test_page_and_library_agree_on_damaged_headers(tab: Any, tmp_path: Path) -> None:
    """Page and library refuse the same randomly damaged headers, and read the others alike."""
    rng, good = random.Random(8), [x for x in valid_files() if len(x[1]) < 4000]
    files = []
    for i in range(600):
        name, data = rng.choice(good)
        changed = bytearray(data)
        for _ in range(rng.randint(1, 2)):
            changed[rng.randrange(min(len(changed), 160))] = rng.choice(
                [0, 1, 2, 9, 34, 44, 48, 57, 91, 93, 123, 125, 255, rng.randrange(256)]
            )
        files.append((f"{i}-{name}", bytes(changed)))
    paths = write_files(tmp_path, iter(files))
    taken = 0
    for path, result in zip(paths, read_in_page(tab, paths), strict=True):
        manifest = read(path)
        assert (manifest is None) == ("wrong" in result), (
            path.name,
            result,
            path.read_bytes()[:200],
        )
        if manifest is not None:
            taken += 1
            assert [tuple(x) for x in result["tensors"]] == rows_of(manifest), path.name
    assert taken > 10


def test_dropped_config_of_the_family_opens_an_edit(tab: Any, tmp_path: Path) -> None:
    counted = 0
    tab.click("[data-level=model]")
    for slug in [x for x in slugs() if llamath.load(x).family.name == "llama"][:8]:
        model = llamath.load(slug)
        path = tmp_path / "config.json"
        path.write_text(
            json.dumps(
                {
                    **model.config.data,
                    "architectures": ["LlamaForCausalLM"],
                    "transformers_version": "4.40",
                }
            )
        )
        result = drop(tab, path)
        if result["wrong"] is None:
            counted += 1
            assert "zoom" not in tab.evaluate("location.hash"), "a level of the model before"
            shown = tab.text_content("[data-part=designed]")
            assert shown.endswith(f": {model.parameters.total:,}"), slug
            assert (
                llamath.load(json.loads(shown_config(tab))).parameters.total
                == model.parameters.total
            )
            tour = tab.evaluate("() => JSON.stringify(llamath.data.models[0].tour)")
            stops = tab.text_content(".tour-start")
            assert stops == f"Follow one token: {len(json.loads(tour))} stops"
            tab.click("#edit >> text=Close")
            tab.wait_for_selector("[data-part=parameters]")
        else:
            assert "llamath export config.json" in result["wrong"]
    assert counted >= 4
    other = tmp_path / "config.json"
    for changes in (
        {"attention_bias": True},
        {"model_type": "bert"},
        {"num_hidden_layers": 10**9},
        {"hidden_size": 2**63},
        {"hidden_size": -4096},
        {"hidden_size": 4096.5},
        {"hidden_size": "4096"},
        {"hidden_size": [[4096]]},
        {"tie_word_embeddings": None},
        {"num_hidden_layers": None},
        {"unheard_of": {"a": 1}},
        {"mamba_d_state": 16},  # which no family of these configs reads, and another does
    ):
        other.write_text(json.dumps({**llamath.load("llama-3-8b").config.data, **changes}))
        result = drop(tab, other)
        assert result["wrong"] and "llamath export" in result["wrong"], changes
        other.write_text(json.dumps({**changes, "model_type": "\u202ellama"}))
        assert "\u202e" not in drop(tab, other)["wrong"], "what is after it would be turned around"


def test_keys_that_no_family_reads_are_ignored_by_name(tab: Any, tmp_path: Path) -> None:
    """As the library ignores them, in an edit and in Design, and after a reload."""
    path, unheard = tmp_path / "mine.json", {"unsloth_fixed": True, "company_tag": "v\u202e3"}
    for slug, part in (("llama-3-8b", "#edit"), ("qwen2-7b", ".hero")):
        config = {**llamath.load(slug).config.data, **unheard}
        path.write_text(json.dumps(config))
        assert drop(tab, path)["wrong"] is None
        for _ in range(2):
            wait_until_drawn(tab)
            said = tab.text_content(part)
            assert all(x in said for x in unheard), said
            shown = tab.text_content("[data-part=designed]")
            assert shown.endswith(f"{llamath.load(config).parameters.total:,}")
            assert json.loads(shown_config(tab))["company_tag"] == unheard["company_tag"]
            assert "\u202e" not in tab.inner_text("main")
            tab.reload()


def test_configs_of_all_families_open_in_every_page(browser: Any, tmp_path: Path) -> None:
    models = [llamath.load(x) for x in slugs()]
    configs = {
        x.family.name: x for x in models if isinstance(x, FamilyModel) and not x.tree.is_multimodal
    }
    assert len(configs) > 100
    path, refused = tmp_path / "config.json", []
    with Tab(browser, tmp_path, page_of("deepseek-v3")) as tab:
        for model in configs.values():
            path.write_text(json.dumps(dict(model.config.data)))
            if count_in_page(tab, path) != model.parameters.total:
                refused.append((model.name, count_in_page(tab, path)))
        assert not refused
        assert drop(tab, path)["wrong"] is None
        shown = json.loads(tab.text_content("pre[aria-label='config.json']"))
        assert llamath.load(shown).parameters.total == model.parameters.total


def test_config_of_another_family_is_sized(tab: Any, tmp_path: Path) -> None:
    """On the page of Llama 3 8B, by keys of the file: cache, memory and what fits as the library says."""
    path = tmp_path / "mine.json"
    config = dict(llamath.load("qwen2-7b").config.data) | {
        "max_position_embeddings": 131_072,
        "use_sliding_window": False,
        "sliding_window": 131_072,
        "max_window_layers": 28,
        "layer_types": ["full_attention"] * 28,
    }
    path.write_text(json.dumps(config))
    assert drop(tab, path)["wrong"] is None
    wait_until_drawn(tab)
    said = tab.text_content("[data-part=bytes]")
    for part in ("56 KiB", "448 MiB", "7 GiB", "at its context of 131,072"):
        assert part in said, said
    model = llamath.load(config)
    memory = MemoryCalculator(model, MemoryRequest(dtype="bf16", kv_dtype="bf16")).at(8192, 1)
    shown = {
        x: int(shown_text(tab, f".parts [data-part={x}]").replace(",", ""))
        for x in ("weights", "cache", "total")
    }
    assert shown == {"weights": memory.weights, "cache": memory.cache.bytes, "total": memory.total}
    assert tab.text_content("#hardware-title").startswith("One ")
    assert tab.locator("table.hardware [data-fit$=' 4']").first.text_content().endswith("TP 4")
    assert "tokens/s" not in tab.text_content("#hardware"), "no bound of the speed is known"
    for changes, names in (
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"layer_types": ["sliding_attention"] * 28}, "layer_types"),
        ({"use_sliding_window": {"__proto__": [1]}}, "use_sliding_window"),
        ({"layer_types": ["full_attention"] * 9}, "layer_types"),
        ({"use_sliding_window": "true"}, "use_sliding_window"),
        ({"layer_types": [" " * 500_000]}, "layer_types"),
    ):  # each says something else than the one before
        path.write_text(json.dumps({**config, **changes}))
        assert drop(tab, path)["wrong"] is None
        said = f"it depends on {names}, which this page knows"
        tab.wait_for_selector(f"[data-part=bytes]:has-text('{said}')")
        assert not tab.locator("#hardware").count()
    path.write_text(json.dumps({**config, "max_position_embeddings": 10**30}))
    assert drop(tab, path)["wrong"] is None
    assert "at its context" not in tab.text_content("[data-part=bytes]")


def test_window_of_a_dropped_config_is_followed(tab: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    config = dict(llamath.load("gemma-2-9b").config.data) | {"sliding_window": 1000}
    for window, words in (
        (1000, "MiB"),
        (None, "MiB"),
        (0, ""),
        ("4096", ""),
        (-1, ""),
        (10**40, ""),
    ):
        path.write_text(json.dumps({**config, "sliding_window": window}))
        assert drop(tab, path)["wrong"] is None
        wait_until_drawn(tab)
        said = tab.text_content("[data-part=bytes]")
        if not words:
            assert "it depends on sliding_window" in said, window
            continue
        model = llamath.load({**config, "sliding_window": window})
        cached = kv_cache_size(model.tree, 8192).bytes
        shown = tab.evaluate("n => llamath.shortBytes(BigInt(n))", str(cached))
        assert f"KV cache: {shown} at 8,192" in said, said
        named = (
            f"with a window of {window:,} tokens in some layers (sliding_window)" if window else ""
        )
        assert named in said and ("window" in said) == bool(window), said
    mistral = dict(llamath.load("mistral-7b").config.data)
    path.write_text(json.dumps({**mistral, "sliding_window": 1024}))
    assert drop(tab, path)["wrong"] is None
    wait_until_drawn(tab)
    said = tab.text_content("[data-part=bytes]")
    assert said.endswith("with a window of 1,024 tokens in all layers (sliding_window).")


def test_address_has_the_other_keys_of_a_dropped_config(tab: Any, tmp_path: Path) -> None:
    """A reload, and a link, know a window, a context, a key that is left out, and what is too long."""
    path = tmp_path / "mine.json"
    mistral, qwen = (dict(llamath.load(x).config.data) for x in ("mistral-7b", "qwen2-7b"))
    without = {x: y for x, y in mistral.items() if x != "sliding_window"}
    layers = {"layer_types": ["full_attention"] * 28, "use_sliding_window": False}
    for config, said in (
        ({**mistral, "sliding_window": None, "max_position_embeddings": 32_768}, "4 GiB at its"),
        ({**mistral, "sliding_window": 1024, "rope_theta": 123.5}, "a window of 1,024 tokens"),
        (without, ""),
        ({**qwen, **layers, "max_window_layers": 28}, "448 MiB at 8,192 tokens"),
        ({**qwen, "layer_types": ["full_attention"] * 27 + ["é" * 9000]}, "depends on layer_types"),
    ):
        path.write_text(json.dumps(config))
        assert drop(tab, path)["wrong"] is None
        wait_until_drawn(tab)
        shown = tab.text_content("[data-part=bytes]")
        assert said in shown, shown
        heading = tab.text_content("h1")
        tab.reload()
        wait_until_drawn(tab)
        assert tab.text_content("[data-part=bytes]") == shown
        assert tab.text_content("h1") == heading
        if "depends" not in said:
            assert tab.locator("#hardware").count()
            own = json.loads(tab.text_content("pre[aria-label='config.json']"))
            assert {**own, **config} == own, "nothing is lost from the config that is saved"


def test_config_of_another_family_is_named_after_itself(tab: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    model = llamath.load("qwen2-7b")
    path.write_text(json.dumps(dict(model.config.data)))
    assert drop(tab, path)["wrong"] is None
    assert tab.text_content("h1") == "Your qwen2 config: 7.62B"
    assert "CodeQwen" not in tab.inner_text("body"), "the preset with the form of the family"
    assert tab.locator(".design-own").count() == 0, "no outline of a neighbour"
    tab.fill("#size-L", "14")
    wait_until_drawn(tab)
    assert tab.text_content("h1") != "Your qwen2 config: 7.62B"
    tab.click("text=Reset to mine.json")
    wait_until_drawn(tab)
    assert tab.text_content("h1") == "Your qwen2 config: 7.62B"
    address = tab.url
    go_to(tab, "#view=design")
    assert tab.text_content("h1") == "Design a model like Llama 3 8B"
    go_to(tab, "#" + address.partition("#")[2])
    assert tab.text_content("h1") == "Your qwen2 config: 7.62B"


@pytest.mark.parametrize("seed", range(3))
def test_params_json_is_counted_like_the_library(browser: Any, tmp_path: Path, seed: int) -> None:
    rng, path = random.Random(seed), tmp_path / "params.json"
    with Tab(browser, tmp_path, page_of("deepseek-v3")) as tab:
        for _ in range(40):
            heads = rng.choice((4, 8, 12, 32))
            params = {
                "dim": heads * 2 * rng.randint(1, 90),
                "n_layers": rng.randint(1, 9),
                "n_heads": heads,
                "vocab_size": rng.randint(1, 200_000),
                "norm_eps": 1e-5,
                **({"n_kv_heads": heads // rng.choice((1, 2, 4))} if rng.random() < 0.6 else {}),
                **({"multiple_of": rng.choice((1, 7, 256, 1024))} if rng.random() < 0.6 else {}),
            }
            if rng.random() < 0.7:
                params["ffn_dim_multiplier"] = rng.choice((0.7, 0.29, 1.1, 1.3, 1, 2.67))
            path.write_text(json.dumps(params))
            assert count_in_page(tab, path) == llamath.load(path).parameters.total, params


def count_in_page(tab: Any, path: Path) -> int | str:
    """Return the total of a config as the page counts it, or why it does not."""
    return tab.evaluate(
        """async (text) => {
          const { data, readConfig, designedModel, decodeSizes, evaluateDesign } = llamath;
          try {
            const { like, sizes } = await readConfig(new File([text], "config.json"), data);
            const { design } = designedModel(data, like);
            return Number(evaluateDesign(design, decodeSizes(design, sizes)).total);
          } catch (error) {
            return error.message;
          }
        }""",
        path.read_text(),
    )


def test_files_can_be_opened_by_keyboard(tab: Any, tmp_path: Path) -> None:
    (path,) = write_files(
        tmp_path,
        iter([("a.safetensors", safetensors_file('{"model.layers.0.x":' + entry() + "}", 16))]),
    )
    with tab.expect_file_chooser() as chooser:
        tab.focus("text=Open a file")
        tab.keyboard.press("Enter")
    chooser.value.set_files(str(path))
    tab.wait_for_selector(".file")
    wait_until_drawn(tab)
    assert (
        tab.evaluate("document.activeElement.id") == "files-title"
        and tab.text_content("#files-title") == "a.safetensors"
    )
    tab.click("[data-part=values]")
    assert tab.text_content("dialog[open] pre") == "F32\n= 4\n= 4"
    tab.keyboard.press("Escape")
    tab.fill("#find-file", "nothing")
    assert "0 of 1 rows" in tab.text_content("#files")
    tab.evaluate(
        """data => {
          const moved = new DataTransfer();
          moved.items.add(new File([new Uint8Array(data)], "b.safetensors"));
          dispatchEvent(new DragEvent("drop", { dataTransfer: moved, cancelable: true }));
        }""",
        list(safetensors_file('{"z":' + entry() + "}", 16)),
    )
    tab.wait_for_selector("#files-title:has-text('b.safetensors')")
    tab.click("text=Close the file")
    assert tab.evaluate("document.activeElement.textContent") == "Open a file"


def test_a_config_keeps_its_keys_that_change_no_weight(tab: Any, tmp_path: Path) -> None:
    """Llama 3.1 on the page of Llama 3: its context and rope_scaling are those of its own config."""
    model = llamath.load("llama-3.1-8b")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(dict(model.config.data)))
    assert drop(tab, path)["wrong"] is None
    config = json.loads(shown_config(tab))
    for key in ("rope_scaling", "max_position_embeddings", "rope_theta"):
        assert config.get(key) == model.config.data.get(key), key
    assert "Keys that change no weight are those of config.json" in tab.text_content("main")
    assert not tab.locator(".edit-note").count(), "all is followed"
    facts = tab.inner_text(".facts").replace("\xa0", " ")
    assert "131,072" in facts and "16 GiB at 128k" in facts
    assert "Llama 3 scaling × 8 from 8,192 tokens" in facts
    assert tab.text_content("h1") == "config" and tab.title().startswith("config.json: 8.03B")
    sheet = tab.inner_text(".sheet")
    assert "Source: config.json" in sheet and "Meta" not in sheet and "license" not in sheet
    assert "config fits on" in tab.text_content("#hardware")
    assert llamath.load(config).parameters.total == model.parameters.total
    tab.click("#edit >> text=Close")
    tab.click("[data-view=edit]")
    tab.click("#edit-by [data-value=text]")
    wait_until_drawn(tab)
    own = json.loads(shown_config(tab))
    assert own.get("rope_scaling") is None and own["max_position_embeddings"] == 8192
    assert not tab.locator(".edit-note").count() and tab.text_content("h1") == "Llama 3 8B"


def test_a_config_with_another_head_has_the_whole_page(tab: Any, tmp_path: Path) -> None:
    """And one that is no model is refused by what is said first."""
    model = llamath.load("llama-3.2-1b")
    path = tmp_path / "small.json"
    path.write_text(json.dumps(dict(model.config.data)))
    assert drop(tab, path)["wrong"] is None
    assert tab.text_content("h1") == "small" and "tied head" in tab.inner_text(".facts")
    assert f"{model.parameters.total:,}" in tab.text_content(".hero")
    assert not tab.locator(".stale, .edit-note").count()
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({**model.config.data, "num_attention_heads": 15}))
    tab.set_input_files("#file-input", str(bad))
    tab.wait_for_selector(".edit-status .broken")
    says = "num_key_value_heads should divide num_attention_heads"
    assert tab.text_content(".status-line") == f"bad.json is not a valid model: {says}"
    assert says in tab.text_content(".edit-status") and tab.locator(".stale").count() == 1
    tab.click("#edit >> text=Close")


HOSTILE_VALUES: dict[str, list[Any]] = {
    "max_position_embeddings": [10**400, -1, 0, 1.5, "8192", [8192], {"__proto__": 1}, True],
    "rope_theta": [1e300, -1, 0, "x", [], {"constructor": 1}, False],
    "rope_scaling": [
        *({"rope_type": x, "factor": 2.0} for x in ("constructor", "__proto__", 7, None, "<b>")),
        {"rope_type": "linear", "factor": 1e300},
        {"rope_type": "linear", "factor": "__proto__"},
        {"rope_type": "llama3", "factor": 8, "low_freq_factor": [[1]]},
        "linear",
        [1],
    ],
    "hidden_act": ["constructor", "__proto__", "toString", 7, ["gelu"], "<img src=x>"],
    "torch_dtype": ["constructor", "hasOwnProperty", 16, {"a": []}, "int3"],
}


def test_hostile_values_are_named_and_change_nothing(tab: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    config = dict(llamath.load("llama-3-8b").config.data)
    path.write_text(json.dumps(config))
    assert drop(tab, path)["wrong"] is None
    facts = tab.inner_text(".facts")
    for name, values in HOSTILE_VALUES.items():
        for i, value in enumerate(values):
            path = tmp_path / f"{name}-{i}.json"
            path.write_text(json.dumps({**config, name: value}))
            tab.set_input_files("#file-input", str(path))
            if value == 10**400:
                tab.wait_for_selector(".wrong:has-text('digits')")
            else:
                tab.wait_for_selector(f"h1:has-text('{path.stem}')")
                assert name in tab.text_content(".edit-note"), value
            assert tab.inner_text(".facts") == facts, (name, value)


UTF_16 = json.dumps({"model_type": "llama"}).encode("utf-16")
ANSWERS = {
    "text.safetensors": (
        b"Dear reader, this is a letter.\n" * 9,
        "it is a text file, not a checkpoint",
    ),
    "params.json": (
        json.dumps({"dim": 4096, "n_layers": 32, "n_heads": 32, "norm_eps": 1e-5}).encode(),
        "vocab_size is −1, which leaves it to the tokenizer: set it in the file",
    ),
    "latent.json": (
        b'{"dim": 4096, "n_layers": 32, "n_heads": 32, "q_lora_rank": 512}',
        "q_lora_rank is no key of Meta's params.json that this page knows",
    ),
    "zero.json": (
        b'{"dim": 0, "n_layers": 32, "n_heads": 32, "vocab_size": 9}',
        "dim is not a whole number of at least 1",
    ),
    "factor.json": (
        b'{"dim": 64, "n_layers": 2, "n_heads": 2, "vocab_size": 9, "ffn_dim_multiplier": "x"}',
        "ffn_dim_multiplier is not a positive number",
    ),
    "deep.json": (
        b'{"model_type": "llama", "num_hidden_layers": 1000000000000000000}',
        "num_hidden_layers is 1000000000000000000; at most 100000",
    ),
    "many.json": (
        b'{"model_type": "llama", "num_hidden_layers": 1000000000}',
        "num_hidden_layers is 1000000000; at most 100000",
    ),
    "other.json": (
        b'{"model_type": "olmo99", "architectures": ["Olmo99ForCausalLM"], "num_hidden_layers": 28, "hidden_size": 3584}',
        'it describes model_type "olmo99" (Olmo99ForCausalLM, 28 layers, width 3584), and this page counts configs of ',
    ),
    "a b's.json": (
        b'{"model_type": "olmo99"}',
        "llamath count 'a b'\\''s.json', and for a page llamath export 'a b'\\''s.json' -o page.html",
    ),
    "-x.json": (b'{"model_type": "olmo99"}', "llamath count './-x.json'"),
    "a\u202eb.json": (b'{"model_type": "olmo99"}', "llamath count FILE"),
    "bad.index.json": (b'{"weights": []}', "the file contains no weight_map"),
    "model.safetensors.index (1).json": (b'{"weights": []}', "the file contains no weight_map"),
    "utf16.json": (UTF_16, "it is UTF-16 text, not JSON"),
    "mark.json": (b"\xef\xbb\xbf{}", "it begins with a byte order mark"),
    "utf16.safetensors": (UTF_16, "it is UTF-16 text, not a checkpoint"),
    "tokenizer.json": (
        b'{"version": "1.0", "added_tokens": [], "model": {}}',
        "it is a tokenizer, not a model's configuration",
    ),
    "adapter_config.json": (b'{"peft_type": "LORA"}', "it is the configuration of an adapter"),
    "generation_config.json": (
        b'{"_from_model_config": true}',
        "it is the settings of text generation",
    ),
    "package.json": (b'{"name": "x"}', "it has no model_type, which every config.json has"),
    "weights.bin": (
        b"PK\3\4" + bytes(40),
        "llamath ls weights.bin reads it, and executes nothing in it",
    ),
    "weights.pth": (b"\x80\2}q\0.", "it is a pickle, such as an old PyTorch file"),
    "page.gguf": (b"<!doctype html><title>Sign in</title>", "it is an HTML page, not a checkpoint"),
    "pointer.gguf": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        "it is a Git LFS pointer, not the file itself",
    ),
    "cut.safetensors": (safetensors_file('{"w":' + entry() + "}", 7), "the file is 9 bytes short"),
    "empty.gguf": (b"", "it is an empty file"),
    "broken.json": (
        b'{"a": 1,\n "b"',
        "expected a colon at line 2 column 5, found the end of the file, which may be cut short",
    ),
    "huge.json": (
        b'{"rope_theta": 1e400}',
        'expected a number within the range of a float at line 1 column 16, found "1e400}"',
    ),
    "comma.json": (b'{"a": 1 "b": 2}', 'expected a comma or } at line 1 column 9, found "'),
    "picture.json": (b"\x89PNG\r\n\x1a\n", "it is a picture, not JSON"),
}


def test_every_file_gets_a_clear_answer(tab: Any, tmp_path: Path) -> None:
    for name, (data, answer) in ANSWERS.items():
        (path,) = write_files(tmp_path, iter([(name, data)]))
        wrong = drop(tab, path)["wrong"] or ""
        assert answer in wrong and "`" not in wrong, name
        commands = tab.locator(".wrong code").all_text_contents()
        assert len(commands) == wrong.count("llamath "), name
        assert all(x.startswith("llamath ") for x in commands), name
        tab.click(".wrong >> text=Close the file")
        assert not tab.locator(".wrong").count()


def test_files_of_a_checkpoint_are_read_as_one(tab: Any, tmp_path: Path) -> None:
    shards = {
        f"model-{i}.safetensors": safetensors_file(f'{{"layers.{i}.w":{entry()}}}', 16)
        for i in range(3)
    }
    paths = write_files(tmp_path, iter({**shards, "model.safetensors.index.json": b"{}"}.items()))
    tab.set_input_files("#file-input", [str(x) for x in paths])
    tab.wait_for_selector(".file")
    assert tab.text_content("#files-title") == "model-0.safetensors and 2 more"
    assert shown_text(
        tab, "[data-part=values]"
    ) == "12" and "48 bytes of tensors" in tab.text_content("[data-part=stored]")
    tab.set_input_files("#file-input", [str(paths[0]), str(paths[0])])
    tab.wait_for_selector(".wrong")
    assert "the tensor layers.0.w occurs twice" in tab.text_content(".wrong")
    (other,) = write_files(tmp_path, iter([("a.json", b"{}")]))
    tab.set_input_files("#file-input", [str(paths[0]), str(other)])
    tab.wait_for_selector(".wrong:has-text('these are 2 files')")


def test_folder_is_named_as_one(tab: Any) -> None:
    tab.evaluate("""() => {
      const moved = new DataTransfer();
      moved.items.add(new File([], "Llama 3"));
      moved.items[0].constructor.prototype.webkitGetAsEntry = () => ({ isDirectory: true });
      dispatchEvent(new DragEvent("drop", { dataTransfer: moved, cancelable: true }));
    }""")
    tab.wait_for_selector(".wrong")
    assert "it is a folder. Drop its config.json" in tab.text_content(
        ".wrong"
    ) and "llamath serve 'Llama 3'" in tab.text_content(".wrong")


def test_an_index_shows_its_files(tab: Any, tmp_path: Path) -> None:
    weights = {
        f"model.layers.{i}.mlp.up.weight": f"model-0000{i % 3 + 1}-of-00003.safetensors"
        for i in range(8)
    }
    index = {"metadata": {"total_size": 16_060_522_496}, "weight_map": weights}
    (path,) = write_files(
        tmp_path, iter([("model.safetensors.index.json", json.dumps(index).encode())])
    )
    result = drop(tab, path)
    assert result["values"] == "8" and [x[1] for x in result["rows"][1:]] == ["3", "3", "2"]
    assert "16,060,522,496 bytes" in tab.text_content("#files")


def test_dragging_a_file_is_answered_at_once(tab: Any) -> None:
    drag = "(name) => { const moved = new DataTransfer(); moved.items.add(new File(['x'], 'x.gguf')); dispatchEvent(new DragEvent(name, { dataTransfer: moved, cancelable: true })); }"
    tab.evaluate(drag, "dragover")
    tab.wait_for_selector(".drop-overlay")
    assert tab.locator(".drop-zone.dragging").count() == 1
    tab.evaluate(drag, "dragleave")
    tab.locator(".drop-overlay").wait_for(state="detached")


CONFIGS = ["falcon-mamba-7b", "gemma-3-4b"]
MORE_CONFIGS = ["qwen2.5-7b", "deepseek-v3", "gpt-oss-20b"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "slug" in metafunc.fixturenames:
        every = metafunc.config.getoption("--all")
        metafunc.parametrize("slug", CONFIGS + MORE_CONFIGS * every)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    pytest.importorskip("uvicorn")
    with served([llamath.load("llama-3-8b")]) as found:
        yield found


@pytest.fixture
def visitor(browser: Any, place: Place) -> Iterator[Any]:
    """A tab of the server, whose requests go nowhere else, and whose page makes no error."""
    wrong: list[str] = []
    own = (place.address, EMPTY)
    listeners = {
        "pageerror": lambda x: wrong.append(str(x)),
        "request": lambda x: None if x.url.startswith(own) else wrong.append(x.url),
    }
    with lent_page(browser, 1280, 720) as page:
        for event, listener in listeners.items():
            page.on(event, listener)
        yield page
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
    assert not wrong


def config_file(folder: Path, slug: str, name: str = "config.json") -> Path:
    model = llamath.load(slug)
    path = folder / name
    path.write_text(json.dumps(dict((model.outer or model.config).data)))
    return path


def test_config_of_any_family_opens_on_the_server(
    visitor: Any, place: Place, tmp_path: Path, slug: str
) -> None:
    model = llamath.load(slug)
    visit(visitor, place.address)
    visitor.set_input_files("#file-input", str(config_file(tmp_path, slug)))
    visitor.wait_for_url("**/models/~1/~*#view=b*")
    visitor.wait_for_selector(f"h1:has-text('config.json ({model.family.name})')")
    assert f"{model.parameters.total:,}" in visitor.text_content("main")
    gpu = visitor.text_content(".runs strong").split("×")[1].strip()
    assert gpu in visitor.text_content("#speed-title"), "until another is chosen"
    visitor.click("[data-view=difference]")
    wait_until_drawn(visitor)
    assert "card" not in visitor.evaluate("location.hash")
    delta = model.parameters.total - 8_030_261_248
    assert f"{abs(delta):,}" in visitor.text_content("main")


def test_name_of_a_posted_config_stays_text(visitor: Any, place: Place, tmp_path: Path) -> None:
    visit(visitor, place.address)
    visitor.set_input_files(
        "#file-input", str(config_file(tmp_path, "gpt2", "x <img src=x onerror=pwned()>.json"))
    )
    visitor.wait_for_selector("[data-view=b]:has-text('x <img src=x onerror=pwned()>.json')")
    assert visitor.locator("img").count() == 0


def test_params_json_opens_on_the_server(visitor: Any, place: Place, tmp_path: Path) -> None:
    params = {
        "dim": 4096,
        "n_layers": 32,
        "n_heads": 32,
        "n_kv_heads": 8,
        "vocab_size": 128256,
        "multiple_of": 1024,
        "ffn_dim_multiplier": 1.3,
    }
    (tmp_path / "params.json").write_text(json.dumps(params))
    visit(visitor, f"{place.address}choose")
    visitor.set_input_files("#file-input", str(tmp_path / "params.json"))
    visitor.wait_for_url("**/model/~*")
    assert "8,030,261,248" in visitor.text_content("main")
    visitor.click("text=Another model")
    visitor.wait_for_url("**/choose")
    assert "params.json (llama)" in visitor.text_content(".models a.model >> nth=1")


def test_config_is_compared_from_the_gallery(visitor: Any, place: Place, tmp_path: Path) -> None:
    visit(visitor, f"{place.address}choose#with=gpt2")
    visitor.set_input_files("#file-input", str(config_file(tmp_path, "llama-3.2-1b")))
    visitor.wait_for_url("**/models/gpt2/~*")


SERVER_ANSWERS = {
    "many.json": (b'{"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":1000000000,"num_attention_heads":4,"vocab_size":9}', "1,000,000,000 layers"),
    "new.json": (b'{"model_type": "novel"}', "novel"),
    "tokenizer.json": (b'{"version": "1.0", "added_tokens": [], "model": {}}', "the file tokenizer.json is a tokenizer, not a model's configuration"),
    "utf16.json": (UTF_16, "the file utf16.json is UTF-16 text, not JSON"),
    "cut.json": (b'{"model_type": "llama", "hidden_si', "the file cut.json is not JSON"),
    "large.json": (b" " * (5 << 20), "the file is too long for a config"),
}  # fmt: skip


@pytest.mark.parametrize("name", SERVER_ANSWERS)
def test_server_answers_every_file_clearly(
    visitor: Any, place: Place, tmp_path: Path, name: str
) -> None:
    data, answer = SERVER_ANSWERS[name]
    (tmp_path / name).write_bytes(data)
    visit(visitor, place.address)
    assert answer in drop(visitor, tmp_path / name)["wrong"]
    assert visitor.url == place.address


def test_server_that_has_ended_is_named(browser: Any, tmp_path: Path) -> None:
    with lent_page(browser, 1280, 720) as page:
        with served([llamath.load("gpt2")]) as short:
            visit(page, short.address)
        found = drop(page, config_file(tmp_path, "gpt2"))
        assert "Does llamath serve still run?" in found["wrong"]
