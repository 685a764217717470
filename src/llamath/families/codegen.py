"""CodeGen: GPT-J with queries, values and keys in one matrix, in the four parts that its
training was sharded into.
"""

from __future__ import annotations

from ..config_keys import any_name
from ..core.blocks import Decoder
from ..core.config import Config
from .gptj import NAMES as GPTJ
from .gptj import gptj
from .registry import family

_SHARDS = 4
NAMES = GPTJ.with_changes(
    inside=dict.fromkeys(("attn.q", "attn.k", "attn.v"), "attn.qkv_proj"),
    layouts=dict.fromkeys(("attn.q", "attn.k", "attn.v"), "quarters"),
)


@family(hf=NAMES, causal_class="CodeGenForCausalLM")
def codegen(c: Config) -> Decoder:
    tree: Decoder = gptj(c)
    if (H := c.dim("H", any_name("n_head"))) % _SHARDS:
        raise c.error("n_head", f"is {H}; the heads are stored in {_SHARDS} equal parts")
    return tree
