"""`load` of modules, state dicts and configurations as they are in memory: the family's tree if there is one, else the state dict's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import llamath
from llamath.model import TensorModel

pytestmark = pytest.mark.transformers
transformers = pytest.importorskip("transformers")

SMALL: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 112, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
BERT = {
    "vocab_size": 70,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 36,
}


def llama(class_name: str = "LlamaForCausalLM", **changes: Any) -> Any:
    return getattr(transformers, class_name)(transformers.LlamaConfig(**SMALL | changes))


def added(model: llamath.Model, known: Any) -> list[str]:
    """The notes that are not those of its configuration."""
    config = llamath.load({**known.config.to_dict(), "architectures": [type(known).__name__]})
    return [x for x in model.notes if x not in config.notes]


@pytest.mark.parametrize(
    "class_name", ["LlamaForCausalLM", "LlamaModel", "LlamaForSequenceClassification"]
)
def test_module_of_a_known_family_has_its_tree(class_name: str) -> None:
    module = llama(class_name)
    model = llamath.load(module)
    assert (
        model.family.name == "llama"
        and model.parameters.total == module.num_parameters()
        and not added(model, module)
    )
    assert (
        llamath.count(module).total == module.num_parameters()
        and llamath.flops(model, context=16).request.context == 16
    )


def test_fused_experts_of_a_module_match_the_tree() -> None:
    config = transformers.MixtralConfig(**SMALL | {"num_local_experts": 4})
    module = transformers.MixtralForCausalLM(config)
    model = llamath.load(module)
    assert model.parameters.total == module.num_parameters() and not added(model, module)


def test_tied_module_and_meta_module_count_once() -> None:
    with torch.device("meta"):
        module = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(n_layer=2, n_embd=24, n_head=4, vocab_size=90)
        )
    assert llamath.load(module).parameters.total == module.num_parameters()
    for device in ("cpu", "meta"):
        with torch.device(device):
            bert = transformers.BertForMaskedLM(transformers.BertConfig(**BERT))
        model = llamath.load(bert)
        assert isinstance(model, TensorModel) and model.parameters.total == bert.num_parameters()
        assert {x.name for x in model.tensors if x.tied} == {
            "cls.predictions.decoder.weight",
            "cls.predictions.decoder.bias",
        }
        assert model.claim == "as the given BertForMaskedLM has them"


def parameters_of(module: nn.Module) -> int:
    return sum(x.numel() for x in module.parameters())


def without_a_layer() -> Any:
    module = llama()
    del module.model.layers[1]
    return module


def with_changed_vocabulary() -> Any:
    module = llama()
    module.model.embed_tokens = nn.Embedding(131, 48)
    return module


def with_untied_head() -> Any:
    module = llama(tie_word_embeddings=True)
    module.lm_head.weight = nn.Parameter(torch.zeros(97, 48))
    return module


def with_tied_head() -> Any:
    module = llama()
    module.lm_head.weight = module.model.embed_tokens.weight
    return module


def with_a_head_more() -> Any:
    module = llama()
    module.score = nn.Linear(48, 3)
    return module


def with_parameters_outside_of_its_state_dict() -> Any:
    module = llama()
    module.hidden = nn.Linear(5, 7)
    module.hidden.state_dict = dict  # type: ignore[method-assign,assignment]
    return module


@pytest.mark.parametrize(
    "make",
    [
        without_a_layer,
        with_changed_vocabulary,
        with_untied_head,
        with_tied_head,
        with_a_head_more,
        with_parameters_outside_of_its_state_dict,
        lambda: llama().model.layers[0],
        lambda: llama().model.layers[0].self_attn,
    ],
)
def test_changed_module_is_counted_and_not_its_config(make: Any) -> None:
    module = make()
    report = llamath.count(module)
    assert report.total == parameters_of(module) == sum(report.groups.values())
    assert isinstance(report.model, TensorModel)
    assert llamath.memory(module).weights == 4 * report.total
    with pytest.raises(
        llamath.LlamathError, match=f"as the given {type(module).__name__} has them"
    ):
        llamath.flops(module)


def test_module_whose_config_follows_its_changes_has_formulas() -> None:
    module = without_a_layer()
    module.config.num_hidden_layers = 1
    module.resize_token_embeddings(131)
    report = llamath.count(module)
    assert isinstance(report, llamath.CountReport) and report.formula.value == report.total
    assert report.total == parameters_of(module)


def test_differences_from_the_config_are_reported() -> None:
    module = without_a_layer()
    module.lm_head = nn.Linear(48, 100, bias=True)
    model = llamath.load(module)
    notes = " | ".join(model.notes)
    assert "model.layers.1.input_layernorm.weight (and 8 more) is not in the module" in notes
    assert "lm_head.bias is not in the config's model" in notes
    assert "lm_head.weight has another shape: [100, 48], expected [97, 48]" in notes
    described = llama().num_parameters()
    assert f"its config describes another model, of {described:,} parameters" in notes


class DistributedDataParallel(nn.Module):
    """A module in the form of torch's wrapper, which needs a process group."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def test_wrappers_are_looked_through() -> None:
    module = llama()
    wrapped = DistributedDataParallel(torch.compile(module))  # type: ignore[arg-type]
    model = llamath.load(wrapped)
    assert model.family.name == "llama" and model.parameters.total == module.num_parameters()
    assert added(model, module) == ["the module inside of DistributedDataParallel, torch.compile"]
    inside = llama()
    inside.model.layers[0] = torch.compile(inside.model.layers[0])
    assert added(llamath.load(inside), inside) == ["the module inside of torch.compile"]
    state = llamath.load({f"module._orig_mod.{name}": x for name, x in module.state_dict().items()})
    assert state.parameters.total == module.num_parameters()
    assert next(state.weights).path == "model.embed_tokens.weight"


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")
@pytest.mark.parametrize("kind", ["lora", "dora", "modules_to_save", "prompt", "ia3", "tokens"])
def test_adapters_of_peft_are_counted_and_named(kind: str) -> None:
    peft = pytest.importorskip("peft")
    base = llama()
    alone = base.num_parameters()
    config = {
        "lora": lambda: peft.LoraConfig(r=3, target_modules=["q_proj", "embed_tokens"]),
        "dora": lambda: peft.LoraConfig(r=3, target_modules=["down_proj"], use_dora=True),
        "modules_to_save": lambda: peft.LoraConfig(
            r=2, target_modules=["v_proj"], modules_to_save=["lm_head"]
        ),
        "prompt": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=5),
        "ia3": lambda: peft.IA3Config(
            target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]
        ),
        "tokens": lambda: peft.LoraConfig(
            r=2, target_modules=["v_proj"], trainable_token_indices=[1, 2]
        ),
    }[kind]()
    module = peft.get_peft_model(base, config)
    report = llamath.count(module)
    assert report.total == parameters_of(module) and type(module).__name__ in report.summary
    assert report.model.notes == (
        f"{parameters_of(module) - alone:,} parameters of adapters are counted",
        "its config describes it without adapters: llamath.load(module.config)",
    )
    assert llamath.load(module.config).parameters.total == alone


@pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*")
def test_merged_adapter_has_the_tree_of_its_family() -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=3, target_modules=["q_proj"])
    merged = peft.get_peft_model(llama(), config).merge_and_unload()
    assert llamath.load(merged).tree == llamath.load(llama()).tree


def test_state_dict_is_counted_by_storage() -> None:
    module = transformers.BertForMaskedLM(transformers.BertConfig(**BERT))
    model = llamath.load(module.state_dict())
    assert isinstance(model, TensorModel) and model.parameters.total == module.num_parameters()
    assert (
        model.claim == "as the given state dict has them"
        and llamath.count(module.state_dict()).total == module.num_parameters()
    )
    sizes = llamath.memory(model)
    assert sizes.weights == 4 * module.num_parameters()  # type: ignore[union-attr]


def test_any_module_has_a_tree() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(3)
            )
            self.gap = nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1, bias=False))
            self.scale = nn.Parameter(torch.ones(()))
            self.empty = nn.Parameter(torch.empty(0, 5))

    net = Net()
    model = llamath.load(net)
    assert model.parameters.total == sum(x.numel() for x in net.parameters())
    assert model.parameters.extras == {"buffers": sum(x.numel() for x in net.buffers())}
    assert sorted(x.path for x in model.weights) == sorted(net.state_dict())


def test_checkpoint_is_verified_against_a_module(tmp_path: Path) -> None:
    module = transformers.BertModel(transformers.BertConfig(**BERT))
    module.save_pretrained(tmp_path)
    assert llamath.verify(tmp_path, against=module).ok
    other = transformers.BertModel(transformers.BertConfig(**BERT | {"intermediate_size": 40}))
    assert not llamath.verify(tmp_path, against=other).ok


def test_config_objects_of_any_family_are_loaded() -> None:
    assert llamath.load(transformers.LlamaConfig(**SMALL)).family.name == "llama"
    config = transformers.BertConfig(**BERT)
    model = llamath.load(config)
    assert isinstance(model, TensorModel)
    assert model.parameters.total == transformers.BertForMaskedLM(config).num_parameters()


class Params4bit(nn.Parameter):
    """A parameter in the form of bitsandbytes' packed ones."""


def packed(module: Any, name: str) -> Any:
    layer = module.get_submodule(name)
    layer.weight = Params4bit(
        torch.zeros(layer.weight.numel() // 2, 1, dtype=torch.uint8), requires_grad=False
    )
    return module


def test_quantized_modules_count_the_values() -> None:
    module = llama()
    expected = module.num_parameters()
    packed(module, "model.layers.0.mlp.up_proj")
    model = llamath.load(module)
    assert isinstance(model, llamath.FamilyModel) and model.parameters.total == expected
    assert "bitsandbytes' 4-bit" in added(model, module)[-1]
    layer = sum(x.numel() for x in llama().model.layers[1].parameters())
    del module.model.layers[1]
    pruned = llamath.load(module)
    assert isinstance(pruned, TensorModel) and pruned.parameters.total == expected - layer
    bert = transformers.BertModel(transformers.BertConfig(**BERT))
    expected = bert.num_parameters()
    size = packed(bert, "encoder.layer.0.output.dense").encoder.layer[0].output.dense.weight.numel()
    report = llamath.count(bert)
    assert report.total == expected and "bitsandbytes' 4-bit" in report.model.notes[-1]
    assert llamath.memory(bert).weights == 4 * (expected - 2 * size) + size
    assert llamath.memory(bert, dtype="bf16").weights == 2 * expected


@pytest.mark.filterwarnings("ignore")
def test_quantized_module_with_an_adapter_is_counted_whole() -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes")
    peft = pytest.importorskip("peft")
    module = llama()
    for name in ("q_proj", "o_proj"):
        old = getattr(module.model.layers[0].self_attn, name)
        new = bitsandbytes.nn.Linear4bit(old.in_features, old.out_features, bias=False)
        new.weight = bitsandbytes.nn.Params4bit(old.weight.data, requires_grad=False)
        setattr(module.model.layers[0].self_attn, name, new.to("cpu"))
    values = 2 * 48 * 48
    plain = parameters_of(module) - sum(
        x.numel() for x in module.parameters() if type(x).__name__ == "Params4bit"
    )
    assert llamath.count(module).total == plain + values
    adapted = peft.get_peft_model(module, peft.LoraConfig(r=3, target_modules=["q_proj"]))
    adapters = sum(x.numel() for name, x in adapted.named_parameters() if "lora_" in name)
    assert llamath.count(adapted).total == plain + values + adapters


def test_packed_parameters_of_torch_are_refused() -> None:
    dynamic = nn.Sequential(nn.Linear(4, 4))
    state = {**dynamic.state_dict(), "0._packed_params": (torch.ones(2), None)}
    with pytest.raises(
        llamath.LlamathError, match=r"expected tensors, found '0\._packed_params' of type tuple"
    ):
        llamath.load(state)


def test_flattened_parameters_are_refused() -> None:
    with pytest.raises(llamath.LlamathError, match="their shapes are lost"):
        llamath.load({"_fsdp_wrapped_module._flat_param": torch.zeros(10)})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a.b": 0, "a": 0}, "both a tensor and a module"),
        ({"module.a": 0, "a": 0}, "one name"),
    ],
)
def test_contradictory_state_dicts_are_refused(state: dict[str, int], message: str) -> None:
    with pytest.raises(llamath.LlamathError, match=message):
        llamath.load({name: torch.zeros(3) for name in state})


def test_loading_live_objects_imports_no_torch() -> None:
    code = """
import sys, llamath
class Tensor:
    dtype = "torch.float16"
    def __init__(self, *shape): self.shape = shape
class Module:
    def state_dict(self, **how): return {"layers.0.w": Tensor(2, 3), "layers.1.w": Tensor(2, 3), "head.weight": Tensor(5)}
    def named_parameters(self, **how): return self.state_dict().items()
print(llamath.load(Module().state_dict()).parameters.total, {"torch", "transformers", "numpy"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "17 set()\n"


def test_model_without_a_family_answers_each_attribute() -> None:
    model = llamath.load({"a.weight": torch.zeros(2, 3)})
    assert isinstance(model, TensorModel)
    names = [x for x in dir(model) if not x.startswith("_")]
    assert {"parameters", "weights", "groups", "claim"} <= {
        x for x in names if getattr(model, x) is not None
    }
    names = [x for x in dir(model.parameters) if not x.startswith("_")]
    assert all(getattr(model.parameters, x) is not None for x in names)
    assert not {"family", "count", "scheme"} & set(dir(model)) and not hasattr(
        model.parameters, "active"
    )
    with pytest.raises(
        llamath.LlamathError, match="known family, and state dict is counted as the given"
    ) as found:
        llamath.facts(model)
    assert "count, names, memory" in found.value.hint


def test_models_without_a_family_pickle_and_compare() -> None:
    import pickle

    model = llamath.load({"a.weight": torch.zeros(2, 3)})
    again = pickle.loads(pickle.dumps(model))
    assert (
        again == model and again.parameters.total == 6 and "as the given state dict" in repr(again)
    )
