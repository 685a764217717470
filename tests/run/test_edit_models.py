"""Edited checkpoints compute in transformers what the original computes with the same modules removed; shards joined give its bytes back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import llamath
from llamath.conversion.edit.edited_tree import mixtures
from llamath.core.blocks import HashMoE
from llamath.core.tree import fold_field
from llamath.utils.errors import LlamathError
from support.reference_data import tiny_configs
from support.transformers_pair import Pair, logits, pair, save_published, transformers_class

pytestmark = pytest.mark.transformers
MASKED = -1e9  # a finite logit that no softmax and no sigmoid sees: -inf is NaN in the router of Phi-3.5-MoE


class Case:
    """A model in transformers, and the checkpoint that it saves."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        self.config, self.home, self.pair = config, folder, pair(config)
        self.source = folder / "source"
        save_published(self.pair.theirs, self.source)
        self.model = llamath.load(str(self.source))
        self.ids = self.pair.ids(12)

    def edit(self, name: str = "edited", **edit: Any) -> Path:
        """Write an edited checkpoint, which verify has to accept, and whose report has to be true."""
        target = self.home / name
        report = llamath.edit(self.source, target, force=True, **edit)
        assert llamath.verify(target).ok
        edited = llamath.load(str(target))
        if not edit.get("tp_shard"):
            assert (report.parameters.before, report.parameters.after) == (self.model.parameters.total, edited.parameters.total)
        assert report.bytes.after == sum(x.numel() * x.element_size() for x in load_file(target / "model.safetensors").values())
        flops = [int(llamath.flops(x, context=report.context).forward.total) for x in (self.model, edited)]
        assert [report.flops.before, report.flops.after] == flops
        return target

    def load(self, folder: Path) -> Any:
        """Load a checkpoint in transformers, which has to use each of its tensors and miss none."""
        attention = "sdpa" if self.config.get("alibi") else "eager"
        model, info = transformers_class(self.config).from_pretrained(
            folder, output_loading_info=True, dtype=torch.float32, attn_implementation=attention, experts_implementation="eager"
        )
        assert not any(info[x] for x in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
        return model.eval()


@pytest.fixture(params=tiny_configs(computed=True))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(request.param, tmp_path)


def assert_equal_logits(a: Tensor, b: Tensor) -> None:
    """Where a tensor lies in memory may change the order of a sum."""
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


# ── layers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def base_model(model: Any) -> Any:
    """The module with the layers."""
    names = ("model", "transformer", "gpt_neox", "backbone", "language_model", "decoder", "biogpt", "gpt_neox_japanese")
    while (name := next((x for x in names if hasattr(model, x)), None)) is not None:
        model = getattr(model, name)
    return model


def without_layers(both: Pair, kept: list[int]) -> Any:
    """A copy of transformers' model without some entries of its list of layers."""
    model = deepcopy(both.theirs)
    base, config = base_model(model), model.config.get_text_config()
    name = next(x for x in ("layers", "h", "blocks") if hasattr(base, x))
    old = len(getattr(base, name))
    setattr(base, name, nn.ModuleList([getattr(base, name)[i] for i in kept]))
    for key in ("layer_types", "layers_block_type", "mlp_layer_types", "layer_rope_theta"):
        if isinstance(types := config.__dict__.get(key), list) and len(types) == old:
            setattr(config, key, [types[i] for i in kept])
    if isinstance(numbers := config.__dict__.get("attn_layer_indices"), list):
        config.attn_layer_indices = [new for new, i in enumerate(kept) if i in numbers]
    if isinstance(numbers := config.__dict__.get("cross_attention_layers"), list):
        base.cross_attention_layers = config.cross_attention_layers = [new for new, i in enumerate(kept) if i in numbers]
    for module in base.modules():
        if isinstance(numbers := module.__dict__.get("layer_dic"), dict):  # the adapters of a shared block, by layer
            module.layer_dic = {new: numbers[i] for new, i in enumerate(kept) if i in numbers}
    config.num_hidden_layers = len(kept) * (2 if config.model_type == "longcat_flash" else 1)  # it counts attentions
    if hasattr(base, "embed_tokens_per_layer"):
        size = config.hidden_size_per_layer_input
        columns = torch.cat([torch.arange(i * size, (i + 1) * size) for i in kept])
        base.embed_tokens_per_layer.weight = nn.Parameter(base.embed_tokens_per_layer.weight[:, columns])
        base.per_layer_model_projection.weight = nn.Parameter(base.per_layer_model_projection.weight[columns])
    return model


INEXPRESSIBLE = {
    ("deepseek_v4", "num_hash_layers"): "the first layers have a table of the experts of each token",
    ("gpt2", "scale_attn_by_inverse_layer_idx"): "scores are scaled by the number of the layer",
    ("zamba2", "use_shared_attention_adapter"): "each block has its adapters in the places of its uses",
    ("modernbert-decoder", "model_type"): "the first layer has no norm before its attention",
    ("jamba", "attn_layer_period"): "attention and experts are in every nth layer",
    ("gemma4_text", "layer_types"): "the last layer always has full attention",
    ("gpt_neox_japanese", "model_type"): "the last layer always has a bias",
    **{(x, "model_type"): "the first layer selects keys, which later layers use as well" for x in ("glm_moe_dsa", "hy_v4")},
    ("gemma4_unified_text", "layer_types"): "the last layer always has full attention",
    ("qwen4_exp_text", "ple_layer_ids"): "tables of n-grams follow from the number of the layer",
    ("minimax", "num_hidden_layers"): "decays follow from the place of a layer among all layers",
    ("olmo_hybrid", "model_type"): "a model has layers of both kinds",
}
SHARED_BLOCKS = {"zamba", "zamba2"}
"""Types of models whose layers share blocks: no config has them without some of the layers, or with a head of its own."""


@torch.no_grad()
def test_dropped_layers_compute_as_deleted_modules(case: Case) -> None:
    count = int(case.model.tree.layers.n)
    for dropped in ([0], [count // 2], [count - 1], [0, count - 1]):
        kept = [i for i in range(count) if i not in dropped]
        if not kept:
            continue
        if any(x.weight.tied.startswith("layers.") for x in fold_field(case.model.tree, "layers")):
            assert case.config["model_type"] in SHARED_BLOCKS
            with pytest.raises(LlamathError, match="share blocks"):
                case.edit(drop_layers=dropped)
            continue
        try:
            edited = case.edit(drop_layers=dropped)
        except LlamathError as refused:
            assert any(x == case.config["model_type"] and key in case.config for x, key in INEXPRESSIBLE), refused
            assert "cannot express" in str(refused) or "keys and values that later layers use" in str(refused)
            continue
        assert_equal_logits(logits(case.load(edited), case.ids), logits(without_layers(case.pair, kept), case.ids))


# ── experts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def masked_experts(model: Any, gone: list[int], count: int) -> Iterator[None]:
    """Replace the router's logits of some experts while the context is open."""
    is_router = {id(x) for name, x in model.named_parameters() if x.ndim == 2 and len(x) == count and name.split(".experts.")[0] == name}
    linear, calls = nn.functional.linear, 0

    def masked(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        nonlocal calls
        y = linear(x, weight, bias)
        if id(weight) in is_router:
            calls, y = calls + 1, y.clone()
            y[..., gone] = MASKED
        return y

    for name, x in (*model.named_buffers(), *model.named_parameters()):
        if "correction_bias" in name:
            x[..., gone] = MASKED
    nn.functional.linear = masked
    try:
        yield
    finally:
        nn.functional.linear = linear
    assert calls


@torch.no_grad()
def test_kept_experts_compute_as_masked_router(case: Case) -> None:
    if not (found := mixtures(case.model.tree)):
        pytest.skip("no experts")
    if any(isinstance(x, HashMoE) for x in found):
        with pytest.raises(LlamathError, match="a table of the experts"):
            case.edit(keep_experts=[0, 1, 2])
        return
    if case.model.family.name == "dbrx":
        with pytest.raises(LlamathError, match="a config of the dbrx family cannot express this edit"):
            case.edit(keep_experts=[0, 1, 2])
        return
    count, top_k, done = int(found[0].experts.n), int(found[0].top_k), 0
    for kept in ([*range(count // 2)], [x for x in range(count) if x != 1], [*range(0, count, 2)], [*range(top_k)], [*range(top_k - 1)]):
        try:
            edited = case.edit(keep_experts=kept)
        except LlamathError as refused:
            assert len(kept) < top_k or "group" in str(refused) or not kept, refused
            continue
        done += 1
        theirs = deepcopy(case.pair.theirs)
        with masked_experts(theirs, [x for x in range(count) if x not in kept], count):
            expected = logits(theirs, case.ids)
        assert_equal_logits(logits(case.load(edited), case.ids), expected)
    assert done >= (1 if found[0].expert_groups else 2) or count < 3


# ── vocabulary and head ─────────────────────────────────────────────────────────────────────────────────────────────


@torch.no_grad()
def test_untied_head_computes_the_same(case: Case) -> None:
    head = case.model.tree.head
    if head is None or not head.weight.tied:
        with pytest.raises(LlamathError, match="not tied"):
            case.edit(untie=True)
        return
    if case.config["model_type"] in SHARED_BLOCKS:
        with pytest.raises(LlamathError, match="tie_word_embeddings should be true"):
            case.edit(untie=True)
        return
    model = case.load(case.edit(untie=True))
    assert model.get_output_embeddings().weight.data_ptr() != model.get_input_embeddings().weight.data_ptr()
    assert_equal_logits(logits(model, case.ids), logits(case.pair.theirs, case.ids))


@torch.no_grad()
@pytest.mark.parametrize("more", [-7, 9])
def test_resized_vocabulary_keeps_the_other_logits(case: Case, more: int) -> None:
    old = int(case.model.tree.vocab)
    per_layer = case.model.tree.per_layer
    if per_layer is not None and old + more > per_layer.embed.weight.shape[0]:
        with pytest.raises(LlamathError, match="per-layer embedding"):
            case.edit(resize_vocab=old + more)
        return
    if case.config["model_type"] == "mllama_text_model":
        with pytest.raises(LlamathError, match=r"rows for images|cannot express"):
            case.edit(resize_vocab=old + more)
        return
    if any(isinstance(x, HashMoE) for x in mixtures(case.model.tree)):
        with pytest.raises(LlamathError, match="a table of the experts"):
            case.edit(resize_vocab=old + more)
        return
    model, kept = case.load(case.edit(resize_vocab=old + more)), min(old, old + more)
    ids = case.ids.clamp(max=kept - 1)
    assert_equal_logits(logits(model, ids)[..., :kept], logits(case.pair.theirs, ids)[..., :kept])
    assert logits(model, ids).shape[-1] == old + more
    for weight in (model.get_input_embeddings().weight, model.get_output_embeddings().weight):
        if weight.shape[0] == old + more and more > 0:
            torch.testing.assert_close(weight[old:], weight[:old].double().mean(0).float().expand(more, -1), rtol=0, atol=0)


@torch.no_grad()
def test_combined_edits_equal_edits_one_by_one(case: Case) -> None:
    count, vocab = int(case.model.tree.layers.n), int(case.model.tree.vocab)
    head = case.model.tree.head
    edits: dict[str, Any] = {"drop_layers": "1"} | {"resize_vocab": vocab - 3} | ({"untie": True} if head and head.weight.tied else {})
    if case.config["model_type"] in SHARED_BLOCKS:
        with pytest.raises(LlamathError, match=r"share blocks|tie_word_embeddings should be true"):
            case.edit("together", **edits)
        edits = {"resize_vocab": vocab - 3}
    try:
        together = case.edit("together", **edits)
    except LlamathError:
        known = {x for x, _ in INEXPRESSIBLE} | {"mllama_text_model"}
        assert count < 2 or case.config["model_type"] in known or case.model.tree.per_layer is not None
        return
    source = case.source
    for i, (name, value) in enumerate(edits.items()):
        llamath.edit(source, case.home / f"step-{i}", **{name: value})
        source = case.home / f"step-{i}"
    a, b = (load_file(x / "model.safetensors") for x in (together, source))
    assert a.keys() == b.keys() and all(torch.equal(a[x], b[x]) for x in a)
    assert (together / "config.json").read_bytes() == (source / "config.json").read_bytes()


# ── shards ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ranks", [2, 4])
def test_joined_shards_have_the_original_bytes(case: Case, ranks: int) -> None:
    whole = load_file(case.source / "model.safetensors")
    try:
        for rank in range(ranks):
            case.edit(f"ranks/of-{ranks}-{rank}", tp_shard=f"{rank}/{ranks}")
    except LlamathError as refused:
        assert any(x in str(refused) for x in ("does not divide", "per-head norms", "has the layout")), refused
        return
    llamath.edit(case.home / "ranks", case.home / "joined", join_shards=True)
    joined = load_file(case.home / "joined" / "model.safetensors")
    assert joined.keys() == whole.keys() and all(
        x.dtype == joined[name].dtype and torch.equal(x, joined[name]) for name, x in whole.items()
    )
    assert (case.home / "joined" / "config.json").read_bytes() == (case.source / "config.json").read_bytes()
    shard = load_file(case.home / "ranks" / f"of-{ranks}-0" / "model.safetensors")
    assert math.fsum(x.numel() for x in shard.values()) < math.fsum(x.numel() for x in whole.values())


@torch.no_grad()
@pytest.mark.parametrize(
    "config", [x for x in tiny_configs() if x.id.startswith(("llama-", "falcon-plain", "gpt2-plain", "phi3", "gpt_oss"))]
)
def test_shards_of_one_layer_sum_to_its_output(config: dict[str, Any], tmp_path: Path) -> None:
    """The ranks' partial sums of each MLP, from the fused or flipped matrices as they are stored, add up to the whole MLP."""
    case, ranks = Case(config, tmp_path), 2
    try:
        folders = [case.edit(f"{rank}", tp_shard=f"{rank}/{ranks}") for rank in range(ranks)]
    except LlamathError as refused:
        pytest.skip(str(refused))
    scheme, tree = case.model.scheme("hf"), case.model.tree
    names = [x for x in scheme.tensors_of_block("layers", tree.layers[0]) if ".mlp." in x.parts[0].pattern]
    down = next(x for x in names if x.parts[0].pattern.endswith("down.weight"))
    ups = next(x for x in names if x.parts[0].pattern.endswith(("gate.weight", "up.weight")))

    def partial(folder: Path) -> Tensor:
        """The product of the concatenated up projections and the down projection, which is linear in the ranks' parts."""
        x = load_file(folder / "model.safetensors")
        up, into = (x[y.name.replace("{l}", "0")].double() for y in (ups, down))
        up, into = (y.mT if "flip" in z.layout else y for y, z in ((up, ups), (into, down)))
        if "rows" in ups.layout:
            up = up[..., ::2, :]
        return into @ up[..., : into.shape[-1], :]

    torch.testing.assert_close(sum(map(partial, folders)), partial(case.source))


def test_most_tiny_configs_can_be_cut(tmp_path: Path) -> None:
    """Most tiny configs can be cut for 2 ranks, so that the tests above compare something."""
    cut = 0
    for i, param in enumerate(itertools.islice(tiny_configs(), 0, None, 7)):
        case = Case(param.values[0], tmp_path / str(i))
        try:
            case.edit(tp_shard="1/2")
        except LlamathError:
            continue
        cut += 1
    assert cut > 15
