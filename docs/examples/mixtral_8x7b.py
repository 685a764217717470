"""Mixtral 8x7B: 46,702,792,704 parameters.

Family: Mixtral: Mistral's layers with a mixture of experts instead of the MLP. This file is this
model alone.

Parameters: V·d + L·(2·d + 2·H·h·d + 2·K·h·d + E·d + 3·E·F·d) + d + V·d = 46,702,792,704.

Letters of shapes: B sequences, T new tokens, S tokens up to now, those in the cache included; other
letters are fields of Config.

Written by `llamath code`. It needs torch 2.5 or newer, and safetensors to load a checkpoint. All
sequences of a batch have the same length, and there is no dropout. Each layer computes its angles
and mask anew. `load` does not read config.json: the sizes are those of Config. A model that is not
loaded has the initial values of torch, not those of its authors.
"""

import glob
import re
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu


@dataclass
class Config:
    """The sizes and numbers of Mixtral 8x7B."""

    d: int = 4096               # hidden_size
    H: int = 32                 # num_attention_heads
    K: int = 8                  # num_key_value_heads
    h: int = 128                # head_dim
    F: int = 14_336             # intermediate_size
    V: int = 32_000             # vocab_size
    L: int = 32                 # num_hidden_layers
    E: int = 8                  # num_local_experts
    k: int = 2                  # num_experts_per_tok
    theta: float = 1_000_000.0  # base of the rotary positions
    eps: float = 1e-5           # epsilon of the norms


def rope(x, pos, theta):
    """Rotate each pair of channels of a head by the angle pos · theta^(−2 · pair / size)."""
    size = x.shape[-1]
    powers = torch.arange(0, size, 2, device=x.device).float() / size  # float32
    frequencies = 1 / theta**powers  # (size / 2,), of each pair
    angles = pos[:, None, None] * frequencies  # (T, 1, size / 2)
    cos, sin = angles.cos(), angles.sin()
    a, b = x.float().chunk(2, -1)  # a pair has a channel of each half
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).type_as(x)


def route(logits, top_k):
    """Choose top_k experts for each token: their indices and their weights, (B, T, top_k) each."""
    scores = logits.softmax(-1)  # (B, T, experts)
    chosen = scores.topk(top_k, -1).indices
    weights = scores.gather(-1, chosen)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return chosen, weights


def run_experts(experts, x, chosen, weights):
    """Sum the outputs of each token's experts by their weights, in float32: x (B, T, size)."""
    y = torch.zeros_like(x, dtype=torch.float32)
    for e in chosen.unique().tolist():  # each expert computes the tokens that chose it
        b, t, slot = torch.where(chosen == e)
        weight = weights[b, t, slot, None]
        y[b, t] += experts[e](x[b, t]) * weight
    return y.type_as(x)


def attention(q, k, v, pos):
    """Each query attends to the keys up to its own.

    q is (B, T, query heads, size), k and v (B, S, key heads, size).
    """
    i, j = pos[:, None], torch.arange(k.shape[1], device=pos.device)  # query and key positions
    mask = j <= i  # (T, S)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # heads first
    y = scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
    return y.transpose(1, 2)  # (B, T, query heads, size)


class Cache(dict):
    """The state of each module after the tokens read so far."""

    length = 0

    def append(self, module, *new):
        """Add the rows of new tokens to those of a module, and return all, (B, S, …) each."""
        if module in self:
            new = tuple(torch.cat(x, 1) for x in zip(self[module], new, strict=True))
        self[module] = new
        return new


class Attention(nn.Module):
    """Grouped-query attention: H queries share K heads of keys and values."""

    def __init__(self, c):
        super().__init__()
        self.H, self.K, self.h, self.theta = c.H, c.K, c.h, c.theta
        self.q = nn.Linear(c.d, c.H * c.h, bias=False)  # [H·h, d] = [4096, 4096]
        self.k = nn.Linear(c.d, c.K * c.h, bias=False)  # [K·h, d] = [1024, 4096]
        self.v = nn.Linear(c.d, c.K * c.h, bias=False)  # [K·h, d] = [1024, 4096]
        self.o = nn.Linear(c.H * c.h, c.d, bias=False)  # [d, H·h] = [4096, 4096]

    def forward(self, x, pos, cache):
        q = rope(self.q(x).unflatten(-1, (self.H, self.h)), pos, self.theta)  # (B, T, H, h)
        k = rope(self.k(x).unflatten(-1, (self.K, self.h)), pos, self.theta)  # (B, T, K, h)
        v = self.v(x).unflatten(-1, (self.K, self.h))  # (B, T, K, h) = (B, T, 8, 128)
        k, v = cache.append(self, k, v)  # (B, S, K, h) = (B, S, 8, 128) each
        return self.o(attention(q, k, v, pos).flatten(-2))  # (B, T, d)


class MLP(nn.Module):
    """SwiGLU: down(silu(gate x) · up x)."""

    def __init__(self, c):
        super().__init__()
        self.gate = nn.Linear(c.d, c.F, bias=False)  # [F, d] = [14336, 4096], 58,720,256 parameters
        self.up = nn.Linear(c.d, c.F, bias=False)    # [F, d] = [14336, 4096], 58,720,256 parameters
        self.down = nn.Linear(c.F, c.d, bias=False)  # [d, F] = [4096, 14336], 58,720,256 parameters

    def forward(self, x):
        return self.down(silu(self.gate(x)) * self.up(x))  # (tokens, d)


class MoE(nn.Module):
    """A mixture of experts: a router sends each token to k of E experts."""

    def __init__(self, c):
        super().__init__()
        self.k = c.k
        self.router = nn.Linear(c.d, c.E, bias=False)  # [E, d] = [8, 4096], 32,768 parameters
        self.experts = nn.ModuleList([MLP(c) for _ in range(c.E)])  # 8 × 176,160,768 parameters

    def forward(self, x):
        chosen, weights = route(self.router(x).float(), self.k)  # (B, T, k) = (B, T, 2) each
        return run_experts(self.experts, x, chosen, weights)  # (B, T, d)


class Layer(nn.Module):
    """One layer: x += attn(attn_norm x); x += mlp(mlp_norm x)."""

    def __init__(self, c):
        super().__init__()
        self.attn_norm = nn.RMSNorm(c.d, eps=c.eps)  # [d] = [4096]
        self.attn = Attention(c)                     # 41,943,040 parameters
        self.mlp_norm = nn.RMSNorm(c.d, eps=c.eps)   # [d] = [4096]
        self.mlp = MoE(c)                            # 1,409,318,912 parameters

    def forward(self, x, pos, cache):
        x = x + self.attn(self.attn_norm(x), pos, cache)  # (B, T, d)
        return x + self.mlp(self.mlp_norm(x))  # (B, T, d)


class Model(nn.Module):
    """The whole model, from token ids to logits."""

    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.V, c.d)          # [V, d] = [32000, 4096]
        self.layers = nn.ModuleList([Layer(c) for _ in range(c.L)])  # 32 × 1,451,270,144 parameters
        self.norm = nn.RMSNorm(c.d, eps=c.eps)       # [d] = [4096]
        self.head = nn.Linear(c.d, c.V, bias=False)  # [V, d] = [32000, 4096]

    def forward(self, ids, cache=None):  # ids (B, T) of new tokens
        cache = Cache() if cache is None else cache
        length = cache.length + ids.shape[1]  # of the sequence up to now
        pos = torch.arange(cache.length, length, device=ids.device)
        x = self.embed(ids)  # (B, T, d)
        for layer in self.layers:
            x = layer(x, pos, cache)
        cache.length = length
        return self.head(self.norm(x))  # (B, T, V) = (B, T, 32000)


# * rows in another order: the two channels of a pair of rope are neighbours
NAMES = {  # module here: its name in Hugging Face's files  # in GGUF files
    "embed": "model.embed_tokens",                                                    # token_embd
    "layers.{}.attn_norm": "model.layers.{}.input_layernorm",                         # attn_norm
    "layers.{}.attn.q": "model.layers.{}.self_attn.q_proj",                           # attn_q*
    "layers.{}.attn.k": "model.layers.{}.self_attn.k_proj",                           # attn_k*
    "layers.{}.attn.v": "model.layers.{}.self_attn.v_proj",                           # attn_v
    "layers.{}.attn.o": "model.layers.{}.self_attn.o_proj",                           # attn_output
    "layers.{}.mlp_norm": "model.layers.{}.post_attention_layernorm",                 # ffn_norm
    "layers.{}.mlp.router": "model.layers.{}.block_sparse_moe.gate",                  # ffn_gate_inp
    # ffn_gate_exps
    "layers.{}.mlp.experts.{}.gate": "model.layers.{}.block_sparse_moe.experts.{}.w1",
    "layers.{}.mlp.experts.{}.up": "model.layers.{}.block_sparse_moe.experts.{}.w3",  # ffn_up_exps
    # ffn_down_exps
    "layers.{}.mlp.experts.{}.down": "model.layers.{}.block_sparse_moe.experts.{}.w2",
    "norm": "model.norm",                                                             # output_norm
    "head": "lm_head",                                                                # output
}


def stored_name(name):
    """Map the name of a weight in this file to its name in a checkpoint."""
    pattern, numbers = re.sub(r"\.\d+", ".{}", name), re.findall(r"\d+", name)
    module, _, leaf = pattern.rpartition(".")
    return f"{NAMES[module]}.{leaf}".format(*numbers)


def load(folder, c=None):
    """Read a checkpoint with these names: a folder with *.safetensors files."""
    from safetensors.torch import load_file

    c, stored, state = c or Config(), {}, {}
    for file in glob.glob(f"{folder}/*.safetensors"):
        stored |= load_file(file)
    with torch.device("meta"):
        model = Model(c)
    for name in model.state_dict():
        x = stored.get(stored_name(name))
        if x is None or x.dtype.itemsize < 2:
            what = "missing" if x is None else f"quantized, {x.dtype}"
            raise ValueError(f"{stored_name(name)} in {folder} is {what}")
        state[name] = x
    model.load_state_dict(state, assign=True)
    return model


@torch.no_grad()
def generate(model, ids, n, temperature=0.0, top_p=1.0):
    """Append n tokens to ids (B, T), one by one: the likeliest, or drawn."""
    cache, new = Cache(), ids
    for _ in range(n):
        logits = model(new, cache)[:, -1]  # (B, V)
        if temperature == 0:
            new = logits.argmax(-1, keepdim=True)
        else:
            p, order = (logits / temperature).softmax(-1).sort(descending=True)
            p[p.cumsum(-1) - p > top_p] = 0  # keep the likeliest, up to this sum
            new = order.gather(-1, p.multinomial(1))
        ids = torch.cat((ids, new), 1)
    return ids


if __name__ == "__main__":
    with torch.device("meta"):  # allocates no weights
        model = Model(Config())
    assert sum(x.numel() for x in model.parameters()) == 46_702_792_704
