"""DeepSpeed ZeRO folders, written with the keys and partitions of its public code: stages, ranks, shapes, and what is missing or mixed."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from llamath import StructureReport, verify
from llamath.checkpoint.folders.deepspeed import RankFile, parse_model_states, parse_optimizer
from llamath.checkpoint.formats.source import Bytes
from llamath.cli import cli
from llamath.utils.errors import FormatError
from support.hostile_folders import ZERO_STREAMS, zero, zero_file

torch = pytest.importorskip("torch")
from support.deepspeed_files import SHAPES, write_zero  # noqa: E402

FILE = RankFile("x.pt", 0, 0)
TOTAL = 50 * 16 + 16 * 16 + 16 + 7


def run(*args: str) -> Any:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, args)


def report(path: Path) -> StructureReport:
    found = verify(path)
    assert isinstance(found, StructureReport)
    return found


def findings(path: Path) -> dict[str, str]:
    return {x.code: x.message for x in report(path).findings}


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_stages_ranks_and_shapes_are_read(stage: int, groups: int, tmp_path: Path) -> None:
    folder = write_zero(tmp_path, stage, ranks=3, groups=groups)
    for place in (folder, folder / "global_step10"):
        found = report(place)
        assert found.ok and not found.findings and found.kind == "deepspeed"
        facts = found.facts
        assert (
            facts["stage"],
            facts["world_size"],
            facts["parameters"],
            facts["tensors"],
            facts["steps"],
        ) == (stage, 3, TOTAL, 4, 10)
    listed = json.loads(run("ls", str(folder), "--json").stdout)
    assert {x["name"]: tuple(x["shape"]) for x in listed["tensors"]} == dict(SHAPES)
    assert json.loads(run("count", str(folder), "--json").stdout)["parameters"]["total"] == TOTAL


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    folder = write_zero(tmp_path, 3, ranks=4)
    (folder / "global_step10" / "zero_pp_rank_2_mp_rank_00_optim_states.pt").unlink()
    (folder / "global_step10" / "zero_pp_rank_1_mp_rank_00_model_states.pt").unlink()
    found = [x.message for x in report(folder).findings]
    assert found == [
        "optimizer states of 1 of 4 ranks are missing: 2",
        "model states of 1 of 4 ranks are missing: 1",
    ]
    assert run("verify", str(folder)).exit_code == 1


def test_files_of_more_ranks_than_the_run_had_are_named(tmp_path: Path) -> None:
    place = write_zero(tmp_path, 2, ranks=2) / "global_step10"
    (place / "zero_pp_rank_5_mp_rank_00_optim_states.pt").write_bytes(
        (place / "zero_pp_rank_1_mp_rank_00_optim_states.pt").read_bytes()
    )
    assert "ranks 5, though the run had 2 ranks" in findings(place)["extra_file"]


def test_partitions_of_other_sizes_are_named(tmp_path: Path) -> None:
    for stage in (2, 3):
        larger = write_zero(
            tmp_path / f"larger{stage}", stage, shapes=dict(SHAPES, **{"norm.weight": (999,)})
        )
        place = write_zero(tmp_path / str(stage), stage) / "global_step10"
        name = "zero_pp_rank_1_mp_rank_00_optim_states.pt"
        (place / name).write_bytes((larger / "global_step10" / name).read_bytes())
        assert "elements" in findings(place)["partition"]


def test_files_of_another_run_are_named(tmp_path: Path) -> None:
    place = write_zero(tmp_path / "a", 2) / "global_step10"
    other = write_zero(tmp_path / "b", 1) / "global_step10"
    name = "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    (place / name).write_bytes((other / name).read_bytes())
    assert "the stage in zero_pp_rank_{1,2}_mp_rank_00_optim_states.pt" in findings(place)[
        "mixed"
    ] or "mixed" in findings(place)


def test_latest_names_a_folder_inside(tmp_path: Path) -> None:
    folder = write_zero(tmp_path, 2)
    for text, message in (
        ("global_step99", "there is no such folder"),
        ("../..", "expected a plain file name"),
        ("x" * 2000, "expected the name"),
    ):
        (folder / "latest").write_text(text)
        with pytest.raises(FormatError, match=message):
            verify(folder)


def test_truncated_files_are_findings(tmp_path: Path) -> None:
    place = write_zero(tmp_path, 2) / "global_step10"
    name = place / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    name.write_bytes(name.read_bytes()[:-300])
    found = report(place)
    assert not found.ok and any("zero_pp_rank_0" in x.message for x in found.findings)


def test_objects_of_unknown_classes_are_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write_zero(tmp_path, 2) / "global_step10"
    module = types.ModuleType("deepspeed.runtime.fp16.loss_scaler")

    class LossScaler:
        def __init__(self) -> None:
            self.cur_scale = 1.0

    LossScaler.__module__, LossScaler.__qualname__ = module.__name__, "LossScaler"
    module.LossScaler = LossScaler  # type: ignore[attr-defined]
    for name in ("deepspeed", "deepspeed.runtime", "deepspeed.runtime.fp16"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    path = place / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    state = torch.load(path, weights_only=False)
    state["optimizer_state_dict"]["loss_scaler"] = LossScaler()
    torch.save(state, path)
    found = report(place)
    assert (
        found.ok
        and "deepspeed.runtime.fp16.loss_scaler.LossScaler"
        in {x.code: x.message for x in found.findings}["objects"]
    )


def test_commands_for_one_model_name_the_kind(tmp_path: Path) -> None:
    folder = write_zero(tmp_path, 2)
    done = run("convert", str(folder / "global_step10"), str(tmp_path / "x"), "--names", "hf")
    assert done.exit_code == 2 and "a DeepSpeed checkpoint" in done.stderr


@pytest.mark.parametrize("name", ZERO_STREAMS)
def test_pickles_written_by_hand_are_read(name: str) -> None:
    data = zero_file(ZERO_STREAMS[name])
    if name == "model states":
        found = parse_model_states(Bytes(data), FILE)
        assert found.groups == ({"w": (2, 3)},) and found.steps == 7
    else:
        assert parse_optimizer(Bytes(data), FILE).groups == (6,)


@pytest.mark.parametrize("name", zero())
def test_hostile_pickles_are_refused(name: str) -> None:
    data, code = zero()[name]
    for parse in (parse_optimizer, parse_model_states):
        with pytest.raises(FormatError) as caught:
            parse(Bytes(zero_file(data)), FILE)
        assert (
            caught.value.code in (code, "deepspeed", "missing_member", "storage_size")
            and str(caught.value).isprintable()
        )
