"""`llamath same --logits`: identical models, the first difference, and permuted rows of q and k."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
import torch
from click.testing import CliRunner, Result
from torch import Tensor

from llamath.checkpoint.naming.scheme import half_split_order, interleaved_order
from llamath.checkpoint.naming.stored_layouts import reorder_rows
from llamath.cli import cli, main
from llamath.conversion.convert_checkpoint import ConvertOptions, convert_checkpoint
from llamath.torch import open_model
from llamath.torch.debug.activations import Activations, capture_activations
from llamath.torch.debug.compare_runs import compare_activations, permutation_hint
from llamath.utils.errors import LlamathError
from support.gguf_files import load_tiny_configs
from support.small_llama import SMALL, Q, copy_checkpoint, save_llama
from support.transformers_pair import pair

pytestmark = pytest.mark.transformers
IDS = [1, 5, 9, 96, 3, 3, 40, 17, 60, 2]


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("hf"), "F32")


@pytest.fixture(scope="module")
def gguf_file(hf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    convert_checkpoint(str(hf), str(path), ConvertOptions(to="gguf"))
    return path


def heard(path: Path, ids: list[int] = IDS) -> Activations:
    return capture_activations(open_model(str(path), "float32"), str(path), ids)


def asked(*args: object) -> Result:
    return CliRunner().invoke(cli, ["same", "--logits", *map(str, args)])


def test_identical_model_in_two_formats(hf: Path, gguf_file: Path) -> None:
    done = asked(hf, gguf_file)
    assert done.exit_code == 0
    assert done.stdout.startswith("identical, bit by bit")
    assert re.search(r"^top-1 token +64 +64$", done.stdout, re.MULTILINE)
    assert max(map(len, done.stdout.splitlines())) <= 80 or str(hf) in done.stdout
    data = json.loads(asked(hf, gguf_file, "--json", "ids:1,2,3").stdout)
    assert data["identical"]
    assert data["tokens"] == [1, 2, 3]
    assert data["logits"]["max"] == data["kl"]["max"] == 0
    assert data["first"] is None


def test_comparison_frees_the_models(hf: Path) -> None:
    """Also without garbage collection of cycles."""
    import gc
    import weakref

    loaded = open_model(str(hf))
    alive = weakref.ref(loaded.module)
    gc.disable()
    try:
        kept = capture_activations(loaded, "it", IDS)
        del loaded
        assert alive() is None
    finally:
        gc.enable()
    assert kept.outputs


def test_random_ids_depend_on_the_seed(hf: Path, gguf_file: Path) -> None:
    drawn = [
        json.loads(asked(hf, gguf_file, "--json", f"random:8,{seed}").stdout)["tokens"]
        for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert all(len(x) == 8 and max(x) < 97 for x in drawn)


def test_reported_numbers_match_torch(hf: Path, tmp_path: Path) -> None:
    other = copy_checkpoint(hf, tmp_path, lambda x: x[Q].mul_(1.5))
    a, b = (open_model(str(x), "float32").module for x in (hf, other))
    with torch.no_grad():
        ours, theirs = (x(torch.tensor([IDS]))[0].double() for x in (a, b))
    data = json.loads(asked(hf, other, "ids:" + ",".join(map(str, IDS)), "--json").stdout)
    divergence = torch.distributions.kl_divergence(
        *(torch.distributions.Categorical(logits=x) for x in (ours, theirs))
    )
    assert data["logits"]["max"] == pytest.approx(float((ours - theirs).abs().max()))
    assert data["logits"]["mean"] == pytest.approx(float((ours - theirs).abs().mean()))
    assert data["logits"]["relative"] == pytest.approx(
        float((ours - theirs).abs().max() / ours.abs().max())
    )
    assert data["kl"]["mean"] == pytest.approx(float(divergence.mean()), rel=1e-4)
    assert data["kl"]["max"] == pytest.approx(float(divergence.max()), rel=1e-4)
    assert data["top1"] == {
        "same": int((ours.argmax(-1) == theirs.argmax(-1)).sum()),
        "of": len(IDS),
    }


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("model.embed_tokens.weight", "embed"),
        ("model.layers.0.self_attn.v_proj.weight", "layers.0.attn.v"),
        ("model.layers.1.self_attn.o_proj.weight", "layers.1.attn.o"),
        ("model.layers.1.mlp.down_proj.weight", "layers.1.mlp.down"),
        ("model.layers.1.post_attention_layernorm.weight", "layers.1.mlp_norm"),
        ("lm_head.weight", "head"),
    ],
)
def test_first_different_weight_is_named(
    hf: Path, gguf_file: Path, name: str, module: str, tmp_path: Path
) -> None:
    other = copy_checkpoint(hf, tmp_path, lambda x: x[name].mul_(1.1))
    done = asked(gguf_file, other)
    assert done.exit_code == 1
    assert f"first difference: {module} (" in done.stdout
    data = json.loads(asked(gguf_file, other, "--json").stdout)
    assert data["first"]["module"] == module
    assert data["first"]["stored"][1] == name
    assert data["first"]["difference"] == pytest.approx(0.1, rel=1e-3) or module == "embed"
    assert data["hints"] == [
        f"the input of {module} is the same, so its weight differs: {data['first']['stored'][0]} in A, {name} in B"
    ]


def test_config_differences_are_listed(hf: Path, tmp_path: Path) -> None:
    turned = {"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}
    done = asked(hf, copy_checkpoint(hf, tmp_path, lambda _: None, turned))
    assert done.exit_code == 1
    assert "first difference: layers.0.attn, by" in done.stdout
    assert "layers.attn.rope.theta  10000.0  500000.0  2" in done.stdout
    done = asked(hf, copy_checkpoint(hf, tmp_path, lambda _: None, {"hidden_act": "gelu"}))
    assert "first difference: layers.0.mlp, by" in done.stdout
    assert re.search(r"^layers\.mlp\.activation +silu +gelu +2$", done.stdout, re.MULTILINE)


def test_different_dtypes_are_explained_by_rounding(hf: Path, tmp_path: Path) -> None:
    convert_checkpoint(str(hf), str(tmp_path / "half"), ConvertOptions(to="hf", dtype="F16"))
    data = json.loads(asked(hf, tmp_path / "half", "--json", "--tolerance", "1e-6").stdout)
    assert (data["a"]["dtype"], data["b"]["dtype"]) == ("F32", "F16")
    assert 1e-6 < data["logits"]["relative"] < 1e-2
    assert data["hints"][0].startswith(
        "A is F32 and B F16: rounding causes small differences everywhere"
    )


def test_submodules_agree_but_their_parent_differs(hf: Path) -> None:
    a, b = heard(hf), heard(hf)
    b.inputs["layers.1.mlp.down"] = b.inputs["layers.1.mlp.down"] * 1.5
    b = b._replace(logits=b.logits * 1.5)
    assert compare_activations(a, b, IDS, "", 1e-4).hints == (
        "the submodules of layers.1.mlp agree, but its output differs",
    )
    b.outputs["layers.1.mlp.up"] = (
        b.outputs["layers.1.mlp.up"] * 1.4
    )  # not so if a part is as far apart
    assert compare_activations(a, b, IDS, "", 0.45).hints == ()


def test_config_key_of_b_can_be_changed(hf: Path) -> None:
    done = asked(hf, hf, "--set", "rms_norm_eps=0.1")
    assert done.exit_code == 1
    assert re.search(r"^layers\.attn_norm\.eps +1e-05 +0\.1 +2$", done.stdout, re.MULTILINE)


def rows(source: Path, target: Path, change: Callable[[Tensor], Tensor], kinds: str = "qk") -> Path:
    """Permute the rows of q and k in heads of 8."""

    def reorder(x: dict[str, Tensor]) -> None:
        for name in x:
            if name.endswith(tuple(f"self_attn.{kind}_proj.weight" for kind in kinds)):
                x[name] = change(x[name]).contiguous()

    return copy_checkpoint(source, target, reorder)


def to_pairs(x: Tensor) -> Tensor:
    return reorder_rows(x, interleaved_order(8))


def to_halves(x: Tensor) -> Tensor:
    return reorder_rows(x, half_split_order(8))


CASES = [
    (to_pairs, "unpermuted", "permuted twice"),  # Meta's rows under Hugging Face's names
    (to_halves, "permuted twice", "unpermuted"),
]


@pytest.mark.parametrize(("change", "theirs", "ours"), CASES)
def test_permuted_rows_in_safetensors(
    hf: Path, change: Callable[[Tensor], Tensor], theirs: str, ours: str, tmp_path: Path
) -> None:
    other = rows(hf, tmp_path, change)
    data = json.loads(asked(hf, other, "--json").stdout)
    assert not data["same"]
    assert data["hints"] == [
        f"q and k of 2 layers are the same once the rows of each head are permuted: B's look {theirs}, or A's {ours}"
    ]
    data = json.loads(asked(other, hf, "--json").stdout)
    assert data["hints"] == [
        f"q and k of 2 layers are the same once the rows of each head are permuted: B's look {ours}, or A's {theirs}"
    ]


@pytest.mark.parametrize(
    ("change", "diagnosis"), [(to_halves, "unpermuted"), (to_pairs, "permuted twice")]
)
def test_permuted_rows_in_gguf(
    hf: Path, change: Callable[[Tensor], Tensor], diagnosis: str, tmp_path: Path
) -> None:
    """A converter that forgets to permute, or permutes twice."""
    convert_checkpoint(
        str(rows(hf, tmp_path / "hf", change)),
        str(tmp_path / "model.gguf"),
        ConvertOptions(to="gguf"),
    )
    stored = {x.name: x.data for x in gguf.GGUFReader(tmp_path / "model.gguf").tensors}[
        "blk.1.attn_q.weight"
    ]
    as_it_was = open_model(str(hf)).module.get_parameter("layers.1.attn.q.weight").detach()
    expected = as_it_was if diagnosis == "unpermuted" else to_pairs(to_pairs(as_it_was))
    assert torch.equal(torch.from_numpy(stored.copy()), expected)
    done = asked(hf, tmp_path / "model.gguf")
    assert done.exit_code == 1
    assert f"B's look {diagnosis}, or A's" in " ".join(done.stdout.split())


def test_permuted_rows_of_q_only(hf: Path, tmp_path: Path) -> None:
    (hint,) = json.loads(asked(hf, rows(hf, tmp_path, CASES[0][0], "q"), "--json").stdout)["hints"]
    assert hint.startswith(
        "q of 2 layers is the same once the rows of each head are permuted: B's looks unpermuted"
    )


def test_permuted_rows_are_found_after_quantization(hf: Path, tmp_path: Path) -> None:
    other = rows(hf, tmp_path, lambda x: to_pairs(x) + 0.03 * x.abs().max() * torch.rand(x.shape))
    assert "B's look unpermuted" in " ".join(asked(hf, other).stdout.split())


def test_loss_on_text_tells_which_model_is_wrong(hf: Path, tmp_path: Path) -> None:
    a, b = heard(hf), heard(rows(hf, tmp_path, CASES[0][0]))
    result = compare_activations(a, b, IDS, "", 1e-4)
    for losses, end in {
        (1.2, 4.0): ": B's look unpermuted",
        (4.0, 1.2): ": A's look permuted twice",
    }.items():
        (hint,) = permutation_hint(a, b, result.replace(losses=losses))
        assert hint.endswith(end)
    for losses in ((4.5, 4.9), (1.2, 1.3)):  # neither knows it; both do
        (hint,) = permutation_hint(a, b, result.replace(losses=losses))
        assert ", or A's" in hint


def test_tolerance(hf: Path, tmp_path: Path) -> None:
    other = copy_checkpoint(hf, tmp_path, lambda x: x["lm_head.weight"].mul_(1.001))
    assert asked(hf, other).exit_code == 1
    done = asked(hf, other, "--tolerance", "0.01")
    assert done.exit_code == 0
    assert done.stdout.startswith("the same within 0.01 of the largest logit")
    assert asked(hf, other, "--dtype", "bfloat16").exit_code == 0  # 2e-2 there


@pytest.mark.parametrize(
    "label",
    ["mixtral-plain", "deepseek_v3-plain", "gpt2-plain", "qwen3_next-plain", "gemma3-plain"],
)
def test_families_with_different_modules(label: str, tmp_path: Path) -> None:
    both = pair(load_tiny_configs()[label])
    both.theirs.save_pretrained(tmp_path / "a")
    other = copy_checkpoint(tmp_path / "a", tmp_path / "b", lambda _: None)
    assert asked(tmp_path / "a", other).exit_code == 0

    def change(x: dict[str, Tensor]) -> None:
        last = next(
            name
            for name in reversed(list(x))
            if ".1." in name and name.endswith("weight") and x[name].dim() == 1
        )
        x[last] += 1

    done = json.loads(
        asked(
            tmp_path / "a", copy_checkpoint(tmp_path / "a", tmp_path / "c", change), "--json"
        ).stdout
    )
    assert done["first"]["layer"] == 1


def words(folder: Path) -> None:
    """A tokenizer of single characters."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = [chr(i) for i in range(32, 127)]
    tokenizer = Tokenizer(
        models.WordLevel({x: i for i, x in enumerate(letters)} | {"?": 31, "<unk>": 96}, "<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))


def test_text_is_used_if_a_tokenizer_exists(hf: Path, tmp_path: Path) -> None:
    other = copy_checkpoint(hf, tmp_path, lambda x: x[Q].mul_(1.5))
    words(other)
    data = json.loads(asked(hf, other, "ab c", "--json").stdout)
    assert data["tokens"] == [65, 66, 0, 67]
    assert data["text"] == "ab c"
    with torch.no_grad():
        logits = open_model(str(hf), "float32").module(torch.tensor([data["tokens"]]))[0]
    assert data["losses"][0] == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(data["tokens"][1:])))
    )
    assert "of “ab c”" in asked(hf, other, "ab c").stdout
    assert (
        len(json.loads(asked(hf, other, "--json").stdout)["tokens"]) == 64
    )  # a text of its own, as far as the model reads


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["some text"], "expected a tokenizer"),
        ([""], "the prompt is empty"),
        (["ids:1,x"], "ids: expects numbers separated by commas"),
        (["ids:1,97"], "token 97 is not in the vocabulary"),
        (["--dtype", "int3"], "for computation"),
        (["--tolerance", "-1"], "-1.0 is not in the range"),
    ],
)
def test_bad_input(hf: Path, more: list[str], message: str, failed: Callable[..., str]) -> None:
    assert message in " ".join(failed(hf, hf, *more).split())


@pytest.fixture
def failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """The command's stderr, after checking exit code 2."""

    def diagnosis(*args: object) -> str:
        monkeypatch.setattr(sys, "argv", ["llamath", "same", "--logits", *map(str, args)])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        return capsys.readouterr().err

    return diagnosis


def test_unreadable_checkpoint_exits_with_2(
    hf: Path, tmp_path: Path, failed: Callable[..., str]
) -> None:
    assert "q_proj.weight" in failed(hf, copy_checkpoint(hf, tmp_path, lambda x: x.pop(Q)))
    assert "nowhere/at-all does not exist here" in failed(hf, "nowhere/at-all")


def test_nonfinite_weights_are_named(hf: Path, tmp_path: Path) -> None:
    other = copy_checkpoint(hf, tmp_path, lambda x: x[Q][0].fill_(torch.nan))
    with pytest.raises(
        LlamathError, match=rf"layers\.1\.attn\.q\.weight \({Q}\) is NaN in 48 of its 2,304 values"
    ):
        heard(other)


def test_missing_torch_names_the_extra(hf: Path) -> None:
    code = f"import sys; sys.modules['torch'] = None; sys.argv = ['llamath', 'same', {str(hf)!r}, {str(hf)!r}, '--logits', '--engine', 'torch']"
    code += "; from llamath.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "this needs torch, which is not installed" in done.stderr
    assert "pip install 'llamath[torch]'" in done.stderr


def test_different_architectures_are_compared_by_logits(hf: Path, tmp_path: Path) -> None:
    other = save_llama(tmp_path / "deep", "F32", num_hidden_layers=3, vocab_size=90)
    data = json.loads(asked(hf, other, "--json").stdout)
    assert max(data["tokens"]) < 90
    assert {"path": "layers", "a": "2", "b": "3", "layers": 1} in data["facts"]
    assert SMALL["num_hidden_layers"] == 2 == len(data["layers"])
