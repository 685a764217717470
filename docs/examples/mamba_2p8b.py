"""Mamba 2.8B: 2,768,345,600 parameters.

Family: Mamba: a stack of selective state spaces without attention and MLPs. This file is this model
alone.

Parameters: V·d + L·(d + 3·i·d + i·c + 3·i + 2·R·i + 3·N·i) + d = 2,768,345,600.

Letters of shapes: B sequences, T new tokens; other letters are fields of Config.

Written by `llamath code`. It needs torch 2.5 or newer, and safetensors to load a checkpoint. All
sequences of a batch have the same length, and there is no dropout. `load` does not read
config.json: the sizes are those of Config. A model that is not loaded has the initial values of
torch, not those of its authors.
"""

import glob
import re
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import conv1d, silu, softplus


@dataclass
class Config:
    """The sizes and numbers of Mamba 2.8B."""

    d: int = 2560      # hidden_size
    V: int = 50_280    # vocab_size
    L: int = 64        # num_hidden_layers
    i: int = 5120      # intermediate_size
    N: int = 16        # state_size
    R: int = 160       # time_step_rank
    c: int = 4         # conv_kernel
    eps: float = 1e-5  # epsilon of the norms


def causal_conv(x, cache, module, weight, bias):
    """Sum each channel's last inputs times its weights (channels, …): x is (B, T, channels)."""
    reach = weight.shape[1] - 1  # earlier inputs that are read
    before = cache.get(module, x.new_zeros(x.shape[0], reach, x.shape[2]))
    x, weight = torch.cat((before, x), 1), weight.to(x.dtype)
    bias = bias.to(x.dtype)
    cache[module] = x[:, x.shape[1] - reach :].clone()
    return conv1d(x.mT, weight[:, None], bias=bias, groups=x.shape[2]).mT


def selective_scan(x, b, c, dt, a_log, skip, cache, module):
    """In each channel s ← exp(−exp(a_log) dt) s + dt x b; y = s · c + skip x.

    x and dt are (B, T, channels), b and c (B, T, states), s (B, channels, states). It reads token
    by token, which is slow.
    """
    s = cache.get(module, x.new_zeros(x.shape[0], x.shape[2], b.shape[2]).float())
    rate, new, b, c, ys = -a_log.float().exp(), dt * x, b.float(), c.float(), []
    for t in range(x.shape[1]):
        s = torch.exp(rate * dt[:, t, :, None]) * s + new[:, t, :, None] * b[:, t, None]
        ys.append((s * c[:, t, None]).sum(-1))
    cache[module] = s
    return torch.stack(ys, 1) + skip.float() * x


class Cache(dict):
    """The state of each module after the tokens read so far."""


class Convolution(nn.Module):
    """A causal convolution: each channel's last c inputs times its weights."""

    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(c.i, c.c) * 0.02)  # [i, c] = [5120, 4]
        self.bias = nn.Parameter(torch.zeros(c.i))                # [i] = [5120]

    def forward(self, x, cache):
        return causal_conv(x, cache, self, self.weight, bias=self.bias)  # (B, T, i) = (B, T, 5120)


class Mamba(nn.Module):
    """Mamba: each channel keeps a state s [state] with decays of its own."""

    def __init__(self, c):
        super().__init__()
        self.x = nn.Linear(c.d, c.i, bias=False)         # [i, d] = [5120, 2560]
        self.z = nn.Linear(c.d, c.i, bias=False)         # [i, d] = [5120, 2560]
        self.conv = Convolution(c)                       # 25,600 parameters
        self.dt_down = nn.Linear(c.i, c.R, bias=False)   # [R, i] = [160, 5120], 819,200 parameters
        self.b = nn.Linear(c.i, c.N, bias=False)         # [N, i] = [16, 5120], 81,920 parameters
        self.c = nn.Linear(c.i, c.N, bias=False)         # [N, i] = [16, 5120], 81,920 parameters
        self.dt_up = nn.Linear(c.R, c.i, bias=False)     # [i, R] = [5120, 160], 819,200 parameters
        self.dt_bias = nn.Parameter(torch.zeros(c.i))    # [i] = [5120]
        self.a_log = nn.Parameter(torch.ones(c.i, c.N))  # [i, N] = [5120, 16], 81,920 parameters
        self.skip = nn.Parameter(torch.ones(c.i))        # [i] = [5120]
        self.out = nn.Linear(c.i, c.d, bias=False)       # [d, i] = [2560, 5120]

    def forward(self, x, cache):
        u = silu(self.conv(self.x(x), cache))  # (B, T, i) = (B, T, 5120)
        dt = self.dt_down(u)  # (B, T, R) = (B, T, 160)
        b = self.b(u)  # (B, T, N) = (B, T, 16)
        c = self.c(u)  # (B, T, N) = (B, T, 16)
        dt = softplus(self.dt_up(dt).float() + self.dt_bias.float())  # (B, T, i) = (B, T, 5120)
        y = selective_scan(u, b, c, dt, self.a_log, self.skip, cache, self)  # (B, T, i)
        return self.out((y * silu(self.z(x))).type_as(x))  # (B, T, d)


class Layer(nn.Module):
    """One layer: x += attn(attn_norm x)."""

    def __init__(self, c):
        super().__init__()
        self.attn_norm = nn.RMSNorm(c.d, eps=c.eps)  # [d] = [2560]
        self.attn = Mamba(c)                         # 41,241,600 parameters

    def forward(self, x, cache):
        return x + self.attn(self.attn_norm(x), cache)  # (B, T, d)


class Model(nn.Module):
    """The whole model, from token ids to logits."""

    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.V, c.d)          # [V, d] = [50280, 2560]
        self.layers = nn.ModuleList([Layer(c) for _ in range(c.L)])  # 64 × 41,244,160 parameters
        self.norm = nn.RMSNorm(c.d, eps=c.eps)       # [d] = [2560]
        self.head = nn.Linear(c.d, c.V, bias=False)  # [V, d], the same matrix as embed
        self.head.weight = self.embed.weight

    def forward(self, ids, cache=None):  # ids (B, T) of new tokens
        cache = Cache() if cache is None else cache
        x = self.embed(ids)  # (B, T, d)
        for layer in self.layers:
            x = layer(x, cache)
        return self.head(self.norm(x))  # (B, T, V) = (B, T, 50280)


NAMES = {  # module here: its name in Hugging Face's files  # in GGUF files
    "embed": "backbone.embeddings",                                     # token_embd
    "layers.{}.attn_norm": "backbone.layers.{}.norm",                   # attn_norm
    "layers.{}.attn.x": "backbone.layers.{}.mixer.in_proj",             # ssm_in
    "layers.{}.attn.z": "backbone.layers.{}.mixer.in_proj",             # ssm_in
    "layers.{}.attn.conv": "backbone.layers.{}.mixer.conv1d",           # ssm_conv1d
    "layers.{}.attn.dt_down": "backbone.layers.{}.mixer.x_proj",        # ssm_x
    "layers.{}.attn.b": "backbone.layers.{}.mixer.x_proj",              # ssm_x
    "layers.{}.attn.c": "backbone.layers.{}.mixer.x_proj",              # ssm_x
    "layers.{}.attn.dt_up": "backbone.layers.{}.mixer.dt_proj",         # ssm_dt
    "layers.{}.attn.dt_bias": "backbone.layers.{}.mixer.dt_proj.bias",  # ssm_dt.bias
    "layers.{}.attn.a_log": "backbone.layers.{}.mixer.A_log",           # ssm_a
    "layers.{}.attn.skip": "backbone.layers.{}.mixer.D",                # ssm_d
    "layers.{}.attn.out": "backbone.layers.{}.mixer.out_proj",          # ssm_out
    "norm": "backbone.norm_f",                                          # output_norm
    "head": "backbone.embeddings",                                      # token_embd
}


def stored_name(name):
    """Map the name of a weight in this file to its name in a checkpoint."""
    pattern, numbers = re.sub(r"\.\d+", ".{}", name), re.findall(r"\d+", name)
    module, _, leaf = pattern.rpartition(".")
    return (NAMES.get(pattern) or f"{NAMES[module]}.{leaf}").format(*numbers)


def views(c):
    """How to read the weights that are stored in another form."""
    return {
        "layers.{}.attn.x.weight": lambda x: x[:c.i],
        "layers.{}.attn.z.weight": lambda x: x[c.i:],
        "layers.{}.attn.conv.weight": lambda x: x.squeeze(1),
        "layers.{}.attn.dt_down.weight": lambda x: x[:c.R],
        "layers.{}.attn.b.weight": lambda x: x[c.R : c.R + c.N],
        "layers.{}.attn.c.weight": lambda x: x[c.R + c.N :],
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
    assert sum(x.numel() for x in model.parameters()) == 2_768_345_600
