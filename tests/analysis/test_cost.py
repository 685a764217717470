"""`fit --price`: published throughput, GPU-hours and EcoLogits' own figures."""

from __future__ import annotations

import json
from statistics import quantiles

import pytest
from click.testing import CliRunner

import llamath
from llamath import hardware
from llamath.analysis.size.cost.cost_report import CostRequest, cost
from llamath.analysis.size.cost.ecologits import ecologits
from llamath.analysis.size.cost.published_shares import GENERATION, TRAINING
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.cli.command_group import cli
from llamath.utils.errors import LlamathError
from support.reference_data import published_runs


def middle_half(shares: list[float]) -> tuple[float, float]:
    low, _, high = quantiles(shares, n=4, method="inclusive")
    return round(low, 2), round(high, 2)


def test_published_throughput_is_below_the_bound() -> None:
    shares = []
    for gpu, dtype, kv_dtype, name, batch, tp, prompt, output, rate in published_runs("serving")[
        "rows"
    ]:
        request = MemoryRequest(dtype=dtype, kv_dtype=kv_dtype, context=prompt + output)
        report = cost(
            MemoryCalculator(llamath.load(name), request),
            hardware.find_device(gpu),
            tp,
            CostRequest(output=output, batch=batch),
        )
        assert report.layout.tp == tp and rate * tp <= report.generation.bound
        shares.append(rate * tp / report.generation.bound)
    assert (GENERATION.low, GENERATION.high) == middle_half(shares) and len(shares) == 19


def test_published_gpu_hours_are_near_the_estimate() -> None:
    shares = []
    for name, gpu, tokens, context, hours in published_runs("gpu_hours")["rows"]:
        report = llamath.cost(name, on=f"16x{gpu}", context=context, tokens=tokens, dtype="fp8")
        assert report.training is not None
        shares.append(report.training.flops / (hours * 3600 * report.gpu.flops["bf16"]))
        assert report.training.gpu_hours.low / 1.2 < hours < report.training.gpu_hours.high * 2.6, (
            name
        )
    assert (TRAINING.low, TRAINING.high) == middle_half(shares) and len(shares) == 11


@pytest.mark.parametrize("row", published_runs("ecologits")["rows"], ids=lambda x: f"{x[0]}-{x[3]}")
def test_energy_and_co2_are_those_of_ecologits(row: list[float]) -> None:
    _, active, parameters, pue, energy, used, made = row
    found = ecologits(int(active), int(parameters), 10**6, 0.44482)
    index = "low" if pue == 1.09 else "high"
    assert getattr(found.energy, index) == pytest.approx(energy, rel=1e-12)
    assert getattr(found.co2, index) == pytest.approx(used + made, rel=1e-12)


def test_price_follows_from_the_rate() -> None:
    report = llamath.cost(
        "llama-3.1-8b", on="2xh100", price="€2/h", context=2048, max_tokens=128, batch=16
    )
    found = report.generation
    assert (
        (found.prompt, found.output, found.batch) == (1920, 128, 16)
        and found.price is not None
        and found.energy is not None
    )
    assert (
        found.price_bound == pytest.approx(2 * 2 / (found.bound * 3600) * 1e6)
        and found.price.low > found.price_bound
    )
    assert found.price.high == pytest.approx(found.price_bound / GENERATION.low)
    assert found.energy.low == pytest.approx(2 * 700 / (found.rate.high * 3600) * 1e6)
    assert llamath.cost("llama-3.1-8b", on="2xh100", context=2048).generation.price is None


def test_default_batch_is_the_largest_that_fits() -> None:
    report = llamath.cost("llama-3.1-8b", on="h100", price=2)
    assert report.generation.batch == llamath.fit("llama-3.1-8b", on="h100").max_batch
    with pytest.raises(LlamathError, match="do not fit"):
        llamath.cost("llama-3.1-8b", on="h100", batch=report.generation.batch + 1)


def test_boards_have_powers_with_known_ones() -> None:
    powers = {x.name: x.power for x in hardware.devices()}
    assert (
        powers["h100-sxm"],
        powers["a100-80gb"],
        powers["l4"],
        powers["rtx-4090"],
        powers["mi300x"],
    ) == (700, 400, 72, 450, 750)
    assert all(
        0 < n <= 1400
        for name, n in powers.items()
        if not name.startswith(("tpu", "trainium", "inferentia", "m1", "m2", "m3", "m4"))
    )
    assert hardware.parse_devices("mem=80GiB bw=1TB/s power=350W")[1].power == 350
    assert llamath.cost("gpt2", on="mem=80GiB bw=1TB/s").generation.energy is None


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("llama-3.1-8b --on 3060-12gb --price 2", "does not fit"), ("gpt2 --on h100 --price x", "--price should be"), ("gpt2 --on h100 --price 0", "--price should be"),
        ("gpt2 --on h100 --max-tokens 1024", "output of 1,024"), ("gpt2 --on mem=10GiB --price 2", "bandwidth"), ("gpt2 --on h100 --grid 1", "No such option"),
        ("gpt2 --on m4-max-128gb --tokens 1T", "GPU-hours"), ("gpt2 --on h100 --tokens 1e30", "more text than exists"), ("gpt2 --price 2", "on"), ("gpt2 --on h100 --price 2 --ram 64GiB", "is for the cost, not for the placement"),
        ("gpt2 --on h100 --draft mtp --price 1", "is for a draft, not for the cost"), ("gpt2 --on h100 --price 2 --offload 1GiB", "is for the roofline, not for the cost"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(args: str, message: str) -> None:
    done = CliRunner().invoke(cli, ["fit", *args.split()], standalone_mode=False)
    assert done.exception is not None and message in f"{done.exception}{done.stderr}"


def test_json_has_intervals() -> None:
    data = json.loads(
        CliRunner()
        .invoke(cli, ["fit", "gpt2", "--on", "h100", "--price", "2", "--tokens", "10B", "--json"])
        .stdout
    )
    for interval in (
        data["generation"]["rate"],
        data["generation"]["price"],
        data["generation"]["co2"]["energy"],
        data["training"]["gpu_hours"],
    ):
        assert 0 < interval["low"] < interval["high"]
    assert data["assumptions"] and data["training"]["tokens"] == 10**10


def test_cost_of_the_text_alone_has_room_for_more_sequences() -> None:
    whole, text = (llamath.cost("gemma-3-27b", on="h100", part=x) for x in (None, "text"))
    assert text.generation.batch > whole.generation.batch
