"""GPT-Neo: GPT-2's layers without biases on queries, keys and values, unscaled scores, and a
window in every other layer.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF_GPT2
from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow, ScoreTransform
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, mlp
from ..core.tree import Stack, cycle
from .registry import family

NAMES = HF_GPT2.with_changes(
    inside={
        f"attn.{x}": f"attn.attention.{y}_proj"
        for x, y in zip("qkvo", ("q", "k", "v", "out"), strict=True)
    }
)


@family(hf=NAMES, causal_class="GPTNeoForCausalLM")
def gpt_neo(c: Config) -> Decoder:
    d, V, C = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("C", "max_position_embeddings", default=2048),
    )
    F, heads = (
        c.dim("F", "intermediate_size", default=4 * d),
        c.square_heads(d, "num_heads", "num_heads"),
    )
    norm, ff = (
        layer_norm(d, c.get("layer_norm_epsilon", 1e-5)),
        mlp(d, F, c.activation("activation_function", "gelu_new"), bias=True),
    )

    def layer(window: int | None) -> Layer:
        attn = gqa(
            d,
            heads,
            o_bias=True,
            window=AttentionWindow(size=window),
            score_transform=ScoreTransform(scale=1.0),
        )
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=ff)

    layers = _layers(
        c, {"global": layer(None), "local": layer(c.get(any_name("sliding_window"), 256))}
    )
    c.ignore("attention_layers")  # repeats attention_types, layer by layer
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", True),
        positions=embedding(C, d),
        context=C,
    )


def _layers(c: Config, kinds: dict[str, Layer]) -> Stack:
    """Return the layers in the order of `attention_types`: pairs of a pattern and the number of
    its repetitions.
    """
    L = c.dim("L", any_name("num_hidden_layers"))
    if "attention_types" not in c:
        return cycle((kinds["global"], kinds["local"]), L)
    runs = []
    items: list[object] = c.get("attention_types", [])
    for item in items:
        pattern, times = item if isinstance(item, list) and len(item) == 2 else ([], 0)
        if (
            not pattern
            or type(times) is not int
            or times < 1
            or not isinstance(pattern, list)
            or set(map(str, pattern)) - set(kinds)
        ):
            raise c.error("attention_types", 'should list pairs like [["global", "local"], 12]')
        runs.append((tuple(kinds[x] for x in pattern), times))
    layers = Stack(*runs, count_dim=L)
    if sum(len(pattern) * times for pattern, times in runs) != L:
        raise c.error(
            "attention_types", f"does not describe {L} layers", "num_layers is their number"
        )
    return layers
