"""Edited checkpoints compute in transformers what the original computes without the same modules; shards joined give its bytes back.

Each check is one loop over a few models that differ in what an edit changes: names, layouts, patterns of layers, ties.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import llamath
from llamath.utils.errors import LlamathError
from support.edited_checkpoints import edit
from support.reference_data import TINY
from support.transformers_pair import Pair, logits, pair, save_published, transformers_class

pytestmark = pytest.mark.transformers
MODELS = {
    "llama": "grouped, biased, tied",
    "qwen2": "late layers with a window",
    "gpt2": "plain",  # matrices stored with their inputs first, q, k and v in one, learned positions
    "phi3": "grouped, tied, partly rotary, long",  # gate and up in one
    "falcon": "40B: two norms, grouped",  # q, k and v in groups
    "smollm3": "plain",  # every fourth layer without rotary embedding
    "mixtral": "plain",
    "gpt_oss": "plain",  # experts in stacks, biases
    "deepseek_v3": "plain",  # latent attention, experts after dense layers
    "nemotron_h": "plain",  # state-space layers by pattern
    "qwen3_next": "plain",  # linear attention, a multi-token prediction layer is not saved
}


class Case:
    """A model in transformers, and the checkpoint that it saves."""

    def __init__(self, name: str, home: Path) -> None:
        self.name, self.home = name, home / name
        self.config: dict[str, Any] = json.loads((TINY / f"{name}.json").read_text())[MODELS[name]]
        self.pair = pair(self.config)
        self.source = self.home / "source"
        save_published(self.pair.theirs, self.source)
        self.model = llamath.load(str(self.source))
        self.ids = self.pair.ids(12)

    def edit(self, name: str, **edits: Any) -> Path:
        """Write an edited checkpoint, which verify has to accept, and whose report has to be true."""
        target = self.home / name
        report = edit(self.source, target, force=True, **edits)
        assert llamath.verify(target).ok and report.parameters is not None, self.name
        edited = llamath.load(str(target))
        totals = self.model.parameters.total, edited.parameters.total
        assert (report.parameters.before, report.parameters.after) == totals, self.name
        return target

    def cut(self, name: str, ranks: int) -> list[Path]:
        """Write all ranks, which verify has to accept."""
        edit(self.source, self.home / name, force=True, tp_shards=ranks)
        folders = [self.home / name / str(rank) for rank in range(ranks)]
        assert all(llamath.verify(x).ok for x in folders), self.name
        return folders

    def load(self, folder: Path) -> Any:
        """Load a checkpoint in transformers, which has to use each of its tensors and miss none."""
        model, info = transformers_class(self.config).from_pretrained(
            folder,
            output_loading_info=True,
            dtype=torch.float32,
            attn_implementation="eager",
            experts_implementation="eager",
        )
        wrong = [info[x] for x in ("missing_keys", "unexpected_keys", "mismatched_keys")]
        assert not any(wrong), (self.name, wrong)
        return model.eval()

    def assert_equal(self, a: Tensor, b: Tensor) -> None:
        """Where a tensor lies in memory may change the order of a sum."""
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, msg=lambda x: f"{self.name}: {x}")


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    home = tmp_path_factory.mktemp("edit")
    return [Case(name, home) for name in MODELS]


def base_model(model: Any) -> Any:
    """The module with the layers."""
    names = ("model", "transformer", "backbone", "language_model")
    while (name := next((x for x in names if hasattr(model, x)), None)) is not None:
        model = getattr(model, name)
    return model


def without_layers(both: Pair, kept: list[int]) -> Any:
    """A copy of transformers' model without some entries of its list of layers."""
    model = deepcopy(both.theirs)
    base, config = base_model(model), model.config.get_text_config()
    name = next(x for x in ("layers", "h") if hasattr(base, x))
    old = len(getattr(base, name))
    setattr(base, name, nn.ModuleList([getattr(base, name)[i] for i in kept]))
    for key in ("layer_types", "layers_block_type", "mlp_layer_types"):
        if isinstance(types := config.__dict__.get(key), list) and len(types) == old:
            setattr(config, key, [types[i] for i in kept])
    config.num_hidden_layers = len(kept)
    if hasattr(base, "embed_tokens_per_layer"):
        size = config.hidden_size_per_layer_input
        columns = torch.cat([torch.arange(i * size, (i + 1) * size) for i in kept])
        table, projection = base.embed_tokens_per_layer, base.per_layer_model_projection
        table.weight = nn.Parameter(table.weight[:, columns])
        projection.weight = nn.Parameter(projection.weight[columns])
    return model


@torch.no_grad()
def test_dropped_layers_compute_as_deleted_modules(cases: list[Case]) -> None:
    compared = {}
    for case in cases:
        count = int(case.model.tree.layers.n)
        for dropped in sorted({0, count // 2, count - 1}):
            kept = [i for i in range(count) if i != dropped]
            edited = case.edit("dropped", layers=kept)
            expected = logits(without_layers(case.pair, kept), case.ids)
            case.assert_equal(logits(case.load(edited), case.ids), expected)
            compared[case.name] = compared.get(case.name, 0) + 1
    assert (
        compared.keys() == MODELS.keys()
        and min(compared.values()) >= 1
        and sum(compared.values()) > 2 * len(MODELS)
    )


@torch.no_grad()
def test_resized_vocabulary_keeps_the_other_logits(cases: list[Case]) -> None:
    for case in cases:
        old = int(case.model.tree.vocab)
        for more in (-10, 9):
            if more > 0 and case.name == "gemma3n":
                with pytest.raises(LlamathError, match="per-layer embedding"):
                    case.edit("refused", vocab_size=old + more)
                continue
            model, kept = (
                case.load(case.edit("resized", vocab_size=old + more)),
                min(old, old + more),
            )
            ids = case.ids.clamp(max=kept - 1)
            found = logits(model, ids)
            case.assert_equal(found[..., :kept], logits(case.pair.theirs, ids)[..., :kept])
            assert found.shape[-1] == old + more, case.name
            for weight in (
                model.get_input_embeddings().weight,
                model.get_output_embeddings().weight,
            ):
                if more > 0:
                    mean = weight[:old].double().mean(0).float().expand(more, -1)
                    torch.testing.assert_close(weight[old:], mean, rtol=0, atol=0)


def test_combined_edits_equal_edits_one_by_one(cases: list[Case]) -> None:
    for case in cases:
        vocab = int(case.model.tree.vocab) - 10
        together = case.edit("together", layers="1:", vocab_size=vocab)
        edit(case.source, case.home / "first", layers="1:")
        edit(case.home / "first", case.home / "second", vocab_size=vocab)
        a, b = (load_file(x / "model.safetensors") for x in (together, case.home / "second"))
        assert a.keys() == b.keys() and all(torch.equal(a[x], b[x]) for x in a), case.name
        configs = [(x / "config.json").read_bytes() for x in (together, case.home / "second")]
        assert configs[0] == configs[1], case.name


def test_joined_shards_have_the_original_bytes(cases: list[Case]) -> None:
    cut = set()
    for case in cases:
        whole = load_file(case.source / "model.safetensors")
        for ranks in (2, 4):
            folder = f"ranks-{ranks}"
            try:
                shards = case.cut(folder, ranks)
            except LlamathError as refused:
                assert any(x in str(refused) for x in ("does not divide", "has the layout")), (
                    case.name,
                    refused,
                )
                continue
            cut.add(case.name)
            target = case.home / f"joined-{ranks}"
            edit(case.home / folder, target, join_shards=True)
            joined = load_file(target / "model.safetensors")
            assert joined.keys() == whole.keys(), case.name
            assert all(
                x.dtype == joined[name].dtype and torch.equal(x, joined[name])
                for name, x in whole.items()
            ), case.name
            assert (target / "config.json").read_bytes() == (
                case.source / "config.json"
            ).read_bytes(), case.name
            part = load_file(shards[0] / "model.safetensors")
            assert sum(x.numel() for x in part.values()) < sum(x.numel() for x in whole.values()), (
                case.name
            )
    assert len(cut) > len(cases) // 2, cut


def test_shards_of_one_layer_sum_to_its_output(cases: list[Case]) -> None:
    """The ranks' partial sums of an MLP, from the fused or flipped matrices as they are stored, add up to the whole MLP."""
    for case in cases:
        if case.name not in ("llama", "gpt2", "phi3", "gpt_oss"):
            continue
        folders = case.cut("sum", 2)
        scheme, tree = case.model.scheme("hf"), case.model.tree
        names = [
            x
            for x in scheme.tensors_of_block("layers", tree.layers[0])
            if ".mlp." in x.parts[0].pattern
        ]
        down = next(x for x in names if x.parts[0].pattern.endswith("down.weight"))
        ups = next(x for x in names if x.parts[0].pattern.endswith(("gate.weight", "up.weight")))

        def partial(folder: Path, up_name: Any = ups, down_name: Any = down) -> Tensor:
            """The product of the concatenated up projections and the down projection, which is linear in the ranks' parts."""
            x = load_file(folder / "model.safetensors")
            up, into = (x[y.name.replace("{l}", "0")].double() for y in (up_name, down_name))
            up, into = (
                y.mT if "flip" in z.layout else y for y, z in ((up, up_name), (into, down_name))
            )
            if "rows" in up_name.layout:
                up = up[..., ::2, :]
            return into @ up[..., : into.shape[-1], :]

        case.assert_equal(sum(map(partial, folders), torch.zeros(())), partial(case.source))
