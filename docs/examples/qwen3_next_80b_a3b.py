"""Qwen3 Next 80B A3B: 79,674,391,296 parameters.

Family: Qwen3-Next: three layers of linear attention to one of gated softmax attention, with experts
in each. This file is this model alone.

Parameters: V·d + 36·(3·d + 2·Hk·hk·d + 3·Hv·hv·d + 2·Hv·d + 2·Hk·hk·c + Hv·hv·c + 2·Hv + hv + E·d +
3·E·Fe·d + 3·Fs·d) + 12·(3·d + 3·H·h·d + 2·K·h·d + 2·h + E·d + 3·E·Fe·d + 3·Fs·d) + d + V·d =
79,674,391,296.

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
from torch.nn.functional import conv1d, rms_norm, scaled_dot_product_attention, silu, softplus


@dataclass
class Config:
    """The sizes and numbers of Qwen3 Next 80B A3B."""

    d: int = 2048                # hidden_size
    H: int = 16                  # num_attention_heads
    K: int = 2                   # num_key_value_heads
    h: int = 256                 # head_dim
    V: int = 151_936             # vocab_size
    L: int = 48                  # num_hidden_layers
    Hk: int = 16                 # linear_num_key_heads
    hk: int = 128                # linear_key_head_dim
    Hv: int = 32                 # linear_num_value_heads
    hv: int = 128                # linear_value_head_dim
    c: int = 4                   # linear_conv_kernel_dim
    Fs: int = 512                # shared_expert_intermediate_size
    E: int = 512                 # num_experts
    k: int = 10                  # num_experts_per_tok
    Fe: int = 512                # moe_intermediate_size
    eps: float = 1e-6            # epsilon of the norms
    l2_eps: float = 1e-6         # l2 eps
    theta: float = 10_000_000.0  # base of the rotary positions
    rotary_dim: int = 64         # channels of a head that turn


class RMSNorm(nn.Module):
    """x / rms(x) · (1 + w): files store w."""

    def __init__(self, d, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(d)), eps

    def forward(self, x):
        weight = 1 + self.weight.float()
        return rms_norm(x.float(), x.shape[-1:], weight, self.eps).type_as(x)


def causal_conv(x, cache, module, weight):
    """Sum each channel's last inputs times its weights (channels, …): x is (B, T, channels)."""
    reach = weight.shape[1] - 1  # earlier inputs that are read
    before = cache.get(module, x.new_zeros(x.shape[0], reach, x.shape[2]))
    x, weight = torch.cat((before, x), 1), weight.to(x.dtype)
    cache[module] = x[:, x.shape[1] - reach :].clone()
    return conv1d(x.mT, weight[:, None], groups=x.shape[2]).mT


def gated_delta_rule(q, k, v, g, beta, cache, module):
    """In each head s ← eᵍ s; s ← s + k ⊗ beta (v − sᵀ k); y = sᵀ q.

    q and k are (B, T, groups, size), v (B, T, heads, width), beta (B, T, heads), g too or
    (B, T, heads, size). It reads token by token, which is slow.
    """
    q, k = (y.repeat_interleave(v.shape[2] // y.shape[2], 2) for y in (q, k))  # of each head
    s = cache.get(module, v.new_zeros(*q[:, 0].shape, v.shape[-1]))  # (B, heads, size, width)
    decay = g.exp()[..., None] if g.dim() == 4 else g.exp()[..., None, None]
    ys = []
    for t in range(v.shape[1]):
        s = decay[:, t] * s
        u = beta[:, t, :, None] * (v[:, t] - (s * k[:, t, :, :, None]).sum(-2))
        s = s + k[:, t, :, :, None] * u[:, :, None]
        ys.append((s * q[:, t, :, :, None]).sum(-2))
    cache[module] = s
    return torch.stack(ys, 1)


def rope(x, pos, theta, dim):
    """Rotate each pair of channels of a head by the angle pos · theta^(−2 · pair / size)."""
    x, rest = x[..., :dim], x[..., dim:]  # the other channels stay
    size = x.shape[-1]
    powers = torch.arange(0, size, 2, device=x.device).float() / size  # float32
    frequencies = 1 / theta**powers  # (size / 2,), of each pair
    angles = pos[:, None, None] * frequencies  # (T, 1, size / 2)
    cos, sin = angles.cos(), angles.sin()
    a, b = x.float().chunk(2, -1)  # a pair has a channel of each half
    y = torch.cat((a * cos - b * sin, b * cos + a * sin), -1).type_as(x)
    return torch.cat((y, rest), -1)


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


class Convolution(nn.Module):
    """A causal convolution: each channel's last c inputs times its weights."""

    def __init__(self, c):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2 * c.Hk * c.hk + c.Hv * c.hv, c.c) * 0.02)

    def forward(self, x, cache):
        return causal_conv(x, cache, self, self.weight)  # (B, T, 2·Hk·hk + Hv·hv) = (B, T, 8192)


class GatedDeltaNet(nn.Module):
    """The gated delta rule: each value head keeps a matrix S [key_dim, value_dim]."""

    def __init__(self, c):
        super().__init__()
        self.Hk, self.hk, self.Hv, self.hv, self.l2_eps = c.Hk, c.hk, c.Hv, c.hv, c.l2_eps
        self.query = nn.Linear(c.d, c.Hk * c.hk, bias=False)  # [Hk·hk, d] = [2048, 2048]
        self.key = nn.Linear(c.d, c.Hk * c.hk, bias=False)    # [Hk·hk, d] = [2048, 2048]
        self.value = nn.Linear(c.d, c.Hv * c.hv, bias=False)  # [Hv·hv, d] = [4096, 2048]
        self.z = nn.Linear(c.d, c.Hv * c.hv, bias=False)      # [Hv·hv, d] = [4096, 2048]
        self.beta = nn.Linear(c.d, c.Hv, bias=False)          # [Hv, d] = [32, 2048]
        self.alpha = nn.Linear(c.d, c.Hv, bias=False)         # [Hv, d] = [32, 2048]
        self.conv = Convolution(c)                            # 32,768 parameters
        self.dt_bias = nn.Parameter(torch.zeros(c.Hv))        # [Hv] = [32]
        self.a_log = nn.Parameter(torch.ones(c.Hv))           # [Hv] = [32]
        self.norm = nn.RMSNorm(c.hv, eps=c.eps)               # [hv] = [128]
        self.out = nn.Linear(c.Hv * c.hv, c.d, bias=False)    # [d, Hv·hv] = [2048, 4096]

    def forward(self, x, pos, cache):
        q = self.query(x)  # (B, T, Hk·hk) = (B, T, 2048)
        k = self.key(x)  # (B, T, Hk·hk) = (B, T, 2048)
        v = self.value(x)  # (B, T, Hv·hv) = (B, T, 4096)
        y = silu(self.conv(torch.cat((q, k, v), -1), cache)).float()  # (B, T, 2·Hk·hk + Hv·hv)
        q, k, v = y.split((self.Hk * self.hk, self.Hk * self.hk, self.Hv * self.hv), -1)
        q = q.unflatten(-1, (self.Hk, self.hk))  # (B, T, Hk, hk) = (B, T, 16, 128)
        q = q * torch.rsqrt(q.square().sum(-1, keepdim=True) + self.l2_eps)  # (B, T, Hk, hk)
        q = q * self.hk ** -0.5  # (B, T, Hk, hk) = (B, T, 16, 128)
        k = k.unflatten(-1, (self.Hk, self.hk))  # (B, T, Hk, hk) = (B, T, 16, 128)
        k = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + self.l2_eps)  # (B, T, Hk, hk)
        v = v.unflatten(-1, (self.Hv, self.hv))  # (B, T, Hv, hv) = (B, T, 32, 128)
        dt = softplus(self.alpha(x).float() + self.dt_bias.float())  # (B, T, Hv) = (B, T, 32)
        g = -self.a_log.float().exp() * dt  # (B, T, Hv) = (B, T, 32)
        beta = torch.sigmoid(self.beta(x).float())  # (B, T, Hv) = (B, T, 32)
        y = self.norm(gated_delta_rule(q, k, v, g, beta, cache, self).type_as(x))  # (B, T, Hv, hv)
        z = silu(self.z(x).unflatten(-1, (self.Hv, self.hv)).float())  # (B, T, Hv, hv)
        return self.out((y.float() * z).type_as(x).flatten(-2))  # (B, T, d)


class MLP(nn.Module):
    """SwiGLU: down(silu(gate x) · up x)."""

    def __init__(self, c, Fe):
        super().__init__()
        self.gate = nn.Linear(c.d, Fe, bias=False)
        self.up = nn.Linear(c.d, Fe, bias=False)
        self.down = nn.Linear(Fe, c.d, bias=False)

    def forward(self, x):
        return self.down(silu(self.gate(x)) * self.up(x))  # (…, d)


class MoE(nn.Module):
    """A mixture of experts: a router sends each token to k of E experts; shared experts read every
    token.
    """

    def __init__(self, c):
        super().__init__()
        self.k = c.k
        self.router = nn.Linear(c.d, c.E, bias=False)     # [E, d] = [512, 2048]
        self.experts = nn.ModuleList([MLP(c, c.Fe) for _ in range(c.E)])
        self.shared = MLP(c, c.Fs)                        # 3,145,728 parameters
        self.shared_gate = nn.Linear(c.d, 1, bias=False)  # [1, d] = [1, 2048], 2,048 parameters

    def forward(self, x):
        chosen, weights = route(self.router(x).float(), self.k)  # (B, T, k) = (B, T, 10) each
        shared = self.shared(x) * torch.sigmoid(self.shared_gate(x))  # (B, T, d)
        return run_experts(self.experts, x, chosen, weights) + shared  # (B, T, d)


class Attention(nn.Module):
    """Grouped-query attention: H queries share K heads of keys and values, with normalized queries
    and keys; a gate multiplies the result.
    """

    def __init__(self, c):
        super().__init__()
        self.H, self.K, self.h, self.theta, self.rotary_dim = c.H, c.K, c.h, c.theta, c.rotary_dim
        self.q = nn.Linear(c.d, c.H * c.h, bias=False)     # [H·h, d] = [4096, 2048]
        self.k = nn.Linear(c.d, c.K * c.h, bias=False)     # [K·h, d] = [512, 2048]
        self.v = nn.Linear(c.d, c.K * c.h, bias=False)     # [K·h, d] = [512, 2048]
        self.o = nn.Linear(c.H * c.h, c.d, bias=False)     # [d, H·h] = [2048, 4096]
        self.q_norm = RMSNorm(c.h, c.eps)                  # [h] = [256]
        self.k_norm = RMSNorm(c.h, c.eps)                  # [h] = [256]
        self.gate = nn.Linear(c.d, c.H * c.h, bias=False)  # [H·h, d] = [4096, 2048]

    def forward(self, x, pos, cache):
        q = self.q(x).unflatten(-1, (self.H, self.h))  # (B, T, H, h) = (B, T, 16, 256)
        q = rope(self.q_norm(q), pos, self.theta, dim=self.rotary_dim)  # (B, T, H, h)
        k = self.k(x).unflatten(-1, (self.K, self.h))  # (B, T, K, h) = (B, T, 2, 256)
        k = rope(self.k_norm(k), pos, self.theta, dim=self.rotary_dim)  # (B, T, K, h)
        v = self.v(x).unflatten(-1, (self.K, self.h))  # (B, T, K, h) = (B, T, 2, 256)
        k, v = cache.append(self, k, v)  # (B, S, K, h) = (B, S, 2, 256) each
        y = attention(q, k, v, pos).flatten(-2)  # (B, T, H·h) = (B, T, 4096)
        return self.o(y * torch.sigmoid(self.gate(x)))  # (B, T, d)


class Layer(nn.Module):
    """One layer: x += attn(attn_norm x); x += mlp(mlp_norm x)."""

    def __init__(self, c, attn):
        super().__init__()
        self.attn_norm = RMSNorm(c.d, c.eps)  # [d] = [2048]
        self.attn = attn
        self.mlp_norm = RMSNorm(c.d, c.eps)   # [d] = [2048]
        self.mlp = MoE(c)                     # 1,614,809,088 parameters

    def forward(self, x, pos, cache):
        x = x + self.attn(self.attn_norm(x), pos, cache)  # (B, T, d)
        return x + self.mlp(self.mlp_norm(x))  # (B, T, d)


class Model(nn.Module):
    """The whole model, from token ids to logits."""

    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.V, c.d)          # [V, d] = [151936, 2048]
        # 36 × 1,648,531,648 + 12 × 1,642,076,672 parameters
        self.layers = nn.ModuleList(
            [Layer(c, GatedDeltaNet(c) if i % 4 < 3 else Attention(c)) for i in range(c.L)]
        )
        self.norm = RMSNorm(c.d, c.eps)              # [d] = [2048]
        self.head = nn.Linear(c.d, c.V, bias=False)  # [V, d] = [151936, 2048]

    def forward(self, ids, cache=None):  # ids (B, T) of new tokens
        cache = Cache() if cache is None else cache
        length = cache.length + ids.shape[1]  # of the sequence up to now
        pos = torch.arange(cache.length, length, device=ids.device)
        x = self.embed(ids)  # (B, T, d)
        for layer in self.layers:
            x = layer(x, pos, cache)
        cache.length = length
        return self.head(self.norm(x))  # (B, T, V) = (B, T, 151936)


NAMES = {  # module here: its name in Hugging Face's files  # in GGUF files
    "embed": "model.embed_tokens",                                            # token_embd
    "layers.{}.attn_norm": "model.layers.{}.input_layernorm",                 # attn_norm
    "layers.{}.attn.query": "model.layers.{}.linear_attn.in_proj_qkvz",       # attn_qkv
    "layers.{}.attn.key": "model.layers.{}.linear_attn.in_proj_qkvz",         # attn_qkv
    "layers.{}.attn.value": "model.layers.{}.linear_attn.in_proj_qkvz",       # attn_qkv
    "layers.{}.attn.z": "model.layers.{}.linear_attn.in_proj_qkvz",           # attn_gate
    "layers.{}.attn.beta": "model.layers.{}.linear_attn.in_proj_ba",          # ssm_ba
    "layers.{}.attn.alpha": "model.layers.{}.linear_attn.in_proj_ba",         # ssm_ba
    "layers.{}.attn.conv": "model.layers.{}.linear_attn.conv1d",              # ssm_conv1d
    "layers.{}.attn": "model.layers.{}.linear_attn",                          # ssm_dt.bias
    "layers.{}.attn.a_log": "model.layers.{}.linear_attn.A_log",              # ssm_a
    "layers.{}.attn.norm": "model.layers.{}.linear_attn.norm",                # ssm_norm
    "layers.{}.attn.out": "model.layers.{}.linear_attn.out_proj",             # ssm_out
    "layers.{}.mlp_norm": "model.layers.{}.post_attention_layernorm",         # post_attention_norm
    "layers.{}.mlp.router": "model.layers.{}.mlp.gate",                       # ffn_gate_inp
    "layers.{}.mlp.experts.{}.gate": "model.layers.{}.mlp.experts.{}.gate_proj",  # ffn_gate_exps
    "layers.{}.mlp.experts.{}.up": "model.layers.{}.mlp.experts.{}.up_proj",  # ffn_up_exps
    "layers.{}.mlp.experts.{}.down": "model.layers.{}.mlp.experts.{}.down_proj",  # ffn_down_exps
    "layers.{}.mlp.shared.gate": "model.layers.{}.mlp.shared_expert.gate_proj",  # ffn_gate_shexp
    "layers.{}.mlp.shared.up": "model.layers.{}.mlp.shared_expert.up_proj",   # ffn_up_shexp
    "layers.{}.mlp.shared.down": "model.layers.{}.mlp.shared_expert.down_proj",  # ffn_down_shexp
    "layers.{}.mlp.shared_gate": "model.layers.{}.mlp.shared_expert_gate",    # ffn_gate_inp_shexp
    "layers.{}.attn.q": "model.layers.{}.self_attn.q_proj",                   # attn_q
    "layers.{}.attn.k": "model.layers.{}.self_attn.k_proj",                   # attn_k
    "layers.{}.attn.v": "model.layers.{}.self_attn.v_proj",                   # attn_v
    "layers.{}.attn.o": "model.layers.{}.self_attn.o_proj",                   # attn_output
    "layers.{}.attn.q_norm": "model.layers.{}.self_attn.q_norm",              # attn_q_norm
    "layers.{}.attn.k_norm": "model.layers.{}.self_attn.k_norm",              # attn_k_norm
    "layers.{}.attn.gate": "model.layers.{}.self_attn.q_proj",                # attn_q
    "norm": "model.norm",                                                     # output_norm
    "head": "lm_head",                                                        # output
}


def stored_name(name):
    """Map the name of a weight in this file to its name in a checkpoint."""
    pattern, numbers = re.sub(r"\.\d+", ".{}", name), re.findall(r"\d+", name)
    module, _, leaf = pattern.rpartition(".")
    return (NAMES.get(pattern) or f"{NAMES[module]}.{leaf}").format(*numbers)


def views(c):
    """How to read the weights that are stored in another form."""
    return {
        "layers.{}.attn.query.weight": lambda x: x.unflatten(0, (c.Hk, -1))[:, :c.hk].flatten(0, 1),
        "layers.{}.attn.key.weight": lambda x: (
            x.unflatten(0, (c.Hk, -1))[:, c.hk : 2 * c.hk].flatten(0, 1)
        ),
        "layers.{}.attn.value.weight": lambda x: (
            x.unflatten(0, (c.Hk, -1))[:, 2 * c.hk : 2 * c.hk + 256].flatten(0, 1)
        ),
        "layers.{}.attn.z.weight": lambda x: (
            x.unflatten(0, (c.Hk, -1))[:, 2 * c.hk + 256 :].flatten(0, 1)
        ),
        "layers.{}.attn.beta.weight": lambda x: x.unflatten(0, (c.Hk, -1))[:, :2].flatten(0, 1),
        "layers.{}.attn.alpha.weight": lambda x: x.unflatten(0, (c.Hk, -1))[:, 2:].flatten(0, 1),
        "layers.{}.attn.conv.weight": lambda x: x.squeeze(1),
        "layers.{}.attn.q.weight": lambda x: x.unflatten(0, (c.H, -1))[:, :c.h].flatten(0, 1),
        "layers.{}.attn.gate.weight": lambda x: x.unflatten(0, (c.H, -1))[:, c.h:].flatten(0, 1),
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
    assert sum(x.numel() for x in model.parameters()) == 79_674_391_296
