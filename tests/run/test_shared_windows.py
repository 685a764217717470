"""DeepSeek-V4.1, which the installed transformers has no class for: its passes compared with the equations of its published code."""

from __future__ import annotations

import itertools
from math import ceil, floor, log, pi
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

import llamath
from llamath.run import build

HEADS, SIZE, ROTARY, WINDOW, STREAMS, EPS = 4, 8, 4, 4, 3, 1e-20
RATIOS, OWN, CHOOSING, SOURCE = (0, 0, 2, 2, 2, 1, 1, 1), (2, 5), (2, 4, 5, 7), 5
TOP, BLOCKS, BLOCK, INDEX_HEADS = 2, 2, 2, 13
VOCAB, MERGED, PAD, NGRAM, HASHES = 50, 30, 3, 3, 2
TABLES = {1: (67, 71, 73, 79), 4: (83, 89, 97, 101)}
"""The primes from 64 on."""
LIMIT = 0.7
CONFIG: dict[str, Any] = {
    "model_type": "deepseek_v41_text", "vocab_size": VOCAB, "hidden_size": 20, "moe_intermediate_size": 12, "num_hidden_layers": 8,
    "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": SIZE, "qk_rope_head_dim": ROTARY, "q_lora_rank": 10,
    "o_lora_rank": 6, "o_groups": 2, "swiglu_limit": LIMIT, "rms_norm_eps": EPS, "rope_theta": 10.0, "compress_rope_theta": 40.0,
    "rope_scaling": {"rope_type": "yarn", "factor": 4, "beta_fast": 32, "beta_slow": 1, "original_max_position_embeddings": 16},
    "n_routed_experts": 6, "num_experts_per_tok": 2, "routed_scaling_factor": 1.5, "sliding_window": WINDOW,
    "compress_ratios": list(RATIOS), "kv_source_layer_ids": list(OWN), "index_source_layer_ids": list(CHOOSING), "index_n_heads": INDEX_HEADS,
    "index_head_dim": 6, "index_topk": TOP, "candidate_source_layer_id": SOURCE, "candidate_topk_blocks": BLOCKS,
    "candidate_block_size": BLOCK, "hc_mult": STREAMS, "hc_sinkhorn_iters": 4, "engram_layer_ids": list(TABLES),
    "engram_num_embeddings": [sum(x) for x in TABLES.values()], "engram_max_ngram_size": NGRAM, "engram_vocab_size": 64,
    "engram_n_heads": HASHES, "engram_head_dim": 5, "engram_pad_token_id": PAD, "engram_compressed_vocab_size": MERGED,
    "num_nextn_predict_layers": 0, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    found = build(llamath.load(CONFIG))
    for x in (*found.parameters(), *found.buffers()):
        x.data.normal_(0, 0.4)
    merged = torch.randint(MERGED, (VOCAB,))
    for layer in TABLES:
        found.layers[layer].ngrams.token_map = merged
    return found.requires_grad_(False)


def rms(x: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * scale


def frequencies(ratio: int) -> Tensor:
    """YaRN, for layers with windows alone."""
    base = 40.0 if ratio else 10.0
    plain = 1.0 / base ** (torch.arange(0, ROTARY, 2) / ROTARY)
    if not ratio:
        return plain

    def channel(turns: float) -> float:
        return ROTARY * log(16 / (turns * 2 * pi)) / (2 * log(base))

    low, high = max(floor(channel(32)), 0), min(ceil(channel(1)), ROTARY - 1)
    ramp = ((torch.arange(ROTARY // 2) - low) / max(high - low, 1e-3)).clamp(0, 1)
    return plain / 4 * ramp + plain * (1 - ramp)


def rotate(x: Tensor, position: int, ratio: int, back: bool = False) -> Tensor:
    """Turn neighboring pairs of the last channels as complex numbers."""
    turn = torch.polar(torch.ones(ROTARY // 2), position * frequencies(ratio))
    pairs = torch.view_as_complex(x[..., -ROTARY:].unflatten(-1, (-1, 2)).contiguous())
    turned = torch.view_as_real(pairs * (turn.conj() if back else turn)).flatten(-2)
    return torch.cat([x[..., :-ROTARY], turned], -1)


def memory(block: Any, layer: int, streams: Tensor, ids: list[int]) -> Tensor:
    """Add the rows of the n-grams to the streams of one sequence, `(T, n, d)`."""
    factors = np.random.default_rng(10007 * layer).integers(0, (2**63 - 1) // MERGED // 2, NGRAM) * 2 + 1
    merged, sizes, outputs = [int(block.token_map[i]) for i in ids], TABLES[layer], []
    for t in range(len(ids)):
        tokens = [merged[t - n] if t >= n else int(block.token_map[PAD]) for n in range(NGRAM)]
        rows, first, hashed = [], 0, tokens[0] * int(factors[0])
        for n in range(1, NGRAM):
            hashed ^= tokens[n] * int(factors[n])
            for size in sizes[(n - 1) * HASHES : n * HASHES]:
                rows.append(first + hashed % size)
                first += size
        kv = F.linear(block.table.weight[rows].flatten(), block.kv.weight).unflatten(0, (STREAMS + 1, -1))
        r = (rms(streams[t], block.query_norm.weight) * rms(kv[:-1], block.key_norm.weight)).sum(-1) / kv.shape[-1] ** 0.5
        gate = torch.sigmoid(torch.copysign(r.abs().clamp_min(1e-6).sqrt(), r))
        outputs.append(streams[t] + gate[:, None] * kv[-1])
    return torch.stack(outputs)


def coefficients(connection: Any, streams: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The weights of the streams for the next branch, of this branch's output, and of the streams among themselves."""
    x = rms(streams.flatten(-2))

    def of(gate: Any) -> Tensor:
        return F.linear(x, gate.weight) * gate.scale + gate.bias

    mix = of(connection.mix).unflatten(-1, (STREAMS, STREAMS)).softmax(-1) + 1e-6
    mix = mix / (mix.sum(-2, keepdim=True) + 1e-6)
    for _ in range(3):
        mix = mix / (mix.sum(-1, keepdim=True) + 1e-6)
        mix = mix / (mix.sum(-2, keepdim=True) + 1e-6)
    return of(connection.pre).sigmoid() + 1e-6, 2 * of(connection.post).sigmoid(), mix


def windows_of(attn: Any, ratio: int, x: Tensor) -> Tensor:
    """The vectors of complete windows of one sequence, before their rotation."""
    kv, vectors = F.linear(x, attn.compressor.kv.weight), []
    for j in range(len(x) // ratio):
        tokens = slice(j * ratio, (j + 1) * ratio)
        weights = torch.ones(1, SIZE) if ratio == 1 else F.linear(x[tokens], attn.compressor.weights.weight).softmax(0)
        vectors.append(rms((kv[tokens] * weights).sum(0), attn.compressor.norm.weight))
    return torch.stack(vectors) if vectors else kv[:0]


def choose(indexer: Any, layer: int, x: Tensor, latent: Tensor, shared: dict[str, Any]) -> list[list[int]]:
    """The windows of each query with the highest scores, of those in candidate blocks after the layer that chooses these."""
    ratio, chosen = RATIOS[layer], []
    candidates: list[set[int]] = []
    for t in range(len(x)):
        q = rotate(F.linear(latent[t], indexer.q.weight).unflatten(0, (INDEX_HEADS, 6)), t, ratio)
        weights = F.linear(x[t], indexer.head_weights.weight) / (INDEX_HEADS * 6) ** 0.5
        seen = (t + 1) // ratio
        scores = [float((torch.relu(q @ shared["keys"][j]) * weights).sum()) for j in range(seen)]
        if layer == SOURCE:
            best = {b: max(scores[b * BLOCK : (b + 1) * BLOCK]) for b in range(ceil(seen / BLOCK))}
            best |= {(seen - 1) // BLOCK: float("inf")} if seen else {}
            kept = sorted(best, key=lambda b: -best[b])[:BLOCKS]
            candidates.append({j for j in range(seen) if j // BLOCK in kept})
        allowed = range(seen) if layer <= SOURCE else shared["candidates"][t]
        chosen.append(sorted(allowed, key=lambda j: -scores[j])[:TOP])
    if layer == SOURCE:
        shared["candidates"] = candidates
    return chosen


def attention(attn: Any, layer: int, x: Tensor, shared: dict[str, Any]) -> Tensor:
    ratio = RATIOS[layer]
    latent = rms(F.linear(x, attn.q_down.weight), attn.q_norm.weight)
    kv = rms(F.linear(x, attn.kv.weight), attn.kv_norm.weight)
    keys = [rotate(kv[t], t, ratio) for t in range(len(x))]
    if layer in OWN:
        vectors = windows_of(attn, ratio, x)
        shared["windows"] = [rotate(v, j * ratio, ratio) for j, v in enumerate(vectors)]
        projected = rms(F.linear(vectors, attn.indexer.keys.k.weight), attn.indexer.keys.k_norm.weight)
        shared["keys"] = [rotate(k, j * ratio, ratio) for j, k in enumerate(projected)]
    if layer in CHOOSING:
        shared["chosen"] = choose(attn.indexer, layer, x, latent, shared)
    outputs = []
    for t in range(len(x)):
        q = rotate(F.linear(latent[t], attn.q_up.weight).unflatten(0, (HEADS, SIZE)), t, ratio)
        rows = keys[max(0, t - WINDOW + 1) : t + 1] + ([shared["windows"][j] for j in shared["chosen"][t]] if ratio else [])
        k = torch.stack(rows)
        scores = torch.cat([q @ k.T / SIZE**0.5, attn.sinks[:, None]], -1).softmax(-1)[:, :-1]
        y = rotate(scores @ k, t, ratio, back=True).flatten().unflatten(0, (2, -1))
        low = torch.einsum("gd,grd->gr", y, attn.o_down.weight.unflatten(0, (2, -1)))
        outputs.append(F.linear(low.flatten(), attn.o_up.weight))
    return torch.stack(outputs)


def expert(mlp: Any, x: Tensor) -> Tensor:
    gate, up = F.linear(x, mlp.gate.weight).clamp(max=LIMIT), F.linear(x, mlp.up.weight).clamp(-LIMIT, LIMIT)
    return F.linear(F.silu(gate) * up, mlp.down.weight)


def experts(moe: Any, x: Tensor) -> Tensor:
    scores = F.softplus(F.linear(x, moe.router.weight)).sqrt()
    chosen = (scores + moe.correction).topk(2).indices
    weights = scores.gather(-1, chosen)
    weights = 1.5 * weights / (weights.sum(-1, keepdim=True) + 1e-20)
    outputs = torch.stack([expert(e, x) for e in moe.experts], -2)
    return (outputs.gather(-2, chosen[..., None].expand(*chosen.shape, x.shape[-1])) * weights[..., None]).sum(-2) + expert(moe.shared, x)


def reference(model: Any, ids: Tensor) -> Tensor:
    """The logits of one sequence."""
    streams = model.embed.weight[ids][:, None].repeat(1, STREAMS, 1)
    pre = torch.eye(STREAMS)[0].expand(len(ids), -1)
    shared: dict[str, Any] = {}
    for i, layer in enumerate(model.layers):
        if i in TABLES:
            streams = memory(layer.ngrams, i, streams, ids.tolist())
        for connection, norm, name in ((layer.attn_hc, layer.attn_norm, "attn"), (layer.mlp_hc, layer.mlp_norm, "mlp")):
            following, post, mix = coefficients(connection, streams)
            x = rms((pre[..., None] * streams).sum(1), norm.weight)
            y = attention(layer.attn, i, x, shared) if name == "attn" else experts(layer.mlp, x)
            streams = post[..., None] * y[:, None] + torch.einsum("tjk,tjd->tkd", mix, streams)
            pre = following
    return F.linear(rms((pre[..., None] * streams).sum(1), model.norm.weight), model.head.weight)


@torch.no_grad()
def test_logits_equal_the_equations(model: Any) -> None:
    ids = torch.randint(VOCAB, (2, 19))
    torch.testing.assert_close(model(ids), torch.stack([reference(model, row) for row in ids]), atol=5e-4, rtol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("ends", [(0, 5, 12, 13, 19), (0, 1, 2, 3, 4, 19), tuple(range(20))])
def test_logits_with_a_cache_equal_those_of_one_pass(model: Any, ends: tuple[int, ...]) -> None:
    ids = torch.randint(VOCAB, (2, 19))
    cache = model.new_cache(19)
    cached = torch.cat([model(ids[:, a:b], cache) for a, b in itertools.pairwise(ends)], 1)
    torch.testing.assert_close(cached, model(ids), atol=5e-4, rtol=1e-3)


@torch.no_grad()
def test_padding_on_the_left_changes_nothing(model: Any) -> None:
    ids = torch.randint(VOCAB, (2, 17))
    padded = model(ids, padding=torch.tensor([5, 0]))
    torch.testing.assert_close(padded[:1, 5:], model(ids[:1, 5:]), atol=5e-4, rtol=1e-3)
    torch.testing.assert_close(padded[1:], model(ids[1:]), atol=5e-4, rtol=1e-3)


@torch.no_grad()
def test_tables_without_a_map_of_tokens_are_refused(model: Any) -> None:
    model.layers[1].ngrams.token_map = None
    with pytest.raises(llamath.LlamathError, match="need a map from each token"):
        model(torch.zeros(1, 3, dtype=torch.long))


def test_gradients_reach_every_weight_but_those_of_indexers(model: Any) -> None:
    model.requires_grad_(True)
    model(torch.randint(VOCAB, (1, 19))).square().sum().backward()
    names = {name: x.grad is None for name, x in model.named_parameters() if ".experts." not in name}  # some may have no tokens
    assert names == {name: ".indexer." in name for name in names}


def test_bytes_of_a_long_cache_follow_the_windows() -> None:
    near, far = (llamath.memory(llamath.load(CONFIG), context=n).kv_cache for n in (16, 32))
    assert far - near == 16 * (SIZE + 6) * 2 * 3 // 2  # of each token one and a half windows, each with a key of an indexer, in 16 bits
