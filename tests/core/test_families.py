"""Families are found by what their modules declare, and no other module is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

import llamath
from llamath.catalog import read_preset
from llamath.families.multimodal_registry import WRAPPERS, find_wrapper
from llamath.families.refused import REFUSED
from llamath.families.registry import FAMILIES, Declared, find_family


@pytest.mark.parametrize(
    ("model_type", "module"),
    [
        ("llama", "llama"),
        ("qwen2_vl_text", "qwen2_vl"),
        ("modernbert-decoder", "modernbert_decoder"),
        ("mllama_text_model", "mllama"),
        ("kimi_k2", "deepseek_v3"),
    ],
)
def test_module_that_declares_a_type_is_imported_first(model_type: str, module: str) -> None:
    code = f"""
from llamath.families import registry
imported = []
registry.import_module = lambda name, package: imported.append(name)
registry.import_module_of({model_type!r}, {{}})
print(imported[0], len(imported) > 200)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split() == [f".{module}", "True"], result.stderr


def test_type_that_no_file_can_hold_is_unknown() -> None:
    with pytest.raises(llamath.UnknownModel, match="unknown model_type"):
        llamath.load({"model_type": "\ud800"})


def test_counting_a_preset_imports_its_family_alone() -> None:
    code = """
import sys, llamath
llamath.count("llama-3-8b")
from llamath.families.registry import FAMILIES
from llamath.families.multimodal_registry import WRAPPERS
print(*FAMILIES, *WRAPPERS)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split() == ["llama"], result.stderr


def test_every_family_is_named_after_its_module() -> None:
    for model_type, family in FAMILIES.import_all().items():
        assert find_family(model_type) is family
        assert family.build.__module__ == f"llamath.families.{family.module}"
        assert family.build.__name__ == family.module


def test_class_decides_the_family_where_the_type_misleads() -> None:
    """Grok 2's published config has the model type of GIT, a model of images."""
    preset = read_preset("grok-2")
    assert preset.config["model_type"] == "git"
    model = llamath.load(preset.config)
    assert model.family.name == "grok1"
    assert model.notes[0] == "model_type is git, but architectures names Grok1ForCausalLM"
    other = llamath.load({**read_preset("llama-3-8b").config, "architectures": ["GitForCausalLM"]})
    assert other.family.name == "llama" and not other.notes


def test_model_type_is_declared_once() -> None:
    declared: Declared[int] = Declared()
    declared.add(["llama", "mistral"], 1)
    with pytest.raises(ValueError, match="two modules declare the model type 'mistral'"):
        declared.add(["mistral"], 2)


@pytest.mark.slow
def test_refused_types_are_not_built() -> None:
    assert not REFUSED.keys() & FAMILIES.import_all().keys()
    assert not {x for x in REFUSED if find_wrapper(x).family is not None}


def test_flat_wrapper_is_no_text_model_of_another_module() -> None:
    """The wrapper of a config without sections is found together with the family of its type."""
    both = WRAPPERS.import_all().keys() & FAMILIES.import_all().keys()
    flat = {x for x in both if WRAPPERS[x].flat or WRAPPERS[x].inner or WRAPPERS[x].variants}
    assert flat == {"mimo_v2"}  # both are declared in its module
