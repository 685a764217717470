"""DeepSeek V3: 671,026,419,200 parameters.

Family: DeepSeek-V3, R1 and derivatives (Kimi K2): latent attention, a router that scores by sigmoid
and chooses with a learned bias. This file is this model alone.

Parameters: V·d + 3·(2·d + s·d + s + H·n·s + H·p·s + r·d + p·d + r + H·n·r + H·v·r + d·H·v + 3·F·d)
+ (L − 3)·(2·d + s·d + s + H·n·s + H·p·s + r·d + p·d + r + H·n·r + H·v·r + d·H·v + E·d + E +
3·E·Fe·d + 3·S·Fe·d) + d + V·d = 671,026,419,200, 14,848 of them in buffers.

Letters of shapes: B sequences, T new tokens, M tokens up to now, those in the cache included; other
letters are fields of Config.

Written by `llamath code`. It needs torch 2.5 or newer, and safetensors to load a checkpoint. All
sequences of a batch have the same length, and there is no dropout. Each layer computes its angles
and mask anew. Layers that predict further tokens (num_nextn_predict_layers) are left out. `load`
does not read config.json: the sizes are those of Config. A model that is not loaded has the initial
values of torch, not those of its authors.
"""

import glob
import math
import re
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import linear, scaled_dot_product_attention, silu


@dataclass
class Config:
    """The sizes and numbers of DeepSeek V3."""

    d: int = 7168                       # hidden_size
    H: int = 128                        # num_attention_heads
    F: int = 18_432                     # intermediate_size
    V: int = 129_280                    # vocab_size
    L: int = 61                         # num_hidden_layers
    p: int = 64                         # qk_rope_head_dim
    n: int = 128                        # qk_nope_head_dim
    v: int = 128                        # v_head_dim
    s: int = 1536                       # q_lora_rank
    r: int = 512                        # kv_lora_rank
    E: int = 256                        # n_routed_experts
    k: int = 8                          # num_experts_per_tok
    Fe: int = 2048                      # moe_intermediate_size
    S: int = 1                          # n_shared_experts
    dense: int = 3                      # first_k_dense_replace
    eps: float = 1e-6                   # epsilon of the norms
    theta: float = 10_000.0             # base of the rotary positions
    rope_factor: float = 40.0           # factor of the context of pretraining
    original_context: int = 4096        # tokens of the context of pretraining
    beta_fast: float = 32.0             # pairs that turn more often in that context stay
    beta_slow: float = 1.0              # pairs that turn less often are slowed down
    attention_scale_factor: float = 1.8738542070926265  # YaRN: (0.1 · ln(rope_factor) + 1)²
    groups: int = 8                     # groups of experts
    kept_groups: int = 4                # groups that a token's experts are chosen from
    routed_scaling_factor: float = 2.5  # factor of the experts' weights


def rope(x, pos, theta, factor, original_context, beta_fast, beta_slow):
    """Rotate each pair of channels of a head by the angle pos · theta^(−2 · pair / size)."""
    size = x.shape[-1]
    powers = torch.arange(0, size, 2, device=x.device).float() / size  # float32
    frequencies = 1 / theta**powers  # (size / 2,), of each pair
    first, last = (  # YaRN: pairs that turn beta_fast and beta_slow times in that context
        size * math.log(original_context / (beta * 2 * math.pi)) / (2 * math.log(theta))
        for beta in (beta_fast, beta_slow)
    )
    first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    pair = torch.arange(size // 2, device=x.device).float()
    span = last - first or 0.001  # no division by 0
    slow = ((pair - first) / span).clamp(0, 1)  # 1: factor times slower
    frequencies = frequencies / factor * slow + frequencies * (1 - slow)
    angles = pos[:, None, None] * frequencies  # (T, 1, size / 2)
    cos, sin = angles.cos(), angles.sin()
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)  # a pair is two neighbours
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).type_as(x)


def route(logits, top_k, correction, groups, kept_groups, factor):
    """Choose top_k experts for each token: their indices and their weights, (B, T, top_k) each."""
    scores = logits.sigmoid()  # (B, T, experts)
    ranked = scores + correction  # for the choice alone
    in_groups = ranked.unflatten(-1, (groups, -1))  # a token's experts are in its best groups
    best = in_groups.topk(2, -1).values.sum(-1).topk(kept_groups, -1).indices
    eligible = torch.zeros_like(in_groups[..., 0]).scatter(-1, best, 1).bool()
    ranked = in_groups.masked_fill(~eligible[..., None], -torch.inf).flatten(-2)
    chosen = ranked.topk(top_k, -1).indices
    weights = scores.gather(-1, chosen)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    weights = weights * factor
    return chosen, weights


def run_experts(experts, x, chosen, weights):
    """Sum the outputs of each token's experts by their weights, in float32: x (B, T, size)."""
    y = torch.zeros_like(x, dtype=torch.float32)
    for e in chosen.unique().tolist():  # each expert computes the tokens that chose it
        b, t, slot = torch.where(chosen == e)
        weight = weights[b, t, slot, None]
        y[b, t] += experts[e](x[b, t]) * weight
    return y.type_as(x)


def attention(q, k, v, pos, scale):
    """Each query attends to the keys up to its own.

    q is (B, T, query heads, size), k and v (B, M, key heads, size).
    """
    i, j = pos[:, None], torch.arange(k.shape[1], device=pos.device)  # query and key positions
    mask = j <= i  # (T, M)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # heads first
    y = scaled_dot_product_attention(q, k, v, mask, scale=scale)
    return y.transpose(1, 2)  # (B, T, query heads, size)


class Cache(dict):
    """The state of each module after the tokens read so far."""

    length = 0

    def append(self, module, *new):
        """Add the rows of new tokens to those of a module, and return all, (B, M, …) each."""
        if module in self:
            new = tuple(torch.cat(x, 1) for x in zip(self[module], new, strict=True))
        self[module] = new
        return new


class LatentAttention(nn.Module):
    """Multi-head latent attention: keys and values are made of a vector of r numbers for each
    token, which is what the cache keeps.
    """

    def __init__(self, c):
        super().__init__()
        self.H, self.p, self.n, self.v, self.r = c.H, c.p, c.n, c.v, c.r
        self.attention_scale_factor = c.attention_scale_factor
        self.rope = (c.theta, c.rope_factor, c.original_context, c.beta_fast, c.beta_slow)
        self.q_down = nn.Linear(c.d, c.s, bias=False)              # [s, d] = [1536, 7168]
        self.q_norm = nn.RMSNorm(c.s, eps=c.eps)                   # [s] = [1536]
        self.q_up = nn.Linear(c.s, c.H * (c.n + c.p), bias=False)  # [H·n + H·p, s] = [24576, 1536]
        self.kv_down = nn.Linear(c.d, c.r + c.p, bias=False)       # [r + p, d] = [576, 7168]
        self.kv_norm = nn.RMSNorm(c.r, eps=c.eps)                  # [r] = [512]
        self.k_up = nn.Linear(c.r, c.H * c.n, bias=False)          # [H·n, r] = [16384, 512]
        self.v_up = nn.Linear(c.r, c.H * c.v, bias=False)          # [H·v, r] = [16384, 512]
        self.o = nn.Linear(c.H * c.v, c.d, bias=False)             # [d, H·v] = [7168, 16384]

    def forward(self, x, pos, cache):
        q = self.q_up(self.q_norm(self.q_down(x)))  # (B, T, H·n + H·p) = (B, T, 24576)
        q = q.unflatten(-1, (self.H, self.n + self.p))  # (B, T, H, n + p) = (B, T, 128, 192)
        q, q_rope = q.split((self.n, self.p), -1)  # (B, T, H, n) and (B, T, H, p)
        q_rope = rope(q_rope, pos, *self.rope)  # (B, T, H, p) = (B, T, 128, 64)
        down = self.kv_down(x).unflatten(-1, (1, self.r + self.p))  # (B, T, 1, r + p)
        latent, k_rope = down.split((self.r, self.p), -1)  # (B, T, 1, r) and (B, T, 1, p)
        latent = self.kv_norm(latent)  # (B, T, 1, r) = (B, T, 1, 512)
        (cached,) = cache.append(self, torch.cat((latent, rope(k_rope, pos, *self.rope)), -1))
        latent, k_rope = cached.split((self.r, self.p), -1)  # (B, M, 1, r) and (B, M, 1, p)
        latent = latent.flatten(-2)  # (B, M, r): the latent vectors are expanded to keys and values
        y = self.k_up(latent).unflatten(-1, (self.H, self.n))  # (B, M, H, n) = (B, M, 128, 128)
        k = torch.cat((y, k_rope.expand(-1, -1, self.H, -1)), -1)  # (B, M, H, n + p)
        v = self.v_up(latent).unflatten(-1, (self.H, self.v))  # (B, M, H, v) = (B, M, 128, 128)
        q = torch.cat((q, q_rope), -1)  # (B, T, H, n + p) = (B, T, 128, 192)
        y = attention(q, k, v, pos, scale=self.attention_scale_factor * (self.n + self.p) ** -0.5)
        return self.o(y.flatten(-2))  # (B, T, d)


class MLP(nn.Module):
    """SwiGLU: down(silu(gate x) · up x)."""

    def __init__(self, c, F):
        super().__init__()
        self.gate = nn.Linear(c.d, F, bias=False)
        self.up = nn.Linear(c.d, F, bias=False)
        self.down = nn.Linear(F, c.d, bias=False)

    def forward(self, x):
        return self.down(silu(self.gate(x)) * self.up(x))  # (…, d)


class MoE(nn.Module):
    """A mixture of experts: a router sends each token to k of E experts; shared experts read every
    token.
    """

    def __init__(self, c):
        super().__init__()
        self.k, self.groups, self.kept_groups = c.k, c.groups, c.kept_groups
        self.routed_scaling_factor = c.routed_scaling_factor
        self.router = nn.Linear(c.d, c.E, bias=False)  # [E, d] = [256, 7168], 1,835,008 parameters
        self.correction = nn.Buffer(torch.zeros(c.E))  # [E] = [256]
        self.experts = nn.ModuleList([MLP(c, c.Fe) for _ in range(c.E)])
        self.shared = MLP(c, c.S * c.Fe)               # 44,040,192 parameters

    def forward(self, x):
        logits = linear(x.float(), self.router.weight.float())  # (B, T, E) = (B, T, 256)
        chosen, weights = route(
            logits,
            self.k,
            self.correction,
            self.groups,
            self.kept_groups,
            self.routed_scaling_factor,
        )
        return run_experts(self.experts, x, chosen, weights) + self.shared(x)  # (B, T, d)


class Layer(nn.Module):
    """One layer: x += attn(attn_norm x); x += mlp(mlp_norm x)."""

    def __init__(self, c, mlp):
        super().__init__()
        self.attn_norm = nn.RMSNorm(c.d, eps=c.eps)  # [d] = [7168]
        self.attn = LatentAttention(c)               # 187,107,328 parameters
        self.mlp_norm = nn.RMSNorm(c.d, eps=c.eps)   # [d] = [7168]
        self.mlp = mlp

    def forward(self, x, pos, cache):
        x = x + self.attn(self.attn_norm(x), pos, cache)  # (B, T, d)
        return x + self.mlp(self.mlp_norm(x))  # (B, T, d)


class Model(nn.Module):
    """The whole model, from token ids to logits."""

    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.V, c.d)          # [V, d] = [129280, 7168]
        # 3 × 583,483,392 + 58 × 11,507,286,272 parameters
        self.layers = nn.ModuleList(
            [Layer(c, MLP(c, c.F) if i < c.dense else MoE(c)) for i in range(c.L)]
        )
        self.norm = nn.RMSNorm(c.d, eps=c.eps)       # [d] = [7168]
        self.head = nn.Linear(c.d, c.V, bias=False)  # [V, d] = [129280, 7168]

    def forward(self, ids, cache=None):  # ids (B, T) of new tokens
        cache = Cache() if cache is None else cache
        length = cache.length + ids.shape[1]  # of the sequence up to now
        pos = torch.arange(cache.length, length, device=ids.device)
        x = self.embed(ids)  # (B, T, d)
        for layer in self.layers:
            x = layer(x, pos, cache)
        cache.length = length
        return self.head(self.norm(x))  # (B, T, V) = (B, T, 129280)


NAMES = {  # module here: its name in Hugging Face's files  # in GGUF files
    "embed": "model.embed_tokens",                                                # token_embd
    "layers.{}.attn_norm": "model.layers.{}.input_layernorm",                     # attn_norm
    "layers.{}.attn.q_down": "model.layers.{}.self_attn.q_a_proj",                # attn_q_a
    "layers.{}.attn.q_norm": "model.layers.{}.self_attn.q_a_layernorm",           # attn_q_a_norm
    "layers.{}.attn.q_up": "model.layers.{}.self_attn.q_b_proj",                  # attn_q_b
    "layers.{}.attn.kv_down": "model.layers.{}.self_attn.kv_a_proj_with_mqa",     # attn_kv_a_mqa
    "layers.{}.attn.kv_norm": "model.layers.{}.self_attn.kv_a_layernorm",         # attn_kv_a_norm
    "layers.{}.attn.k_up": "model.layers.{}.self_attn.kv_b_proj",                 # attn_k_b
    "layers.{}.attn.v_up": "model.layers.{}.self_attn.kv_b_proj",                 # attn_v_b
    "layers.{}.attn.o": "model.layers.{}.self_attn.o_proj",                       # attn_output
    "layers.{}.mlp_norm": "model.layers.{}.post_attention_layernorm",             # ffn_norm
    "layers.{}.mlp.gate": "model.layers.{}.mlp.gate_proj",                        # ffn_gate
    "layers.{}.mlp.up": "model.layers.{}.mlp.up_proj",                            # ffn_up
    "layers.{}.mlp.down": "model.layers.{}.mlp.down_proj",                        # ffn_down
    "layers.{}.mlp.router": "model.layers.{}.mlp.gate",                           # ffn_gate_inp
    # exp_probs_b.bias
    "layers.{}.mlp.correction": "model.layers.{}.mlp.gate.e_score_correction_bias",
    "layers.{}.mlp.experts.{}.gate": "model.layers.{}.mlp.experts.{}.gate_proj",  # ffn_gate_exps
    "layers.{}.mlp.experts.{}.up": "model.layers.{}.mlp.experts.{}.up_proj",      # ffn_up_exps
    "layers.{}.mlp.experts.{}.down": "model.layers.{}.mlp.experts.{}.down_proj",  # ffn_down_exps
    "layers.{}.mlp.shared.gate": "model.layers.{}.mlp.shared_experts.gate_proj",  # ffn_gate_shexp
    "layers.{}.mlp.shared.up": "model.layers.{}.mlp.shared_experts.up_proj",      # ffn_up_shexp
    "layers.{}.mlp.shared.down": "model.layers.{}.mlp.shared_experts.down_proj",  # ffn_down_shexp
    "norm": "model.norm",                                                         # output_norm
    "head": "lm_head",                                                            # output
}


def stored_name(name):
    """Map the name of a weight in this file to its name in a checkpoint."""
    pattern, numbers = re.sub(r"\.\d+", ".{}", name), re.findall(r"\d+", name)
    module, _, leaf = pattern.rpartition(".")
    return (NAMES.get(pattern) or f"{NAMES[module]}.{leaf}").format(*numbers)


def views(c):
    """How to read the weights that are stored in another form."""
    return {
        "layers.{}.attn.k_up.weight": lambda x: x.unflatten(0, (c.H, -1))[:, :c.n].flatten(0, 1),
        "layers.{}.attn.v_up.weight": lambda x: x.unflatten(0, (c.H, -1))[:, c.n:].flatten(0, 1),
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
        model = Model(Config())  # its buffers have 14,848 numbers
    assert sum(x.numel() for x in model.parameters()) == 671_026_404_352
