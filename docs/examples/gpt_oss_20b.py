"""gpt-oss 20B: 20,914,757,184 parameters.

Family: GPT-OSS: biases everywhere, every other layer with a window, a sink in each head, clamped
experts stored as stacks. This file is this model alone.

Parameters: V·d + L·(3·d + 2·H·h·d + H·h + 2·K·h·d + 2·K·h + H + 2·E·d + E + 3·E·F·d + 2·E·F) + d +
V·d = 20,914,757,184.

Letters of shapes: B sequences, T new tokens, S tokens up to now, those in the cache included; other
letters are fields of Config.

Written by `llamath code`. It needs torch 2.5 or newer, and safetensors to load a checkpoint. All
sequences of a batch have the same length, and there is no dropout. Each layer computes its angles
and mask anew. `load` does not read config.json: the sizes are those of Config. A model that is not
loaded has the initial values of torch, not those of its authors.
"""

import glob
import math
import re
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    """The sizes and numbers of gpt-oss 20B."""

    d: int = 2880                                 # hidden_size
    H: int = 64                                   # num_attention_heads
    K: int = 8                                    # num_key_value_heads
    h: int = 64                                   # head_dim
    F: int = 2880                                 # intermediate_size
    V: int = 201_088                              # vocab_size
    L: int = 24                                   # num_hidden_layers
    E: int = 32                                   # num_local_experts
    k: int = 4                                    # num_experts_per_tok
    theta: float = 150_000.0                      # base of the rotary positions
    rope_factor: float = 32.0                     # factor of the context of pretraining
    original_context: int = 4096                  # tokens of the context of pretraining
    beta_fast: float = 32.0                       # pairs that turn more often in that context stay
    beta_slow: float = 1.0                        # pairs that turn less often are slowed down
    attention_factor: float = 1.3465735902799727  # YaRN: 0.1 · ln(rope_factor) + 1
    gate_limit: float = 7.0                       # limit of the gate and of up
    gate_alpha: float = 1.702                     # factor inside the sigmoid
    eps: float = 1e-5                             # epsilon of the norms
    window: int = 128                             # tokens that a layer with a window sees


def clamped_gated(gate, up, limit, alpha):
    """(up + 1) · g · sigmoid(alpha · g), with g = gate up to the limit, and up within ± limit."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


def rope(x, pos, theta, factor, original_context, beta_fast, beta_slow, attention_factor):
    """Rotate each pair of channels of a head by the angle pos · theta^(−2 · pair / size)."""
    size = x.shape[-1]
    powers = torch.arange(0, size, 2, device=x.device).float() / size  # float32
    frequencies = 1 / theta**powers  # (size / 2,), of each pair
    first, last = (  # YaRN: pairs that turn beta_fast and beta_slow times in that context
        size * math.log(original_context / (beta * 2 * math.pi)) / (2 * math.log(theta))
        for beta in (beta_fast, beta_slow)
    )
    first, last = max(first, 0), min(last, size - 1)
    pair = torch.arange(size // 2, device=x.device).float()
    span = last - first or 0.001  # no division by 0
    slow = ((pair - first) / span).clamp(0, 1)  # 1: factor times slower
    frequencies = frequencies / factor * slow + frequencies * (1 - slow)
    angles = pos[:, None, None] * frequencies  # (T, 1, size / 2)
    cos, sin = angles.cos(), angles.sin()
    cos, sin = cos * attention_factor, sin * attention_factor
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


def attention(q, k, v, pos, sinks, window=None):
    """Each query attends to the keys up to its own.

    q is (B, T, query heads, size), k and v (B, S, key heads, size).
    """
    i, j = pos[:, None], torch.arange(k.shape[1], device=pos.device)  # query and key positions
    mask = j <= i  # (T, S)
    if window is not None:
        mask = mask & (i - j < window)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # heads first
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scale = q.shape[-1] ** -0.5
    scores = (q @ k.mT).float() * scale  # (B, heads, T, S)
    scores = scores.masked_fill(~mask, -torch.inf)
    sink = sinks.float()[:, None, None].expand(*scores.shape[:-1], 1)  # a logit without a value
    weights = torch.cat((scores, sink), -1).softmax(-1)[..., :-1]
    y = weights.type_as(v) @ v
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
    """Grouped-query attention: H queries share K heads of keys and values; each has a sink, a logit
    without a value.
    """

    def __init__(self, c, window):
        super().__init__()
        self.H, self.K, self.h, self.window = c.H, c.K, c.h, window
        self.rope = (
            c.theta, c.rope_factor, c.original_context, c.beta_fast, c.beta_slow, c.attention_factor
        )
        self.q = nn.Linear(c.d, c.H * c.h)           # [H·h, d] = [4096, 2880]
        self.k = nn.Linear(c.d, c.K * c.h)           # [K·h, d] = [512, 2880], 1,475,072 parameters
        self.v = nn.Linear(c.d, c.K * c.h)           # [K·h, d] = [512, 2880], 1,475,072 parameters
        self.o = nn.Linear(c.H * c.h, c.d)           # [d, H·h] = [2880, 4096]
        self.sinks = nn.Parameter(torch.zeros(c.H))  # [H] = [64]

    def forward(self, x, pos, cache):
        q = rope(self.q(x).unflatten(-1, (self.H, self.h)), pos, *self.rope)  # (B, T, H, h)
        k = rope(self.k(x).unflatten(-1, (self.K, self.h)), pos, *self.rope)  # (B, T, K, h)
        v = self.v(x).unflatten(-1, (self.K, self.h))  # (B, T, K, h) = (B, T, 8, 64)
        k, v = cache.append(self, k, v)  # (B, S, K, h) = (B, S, 8, 64) each
        y = attention(q, k, v, pos, sinks=self.sinks, window=self.window)  # (B, T, H, h)
        return self.o(y.flatten(-2))  # (B, T, d)


class ClampedMLP(nn.Module):
    """down((up x + 1) · g · sigmoid(alpha · g)) with g = gate x clamped from above to limit, up x
    to ± limit (GPT-OSS).
    """

    def __init__(self, c):
        super().__init__()
        self.gate_limit, self.gate_alpha = c.gate_limit, c.gate_alpha
        self.gate = nn.Linear(c.d, c.F)  # [F, d] = [2880, 2880], 8,297,280 parameters
        self.up = nn.Linear(c.d, c.F)    # [F, d] = [2880, 2880], 8,297,280 parameters
        self.down = nn.Linear(c.F, c.d)  # [d, F] = [2880, 2880], 8,297,280 parameters

    def forward(self, x):
        y = clamped_gated(self.gate(x), self.up(x), self.gate_limit, self.gate_alpha)  # (tokens, F)
        return self.down(y)  # (tokens, d)


class MoE(nn.Module):
    """A mixture of experts: a router sends each token to k of E experts."""

    def __init__(self, c):
        super().__init__()
        self.k = c.k
        self.router = nn.Linear(c.d, c.E)  # [E, d] = [32, 2880], 92,192 parameters
        self.experts = nn.ModuleList([ClampedMLP(c) for _ in range(c.E)])

    def forward(self, x):
        chosen, weights = route(self.router(x).float(), self.k)  # (B, T, k) = (B, T, 4) each
        return run_experts(self.experts, x, chosen, weights)  # (B, T, d)


class Layer(nn.Module):
    """One layer: x += attn(attn_norm x); x += mlp(mlp_norm x)."""

    def __init__(self, c, window):
        super().__init__()
        self.attn_norm = nn.RMSNorm(c.d, eps=c.eps)  # [d] = [2880]
        self.attn = Attention(c, window=window)      # 26,550,144 parameters
        self.mlp_norm = nn.RMSNorm(c.d, eps=c.eps)   # [d] = [2880]
        self.mlp = MoE(c)                            # 796,631,072 parameters

    def forward(self, x, pos, cache):
        x = x + self.attn(self.attn_norm(x), pos, cache)  # (B, T, d)
        return x + self.mlp(self.mlp_norm(x))  # (B, T, d)


class Model(nn.Module):
    """The whole model, from token ids to logits."""

    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.V, c.d)          # [V, d] = [201088, 2880]
        # 24 × 823,186,976 parameters
        self.layers = nn.ModuleList(
            [Layer(c, window=c.window if i % 2 == 0 else None) for i in range(c.L)]
        )
        self.norm = nn.RMSNorm(c.d, eps=c.eps)       # [d] = [2880]
        self.head = nn.Linear(c.d, c.V, bias=False)  # [V, d] = [201088, 2880]

    def forward(self, ids, cache=None):  # ids (B, T) of new tokens
        cache = Cache() if cache is None else cache
        length = cache.length + ids.shape[1]  # of the sequence up to now
        pos = torch.arange(cache.length, length, device=ids.device)
        x = self.embed(ids)  # (B, T, d)
        for layer in self.layers:
            x = layer(x, pos, cache)
        cache.length = length
        return self.head(self.norm(x))  # (B, T, V) = (B, T, 201088)


NAMES = {  # module here: its name in Hugging Face's files  # in GGUF files
    "embed": "model.embed_tokens",                                     # token_embd
    "layers.{}.attn_norm": "model.layers.{}.input_layernorm",          # attn_norm
    "layers.{}.attn.q": "model.layers.{}.self_attn.q_proj",            # attn_q
    "layers.{}.attn.k": "model.layers.{}.self_attn.k_proj",            # attn_k
    "layers.{}.attn.v": "model.layers.{}.self_attn.v_proj",            # attn_v
    "layers.{}.attn.o": "model.layers.{}.self_attn.o_proj",            # attn_output
    "layers.{}.attn": "model.layers.{}.self_attn",                     # attn_sinks.weight
    "layers.{}.mlp_norm": "model.layers.{}.post_attention_layernorm",  # post_attention_norm
    "layers.{}.mlp.router": "model.layers.{}.mlp.router",              # ffn_gate_inp
    # ffn_gate_exps
    "layers.{}.mlp.experts.{}.gate.weight": "model.layers.{}.mlp.experts.gate_up_proj",
    # ffn_gate_exps
    "layers.{}.mlp.experts.{}.gate.bias": "model.layers.{}.mlp.experts.gate_up_proj_bias",
    "layers.{}.mlp.experts.{}.up.weight": "model.layers.{}.mlp.experts.gate_up_proj",  # ffn_up_exps
    # ffn_up_exps
    "layers.{}.mlp.experts.{}.up.bias": "model.layers.{}.mlp.experts.gate_up_proj_bias",
    # ffn_down_exps
    "layers.{}.mlp.experts.{}.down.weight": "model.layers.{}.mlp.experts.down_proj",
    # ffn_down_exps
    "layers.{}.mlp.experts.{}.down.bias": "model.layers.{}.mlp.experts.down_proj_bias",
    "norm": "model.norm",                                              # output_norm
    "head": "lm_head",                                                 # output
}


def stored_name(name):
    """Map the name of a weight in this file to its name in a checkpoint."""
    pattern, numbers = re.sub(r"\.\d+", ".{}", name), re.findall(r"\d+", name)
    module, _, leaf = pattern.rpartition(".")
    return (NAMES.get(pattern) or f"{NAMES[module]}.{leaf}").format(*numbers)


def views():
    """How to read the weights that are stored in another form."""
    return {
        "layers.{}.mlp.experts.{}.gate.weight": lambda x, e: x[e].mT.unflatten(0, (-1, 2))[:, 0],
        "layers.{}.mlp.experts.{}.up.weight": lambda x, e: x[e].mT.unflatten(0, (-1, 2))[:, 1],
        "layers.{}.mlp.experts.{}.gate.bias": lambda x, e: x[e].unflatten(0, (-1, 2))[:, 0],
        "layers.{}.mlp.experts.{}.up.bias": lambda x, e: x[e].unflatten(0, (-1, 2))[:, 1],
        "layers.{}.mlp.experts.{}.down.weight": lambda x, e: x[e].mT,
        "layers.{}.mlp.experts.{}.down.bias": lambda x, e: x[e],
    }


def load(folder, c=None):
    """Read a checkpoint with these names: a folder with *.safetensors files."""
    from safetensors.torch import load_file

    c, stored, state = c or Config(), {}, {}
    for file in glob.glob(f"{folder}/*.safetensors"):
        stored |= load_file(file)
    with torch.device("meta"):
        model = Model(c)
    known = views()
    for name in model.state_dict():
        x = stored.get(stored_name(name))
        if x is None or x.dtype.itemsize < 2:
            what = "missing" if x is None else f"quantized, {x.dtype}"
            raise ValueError(f"{stored_name(name)} in {folder} is {what}")
        view = known.get(re.sub(r"\.\d+", ".{}", name))
        e = int(re.findall(r"\d+", f"0.{name}")[-1])  # its expert
        state[name] = x if view is None else view(x, e).contiguous()
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
    assert sum(x.numel() for x in model.parameters()) == 20_914_757_184
