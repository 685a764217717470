"""`ls`: files written by the reference packages, sums, the JSON contract, and hostile names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from llamath.analysis.storage.listing import TensorRow, TensorTotals, list_checkpoint, list_tensors
from llamath.analysis.storage.listing_tables import listing_tables
from llamath.analysis.storage.name_folding import unfold_pattern
from llamath.checkpoint.formats.manifest import CheckpointFile, Manifest, Tensor
from llamath.cli.ls import command
from llamath.render.csv_rows import report_rows
from llamath.render.report_text import report_text
from support import quantized_headers as make
from support.csv_tables import csv_rows

EVIL = [
    "\x1b[31mred",
    "a\u202eb",
    "x\ny",
    "\x7f\x9b1m",
    "\u200bq",
    "=cmd()",
    "m" * (1 << 16),
    "é.ü",
    '"quoted",',
    "{0..3}",
]


def ls(path: Path, *options: str) -> str:
    result = CliRunner().invoke(command, [str(path), *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def write(path: Path, headers: list[make.Header], metadata: dict[str, str] | None = None) -> Path:
    """Write a sparse safetensors file."""
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    for x in make.tensors(headers):
        entries[x.name] = {
            "dtype": x.dtype,
            "shape": list(x.shape),
            "data_offsets": [x.start, x.end],
        }
    data = json.dumps(entries, separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(len(data).to_bytes(8, "little") + data)
        file.truncate(8 + len(data) + sum(x.bytes for x in make.tensors(headers)))
    return path


GOLDEN = """\
FOLDER: safetensors, 2 files, 291 tensors

tensor                                               dtype  shape
model.embed_tokens.weight                            BF16   [128256, 4096]
model.layers.{0..31}.self_attn.q_proj.weight         BF16   [4096, 4096] × 32
model.layers.{0..31}.self_attn.k_proj.weight         BF16   [1024, 4096] × 32
model.layers.{0..31}.self_attn.v_proj.weight         BF16   [1024, 4096] × 32
model.layers.{0..31}.self_attn.o_proj.weight         BF16   [4096, 4096] × 32
model.layers.{0..31}.input_layernorm.weight          BF16   [4096] × 32
model.layers.{0..31}.mlp.gate_proj.weight            BF16   [14336, 4096] × 32
model.layers.{0..31}.mlp.up_proj.weight              BF16   [14336, 4096] × 32
model.layers.{0..31}.mlp.down_proj.weight            BF16   [4096, 14336] × 32
model.layers.{0..31}.post_attention_layernorm.weight BF16   [4096] × 32
model.norm.weight                                    BF16   [4096]
lm_head.weight                                       BF16   [128256, 4096]
"""


def llama(folder: Path) -> Path:
    headers = make.plain("llama-3.1-8b")
    halves = {
        "model-00001-of-00002.safetensors": headers[:150],
        "model-00002-of-00002.safetensors": headers[150:],
    }
    for name, half in halves.items():
        write(folder / name, half, {"format": "pt"})
    weight_map = {name: file for file, half in halves.items() for name, _, _ in half}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map})
    )
    return folder


def test_llama_fits_one_screen(tmp_path: Path) -> None:
    text = ls(llama(tmp_path))
    head, _, rest = text.partition("\nparameters")
    names = [line.split()[0] for line in GOLDEN.splitlines()[2:]]
    title, _, table = head.partition("\n\n")
    assert sorted(line.split()[0] for line in table.splitlines()) == sorted(names)
    assert {re.sub(" +", " ", x) for x in table.splitlines()} == {
        re.sub(" +", " ", x) for x in GOLDEN.splitlines()[2:]
    }
    assert " ".join(title.split()) == f"{tmp_path}: safetensors, 2 files, 291 tensors"
    assert all(len(line) <= 80 for line in text.splitlines()[1:])
    assert "8,030,261,248" in rest
    assert "16,060,522,496 bytes (16.06 GB, 14.96 GiB)" in rest
    assert re.search(r"^bits +16 per weight$", rest, re.MULTILINE)
    assert re.search(
        r"^BF16 +291 +8,030,261,248 +8,030,261,248 +16,060,522,496$", rest, re.MULTILINE
    )
    assert re.search(r"^format +pt$", rest, re.MULTILINE)


def test_printed_rows_add_up_to_the_printed_total(tmp_path: Path) -> None:
    text = ls(llama(tmp_path))
    rows = re.findall(r"\[([0-9, ]+)\](?: × ([0-9,]+))?$", text, re.MULTILINE)
    total = sum(
        prod(map(int, dims.split(", "))) * int(copies.replace(",", "") or 1)
        for dims, copies in rows
    )
    assert f"parameters  {total:,}\n" in text
    files = re.findall(r"^model-\S+ +([0-9,]+) +([0-9,]+) +[0-9,]+$", text, re.MULTILINE)
    assert [sum(int(x[i].replace(",", "")) for x in files) for i in (0, 1)] == [291, 16_060_522_496]


@pytest.mark.slow
def test_json_matches_safetensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    kinds = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn]
    tensors = {f"layers.{i}.w": torch.zeros(i + 1, 3).to(kinds[i % 5]) for i in range(12)} | {
        "scalar": torch.tensor(1.0)
    }
    path = tmp_path / "model.safetensors"
    safetensors.save_file(tensors, path, metadata={"format": "pt", "note": "n"})
    report = json.loads(ls(path, "--json"))
    assert report["format"] == "safetensors"
    assert {x["name"]: tuple(x["shape"]) for x in report["tensors"]} == {
        name: tuple(x.shape) for name, x in tensors.items()
    }
    assert report["elements"] == report["parameters"] == sum(x.numel() for x in tensors.values())
    assert report["bytes"] == sum(x.numel() * x.element_size() for x in tensors.values())
    assert report["metadata"] == {"format": "pt", "note": "n"}
    data = path.read_bytes()
    for x in report["tensors"]:
        assert x["file"] == "model.safetensors"
        assert x["elements"] == tensors[x["name"]].numel()
        assert (
            data[x["offset"] : x["offset"] + x["bytes"]]
            == tensors[x["name"]].reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    assert set(report["tensors"][0]) == {
        "name",
        "dtype",
        "shape",
        "elements",
        "bytes",
        "file",
        "offset",
    }
    assert report["files"][0] | {"path": ""} == {
        "name": "model.safetensors", "path": "", "size": len(data), "header": len(data) - report["bytes"], "tensors": 13,
        "bytes": report["bytes"],
    }  # fmt: skip


def test_gguf_matches_the_gguf_package(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    np = pytest.importorskip("numpy")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_token_list(["a", "b", "c"])
    writer.add_chat_template("{{ messages }}")
    for i in range(2):
        q = gguf.quants.quantize(
            np.zeros((64, 256), dtype=np.float32), gguf.GGMLQuantizationType.Q8_0
        )
        writer.add_tensor(f"blk.{i}.attn_q.weight", q, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("output_norm.weight", np.zeros(256, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = gguf.GGUFReader(path)
    report = json.loads(ls(path, "--json"))
    assert [
        (x["name"], x["dtype"], x["elements"], x["bytes"], x["offset"]) for x in report["tensors"]
    ] == [
        (x.name, x.tensor_type.name, int(x.n_elements), int(x.n_bytes), int(x.data_offset))
        for x in read.tensors
    ]
    assert report["parameters"] == 2 * 64 * 256 + 256
    assert report["metadata"]["tokenizer.ggml.tokens"] == "STRING × 3"
    assert report["metadata"]["tokenizer.chat_template"] == "{{ messages }}"
    text = ls(path)
    assert re.search(
        r"^blk\.\{0,1\}\.attn_q\.weight +Q8_0 +ggml +\[64, 256\] × 2 ", text, re.MULTILINE
    )
    assert re.search(r"^ggml +2 +32,768 +34,816 +8\.5$", text, re.MULTILINE)


@pytest.mark.slow
def test_torch_ties_and_views_share_storage(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    matrix, qkv = torch.zeros(100, 16), torch.zeros(48, 16)
    state = {
        "embed.weight": matrix,
        "head.weight": matrix,
        "q": qkv[:16],
        "k": qkv[16:32],
        "v": qkv[32:],
        "turned": matrix.t(),
    }
    state["wide"] = torch.zeros(1, 16).expand(1000, 16)
    path = tmp_path / "model.pth"
    torch.save({"model": state, "epoch": 3, "big": 10**300}, path)
    unique = 100 * 16 + 48 * 16 + 16
    report = json.loads(ls(path, "--json"))
    assert (report["parameters"], report["bytes"]) == (unique, 4 * unique)
    assert report["elements"] == sum(x.numel() for x in state.values())
    assert [(x["names"], x["same"], x["bytes"]) for x in report["shared"]] == [
        (["model.embed.weight", "model.head.weight", "model.turned"], True, 6400),
        (["model.q", "model.k", "model.v"], False, 3072),
    ]
    assert sum(x["bytes"] for x in report["files"]) == 4 * unique
    assert (report["metadata"]["epoch"], report["metadata"]["big"]) == (
        "3",
        "an integer of 997 bits",
    )
    text = ls(path)
    assert (
        "model.embed.weight, model.head.weight, model.turned: tied, the same 6,400 bytes"
        in " ".join(text.split())
    )
    assert re.search(r"^model\.head\.weight +F32 +\[100, 16\] tied", text, re.MULTILINE)
    assert f"parameters  {unique:,}\n" in text


def test_packing_is_read_from_the_config(tmp_path: Path) -> None:
    headers = list(make.packed(make.plain("llama-3.1-8b"), make.compressed(4, 128)))
    write(tmp_path / "model.safetensors", headers)
    before = json.loads(ls(tmp_path, "--json"))
    assert before["parameters"] < 8_030_261_248
    assert "224 weights packed as compressed-int" in before["notes"][0]
    assert (before["known"], before["bits_per_weight"]) == (False, None)
    text = ls(tmp_path)
    assert f"parameters  at least {before['parameters']:,}\n" in text
    assert "per weight\n" not in text.replace("bits per weight\n", "")
    groups = {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}}
    (tmp_path / "config.json").write_text(
        json.dumps({"quantization_config": {"config_groups": groups}})
    )
    after = json.loads(ls(tmp_path, "--json"))
    assert (after["parameters"], after["notes"], list(after["codecs"])) == (
        8_030_261_248,
        [],
        ["compressed-int4"],
    )
    assert after["codecs"]["compressed-int4"]["tensors"] == 3 * 224
    report = list_checkpoint(str(tmp_path))
    assert report.json_text() == json.dumps(report.to_json(), default=list) and after == json.loads(
        report.json_text()
    )
    q = next(
        x for x in after["tensors"] if x["name"] == "model.layers.0.self_attn.k_proj.weight_packed"
    )
    assert (q["weight"], q["logical_shape"], q["role"]) == (
        "model.layers.0.self_attn.k_proj.weight",
        [1024, 4096],
        "values",
    )
    (tmp_path / "config.json").write_text("{")
    result = CliRunner().invoke(command, [str(tmp_path), "--json"])
    assert json.loads(result.stdout)["parameters"] == before["parameters"]
    assert "note: " in result.stderr


def test_csv_has_every_tensor_and_equal_sums(tmp_path: Path) -> None:
    headers = list(make.packed(make.plain("llama-3.1-8b"), make.awq))
    path = write(tmp_path / "model.safetensors", headers)
    tables = [csv_rows(ls(path, "--format", "csv", *more)) for more in ((), ("--all",))]
    whole = json.loads(ls(path, "--json"))
    for rows in tables:
        sums = [
            sum(int(x[column]) for x in rows)
            for column in ("copies", "elements", "parameters", "bytes")
        ]
        assert sums == [len(headers), whole["elements"], whole["parameters"], whole["bytes"]]
    assert whole["parameters"] == 8_030_261_248
    assert Counter(name for x in tables[0] for name in unfold_pattern(x["name"])) == Counter(
        x["name"] for x in tables[1]
    )
    assert [(x["name"], int(x["offset"])) for x in tables[1]] == [
        (x["name"], x["offset"]) for x in whole["tensors"]
    ]


def test_tree_sums_its_branches(tmp_path: Path) -> None:
    text = ls(llama(tmp_path), "--format", "tree")
    rows = re.findall(
        r"^( *)(\S.*?)  +([0-9,]+)  +([0-9,]+)$", text.partition("\nparameters")[0], re.MULTILINE
    )
    totals = {name.split()[0]: int(n.replace(",", "")) for _, name, n, _ in rows}
    assert totals["model"] == 8_030_261_248 - 128256 * 4096
    assert totals["layers.{0..31}"] == totals["self_attn"] + totals["mlp"] + 2 * 32 * 4096
    assert totals["model"] == totals["layers.{0..31}"] + 128256 * 4096 + 4096
    assert totals["lm_head.weight"] == 128256 * 4096


def test_unfold_has_a_line_for_every_tensor(tmp_path: Path) -> None:
    lines = ls(llama(tmp_path), "--all").splitlines()
    names = [x for x, _, _ in make.plain("llama-3.1-8b")]
    assert Counter(
        line.split()[0] for line in lines if line.startswith(("model.", "lm_head"))
    ) == Counter(names)


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--all",),
        (
            "--format",
            "tree",
        ),
        (
            "--format",
            "csv",
        ),
        ("--format", "csv", "--all"),
        ("--json",),
    ],
)
def test_hostile_text_is_escaped(tmp_path: Path, options: tuple[str, ...]) -> None:
    headers: list[make.Header] = [(name, "F32", (2,)) for name in EVIL]
    path = write(tmp_path / "model.safetensors", headers, {name[:5000]: name for name in EVIL})
    text = ls(path, *options)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u202e]", text)
    if options == ("--json",):
        assert [x["name"] for x in json.loads(text)["tensors"]] == EVIL
    if "csv" in options:
        rows = [list(x.values()) for x in csv_rows(text)]
        assert rows[5][0] == "'=cmd()" and all(
            len(x) == (11 if "--all" in options else 9) for x in rows
        )
    else:
        assert len(text) < 2 * len(EVIL[6]) if options == ("--json",) else len(text) < 10_000


def test_a_megabyte_name_is_cut(tmp_path: Path) -> None:
    report = list_tensors(
        make.manifest(
            [
                (f"{x * (1 << 20)}.{i}.w", "F32", (2,))
                for x in ("a", "\x1b", "3", ".")
                for i in range(3)
            ]
        )
    )
    for unfold, tree in ((False, False), (True, False), (False, True)):
        text = report_text(report, listing_tables(report, unfold=unfold, tree=tree))
        assert "\x1b" not in text
        assert len(text) < 50_000
    rows = report_rows(report, "csv", "", listing_tables(report, unfold=True))
    assert "\x1b" not in "".join(rows)


def test_hostile_path_is_escaped(tmp_path: Path) -> None:
    path = write(tmp_path / "a\x1b[31m.safetensors", [("x", "F32", (2,))])
    assert "\x1b" not in ls(path)


def test_empty_checkpoint_is_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", [])
    for options in ((), ("--format", "tree"), ("--all",), ("--format", "csv")):
        ls(path, *options)
    report = json.loads(ls(path, "--json"))
    assert (report["tensors"], report["parameters"], report["bits_per_weight"]) == ([], 0, None)


def test_missing_shards_and_duplicate_names_are_noted(tmp_path: Path) -> None:
    llama(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    text = ls(tmp_path)
    assert "1 file named in the index is missing" in text
    twice = tuple(Tensor("x.0", "F32", (2,), i, 8, 16) for i in range(3))
    report = list_tensors(
        Manifest(
            format="safetensors",
            files=(CheckpointFile("a", 16), CheckpointFile("b", 16), CheckpointFile("c", 16)),
            tensors=twice,
        )
    )
    assert report.notes == ("2 tensors with the name of another: all are counted",)
    assert report.total == TensorTotals(3, 6, 6, 24)


def test_unknown_integer_matrices_are_noted() -> None:
    report = list_tensors(
        make.manifest(
            [
                ("x.W_q", "U8", (64, 64)),
                ("position_ids", "I64", (1, 8192)),
                ("x.norm", "F32", (64,)),
            ]
        )
    )
    assert report.notes == ("1 integer matrix of unknown packing (x.W_q, …): elements are counted",)


def test_rows_are_in_tree_order() -> None:
    names = ["b.0.up", "a", "b.1.attn.q", "b.0.attn.q", "b.0.attn.k", "c"]
    report = list_tensors(make.manifest((x, "F32", (2,)) for x in names))
    assert [x.pattern for x in report.folded] == [
        "b.0.up",
        "b.{0,1}.attn.q",
        "b.0.attn.k",
        "a",
        "c",
    ]
    assert all(isinstance(x, TensorRow) for x in report.unfolded())


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 64, b'\x02\0\0\0\0\0\0\0{"', b"GGUF", b"PK\x03\x04"]
)
@pytest.mark.slow
def test_unreadable_files_exit_with_2(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    command = [sys.executable, "-m", "llamath", "ls", str(tmp_path / "model.safetensors")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("section", "writer", "note"),
    [
        (
            None,
            make.fp8_blocks,
            "the headers have quantized weights (fp8), and the config declares no quantization",
        ),
        (
            {"quant_method": "awq", "bits": 4},
            None,
            "the config declares awq (awq-4bit-g128), and the headers have no quantized weights",
        ),
        (
            {"quant_method": "awq", "bits": 4},
            make.gptq(4),
            "the config declares awq (awq-4bit-g128), and the headers have weights of gptq",
        ),
        (
            {"quant_method": "unheard-of"},
            make.fp8_blocks,
            "the recipe of the config is not understood: unknown quantization quant_method",
        ),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, make.fp8_blocks, ""),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, make.nvfp4, ""),
        (None, None, ""),
    ],
)
def test_ls_tells_how_the_config_disagrees(
    section: Any, writer: Any, note: str, tmp_path: Path
) -> None:
    plain = make.plain("smollm2-135m")[:12]
    write(tmp_path / "model.safetensors", list(make.packed(plain, writer)) if writer else plain)
    config = {"model_type": "llama", "hidden_size": 576} | (
        {"quantization_config": section} if section else {}
    )
    (tmp_path / "config.json").write_text(json.dumps(config))
    notes = json.loads(ls(tmp_path, "--json"))["notes"]
    assert note in " ".join(notes) if note else not any("config" in x for x in notes)
