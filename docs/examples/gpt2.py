"""GPT-2 small: 124,439,808 parameters.

Family: GPT-2: learned positions, layer norms, fused q, k, v, all matrices stored input first, tied
head. This file is this model alone.

Parameters: V·d + C·d + L·(6·d + 2·H·h·d + H·h + 2·K·h·d + 2·K·h + 2·F·d + F) + 2·d = 124,439,808.

Letters of shapes: B sequences, T new tokens, S tokens up to now, those in the cache included; other
letters are fields of Config.

Written by `llamath code`. It needs torch 2.5 or newer, and safetensors to load a checkpoint. All
sequences of a batch have the same length, and there is no dropout. Each layer computes its mask
anew. `load` does not read config.json: the sizes are those of Config. A model that is not loaded
has the initial values of torch, not those of its authors.
"""

import glob
import re
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention


@dataclass
class Config:
    """The sizes and numbers of GPT-2 small."""

    d: int = 768       # n_embd
    H: int = 12        # n_head
    K: int = 12        # n_head
    h: int = 64        # head_dim
    F: int = 3072      # n_inner
    V: int = 50_257    # vocab_size
    L: int = 12        # n_layer
    C: int = 1024      # n_positions
    eps: float = 1e-5  # epsilon of the norms


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
    """Multi-head attention: H queries, each with keys and values of its own."""

    def __init__(self, c):
        super().__init__()
        self.H, self.K, self.h = c.H, c.K, c.h
        self.q = nn.Linear(c.d, c.H * c.h)  # [H·h, d] = [768, 768], 590,592 parameters
        self.k = nn.Linear(c.d, c.K * c.h)  # [K·h, d] = [768, 768], 590,592 parameters
        self.v = nn.Linear(c.d, c.K * c.h)  # [K·h, d] = [768, 768], 590,592 parameters
        self.o = nn.Linear(c.H * c.h, c.d)  # [d, H·h] = [768, 768], 590,592 parameters

    def forward(self, x, pos, cache):
        q = self.q(x).unflatten(-1, (self.H, self.h))  # (B, T, H, h) = (B, T, 12, 64)
        k = self.k(x).unflatten(-1, (self.K, self.h))  # (B, T, K, h) = (B, T, 12, 64)
        v = self.v(x).unflatten(-1, (self.K, self.h))  # (B, T, K, h) = (B, T, 12, 64)
        k, v = cache.append(self, k, v)  # (B, S, K, h) = (B, S, 12, 64) each
        return self.o(attention(q, k, v, pos).flatten(-2))  # (B, T, d)


class MLP(nn.Module):
    """down(gelu(up x))."""

    def __init__(self, c):
        super().__init__()
        self.up = nn.Linear(c.d, c.F)    # [F, d] = [3072, 768], 2,362,368 parameters
        self.down = nn.Linear(c.F, c.d)  # [d, F] = [768, 3072], 2,360,064 parameters

    def forward(self, x):
        return self.down(gelu(self.up(x), approximate="tanh"))  # (B, T, d)


class Layer(nn.Module):
    """One layer: x += attn(attn_norm x); x += mlp(mlp_norm x)."""

    def __init__(self, c):
        super().__init__()
        self.attn_norm = nn.LayerNorm(c.d, eps=c.eps)  # [d] = [768]
        self.attn = Attention(c)                       # 2,362,368 parameters
        self.mlp_norm = nn.LayerNorm(c.d, eps=c.eps)   # [d] = [768]
        self.mlp = MLP(c)                              # 4,722,432 parameters

    def forward(self, x, pos, cache):
        x = x + self.attn(self.attn_norm(x), pos, cache)  # (B, T, d)
        return x + self.mlp(self.mlp_norm(x))  # (B, T, d)


class Model(nn.Module):
    """The whole model, from token ids to logits."""

    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.V, c.d)          # [V, d] = [50257, 768], 38,597,376 parameters
        self.positions = nn.Embedding(c.C, c.d)      # [C, d] = [1024, 768], 786,432 parameters
        self.layers = nn.ModuleList([Layer(c) for _ in range(c.L)])  # 12 × 7,087,872 parameters
        self.norm = nn.LayerNorm(c.d, eps=c.eps)     # [d] = [768]
        self.head = nn.Linear(c.d, c.V, bias=False)  # [V, d], the same matrix as embed
        self.head.weight = self.embed.weight

    def forward(self, ids, cache=None):  # ids (B, T) of new tokens
        cache = Cache() if cache is None else cache
        length = cache.length + ids.shape[1]  # of the sequence up to now
        pos = torch.arange(cache.length, length, device=ids.device)
        x = self.embed(ids) + self.positions(pos)  # (B, T, d)
        for layer in self.layers:
            x = layer(x, pos, cache)
        cache.length = length
        return self.head(self.norm(x))  # (B, T, V) = (B, T, 50257)


NAMES = {  # module here: its name in Hugging Face's files  # in GGUF files
    "embed": "transformer.wte",                           # token_embd
    "positions": "transformer.wpe",                       # position_embd
    "layers.{}.attn_norm": "transformer.h.{}.ln_1",       # attn_norm
    "layers.{}.attn.q": "transformer.h.{}.attn.c_attn",   # attn_qkv
    "layers.{}.attn.k": "transformer.h.{}.attn.c_attn",   # attn_qkv
    "layers.{}.attn.v": "transformer.h.{}.attn.c_attn",   # attn_qkv
    "layers.{}.attn.o": "transformer.h.{}.attn.c_proj",   # attn_output
    "layers.{}.mlp_norm": "transformer.h.{}.ln_2",        # ffn_norm
    "layers.{}.mlp.up": "transformer.h.{}.mlp.c_fc",      # ffn_up
    "layers.{}.mlp.down": "transformer.h.{}.mlp.c_proj",  # ffn_down
    "norm": "transformer.ln_f",                           # output_norm
    "head": "transformer.wte",                            # token_embd
}


def stored_name(name):
    """Map the name of a weight in this file to its name in a checkpoint."""
    pattern, numbers = re.sub(r"\.\d+", ".{}", name), re.findall(r"\d+", name)
    module, _, leaf = pattern.rpartition(".")
    return f"{NAMES[module]}.{leaf}".format(*numbers)


def views(c):
    """How to read the weights that are stored in another form."""
    return {
        "layers.{}.attn.q.weight": lambda x: x.mT[: c.H * c.h],
        "layers.{}.attn.k.weight": lambda x: x.mT[c.H * c.h : c.h * (c.H + c.K)],
        "layers.{}.attn.v.weight": lambda x: x.mT[c.h * (c.H + c.K) :],
        "layers.{}.attn.q.bias": lambda x: x[: c.H * c.h],
        "layers.{}.attn.k.bias": lambda x: x[c.H * c.h : c.h * (c.H + c.K)],
        "layers.{}.attn.v.bias": lambda x: x[c.h * (c.H + c.K) :],
        "layers.{}.attn.o.weight": lambda x: x.mT,
        "layers.{}.mlp.up.weight": lambda x: x.mT,
        "layers.{}.mlp.down.weight": lambda x: x.mT,
    }


def load(folder, c=None):
    """Read a checkpoint with these names: a folder with *.safetensors files."""
    from safetensors.torch import load_file

    c, stored, state = c or Config(), {}, {}
    for file in glob.glob(f"{folder}/*.safetensors"):
        stored |= load_file(file)
    with torch.device("meta"):
        model = Model(c)
    known = views(c)
    for name in model.state_dict():
        x = stored.get(stored_name(name))
        if x is None or x.dtype.itemsize < 2:
            what = "missing" if x is None else f"quantized, {x.dtype}"
            raise ValueError(f"{stored_name(name)} in {folder} is {what}")
        view = known.get(re.sub(r"\.\d+", ".{}", name))
        state[name] = x if view is None else view(x).contiguous()
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
    assert sum(x.numel() for x in model.parameters()) == 124_439_808
