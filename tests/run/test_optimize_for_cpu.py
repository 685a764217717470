"""Fused layers compute what plain layers do in every family, and leave parameters unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

import llamath
from llamath import run
from llamath.core.blocks import Attention
from llamath.run.cpu.matmul import Int8Linear, quantize_int8
from llamath.run.cpu.optimize_for_cpu import cpu_supports, maybe_pack, optimize_for_cpu
from llamath.run.cpu.weight_packing import INT8, MKLDNN, PANELS, SMALL_PANELS, PackingFormat
from llamath.utils.errors import LlamathError
from support.reference_data import tiny_configs

torch.set_num_threads(1)

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
BRIEF = pytest.mark.skipif(not cpu_supports(torch.float32, "int8"), reason="this processor has no VNNI")


def tiny(config: dict[str, Any], dtype: torch.dtype = torch.float32) -> run.Decoder:
    return run.initialize(run.build(llamath.load(config), dtype), seed=1, std=0.1)


@torch.inference_mode()
def logits_of(module: run.Decoder) -> Tensor:
    """Logits of one pass, and of padded rows: a prefill, then token by token."""
    ids = torch.randint(1, 40, (2, 9), generator=torch.Generator().manual_seed(3))
    results = [module(ids)]
    if all(not isinstance(x.spec.attn, Attention) or x.spec.attn.window.causal for x in module.layers):
        cache = module.new_cache(12)
        results.append(module(ids, cache, torch.tensor([0, 3])))
        results += [module(ids[:, i : i + 1], cache) for i in range(3)]
    return torch.cat(results, 1).float()


@pytest.mark.parametrize("config", tiny_configs())
def test_fused_layers_match_plain_layers(config: dict[str, Any]) -> None:
    plain, quick = tiny(config), tiny(config)
    optimize_for_cpu(quick)
    expected = logits_of(plain)
    assert (logits_of(quick) - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize("config", [LLAMA, LLAMA | {"model_type": "qwen3"}, LLAMA | {"model_type": "qwen2"}])
def test_fused_bfloat16_is_as_accurate_as_plain(config: dict[str, Any]) -> None:
    plain, quick = (tiny(config, torch.bfloat16) for _ in range(2))
    exact = tiny(config)
    run.load_weights(exact, ((path, x.float()) for path, x in plain.state_dict().items()))
    optimize_for_cpu(quick)
    expected = logits_of(exact)
    ours, theirs = ((logits_of(x) - expected).abs().mean() for x in (quick, plain))
    assert 0 < ours <= 1.2 * theirs


def test_most_families_have_fused_layers() -> None:
    counts = {config.values[0]["model_type"]: optimize_for_cpu(tiny(config.values[0])) for config in tiny_configs()}
    known = "llama qwen2 qwen3 gemma gemma3_text phi3 smollm3 gpt2 mixtral qwen3_moe granite".split()
    assert all(counts[x] for x in known)
    assert not counts["gemma2"] and not counts["deepseek_v3"]  # capped scores, latent attention


def test_parameters_are_unchanged() -> None:
    module = tiny(LLAMA)
    before = {name: (x.data_ptr(), x.clone()) for name, x in module.state_dict().items()}
    assert optimize_for_cpu(module) == 3
    after = module.state_dict()
    assert list(after) == list(before)
    assert all(x.data_ptr() == before[name][0] and torch.equal(x, before[name][1]) for name, x in after.items())


def test_changed_weight_is_packed_again() -> None:
    module = tiny(LLAMA, torch.bfloat16)
    optimize_for_cpu(module)
    before = logits_of(module)
    with torch.no_grad():
        module.layers[1].mlp.up.weight.mul_(-2)  # in place
    module.layers[2].attn.q.weight = torch.nn.Parameter(-module.layers[2].attn.q.weight.detach())  # another
    after, plain = logits_of(module), tiny(LLAMA, torch.bfloat16)
    plain.load_state_dict(module.state_dict())
    assert (after - before).abs().max() > 0.1
    assert (after - logits_of(plain)).abs().max() < 0.05 * (after - before).abs().max()


def test_gradients_and_hooks_use_plain_layers() -> None:
    module, ids = tiny(LLAMA), torch.tensor([[3, 1, 4]])
    optimize_for_cpu(module)
    module(ids).sum().backward()
    grads = [x.grad for x in module.parameters()]
    assert all(x is not None and bool(x.abs().sum() > 0) for x in grads)
    seen: list[str] = []
    watched = [(name, x) for name, x in module.named_modules() if name and not list(x.children())]
    hooks = [x.register_forward_hook(lambda _m, _i, _o, name=name: seen.append(name)) for name, x in watched]
    with torch.inference_mode():
        module(ids)
        assert {name for name, _ in watched} == set(seen)
        for hook in hooks:
            hook.remove()
        seen.clear()
        module(ids)
    assert not seen


def test_weights_are_packed_where_it_pays_off() -> None:
    for dtype, tokens, rows, expected in (
        ("float32", 2, 1, None),
        ("float32", 64, 1, SMALL_PANELS),
        ("float32", 200, 1, PANELS),
        ("float32", 64, 3, MKLDNN),
        ("bfloat16", 2, 1, None),
        ("bfloat16", 64, 1, MKLDNN),
    ):
        llama = run.Llama.open(None, dtype)
        llama.generate(["Anna"] * rows, max_tokens=tokens)
        packed = llama.module.packed_weights
        assert (packed is not None) == cpu_supports(llama.module.embed.weight.dtype, None)
        assert packed is None or packed.format is expected


@pytest.mark.parametrize("config", [LLAMA, LLAMA | {"model_type": "qwen2"}, LLAMA | {"model_type": "gemma2"}])
def test_weights_are_not_packed_twice(config: dict[str, Any]) -> None:
    """A batch after a single sequence repacks, a single sequence after a batch does not; also where only the head is packed (gemma2)."""
    module = tiny(config)
    steps: list[tuple[int, int, PackingFormat, bool]] = [
        (64, 1, SMALL_PANELS, True),
        (200, 2, PANELS, False),  # the same layout
        (64, 1, PANELS, False),
        (64, 8, MKLDNN, True),
        (200, 1, MKLDNN, False),
    ]
    packed = 0
    for tokens, rows, expected, repacks in steps:
        maybe_pack(module, tokens, rows)
        logits_of(module)
        assert module.packed_weights is not None and module.packed_weights.format is expected
        assert (module.packed_weights.num_packed > packed) == repacks
        packed = module.packed_weights.num_packed


@pytest.mark.parametrize(("dtype", "ulps"), [(torch.float32, 0), (torch.bfloat16, 4)])
def test_long_pass_is_the_same_before_and_after_packing(dtype: torch.dtype, ulps: int) -> None:
    """Packing changes no bit of float32 logits, and bfloat16 logits by a few units in the last place of the largest.

    With AMX, oneDNN may sum a bfloat16 product of packed weights in another order than one of weights in their original layout. A
    different sum then rounds to the neighbouring bfloat16 number, and later layers carry the difference on.
    """
    module = tiny(LLAMA | {"hidden_size": 256, "intermediate_size": 512}, dtype)
    ids = torch.randint(1, 90, (2, 100), generator=torch.Generator().manual_seed(2))
    maybe_pack(module, 64, 8)
    with torch.inference_mode():
        before = module(ids)
        module(ids[:, :1])  # packs the weights
        after = module(ids)
    largest = before.float().abs().amax(-1, keepdim=True)
    assert ((after - before).float().abs() <= ulps * torch.finfo(dtype).eps * largest).all()


@pytest.mark.parametrize("family", ["llama", "mixtral"])
@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_and_short_passes_match_plain_layers(dtype: torch.dtype, rows: int, family: str) -> None:
    """Passes over many tokens use original weights and split the feed-forward; passes over few use packed weights."""
    config = LLAMA | {"model_type": family, "max_position_embeddings": 2048}
    module, plain = tiny(config, dtype), tiny(config, dtype)
    ids = torch.randint(1, 90, (rows, 1100), generator=torch.Generator().manual_seed(2))
    maybe_pack(module, 64, rows)
    with torch.inference_mode():
        for x in (ids, ids[:, :60], ids[:, :3], ids[:, :1]):
            ours, theirs = module(x).float(), plain(x).float()
            far = (ours - theirs).abs().amax(-1) / theirs.abs().amax(-1)
            assert far.max() <= 1e-5 if dtype == torch.float32 else far.median() <= 0.02  # rounding may choose another expert


@BRIEF
def test_model_opens_as_int8() -> None:
    llama = run.Llama.open(None, "int8")
    assert llama.module.embed.weight.dtype == torch.bfloat16
    assert llama.module.packed_weights is not None and llama.module.packed_weights.format is INT8
    assert llama.generate("Anna was in", max_tokens=4).text


def test_unsupported_dtype_runs_unfused() -> None:
    module = tiny(LLAMA).half()
    assert optimize_for_cpu(module) == 0
    with pytest.raises(LlamathError, match="int8"):
        optimize_for_cpu(module, "int8")
    assert logits_of(module).isfinite().all()


def test_released_pages_are_read_again(tmp_path: Path) -> None:
    """Pages of the mapped file are released, and read again when a parameter is used."""
    module = tiny(LLAMA)
    names = {"embed.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
    model = llamath.load(LLAMA)
    assert model.family.hf is not None
    tensors = {
        (names.get(path) or model.family.hf.stored_name(path.replace(path.split(".")[1], "{l}", 1)).replace("{l}", path.split(".")[1])): x
        for path, x in module.state_dict().items()
        if path != "head.weight"
    }
    save_file({name: x.contiguous() for name, x in tensors.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    loaded = run.open_model(str(tmp_path))
    expected, calls = logits_of(module), []
    assert optimize_for_cpu(loaded.module, release_pages=lambda: calls.append(loaded.files.release_pages())) == 3
    assert not calls and loaded.module.packed_weights is not None  # until somebody reads
    for kind, tokens, times in (
        (PANELS, 1, 3 + 1 + 1),  # packed: each layer, the rows of the head; the head
        (PANELS, 1, 0),
        (PANELS, 65, 3 + 1),  # read where they lie: each layer, the head
        (MKLDNN, 65, 2 + 3 + 1 + 1),  # the embedding's rows, some at a time, too
        (MKLDNN, 1, 1 + 3 + 1 + 1),
        (MKLDNN, 1, 1 + 1),
        (MKLDNN, 65, 2 + 1),
    ):
        loaded.module.packed_weights.format = kind
        with torch.inference_mode():
            loaded.module(torch.ones(1, tokens, dtype=torch.int64), last_only=True)
        assert len(calls) == times
        calls.clear()
    assert (logits_of(loaded.module) - expected).abs().max() <= 1e-5 * expected.abs().max()
    assert all(torch.equal(x, module.state_dict()[name]) for name, x in loaded.module.state_dict().items())


@given(st.integers(1, 40), st.integers(1, 70), st.floats(1e-3, 1e3), st.integers(0, 9))
def test_int8_weight_error_is_half_a_scale(rows: int, columns: int, size: float, seed: int) -> None:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * size
    numbers, scale = quantize_int8(weight)
    assert numbers.dtype == torch.int8 and torch.equal(scale * 127, (weight.abs().amax(1) / 127) * 127)
    assert ((numbers * scale[:, None] - weight).abs() <= 0.5001 * scale[:, None]).all()


@BRIEF
@given(st.integers(1, 20), st.integers(1, 9), st.floats(1e-3, 1e3), st.integers(0, 9))
def test_int8_linear_keeps_16_bits_of_its_input(tokens: int, blocks: int, size: float, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    weight, x = torch.randn(24, 16 * blocks, generator=random), torch.randn(2, tokens, 16 * blocks, generator=random) * size
    numbers, scale = quantize_int8(weight)
    known = numbers.double() * scale.double()[:, None]
    step = x.abs().amax(-1, keepdim=True).double() / 32_512
    bound = 0.51 * step * known.abs().sum(1) + 1e-5 * (x.double().abs() @ known.abs().T)
    assert ((Int8Linear(weight, None)(x).double() - x.double() @ known.T).abs() <= bound).all()


@BRIEF
def test_int8_logits_are_close() -> None:
    module = tiny(LLAMA)
    expected = logits_of(module)
    optimize_for_cpu(module, "int8")
    assert 0 < (logits_of(module) - expected).abs().max() < 0.03 * expected.abs().max()
