"""The textbook transformer matches a widely taught exercise, and GPT-2 with the options that they share."""

from __future__ import annotations

import pytest

from llamath.core.config import Config
from llamath.core.expr import total
from llamath.core.tree import walk
from llamath.families.registry import find_family


def count_classic(**config: object) -> int:
    tree = find_family(str(config["model_type"]))(Config(config))
    return int(total(x.weight.parameters for x in walk(tree)))


def test_matrices_alone_make_the_403_billion_of_the_exercise() -> None:
    shape = {"hidden_size": 20480, "num_hidden_layers": 80, "num_attention_heads": 128}
    ends = {"vocab_size": 32000, "max_position_embeddings": 2048}
    assert (
        count_classic(model_type="classic", norms=False, bias=False, **shape, **ends)
        == 403_350_487_040
    )


@pytest.mark.parametrize(
    ("d", "L", "H", "published"), [(768, 12, 12, 124_439_808), (1600, 48, 25, 1_557_611_200)]
)
def test_classic_with_all_its_options_is_gpt2(d: int, L: int, H: int, published: int) -> None:
    classic = {
        "hidden_size": d,
        "num_hidden_layers": L,
        "num_attention_heads": H,
        "vocab_size": 50257,
        "max_position_embeddings": 1024,
    }
    gpt2 = {"n_embd": d, "n_layer": L, "n_head": H, "vocab_size": 50257, "n_positions": 1024}
    assert (
        count_classic(model_type="classic", **classic)
        == count_classic(model_type="gpt2", **gpt2)
        == published
    )
