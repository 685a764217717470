"""The module matches the tree: on the meta device, in every dtype, with tied weights; and it can be trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import llamath
from llamath.analysis.graph.recorder import GraphRecorder
from llamath.core.blocks import Layer
from llamath.core.config import Config
from llamath.core.expr import Expr
from llamath.families.registry import find_family
from llamath.torch import Decoder, build, canonical_weights, initialize, load_weights
from llamath.torch.kv_cache import Cache
from llamath.torch.module import Module, TensorOptions, set_weight
from llamath.torch.torch_machine import TorchMachine
from llamath.utils.errors import LlamathError
from support.reference_data import tiny_configs
from support.transformers_pair import pair

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
IDS = torch.randint(0, 99, (3, 12), generator=torch.Generator().manual_seed(0))


def tiny(**changes: Any) -> Decoder:
    return initialize(build(llamath.load(LLAMA | changes)), seed=1, std=0.1)


def test_tied_head_shares_the_embedding() -> None:
    module = tiny()
    assert module.head is not None and module.head.weight is module.embed.weight
    load_weights(
        module,
        {
            name: x.clone() for name, x in module.state_dict().items() if name != "head.weight"
        }.items(),
    )
    assert module.head.weight is module.embed.weight
    assert tiny(tie_word_embeddings=False).head.weight is not module.embed.weight


def test_weights_of_the_same_dtype_are_not_copied() -> None:
    module, x = tiny(), torch.randn(99, 32)
    load_weights(module, [("embed.weight", x)])
    assert module.embed.weight.data_ptr() == x.data_ptr()
    load_weights(module, [("embed.weight", x.bfloat16())])
    assert module.embed.weight.dtype == torch.float32


def test_training_reduces_the_loss() -> None:
    module = tiny()
    descent = torch.optim.AdamW(module.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(
            module(IDS[:, :-1]).flatten(0, 1), IDS[:, 1:].flatten()
        )
        descent.zero_grad()
        loss.backward()
        descent.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 4


@pytest.mark.transformers
def test_gradients_match_transformers() -> None:
    both = pair(LLAMA)
    for model in (both.ours, both.theirs):
        out = model(IDS)
        torch.nn.functional.cross_entropy(
            getattr(out, "logits", out)[:, :-1].flatten(0, 1), IDS[:, 1:].flatten()
        ).backward()
    theirs = {name: x.grad for name, x in both.theirs.named_parameters()}
    scheme = find_family("llama").hf
    for name, x in canonical_weights(both.ours.spec, scheme, theirs):
        assert torch.allclose(both.ours.get_parameter(name).grad, x, rtol=1e-4, atol=1e-6), name


def test_initial_norms_are_the_identity() -> None:
    module = initialize(
        build(llamath.load("gemma-3-270m", changes={"num_hidden_layers": 1, "vocab_size": 64}))
    )
    x = torch.randn(2, 3, module.spec.width)
    assert torch.allclose(
        module.norm(module.machine(torch.zeros(2, 3), module.new_cache(0)), x),
        x / x.pow(2).mean(-1, keepdim=True).sqrt(),
        atol=1e-4,
    )


@torch.no_grad()
def test_more_tokens_than_positions_are_rejected() -> None:
    module = initialize(
        build(llamath.load("gpt2", changes={"n_layer": 1, "n_positions": 8, "vocab_size": 99}))
    )
    assert module(IDS, None, torch.tensor([4, 5, 6])).shape == (3, 12, 99)
    with pytest.raises(LlamathError, match="position embeddings for 8 tokens, found 9 tokens"):
        module(IDS, None, torch.tensor([3, 5, 6]))


def test_repr_shows_symbols_and_sizes() -> None:
    text = repr(tiny())
    assert "(q): Linear(weight (H·h, d) = (32, 32))" in text
    assert "(head): Linear(weight is embed.weight)" in text


@pytest.mark.parametrize(
    "config",
    [
        x
        for x in tiny_configs()
        if x.id in ("deepseek_v3-yarn", "glm4_moe-norms, biases, tied, two dense")
    ],
)
@torch.no_grad()
def test_mtp_layer_joins_embeddings_and_hidden_states(config: dict[str, Any]) -> None:
    """As vLLM's deepseek_mtp.py: block(eh_proj(cat([enorm(e), hnorm(x)]))), then the norm and the head."""
    tree = find_family(config["model_type"])(Config(config))
    assert tree.mtp is not None
    spec, options = tree.mtp[0], TensorOptions(torch.float32, torch.device("cpu"))
    mtp, layer = (
        Module(spec, options, 0),
        Module(Layer(**{name: getattr(spec, name) for name in Layer.fields}), options, 0),
    )
    table, head = torch.randn(2, 99, 32)
    set_weight(mtp, "embed.weight", torch.nn.Parameter(table))
    set_weight(mtp, "head.weight", torch.nn.Parameter(head))
    for x in (*mtp.parameters(), *mtp.buffers()):
        x.normal_(0.5, 0.2)
    layer.load_state_dict(
        {name: x for name, x in mtp.state_dict().items() if name in layer.state_dict()}
    )
    x, next_ids = torch.randn(2, 7, 32), torch.randint(0, 99, (2, 7))

    def machine() -> TorchMachine:
        return TorchMachine(next_ids, Cache([mtp.attn.new_cache(0)], 0))

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, (32,), weight, spec.norm.eps)

    joined = torch.cat(
        (norm(mtp.embed.weight[next_ids], mtp.embed_norm.weight), norm(x, mtp.hidden_norm.weight)),
        -1,
    )
    expected = (
        norm(layer(machine(), joined @ mtp.join.weight.T), mtp.norm.weight) @ mtp.head.weight.T
    )
    torch.testing.assert_close(mtp(machine(), x, next_ids), expected)

    recorder = GraphRecorder(
        *(Expr.variable(*letter) for letter in (("B", 2), ("T", 7), ("P", 0))), decode=False
    )
    logits = recorder.record_block(
        spec,
        ((recorder.batch, recorder.new_tokens, tree.width), 4),
        ((recorder.batch, recorder.new_tokens), 8),
    )
    assert tuple(logits.shape) == expected.shape
