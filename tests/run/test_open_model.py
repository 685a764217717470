"""Opening checkpoints: every format gives the same memory-mapped weights, and errors say what is wrong."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import llamath
from llamath.analysis.check.verify.verified_checkpoint import open_verified
from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
from llamath.native.native_comparison import compute_outputs
from llamath.torch import open_model
from llamath.utils.errors import LlamathError
from support.gguf_files import CONVERTED, load_tiny_configs, open_gguf_writer, tensor_shapes
from support.small_llama import IDS, SMALL, TYPES, Q, copy_checkpoint, save_llama
from support.sparse_checkpoints import header_of, write_config, write_safetensors
from support.transformers_pair import logits, pair, relative_difference

pytestmark = pytest.mark.transformers


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a small Llama saved by transformers in this dtype with changed config keys; saved once for all tests."""
    known: dict[str, Path] = {}

    def get(dtype: str = "BF16", shard: str = "5GB", **changes: Any) -> Path:
        key = f"{dtype} {shard} {changes}"
        if key not in known:
            known[key] = save_llama(tmp_path_factory.mktemp("hf"), dtype, shard, **changes)
        return known[key]

    return get


@torch.no_grad()
def logits_of(path: Path, dtype: str | None = None, ids: Tensor = IDS) -> Tensor:
    return open_model(str(path), dtype).module(ids)


@pytest.mark.parametrize(
    "changes", [{}, {"tie_word_embeddings": True}, {"num_key_value_heads": 1}], ids=str
)
@pytest.mark.parametrize("dtype", TYPES)
def test_three_formats_give_the_same_model(
    hf: Callable[..., Path], dtype: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    source = hf(dtype, **changes)
    expected = logits_of(source)
    assert expected.dtype == TYPES[dtype]
    for kind in ("meta", "gguf"):
        convert_checkpoint(str(source), str(tmp_path / kind), ConvertOptions(to=kind))
        assert torch.equal(logits_of(tmp_path / kind), expected)


@torch.no_grad()
def test_opened_model_matches_transformers(hf: Callable[..., Path]) -> None:
    import transformers

    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        hf("F32"), attn_implementation="eager"
    )
    assert relative_difference(logits_of(hf("F32")), logits(theirs, IDS)) < 1e-5


def test_shards_match_a_single_file(hf: Callable[..., Path]) -> None:
    whole, cut = hf(), hf(shard="40KB")
    assert len(list(cut.glob("*.safetensors"))) > 2
    expected = logits_of(whole)
    assert torch.equal(logits_of(cut), expected)
    assert torch.equal(logits_of(whole / "model.safetensors"), expected)
    assert torch.equal(logits_of(cut / "model.safetensors.index.json"), expected)


def test_torch_checkpoint(hf: Callable[..., Path], tmp_path: Path) -> None:
    numbers = load_file(hf() / "model.safetensors")
    numbers["model.layers.1.mlp.up_proj.weight"] = (
        numbers["model.layers.1.mlp.up_proj.weight"].T.contiguous().T
    )  # strides of its own
    torch.save(numbers, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_bytes((hf() / "config.json").read_bytes())
    assert torch.equal(logits_of(tmp_path), logits_of(hf()))


ROWS, COLUMNS = ("wq", "wk", "wv", "w1", "w3", "output"), ("wo", "w2")


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("embedding", [0, 1])
def test_meta_shards_are_merged(
    hf: Callable[..., Path], ranks: int, embedding: int, tmp_path: Path
) -> None:
    """Sharded like fairscale's layers; with more ranks than key/value heads, neighboring ranks have the same head."""
    source = hf("F32", vocab_size=96, num_attention_heads=4, hidden_size=32)
    convert_checkpoint(str(source), str(tmp_path / "one"), ConvertOptions(to="meta"))
    whole = torch.load(tmp_path / "one" / "consolidated.00.pth")
    folder = tmp_path / "many"
    folder.mkdir()
    for rank in range(ranks):
        mine = {}
        for name, x in whole.items():
            word = name.split(".")[-2]
            axis = (
                0
                if word in ROWS
                else 1
                if word in COLUMNS
                else embedding
                if word == "tok_embeddings"
                else None
            )
            if axis is None:
                mine[name] = x
            elif word in ("wk", "wv") and ranks > 2:
                mine[name] = x.chunk(2)[rank * 2 // ranks].clone()
            else:
                mine[name] = x.chunk(ranks, axis)[rank].clone()
        torch.save(mine, folder / f"consolidated.{rank:02}.pth")
    params = json.loads((tmp_path / "one" / "params.json").read_text())
    (folder / "params.json").write_text(json.dumps(params | {"vocab_size": -1}))
    ids = IDS % 96
    assert torch.equal(logits_of(folder, ids=ids), logits_of(source, ids=ids))
    broken = torch.load(folder / "consolidated.01.pth")
    broken["norm.weight"] += 1
    torch.save(broken, folder / "consolidated.01.pth")
    with pytest.raises(LlamathError, match=r"norm\.weight must be the same in all files"):
        open_model(str(folder))


def natively(path: Path, ids: torch.Tensor, dtype: str = "fp32") -> torch.Tensor:
    """The logits that the native engine computes from a checkpoint, `(T, V)`."""
    return torch.from_numpy(compute_outputs(open_verified(str(path)), ids.tolist(), dtype).logits)


FOLDERS = [
    "bloom-plain", "cohere-plain", "deepseek_v3-plain", "exaone4-global", "falcon-plain", "gemma3-plain", "gpt2-plain", "gpt_neox-plain", "gpt_oss-plain",
    "lfm2-plain", "llama4-plain", "mixtral-plain", "mpt-plain", "nemotron_h-plain", "olmo2-plain", "opt-plain", "phi3-plain", "qwen3_moe-plain",
    "qwen3_next-plain",
]  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("label", FOLDERS)
def test_every_family_opens_from_safetensors(label: str, tmp_path: Path) -> None:
    both = pair(load_tiny_configs()[label])
    both.theirs.save_pretrained(tmp_path)
    loaded, ids = open_model(str(tmp_path)), both.ids(20)
    assert torch.equal(loaded.module(ids), both.ours(ids))
    for row, expected in zip(ids, both.ours(ids), strict=True):
        assert relative_difference(natively(tmp_path, row), expected) < 2e-5


PAIRED = ("llama", "granite")


def permuted(x: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Halves to interleaved pairs in each head, as llama.cpp's converter permutes q and k of these architectures."""
    return (
        x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
    )


def converted(
    name: str, x: np.ndarray[Any, Any], arch: str, config: Any
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """A tensor as llama.cpp's converter writes it; a name that begins with `blk.` is final."""
    block = f"blk.{name.split('.')[2]}." if ".layers." in name else ""
    if arch in PAIRED and name.endswith(("q_proj.weight", "q_proj.bias")):
        x = permuted(x, config.num_attention_heads)
    if arch in PAIRED and name.endswith(("k_proj.weight", "k_proj.bias")):
        x = permuted(x, config.num_key_value_heads)
    if arch.startswith("gemma") and name.endswith("norm.weight"):
        x = x + np.float32(1)
    if arch == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        x = x.T
    if name.endswith("experts.gate_up_proj"):
        gate, up = np.split(x, 2, 1)
        yield from ((f"{block}ffn_gate_exps.weight", gate), (f"{block}ffn_up_exps.weight", up))
    elif name.endswith("experts.down_proj"):
        yield f"{block}ffn_down_exps.weight", x
    elif name.endswith("kv_b_proj.weight"):
        keys, values = np.split(
            x.reshape(config.num_attention_heads, -1, x.shape[-1]), [config.qk_nope_head_dim], 1
        )
        yield from (
            (f"{block}attn_k_b.weight", keys.swapaxes(1, 2)),
            (f"{block}attn_v_b.weight", values),
        )
    elif not (name == "lm_head.weight" and config.tie_word_embeddings):
        yield name.replace("e_score_correction_bias", "e_score_correction.bias"), x


def written(label: str, theirs: Any, path: Path) -> Path:
    """A GGUF file as llama.cpp's converter would write it: names by the gguf package, metadata as it wrote them."""
    entry = CONVERTED[label]
    names = gguf.get_tensor_name_map(
        {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[entry["arch"]], 4
    )
    file = open_gguf_writer(path, entry["arch"], entry["keys"], entry["tokens"])
    for name, tensor in theirs.state_dict().items():
        for own, x in converted(name, tensor.numpy(), entry["arch"], theirs.config):
            stored = own if own.startswith("blk.") else names.get_name(own, (".weight", ".bias"))
            assert stored is not None, own
            file.add_tensor(stored, np.ascontiguousarray(x))
    for name, factors in entry.get("values", {}).items():
        file.add_tensor(name, np.array(factors, np.float32))
    return finished(file, path)


def finished(file: gguf.GGUFWriter, path: Path) -> Path:
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


GGUFS = [
    "llama-plain", "llama-grouped, biased, tied", "mixtral-plain", "gemma-plain", "gpt2-plain", "phi3-plain", "qwen2-plain", "qwen3-plain",
    "olmo2-plain", "starcoder2-plain", "granite-scaled", "qwen3_moe-plain", "deepseek_v2-plain", "glm4_moe-plain", "cohere-plain", "stablelm-plain", "olmoe-plain",
]  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("label", GGUFS)
def test_every_family_opens_from_gguf(label: str, tmp_path: Path) -> None:
    both = pair(load_tiny_configs()[label])
    ids = both.ids(20)
    actual = open_model(str(written(label, both.theirs, tmp_path / "model.gguf"))).module(ids)
    assert relative_difference(actual, logits(both.theirs, ids)) < 1e-5
    assert relative_difference(natively(tmp_path / "model.gguf", ids[0]), actual[0]) < 2e-5


BLOCKS = {
    "Q8_0": [0],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}
"""Offsets of the scales in a block."""
WIDE = SMALL | {
    "vocab_size": 99,
    "hidden_size": 256,
    "intermediate_size": 256,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
}


def random_blocks(kind: str, rows: int, width: int, seed: int) -> np.ndarray[Any, Any]:
    """Random blocks with small scales."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, (rows * width // block, size), dtype=np.uint8)
    for at in BLOCKS[kind]:
        data[:, at : at + 2] = (
            random.normal(0, 2e-3, len(data)).astype("<f2").view(np.uint8).reshape(-1, 2)
        )
    return data.reshape(rows, -1)


def quantized(path: Path, kind: str, big: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """A file with matrices of this type in either byte order, and their values as the gguf package reads them."""
    layer = {
        "attn_q": (256, 256),
        "attn_k": (128, 256),
        "attn_v": (128, 256),
        "attn_output": (256, 256),
    }
    layer |= {"ffn_gate": (256, 256), "ffn_up": (256, 256), "ffn_down": (256, 256)}
    matrices = {f"blk.0.{name}.weight": shape for name, shape in layer.items()}
    matrices |= {"token_embd.weight": (99, 256), "output.weight": (99, 256)}
    keys = {
        "block_count": 1, "context_length": 64, "embedding_length": 256, "feed_forward_length": 256, "attention.head_count": 4,
        "attention.head_count_kv": 2, "rope.freq_base": 10000.0, "attention.layer_norm_rms_epsilon": 1e-5, "rope.dimension_count": 64,
    }  # fmt: skip
    file = gguf.GGUFWriter(
        path, "llama", endianess=gguf.GGUFEndian.BIG if big else gguf.GGUFEndian.LITTLE
    )
    for key, value in keys.items():
        (file.add_uint32 if isinstance(value, int) else file.add_float32)(f"llama.{key}", value)
    file.add_token_list([f"t{i}" for i in range(99)])
    numbers: dict[str, np.ndarray[Any, Any]] = {}
    for i, (name, shape) in enumerate(matrices.items()):
        data = random_blocks(kind, *shape, seed=i)
        numbers[name] = gguf.dequantize(data, gguf.GGMLQuantizationType[kind])
        if big:
            blocks = data.reshape(
                -1, gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]
            ).copy()
            for at in BLOCKS[kind]:
                blocks[:, [at, at + 1]] = blocks[:, [at + 1, at]]
            data = blocks.reshape(data.shape)
        file.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType[kind])
    for name in ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"):
        numbers[name] = np.random.default_rng(99).normal(1, 0.1, 256).astype(np.float32)
        file.add_tensor(name, numbers[name].copy())
    finished(file, path)
    return numbers


@torch.no_grad()
@pytest.mark.parametrize("kind", BLOCKS)
def test_block_types_match_the_gguf_package(kind: str, tmp_path: Path) -> None:
    numbers = quantized(tmp_path / "q.gguf", kind)
    loaded = open_model(str(tmp_path / "q.gguf"), "float32")
    for name, x in loaded.module.state_dict().items():
        stored = numbers[loaded.stored_name(name)]
        heads = {"q": 4, "k": 2}.get(name.split(".")[-2], 0)
        if heads:  # pairs to halves
            stored = stored.reshape(heads, 32, 2, 256).swapaxes(1, 2).reshape(stored.shape)
        assert np.array_equal(x.numpy(), stored), name
    narrow = open_model(str(tmp_path / "q.gguf"))
    assert narrow.options.dtype == torch.bfloat16
    assert all(
        torch.equal(x, loaded.module.state_dict()[name].bfloat16())
        for name, x in narrow.module.state_dict().items()
    )
    expected = loaded.module(IDS)
    assert torch.isfinite(expected).all()
    assert relative_difference(natively(tmp_path / "q.gguf", IDS[0]), expected[0]) < 5e-5
    if (
        kind != "Q6_K"
    ):  # its random weights are so large that rounding activations to eight bits changes everything
        assert (
            relative_difference(natively(tmp_path / "q.gguf", IDS[0], "bf16"), expected[0]) < 0.05
        )


@torch.no_grad()
@pytest.mark.parametrize("kind", BLOCKS)
def test_big_endian_gguf(kind: str, tmp_path: Path) -> None:
    quantized(tmp_path / "little.gguf", kind)
    quantized(tmp_path / "big.gguf", kind, big=True)
    little, big = (
        open_model(str(tmp_path / f"{x}.gguf"), "float32").module.state_dict()
        for x in ("little", "big")
    )
    assert all(torch.equal(big[name], x) for name, x in little.items())
    ours, theirs = (natively(tmp_path / f"{x}.gguf", IDS[0]) for x in ("big", "little"))
    assert relative_difference(ours, theirs) < 1e-5


def test_every_block_type_is_loaded(tmp_path: Path) -> None:
    path = written_iq(
        tmp_path / "iq.gguf",
        data := np.random.default_rng(0).integers(0, 60, (99, 18), dtype=np.uint8),
    )
    expected = gguf.dequantize(data, gguf.GGMLQuantizationType.IQ4_NL)
    assert np.array_equal(
        open_model(str(path), dtype="float32").module.embed.weight.detach().numpy(), expected
    )


def written_iq(path: Path, data: np.ndarray) -> Path:
    entry = CONVERTED["llama-plain"]
    file = open_gguf_writer(path, "llama", entry["keys"], 99)
    for name, shape in tensor_shapes(entry).items():
        if name == "token_embd.weight":
            file.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.IQ4_NL)
        else:
            file.add_tensor(name, np.zeros(shape, np.float32))
    return finished(file, path)


def maps(path: Path) -> list[tuple[int, int]]:
    """The address ranges that a file is mapped to in this process."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = [line[0].split("-") for line in lines if line[-1] == str(path.resolve())]
    return [(int(a, 16), int(b, 16)) for a, b in spans]


@pytest.mark.skipif(
    not os.path.exists("/proc/self/maps"), reason="a list of mappings is Linux's own"
)
def test_weights_are_memory_mapped(hf: Callable[..., Path], tmp_path: Path) -> None:
    source = hf()
    convert_checkpoint(str(source), str(tmp_path / "m.gguf"), ConvertOptions(to="gguf"))
    convert_checkpoint(str(source), str(tmp_path / "meta"), ConvertOptions(to="meta"))
    turned = ("attn.q.weight", "attn.k.weight")  # these are reordered where pairs are neighbors
    files = {
        source: "model.safetensors",
        tmp_path / "meta": "consolidated.00.pth",
        tmp_path / "m.gguf": "",
    }
    for place, name in files.items():
        loaded = open_model(str(place))
        spans = maps(place / name if name else place)
        inside = {
            path
            for path, x in loaded.module.state_dict().items()
            if any(a <= x.data_ptr() < b for a, b in spans)
        }
        expected = {
            path
            for path in loaded.module.state_dict()
            if place == source
            or (
                not path.endswith(turned) and not ("norm" in path and name == "")
            )  # GGUF's vectors are F32
        }
        assert inside == expected


def test_changed_weight_does_not_change_the_file(hf: Callable[..., Path]) -> None:
    source = hf() / "model.safetensors"
    before = source.read_bytes()
    loaded = open_model(str(hf()))
    with torch.no_grad():
        for x in loaded.module.parameters():
            x.fill_(1.0)
    assert source.read_bytes() == before


def test_read_only_mapping_is_the_fallback(
    hf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, mapped = logits_of(hf()), mmap.mmap

    def refused(*args: Any, access: int) -> mmap.mmap:
        if access == mmap.ACCESS_COPY:
            raise OSError(12, "Cannot allocate memory")
        return mapped(*args, access=access)

    monkeypatch.setattr("llamath.generation.mapped_files.mmap.mmap", refused)
    assert torch.equal(logits_of(hf()), expected)
    monkeypatch.setattr(
        "llamath.generation.mapped_files.mmap.mmap",
        lambda *_, **__: refused(access=mmap.ACCESS_COPY),
    )
    with pytest.raises(
        LlamathError,
        match=r"model\.safetensors cannot be mapped into memory: .*Cannot allocate memory",
    ):
        open_model(str(hf()))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(
    not os.path.exists("/proc/self/statm"), reason="resident memory is read as Linux says it"
)
def test_opening_a_large_file_allocates_no_memory(tmp_path: Path) -> None:
    config = SMALL | {
        "vocab_size": 200_000,
        "hidden_size": 2048,
        "num_attention_heads": 8,
        "torch_dtype": "bfloat16",
    }
    model = llamath.load(config)
    write_safetensors(
        write_config(tmp_path, model) / "model.safetensors", header_of(model)
    )  # a sparse file of 1.6 GB
    before = resident()
    loaded = open_model(str(tmp_path))
    assert resident() - before < 50 << 20
    assert sum(x.numel() for x in loaded.module.parameters()) == model.parameters.total > 8e8


def test_weights_larger_than_memory_are_rejected(tmp_path: Path) -> None:
    model = llamath.load(
        SMALL
        | {
            "vocab_size": 1 << 30,
            "hidden_size": 2048,
            "num_attention_heads": 8,
            "torch_dtype": "bfloat16",
        }
    )
    try:
        write_safetensors(write_config(tmp_path, model) / "model.safetensors", header_of(model))
    except OSError:
        pytest.skip("this file system has no sparse files of 9 TB")
    need = 4 * model.parameters.total
    with pytest.raises(
        LlamathError,
        match=rf"float32 need {need:,} bytes \({need / 2**30:,.1f} GiB\), but [\d,]+ \(.* GiB\) are free on cpu",
    ):
        open_model(str(tmp_path), "float32")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x: x.pop(Q),
            r"1 tensor with 2,304 parameters is missing: model\.layers\.1\.self_attn\.q_proj\.weight",
        ),
        (lambda x: x.update(more=torch.ones(3)), "1 tensor is not part of the text model: more"),
        (
            lambda x: x.update({Q: torch.ones(48, 24)}),
            r"q_proj\.weight is \[48, 24\]; the config says \(H·h, d\) = \(48, 48\)",
        ),
        (
            lambda x: [x.pop(k) for k in list(x) if ".layers.1." in k],
            "the file has layers 0–0; the config has L = 2",
        ),
    ],
)
def test_verify_findings_are_errors(
    hf: Callable[..., Path],
    change: Callable[[dict[str, Tensor]], object],
    message: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(LlamathError, match=message):
        open_model(
            str(copy_checkpoint(hf(), tmp_path, change)),
            progress=lambda *_: pytest.fail("weights were loaded"),
        )


def test_truncated_file(hf: Callable[..., Path], tmp_path: Path) -> None:
    place = copy_checkpoint(hf(), tmp_path, lambda _: None) / "model.safetensors"
    data = place.read_bytes()
    place.write_bytes(data[:-100])
    with pytest.raises(LlamathError, match=r"model\.safetensors"):
        open_model(str(tmp_path))


def test_missing_shard(hf: Callable[..., Path], tmp_path: Path) -> None:
    for file in hf(shard="40KB").iterdir():
        if "00002-of" not in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(
        LlamathError, match=r"1 of the \d+ shards named in the index is missing: model-00002-of"
    ):
        open_model(str(tmp_path))


def test_wrong_index_is_a_note(hf: Callable[..., Path], tmp_path: Path) -> None:
    for file in hf(shard="40KB").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    index = tmp_path / "model.safetensors.index.json"
    data = json.loads(index.read_text())
    data["metadata"]["total_size"] += 1
    index.write_text(json.dumps(data))
    assert any("the index gives a total_size of" in x for x in open_model(str(tmp_path)).notes)


def test_first_nonfinite_weight_is_described(hf: Callable[..., Path], tmp_path: Path) -> None:
    assert open_model(str(hf())).first_nonfinite_weight() == ""

    def spoil(x: dict[str, Tensor]) -> None:
        x["model.layers.0.mlp.up_proj.weight"][3, 5] = torch.nan
        x[Q][0, :7] = torch.inf

    loaded = open_model(str(copy_checkpoint(hf(), tmp_path / "a", spoil)))
    assert (
        loaded.first_nonfinite_weight()
        == "layers.0.mlp.up.weight (model.layers.0.mlp.up_proj.weight) is NaN in 1 of its 5,376 values"
    )
    loaded = open_model(
        str(copy_checkpoint(hf(), tmp_path / "b", lambda x: x[Q][0, :7].fill_(torch.inf)))
    )
    assert (
        loaded.first_nonfinite_weight()
        == f"layers.1.attn.q.weight ({Q}) is infinite in 7 of its 2,304 values"
    )


@pytest.mark.parametrize(
    ("dtype", "device", "message"),
    [
        ("float17", "cpu", "unknown dtype 'float17' for computation"),
        ("int8", "cpu", "dtype int8 is not supported for computation"),
        (None, "toaster", "toaster cannot compute in bfloat16 here"),
        (torch.int32, "cpu", "cpu cannot compute in int32 here"),
        pytest.param(
            None,
            "cuda",
            "cuda cannot compute in bfloat16 here",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="it can"),
        ),
    ],
)
def test_unknown_device_or_dtype_is_rejected(
    hf: Callable[..., Path], dtype: Any, device: str, message: str
) -> None:
    with pytest.raises(LlamathError, match=message):
        open_model(str(hf()), dtype, device)


def test_preset_is_not_a_checkpoint() -> None:
    with pytest.raises(
        LlamathError, match="llama-3-8b is a preset, which has a configuration and no weights"
    ):
        open_model("llama-3-8b")


def test_unsupported_quantization_is_named(hf: Callable[..., Path], tmp_path: Path) -> None:
    def marlin(x: dict[str, Tensor]) -> None:
        for name in [name for name in x if name.endswith("proj.weight")]:
            out, into = x.pop(name).shape
            base = name.removesuffix("weight")
            x[f"{base}B"] = torch.zeros(into // 16, 2 * out, dtype=torch.int32)
            x[f"{base}s"] = torch.zeros(into // 16, out, dtype=torch.float16)

    config = {
        "quantization_config": {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 16,
            "checkpoint_format": "marlin",
        }
    }
    place = copy_checkpoint(hf("F16"), tmp_path, marlin, config)
    with pytest.raises(
        LlamathError,
        match=r"quantization scheme gptq \(model\.layers\.0\..*\) is not supported: Marlin",
    ):
        open_model(str(place))


def _packed_in_4_bits(numbers: Tensor, dim: int) -> Tensor:
    """Pack eight numbers along an axis into each word, the first in the lowest bits."""
    moved = numbers.movedim(dim, -1).reshape(*numbers.movedim(dim, -1).shape[:-1], -1, 8).long()
    return (
        sum(moved[..., i] << 4 * i for i in range(8)).to(torch.int32).movedim(-1, dim).contiguous()
    )  # type: ignore[union-attr]


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_gptq_weights_are_dequantized(family: str, tmp_path: Path) -> None:
    """GPT-2's matrices are [in, out] in plain files; GPTQ packs both in the same way."""
    sizes = {
        "gpt2": {"n_embd": 32, "n_head": 2, "n_inner": 64},
        "llama": {"hidden_size": 32, "intermediate_size": 64},
    }[family]
    both = pair(
        {**next(x for key, x in load_tiny_configs().items() if key.startswith(family)), **sizes}
    )
    both.theirs.save_pretrained(tmp_path)
    expected: dict[str, Tensor] = {}

    def pack(x: dict[str, Tensor]) -> None:
        random = torch.Generator().manual_seed(0)
        for name in [
            n
            for n in x
            if n.endswith(("proj.weight", "c_attn.weight", "c_fc.weight")) and x[n].dim() == 2
        ]:
            shape = x.pop(name).shape
            into, out = shape if family == "gpt2" else shape[::-1]
            q, zero = (
                torch.randint(0, 16, (into, out), generator=random),
                torch.randint(1, 16, (into // 16, out), generator=random),
            )
            scale = torch.rand(into // 16, out, generator=random).half()
            base, group = name.removesuffix("weight"), torch.arange(into) // 16
            x |= {
                f"{base}qweight": _packed_in_4_bits(q, 0),
                f"{base}qzeros": _packed_in_4_bits(zero - 1, 1),
            }
            x |= {f"{base}scales": scale, f"{base}g_idx": group.int()}
            values = (q - zero[group]) * scale.float()[group]
            expected[name] = values if family == "gpt2" else values.T.contiguous()

    config = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 16}}
    packed = copy_checkpoint(tmp_path, tmp_path / "packed", pack, config)
    plain = copy_checkpoint(tmp_path, tmp_path / "plain", lambda x: x.update(expected))
    actual, wanted = (open_model(str(x), "float32").module.state_dict() for x in (packed, plain))
    assert all(torch.equal(actual[name], x) for name, x in wanted.items())
    assert len(expected) > 3


@torch.no_grad()
@pytest.mark.parametrize("blocks", [(16, 16), (128, 128), (1, 48)], ids=str)
def test_fp8_with_scales(hf: Callable[..., Path], blocks: tuple[int, int], tmp_path: Path) -> None:
    """Compared with products computed block by block, including sizes that are not multiples of the block."""
    expected: dict[str, Tensor] = {}

    def pack(x: dict[str, Tensor]) -> None:
        for name in [name for name in x if name.endswith("proj.weight")]:
            rows, columns = x[name].shape
            x[name] = (x[name] * 20).to(torch.float8_e4m3fn)
            scales = torch.rand(-(-rows // blocks[0]), -(-columns // blocks[1])) + 0.5
            x[f"{name}_scale_inv"] = scales
            plain = x[name].float()
            for i in range(0, rows, blocks[0]):
                for j in range(0, columns, blocks[1]):
                    plain[i : i + blocks[0], j : j + blocks[1]] *= scales[
                        i // blocks[0], j // blocks[1]
                    ]
            expected[name] = plain

    config = {
        "quantization_config": {
            "quant_method": "fp8",
            "weight_block_size": list(blocks),
            "activation_scheme": "dynamic",
        }
    }
    place = copy_checkpoint(hf(), tmp_path, pack, config)
    loaded = open_model(str(place), "float32")
    for path, x in loaded.module.state_dict().items():
        if (name := loaded.stored_name(path)) in expected:
            assert torch.equal(x, expected[name]), name
    assert open_model(str(place)).options.dtype == torch.bfloat16


@torch.no_grad()
def test_mxfp4_matches_transformers(tmp_path: Path) -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    both = pair(
        {**load_tiny_configs()["gpt_oss-plain"], "hidden_size": 32, "intermediate_size": 32}
    )  # `down` is square
    both.theirs.save_pretrained(tmp_path)
    unpacked: dict[str, Tensor] = {}

    def pack(x: dict[str, Tensor]) -> None:
        random = torch.Generator().manual_seed(0)
        for name in [name for name in x if name.endswith(("gate_up_proj", "down_proj"))]:
            experts, into, out = x.pop(name).shape
            values = torch.randint(
                0, 256, (experts, out, into // 32, 16), dtype=torch.uint8, generator=random
            )
            scales = torch.randint(
                118, 128, (experts, out, into // 32), dtype=torch.uint8, generator=random
            )
            x[f"{name}_blocks"], x[f"{name}_scales"] = values, scales
            unpacked[name] = convert_moe_packed_tensors(values, scales, dtype=torch.float32)

    config = {"quantization_config": {"quant_method": "mxfp4"}}
    packed = copy_checkpoint(tmp_path, tmp_path / "packed", pack, config)
    plain = copy_checkpoint(
        tmp_path,
        tmp_path / "plain",
        lambda x: x.update({k: v.contiguous() for k, v in unpacked.items()}),
    )
    actual, expected = (open_model(str(x), "float32").module.state_dict() for x in (packed, plain))
    assert all(torch.equal(actual[name], x) for name, x in expected.items())
    assert open_model(str(packed)).options.dtype == torch.bfloat16


def test_inferred_config_keys_are_notes(hf: Callable[..., Path], tmp_path: Path) -> None:
    convert_checkpoint(str(hf(tie_word_embeddings=True)), str(tmp_path), ConvertOptions(to="meta"))
    loaded = open_model(str(tmp_path))
    assert "embedding and output share one matrix" in loaded.notes
    assert loaded.module.head is not None
    assert loaded.module.head.weight is loaded.module.embed.weight


def test_changes_go_before_what_tensors_show(hf: Callable[..., Path], tmp_path: Path) -> None:
    convert_checkpoint(str(hf()), str(tmp_path), ConvertOptions(to="meta"))
    for changes, context in (({}, 4096), ({"max_position_embeddings": 77}, 77)):
        assert open_verified(str(tmp_path), changes).model.tree.context == context


def test_progress_reaches_the_total(hf: Callable[..., Path]) -> None:
    seen: list[tuple[int, int]] = []
    loaded = open_model(
        str(hf()), "float32", progress=lambda done, total: seen.append((done, total))
    )
    size = 4 * sum(x.numel() for x in loaded.module.parameters())
    assert seen[-1] == (size, size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
