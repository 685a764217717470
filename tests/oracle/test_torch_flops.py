"""FLOPs compared with torch's FlopCounterMode on transformers' models: exact for forward, backward and decode, with known differences.

Experts run as `batched_mm`, which computes only the chosen experts. The default `grouped_mm` is unknown to torch's counter, which then
counts no experts at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llamath.analysis.flops.flop_count import forward_flops, train_flops
from llamath.core.blocks import Decoder, LatentAttention, MoE
from llamath.core.config import Config
from llamath.core.forward_pass import ForwardPass
from llamath.core.mixers import Convolution, GatedDeltaNet, Mamba2, RecurrentMixer
from llamath.core.tree import FoldedBlock, fold_blocks
from llamath.families.registry import find_family
from support.reference_data import tiny_configs

pytestmark = pytest.mark.transformers

B, T = 2, 9
NO_SDPA = frozenset("bloom gemma2 gpt_oss gptj mpt".split())
"""Families that transformers runs only with eager attention."""


def plain() -> list[Any]:
    """One configuration of each family."""
    return list({x.values[0]["model_type"]: x for x in reversed(tiny_configs())}.values())


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Use one thread: these models are too small for more."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tree_of(config: dict[str, Any]) -> Decoder:
    return find_family(config["model_type"])(Config(config))


def built(config: dict[str, Any], attention: str, experts: str = "batched_mm") -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    hf_config = transformers.AutoConfig.for_model(**config)
    return transformers.AutoModelForCausalLM.from_config(hf_config, attn_implementation=attention, experts_implementation=experts)


def ids() -> Any:
    import torch

    return torch.randint(0, 20, (B, T))


def counted(work: Callable[[], Any]) -> tuple[int, Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        out = work()
    return counter.get_total_flops(), out


def these(tree: Decoder, kind: type[Any]) -> list[FoldedBlock]:
    return [x for x in fold_blocks(tree) if isinstance(x.block, kind)]


def every_expert(tree: Decoder, tokens: int) -> int:
    """Llama 4 in transformers sends each token to all experts, and multiplies the outputs of those not chosen by 0."""
    result = 0
    for x in these(tree, MoE):
        (expert, n), *_ = x.block.experts.distinct()
        result += x.active * (int(n) - int(x.block.experts.active)) * forward_flops(expert, ForwardPass.prefill(tokens), B).total
    return result


def outputs(tree: Decoder, more: int) -> int:
    """The FLOPs of a convolution that computes more outputs than it returns."""
    return sum(2 * B * more * int(x.block.weight.size) * x.active for x in these(tree, Convolution))


def padding(tree: Decoder) -> int:
    """A convolution padded on both sides computes c − 1 outputs that are discarded."""
    return sum(2 * B * int(x.block.weight.size) * (int(x.block.weight.shape[1]) - 1) * x.active for x in these(tree, Convolution))


def in_chunks(tree: Decoder, config: dict[str, Any]) -> int:
    """The FLOPs of transformers' chunked algorithms, with padded chunks; torch does not count triangular solves."""
    result, chunk = 0, 64
    for x in these(tree, GatedDeltaNet):
        Hv, hk, hv, n = int(x.block.value_heads), int(x.block.key_dim), int(x.block.value_dim), -(-T // chunk)
        result += x.active * B * Hv * n * (4 * chunk * chunk * hk + 2 * chunk * chunk * hv + 6 * chunk * hk * hv)
    for x in these(tree, Mamba2):
        H, m, N, C = int(x.block.heads), int(x.block.head_dim), int(x.block.state_size), config.get("chunk_size", 128)
        n = -(-T // C)
        result += x.active * B * H * (n * (2 * C * C * N + 2 * C * C * m + 4 * C * m * N) + 2 * (n + 1) ** 2 * m * N)
    return result


def states(tree: Decoder, at: ForwardPass) -> int:
    return sum(int(x.block.mixing_flops(at)) * x.active * B for x in these(tree, RecurrentMixer))


def read_out(tree: Decoder) -> int:
    """In a decode step transformers computes S c of Mamba-2 as a product, and everything else elementwise."""
    return sum(B * int(x.block.flops_per_token) // 2 * x.active for x in these(tree, Mamba2))


def expected(config: dict[str, Any], tree: Decoder) -> int:
    """The FLOPs of a prompt that torch's counter should report."""
    at = ForwardPass.prefill(T, masked=False)
    ours = forward_flops(tree, at, B).total - states(tree, at) + in_chunks(tree, config) + padding(tree)
    return ours + (every_expert(tree, T) if config["model_type"] == "llama4_text" else 0)


@pytest.mark.parametrize(
    ("config", "attention"),
    [
        *(pytest.param(x.values[0], "eager", id=f"{x.id}-eager") for x in tiny_configs()),
        *(pytest.param(x.values[0], "sdpa", id=f"{x.id}-sdpa") for x in plain() if x.values[0]["model_type"] not in NO_SDPA),
    ],
)
def test_forward_and_backward_flops_equal_torch(config: dict[str, Any], attention: str) -> None:
    tree, model = tree_of(config), built(config, attention)
    tokens = ids()
    forward, out = counted(lambda: model(tokens, use_cache=False).logits)
    assert forward == expected(config, tree)
    if not these(tree, RecurrentMixer):
        backward, _ = counted(lambda: out.sum().backward())
        assert backward == 2 * forward
        if config["model_type"] != "llama4_text":
            assert forward + backward == train_flops(tree, ForwardPass.prefill(T, masked=False), B).model


def unpacked_again(tree: Decoder, at: ForwardPass) -> int:
    """transformers caches the latent vector and expands the keys and values of all tokens again for each new token."""
    sizes = (int(x.block.k_up.weight.size + x.block.v_up.weight.size) * x.active for x in these(tree, LatentAttention))
    return sum(2 * B * (at.context - 1) * size for size in sizes)


@pytest.mark.parametrize("config", plain())
def test_decode_flops_equal_torch(config: dict[str, Any]) -> None:
    import torch

    tree, tokens = tree_of(config), ids()
    attention = "eager" if config["model_type"] in NO_SDPA else "sdpa"
    model = built(config, attention).eval()
    with torch.no_grad():
        cache = model(tokens[:, :-1], use_cache=True).past_key_values
        result, _ = counted(lambda: model(tokens[:, -1:], past_key_values=cache, use_cache=True))
    at = ForwardPass.decode(T, masked=False)
    ours = forward_flops(tree, at, B).total + unpacked_again(tree, at) - states(tree, at) + read_out(tree) + outputs(tree, 1)
    assert result == ours + (every_expert(tree, 1) if config["model_type"] == "llama4_text" else 0)


@pytest.mark.parametrize("config", [x for x in tiny_configs() if x.values[0]["model_type"] == "mixtral"])
def test_torch_does_not_count_grouped_experts(config: dict[str, Any]) -> None:
    tree, tokens = tree_of(config), ids()
    grouped, _ = counted(lambda: built(config, "eager", "grouped_mm")(tokens, use_cache=False))
    assert forward_flops(tree, ForwardPass.prefill(T, masked=False), B).total - grouped == forward_flops(
        tree, ForwardPass.prefill(T), B
    ).of("experts")


def test_frozen_embeddings_save_first_layer_input_gradients() -> None:
    (config,) = [x.values[0] for x in tiny_configs() if x.id == "llama-plain"]
    tree, model = tree_of(config), built(config, "eager")
    model.get_input_embeddings().requires_grad_(False)
    model.model.layers[0].input_layernorm.requires_grad_(False)
    forward, out = counted(lambda: model(ids(), use_cache=False).logits)
    backward, _ = counted(lambda: out.sum().backward())
    first = tree.layers[0].attn  # type: ignore[attr-defined]
    assert 2 * forward - backward == sum(2 * B * T * int(getattr(first, x).weight.size) for x in "qkv")


@pytest.mark.parametrize("config", [x for x in tiny_configs() if x.id in ("llama-plain", "deepseek_v3-plain", "gpt2-plain")])
def test_fused_attention_recomputes_scores_in_backward(config: dict[str, Any]) -> None:
    """torch's formula for the backward pass of fused attention, from the shapes of q, k and v."""
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    tree = tree_of(config)
    attention = tree.layers[0].attn  # type: ignore[attr-defined]
    latent = isinstance(attention, LatentAttention)
    H, key = int(attention.heads), int(attention.nope_dim + attention.rope_dim if latent else attention.head_dim)
    value = int(attention.v_dim) if latent else key
    shapes = [(B, H, T, key), (B, H, T, key), (B, H, T, value)]
    at = ForwardPass.prefill(T, masked=False)
    layers = int(tree.layers.n)
    assert layers * sdpa_flop_count(*shapes) == forward_flops(tree, at, B).mixing_total
    fused = train_flops(tree, at, B, flash=True)
    backward = layers * sdpa_backward_flop_count((B, H, T, value), *shapes)
    assert backward == 2 * forward_flops(tree, at, B).mixing_total + fused.rescored


def test_recurrent_mixer_flops_equal_their_products() -> None:
    """The recurrences of the delta rule and of Mamba-2 with each product as one matrix operation, counted by torch."""
    import torch

    for config in (x.values[0] for x in tiny_configs() if x.id in ("qwen3_next-plain", "nemotron_h-plain")):
        tree = tree_of(config)
        for x in these(tree, GatedDeltaNet):
            Hv, hk, hv = int(x.block.value_heads), int(x.block.key_dim), int(x.block.value_dim)
            S, k, q, v = (torch.zeros(Hv, *shape) for shape in ((hk, hv), (hk, 1), (hk, 1), (hv, 1)))
            result, _ = counted(lambda S=S, k=k, q=q, v=v: (S.mT @ k, S + k @ v.mT, S.mT @ q))  # type: ignore[misc]
            assert result == int(x.block.flops_per_token)
        for x in these(tree, Mamba2):
            H, m, N = int(x.block.heads), int(x.block.head_dim), int(x.block.state_size)
            S, b, c, u = (torch.zeros(H, *shape) for shape in ((m, N), (1, N), (N, 1), (m, 1)))
            result, _ = counted(lambda S=S, b=b, c=c, u=u: (S + u @ b, S @ c))  # type: ignore[misc]
            assert result == int(x.block.flops_per_token)


def test_absorbed_latent_attention_flops_equal_their_products() -> None:
    """DeepSeek-V2's absorption: each head projects the query into the latent space, and the sum of latent vectors out of it."""
    import torch

    (config,) = [x.values[0] for x in tiny_configs() if x.id == "deepseek_v3-plain"]
    tree = tree_of(config)
    a = tree.layers[0].attn  # type: ignore[attr-defined]
    H, n, p, v, r = (int(x) for x in (a.heads, a.nope_dim, a.rope_dim, a.v_dim, a.kv_lora_rank))
    at = ForwardPass.decode(T, masked=False, absorbed=True)

    def attend() -> None:
        query, k_up, v_up = torch.zeros(H, 1, n), torch.zeros(H, n, r), torch.zeros(H, v, r)
        latent, turned, key = torch.zeros(T, r), torch.zeros(H, 1, p), torch.zeros(T, p)
        scores = query @ k_up @ latent.mT + turned @ key.mT
        _ = (scores @ latent) @ v_up.mT

    result, _ = counted(attend)
    assert result == int(a.mixing_flops(at)) + 2 * int(a.k_up.weight.size + a.v_up.weight.size)
