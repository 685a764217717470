"""Gemma 2 9B: 9,241,705,984 parameters.

Family: Gemma 2: Gemma with a norm on both sides of each branch, soft caps, and a window in every
other layer. This file is this model alone.

Parameters: V·d + L·(4·d + 2·H·h·d + 2·K·h·d + 3·F·d) + d = 9,241,705,984.

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
from torch.nn.functional import gelu, rms_norm


@dataclass
class Config:
    """The sizes and numbers of Gemma 2 9B."""

    d: int = 3584                    # hidden_size
    H: int = 16                      # num_attention_heads
    K: int = 8                       # num_key_value_heads
    h: int = 256                     # head_dim
    F: int = 14_336                  # intermediate_size
    V: int = 256_000                 # vocab_size
    L: int = 42                      # num_hidden_layers
    theta: float = 10_000.0          # base of the rotary positions
    attention_scale: float = 0.0625  # factor of the attention scores
    attention_softcap: float = 50.0  # limit of the attention scores
    eps: float = 1e-6                # epsilon of the norms
    window: int = 4096               # tokens that a layer with a window sees
    softcap: float = 30.0            # limit of the logits


class RMSNorm(nn.Module):
    """x / rms(x) · (1 + w): files store w."""

    def __init__(self, d, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(d)), eps

    def forward(self, x):
        weight = 1 + self.weight.float()
        return rms_norm(x.float(), x.shape[-1:], weight, self.eps).type_as(x)


def rope(x, pos, theta):
    """Rotate each pair of channels of a head by the angle pos · theta^(−2 · pair / size)."""
    size = x.shape[-1]
    powers = torch.arange(0, size, 2, device=x.device).float() / size  # float32
    frequencies = 1 / theta**powers  # (size / 2,), of each pair
    angles = pos[:, None, None] * frequencies  # (T, 1, size / 2)
    cos, sin = angles.cos(), angles.sin()
    a, b = x.float().chunk(2, -1)  # a pair has a channel of each half
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).type_as(x)


def attention(q, k, v, pos, scale, softcap, window=None):
    """Each query attends to the keys up to its own.

    q is (B, T, query heads, size), k and v (B, S, key heads, size).
    """
    i, j = pos[:, None], torch.arange(k.shape[1], device=pos.device)  # query and key positions
    mask = j <= i  # (T, S)
    if window is not None:
        mask = mask & (i - j < window)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # heads first
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = (q @ k.mT).float() * scale  # (B, heads, T, S)
    scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1)
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
    """Grouped-query attention: H queries share K heads of keys and values."""

    def __init__(self, c, window):
        super().__init__()
        self.H, self.K, self.h, self.theta = c.H, c.K, c.h, c.theta
        self.attention_scale, self.attention_softcap = c.attention_scale, c.attention_softcap
        self.window = window
        self.q = nn.Linear(c.d, c.H * c.h, bias=False)  # [H·h, d] = [4096, 3584]
        self.k = nn.Linear(c.d, c.K * c.h, bias=False)  # [K·h, d] = [2048, 3584]
        self.v = nn.Linear(c.d, c.K * c.h, bias=False)  # [K·h, d] = [2048, 3584]
        self.o = nn.Linear(c.H * c.h, c.d, bias=False)  # [d, H·h] = [3584, 4096]

    def forward(self, x, pos, cache):
        q = rope(self.q(x).unflatten(-1, (self.H, self.h)), pos, self.theta)  # (B, T, H, h)
        k = rope(self.k(x).unflatten(-1, (self.K, self.h)), pos, self.theta)  # (B, T, K, h)
        v = self.v(x).unflatten(-1, (self.K, self.h))  # (B, T, K, h) = (B, T, 8, 256)
        k, v = cache.append(self, k, v)  # (B, S, K, h) = (B, S, 8, 256) each
        y = attention(
            q,
            k,
            v,
            pos,
            scale=self.attention_scale,
            softcap=self.attention_softcap,
            window=self.window,
        )
        return self.o(y.flatten(-2))  # (B, T, d)


class MLP(nn.Module):
    """GeGLU: down(gelu(gate x) · up x)."""

    def __init__(self, c):
        super().__init__()
        self.gate = nn.Linear(c.d, c.F, bias=False)  # [F, d] = [14336, 3584], 51,380,224 parameters
        self.up = nn.Linear(c.d, c.F, bias=False)    # [F, d] = [14336, 3584], 51,380,224 parameters
        self.down = nn.Linear(c.F, c.d, bias=False)  # [d, F] = [3584, 14336], 51,380,224 parameters

    def forward(self, x):
        return self.down(gelu(self.gate(x), approximate="tanh") * self.up(x))  # (B, T, d)


class Layer(nn.Module):
    """One layer: x += attn_out_norm(attn(attn_norm x)); x += mlp_out_norm(mlp(mlp_norm x))."""

    def __init__(self, c, window):
        super().__init__()
        self.attn_norm = RMSNorm(c.d, c.eps)      # [d] = [3584]
        self.attn = Attention(c, window=window)   # 44,040,192 parameters
        self.attn_out_norm = RMSNorm(c.d, c.eps)  # [d] = [3584]
        self.mlp_norm = RMSNorm(c.d, c.eps)       # [d] = [3584]
        self.mlp = MLP(c)                         # 154,140,672 parameters
        self.mlp_out_norm = RMSNorm(c.d, c.eps)   # [d] = [3584]

    def forward(self, x, pos, cache):
        x = x + self.attn_out_norm(self.attn(self.attn_norm(x), pos, cache))  # (B, T, d)
        return x + self.mlp_out_norm(self.mlp(self.mlp_norm(x)))  # (B, T, d)


class Model(nn.Module):
    """The whole model, from token ids to logits."""

    def __init__(self, c):
        super().__init__()
        self.d, self.softcap = c.d, c.softcap
        self.embed = nn.Embedding(c.V, c.d)          # [V, d] = [256000, 3584]
        # 42 × 198,195,200 parameters
        self.layers = nn.ModuleList(
            [Layer(c, window=c.window if i % 2 == 0 else None) for i in range(c.L)]
        )
        self.norm = RMSNorm(c.d, c.eps)              # [d] = [3584]
        self.head = nn.Linear(c.d, c.V, bias=False)  # [V, d], the same matrix as embed
        self.head.weight = self.embed.weight

    def forward(self, ids, cache=None):  # ids (B, T) of new tokens
        cache = Cache() if cache is None else cache
        length = cache.length + ids.shape[1]  # of the sequence up to now
        pos = torch.arange(cache.length, length, device=ids.device)
        x = self.embed(ids) * self.d ** 0.5  # (B, T, d)
        for layer in self.layers:
            x = layer(x, pos, cache)
        cache.length = length
        return self.softcap * torch.tanh(self.head(self.norm(x)) / self.softcap)  # (B, T, V)


NAMES = {  # module here: its name in Hugging Face's files  # in GGUF files
    "embed": "model.embed_tokens",                                           # token_embd
    "layers.{}.attn_norm": "model.layers.{}.input_layernorm",                # attn_norm
    "layers.{}.attn.q": "model.layers.{}.self_attn.q_proj",                  # attn_q
    "layers.{}.attn.k": "model.layers.{}.self_attn.k_proj",                  # attn_k
    "layers.{}.attn.v": "model.layers.{}.self_attn.v_proj",                  # attn_v
    "layers.{}.attn.o": "model.layers.{}.self_attn.o_proj",                  # attn_output
    "layers.{}.attn_out_norm": "model.layers.{}.post_attention_layernorm",   # post_attention_norm
    "layers.{}.mlp_norm": "model.layers.{}.pre_feedforward_layernorm",       # ffn_norm
    "layers.{}.mlp.gate": "model.layers.{}.mlp.gate_proj",                   # ffn_gate
    "layers.{}.mlp.up": "model.layers.{}.mlp.up_proj",                       # ffn_up
    "layers.{}.mlp.down": "model.layers.{}.mlp.down_proj",                   # ffn_down
    "layers.{}.mlp_out_norm": "model.layers.{}.post_feedforward_layernorm",  # post_ffw_norm
    "norm": "model.norm",                                                    # output_norm
    "head": "model.embed_tokens",                                            # token_embd
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
    model.head.weight = model.embed.weight
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
    assert sum(x.numel() for x in model.parameters()) == 9_241_705_984
