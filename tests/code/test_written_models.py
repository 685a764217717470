"""Written files compute what llamath computes, or are refused by the name of what is not written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import llamath
from llamath.analysis.code.code_report import write_code
from llamath.analysis.code.refusal import NotWritten
from llamath.core.attention_facts import AttentionWindow
from llamath.core.multimodal import is_computed
from llamath.core.positions import Rope
from llamath.core.tree import repeat
from llamath.torch import build, initialize
from support.contract import configurations, plain_names
from support.written_models import names_of, same_weights, written

torch.set_num_threads(1)  # models this small are slower with more

CONFIGURATIONS = configurations()
GOLDEN = Path(__file__).parents[1] / "golden" / "code-refused.txt"
REFUSED = dict(x.split(" | ") for x in GOLDEN.read_text().splitlines())
"""The configurations that are refused, and what is not written: this list only gets shorter."""
SAMPLE = 5  # of the first configurations of each model type, every fifth by default
CLOSE = 2e-5


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        names = [x for x in CONFIGURATIONS if x not in REFUSED]
        if not metafunc.config.getoption("--all"):
            names = [x for x in names if x in plain_names()][::SAMPLE]
        metafunc.parametrize("name", names)


def difference(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((x - y).abs().max()) / max(1.0, float(y.abs().max()))


def test_written_file_computes_the_same_logits(name: str) -> None:
    model = llamath.load(dict(CONFIGURATIONS[name][1])).text
    if not is_computed(model.tree):
        pytest.skip("its weights are counted only")
    report = written(dict(CONFIGURATIONS[name][1]))
    assert max(len(x.text) for x in report.code) <= 100
    names = names_of(report)
    module = initialize(build(model.tree), std=0.1)
    generator = torch.Generator().manual_seed(0)
    for x in module.parameters():
        if x.dim() == 1:  # norms and biases are not at their first values
            x.data += torch.randn(x.shape, generator=generator) / 10
    theirs = same_weights(names, module)
    assert sum(x.numel() for x in theirs.parameters()) == report.parameters
    ids = torch.randint(0, min(int(model.tree.vocab), 50), (2, 20), generator=generator)
    with torch.no_grad():
        assert difference(theirs(ids), module(ids)) < CLOSE
        cache, known = names["Cache"](), module.new_cache(20)
        for part in ids.split([9, 4, *[1] * 7], 1):
            assert difference(theirs(part, cache), module(part, known)) < CLOSE


@pytest.mark.parametrize("configuration", ["llama-plain", "deepseek_v3-yarn", "falcon_h1-plain"])
def test_written_file_rounds_as_llamath_does_in_bfloat16(configuration: str) -> None:
    keys = dict(CONFIGURATIONS[configuration][1])
    module = initialize(build(llamath.load(keys).text.tree), std=0.1)
    theirs = same_weights(names_of(written(keys)), module).bfloat16()
    ids = torch.randint(0, 40, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert difference(theirs(ids).float(), module.bfloat16()(ids).float()) < 1e-3


def test_list_of_refused_models_only_gets_shorter() -> None:
    for name, what in REFUSED.items():
        with pytest.raises(NotWritten) as error:
            written(dict(CONFIGURATIONS[name][1]))
        assert error.value.what == what, name
    assert len(REFUSED) <= 0.08 * len(CONFIGURATIONS)


def with_attention(**changes: Any) -> llamath.FamilyModel:
    """Return a Llama whose attention has other fields."""
    model = llamath.load(dict(CONFIGURATIONS["llama-plain"][1])).text
    ((layer, times),) = model.tree.layers.distinct()
    changed = layer.replace(attn=layer.attn.replace(**changes))
    return model.replace(tree=model.tree.replace(layers=repeat(changed, times)))


class TurnedRope(Rope):
    angle: float = 0.0


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"window": AttentionWindow(after_prompt=4)}, "the field after_prompt of AttentionWindow"),
        ({"window": AttentionWindow(causal=False)}, "the field causal of AttentionWindow"),
        ({"rope": TurnedRope(theta=1e4, dim=8, angle=1.0)}, "rope by TurnedRope"),
        ({"block_size": 3}, "the field block_size of Attention"),
    ],
)
def test_field_that_no_template_reads_is_refused(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(NotWritten) as error:
        write_code(with_attention(**changes))
    assert error.value.what == what
