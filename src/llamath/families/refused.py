"""Model types that are known but cannot be counted, by the reason."""

from __future__ import annotations

_TYPES_BY_REASON = {
    "it is a model of speech with a second decoder for the codebooks": "moshi",
    "it has no attention: its time mixing is a recurrence of its own": "rwkv",
    "it has no attention, and it needs custom code from its repository": "rwkv5",
    "it is an encoder-decoder model": """
        bart bigbird_pegasus blenderbot blenderbot-small marian mbart moonshine mt5 musicgen
        musicgen_melody mvp pegasus plbart prophetnet t5 t5gemma t5gemma2 trocr umt5 whisper
    """,
    "it is an encoder": """
        albert bert bert-generation big_bird camembert data2vec-text deberta deberta-v2 distilbert
        electra ernie megatron-bert modernbert mpnet nomic_bert rembert roberta
        roberta-prelayernorm roc_bert roformer xlm-roberta xlm-roberta-xl xmod
    """,
    "it is trained to predict tokens in any order, and its attention has "
    "two streams or masks of its own": "xlm xlnet",
    "it is a byte-level model of four transformers, whose patches depend on the text": "blt",
    "its attention has learned biases by relative position and segment, and its input "
    "a learned prompt": "cpmant",
    "its latent attention has gates and norms of its own, and other sizes in "
    "layers with a window": "dots3_note_text",
    "its two stacks of layers are run several times in turn": "hrm_text",
    "its attention scores have learned biases by distance, and its layers "
    "attend to earlier residual streams": "inkling2_text",
    "its text model may be MiniCPM, Llama or Qwen2, and its config does not say which": "minicpmv",
    "its layers are passed twice with a learned gate, and it needs custom "
    "code from its repository": "iquestloopcoder",
    "it has cross-attention to images, and it needs custom code from its repository": (
        "infimm-zephyr"
    ),
    "it needs custom code from its repository": "molmo",
    "it needs custom code from its repository; the same models were published "
    "later as mpt": "mosaic_gpt",
}

REFUSED = {x: reason for reason, types in _TYPES_BY_REASON.items() for x in types.split()}
"""Model type → why it is refused."""
