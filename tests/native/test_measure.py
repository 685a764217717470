"""`gpus this`, and `fit --on FILE` with what it found. No test depends on a speed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.size.fit.calibration import Calibration, read_calibration
from llamath.cli.command_group import cli
from llamath.cli.report_tools import TOOLS, answer
from llamath.native import measure as measuring
from llamath.native.machine_rates import measure_rates
from llamath.native.measure import MeasureReport, measure
from llamath.native.native_session import NativeLlama
from llamath.runtime import prompt_job
from llamath.utils.errors import LlamathError

CALIBRATION = Calibration(
    machine="a machine", engine="native", threads=2, model="a model", memory=24 * 2**30, bandwidth=20 * 10**9,
    flops={"fp32": 10**11, "bf16": 2 * 10**11}, decode_share=0.9, prefill_share=0.5,
)  # fmt: skip


def write(path: Path, **changes: Any) -> str:
    path.write_text(json.dumps(CALIBRATION.to_json() | changes))
    return str(path)


@pytest.fixture(scope="module")
def measured() -> MeasureReport:
    return measure(NativeLlama.open(), prompt=20, tokens=4, threads=1)


def test_rates_are_those_of_every_dtype() -> None:
    rates = measure_rates(1)
    assert (
        rates.threads == 1
        and rates.bandwidth > 0
        and set(rates.flops) == {"fp32", "bf16", "fp16", "int8"}
        and min(rates.flops.values()) > 0
    )


def test_shares_are_speeds_over_limits(measured: MeasureReport) -> None:
    report = measured
    assert report.limits.prefill is not None and report.engine == "native"
    assert report.decode_share * report.limits.decode.tokens_per_second == pytest.approx(
        report.decode
    )
    assert report.prefill_share * report.limits.prefill.tokens_per_second == pytest.approx(
        report.prefill
    )
    assert report.limits.decode.seconds * report.bandwidth == pytest.approx(
        report.limits.decode.bytes
    )


def test_run_says_which_share_of_the_bandwidth_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bundled model stays in caches; with limits below its size it is told."""
    command = ["run", "Anna had a ball", "--max-tokens", "16", "--dtype", "fp32"]
    said = CliRunner().invoke(cli, command).stderr
    assert (
        re.search(r"thread\); at most [\d.]+ [MG]iB of memory; [a-z]", said)
        and "bandwidth" not in said
    )
    monkeypatch.setattr(prompt_job, "_LARGE", 1000)
    monkeypatch.setattr(measuring, "BEYOND_CACHES", 1000)
    monkeypatch.setattr(measuring, "measure_bandwidth", lambda _: 10**11)
    said = CliRunner().invoke(cli, command).stderr
    found = re.search(
        r"([\d,.]+) tokens/s.*; (\d+)% of the bandwidth of memory, 100.0 GB/s; ", said
    )
    assert found, said
    rate, share = float(found[1].replace(",", "")), int(found[2]) / 100
    # the weights once, and a cache of a few kB
    weights = 4 * llamath.load("embedded").parameters.total
    assert share * 10**11 == pytest.approx(rate * weights, rel=0.02, abs=6 * 10**8)


def test_prompt_is_as_long_as_the_context_has_room() -> None:
    llama = NativeLlama.open()
    assert measure(llama, tokens=4, threads=1).prompt == (llama.context or 0) - 4 < 512


def test_model_in_the_processors_caches_is_no_calibration(measured: MeasureReport) -> None:
    report = measured
    with pytest.raises(LlamathError, match="caches"):
        _ = report.replace(decode=2 * report.limits.decode.tokens_per_second).calibration
    found = report.replace(decode=0.5 * report.limits.decode.tokens_per_second).calibration
    assert found.decode_share == 0.5 and found.bandwidth == report.bandwidth


def test_file_is_read_back(tmp_path: Path) -> None:
    assert read_calibration(write(tmp_path / "machine.json")) == CALIBRATION


def test_calibrated_machine_gives_the_expected_speed(tmp_path: Path) -> None:
    report = llamath.fit("llama-3.2-1b", on=write(tmp_path / "machine.json"), context=1024)
    assert (
        report.fits
        and report.gpu.memory == 24 * 2**30
        and report.ceilings is not None
        and report.expected is not None
    )
    assert report.ceilings.decode.seconds == pytest.approx(
        report.ceilings.decode.bytes / (20 * 10**9)
    )
    assert report.expected.decode == pytest.approx(0.9 * report.ceilings.decode.tokens_per_second)
    assert report.ceilings.prefill is not None and report.expected.prefill == pytest.approx(
        0.5 * report.ceilings.prefill.tokens_per_second
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"llamath_calibration": 2}, {"bandwidth": 0}, {"bandwidth": "1"}, {"memory": True}, {"flops": {}}, {"flops": {"fp7": 1}}, {"flops": []},
        {"decode_share": -1}, {"decode_share": None}, {"machine": 3}, {"machine": "x" * 1000}, {"threads": 1.5},
    ],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    done = CliRunner().invoke(
        cli, ["fit", "gpt2", "--on", write(tmp_path / "machine.json", **changes)]
    )
    assert done.exit_code == 2 and done.stderr and not done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--layout", "tp=2"], "one measured machine"),
        (["--offload", "1GiB"], "one measured machine"),
        (["--engine", "vllm"], "unknown GPU"),
        (["--price", "2/h"], "unknown GPU"),
    ],
)
def test_a_measured_machine_is_asked_for_a_fit_alone(
    tmp_path: Path, args: list[str], message: str
) -> None:
    done = CliRunner().invoke(cli, ["fit", "gpt2", "--on", write(tmp_path / "machine.json"), *args])
    assert done.exit_code == 2 and message in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["this", "no-such-model"], "no-such-model"),
        (["this", "a", "b"], "at most one MODEL"),
        (["h100", "--output", "x.json"], "--output is of this machine"),
    ],
)
def test_bad_input_is_refused(args: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["gpus", *args])
    assert done.exit_code == 2 and message in done.stderr and not done.stdout


def test_command_measures_and_writes_the_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: MeasureReport
) -> None:
    found = measured.replace(decode=0.5 * measured.limits.decode.tokens_per_second)
    monkeypatch.setattr(measuring, "measure", lambda _llama: found)
    path = tmp_path / "machine.json"
    done = CliRunner().invoke(cli, ["gpus", "this", "--output", str(path), "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(found.to_json()))
    assert read_calibration(str(path)) == found.calibration


def test_servers_and_agents_measure_nothing() -> None:
    answered = answer(TOOLS["gpus"], [("words", "this")], lambda x: x, local=True)
    assert answered.error is not None and "this" in str(answered.error)
