"""The text model of a multimodal checkpoint gives the logits of transformers' class for text alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import llamath
from llamath.core.multimodal import is_computed
from llamath.run.weights.open_model import open_model
from support.reference_data import auto_class, multimodal_configs
from support.transformers_pair import perturb_weights

pytestmark = pytest.mark.transformers


PREFIX_ATTENTION = "paligemma"
"""transformers lets the tokens of its prompts attend to all others, and `load` says that the text model here does not."""


@pytest.mark.parametrize("config", [x for x in multimodal_configs() if x.values[0]["model_type"] != PREFIX_ATTENTION])
@torch.no_grad()
def test_logits_of_text_equal_transformers(config: dict[str, Any], tmp_path: Path) -> None:
    import transformers

    if not is_computed(llamath.load(config).text.tree):
        pytest.skip("the text model is counted only")
    torch.manual_seed(0)
    auto = auto_class(config)
    reference = auto.from_config(transformers.AutoConfig.for_model(**config), attn_implementation="eager", experts_implementation="eager")
    perturb_weights(reference)
    reference.eval().save_pretrained(tmp_path)
    ids = torch.randint(1, 60, (1, 9), generator=torch.Generator().manual_seed(1))
    ours = open_model(str(tmp_path), torch.float32).module(ids)
    for name in ("text_model", "text_decoder", *(["language_model"] if hasattr(reference, "qformer") else [])):
        reference = getattr(reference, name, reference)  # its class does not read text without an image
    theirs = reference(input_ids=ids).logits
    if config["model_type"] in ("aya_vision", "cohere2_vision"):  # transformers' wrappers leave out the factor of the logits
        theirs = theirs * reference.config.text_config.logit_scale
    torch.testing.assert_close(ours, theirs, atol=3e-4, rtol=1e-3)
