"""The README of the model, with its measurements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import llamath

TEXT = """# The embedded model

A Llama of {total:,} parameters that knows a little world: stories of two people and a thing or an animal, after {plots} plots; twelve
animals, numbers up to twenty. It is here so that `llamath run` and `llamath chat` have something to run anywhere, and so that one can see
a whole Llama work. It knows nothing else; its English has some {words} words.

```sh
llamath run "Tell me a story about Anna and a kite."
llamath run "Ben was in the park. He had a red ball. Who has the ball?"
llamath run --raw "Once upon a time, Ida was at the river."
llamath chat
```

It is made by `tools/train_tiny.py`, from nothing but texts that `tools/tiny` makes itself; no other data went into it.

- **Architecture**: llama; {layers} layers, width {width}, {heads} heads of {head} on {kv} key/value heads, SwiGLU of {ffn}, rotary,
  {vocab} tokens of byte-level BPE, output and embedding tied; bfloat16, {bytes:,} bytes.
- **Training**: {steps:,} steps of up to {tokens:,} tokens in float32, Muon and AdamW, on a processor; each text alone, from its first token
  on. Seed {seed}; another processor or number of threads may round otherwise.
  {note}
- **World**: `tools/tiny/events.py` says which event is possible when; the same rules make the stories and judge the model's.
- **Conversations** are ChatML.

## What it is worth

Measured by `tools/train_tiny.py --evaluate`. What is held out was sorted out of the training by a checksum: no such story, and no question
after such a story, was trained on, though others may begin alike. An answer is right only if it is the right one to the last character.
Sums, differences and facts are few, and it has seen them all. Where answers are drawn (temperature 0.8), the seed is fixed. Stories are
judged by the rules of the world, sentence by sentence: is it one of the world's, and can it be so after what was told?

{measured}

## Licence

Apache-2.0, like the rest of this repository: weights, tokenizer and the texts they come from.
"""


def readme(config: Mapping[str, Any], facts: Mapping[str, Any], measured: str) -> str:
    """The whole page; `facts` are those of the training."""
    model = llamath.load(config)
    keys = {
        "layers": "num_hidden_layers", "width": "hidden_size", "heads": "num_attention_heads", "head": "head_dim",
        "kv": "num_key_value_heads", "ffn": "intermediate_size", "vocab": "vocab_size",
    }  # fmt: skip
    said = {name: config[key] for name, key in keys.items()}
    return TEXT.format(total=model.parameters.total, measured=measured, **said, **facts)
