"""`--on this`: what nvidia-smi, rocm-smi, system_profiler, sysfs and /proc say of a machine, recorded."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import llamath
from llamath.cli import cli
from llamath.cli.output import capture_output
from llamath.hardware import parse_devices
from llamath.hardware.this_machine import ThisMachine, Tools, find_this_machine
from llamath.utils.errors import LlamathError

RTX_4090 = "NVIDIA GeForce RTX 4090, 24564 MiB, [N/A]\n"
MIG_TABLE = """\
+-----------------------------------------------------------------------------+
| MIG devices:                                                                |
+------------------+----------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |         Memory-Usage |        Vol|         Shared        |
|      ID  ID  Dev |           BAR1-Usage | SM     Unc| CE  ENC  DEC  OFA  JPG|
|                  |                      |        ECC|                       |
|==================+======================+===========+=======================|
|  0    3   0   0  |  14366MiB / 19968MiB | 28      0 |  2   0    1    0    0 |
|                  |      4MiB / 32767MiB |           |                       |
+------------------+----------------------+-----------+-----------------------+
|  0    7   0   1  |      7MiB /  9856MiB | 14      0 |  1   0    0    0    0 |
|                  |      2MiB / 32767MiB |           |                       |
+------------------+----------------------+-----------+-----------------------+
"""
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running.\n"
)
ROCM = {
    "card0": {
        "VRAM Total Memory (B)": "21458059264",
        "VRAM Total Used Memory (B)": "27856896",
        "Card Series": "Radeon RX 7900 XT",
        "Card Model": "0x744c",
        "Card Vendor": "Advanced Micro Devices, Inc. [AMD/ATI]",
        "GFX Version": "gfx1100",
    }
}
ROCM_OLD = {
    "card0": {
        "Card series": "Arcturus GL-XL [AMD Instinct MI100]",
        "Card model": "0x0c34",
        "VRAM Total Memory (B)": "34342961152",
    },
    "system": {"Driver version": "4.18.0-348.12.2.el8_5.x86_64"},
}
ROCM_TWO = {
    "card0": {
        "VRAM Total Memory (B)": "17163091968",
        "Card Series": "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]",
    },
    "card1": {"VRAM Total Memory (B)": "67108864", "Card Series": "Raphael"},
}
APPLE = """\
Hardware:

    Hardware Overview:

      Model Name: MacBook Air
      Model Identifier: MacBookAir10,1
      Chip: Apple M1
      Total Number of Cores: 8 (4 performance and 4 efficiency)
      Memory: 8 GB
      System Firmware Version: 6723.81.1
"""
MEMINFO = "MemTotal:       65536000 kB\nMemFree:        1000000 kB\n"
CPUINFO = "processor\t: 0\nmodel name\t: AMD Ryzen 9 7950X 16-Core Processor\n\nprocessor\t: 1\n"


class Machine:
    """A folder with the files and tools of a machine."""

    def __init__(self, folder: Path) -> None:
        self.root, self.bin = folder / "root", folder / "bin"
        self.bin.mkdir()
        self.write("proc/meminfo", MEMINFO)
        self.write("proc/cpuinfo", CPUINFO)
        self.write("proc/version", "Linux version 6.8.0-45-generic\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def tool(self, name: str, script: str, folder: Path | None = None) -> None:
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def prints(self, name: str, text: str, code: int = 0, table: str = "") -> None:
        """Let a tool print one text with arguments, another without."""
        for part, content in (("query", text), ("table", table)):
            (self.bin / f"{name}.{part}").write_text(content)
        self.tool(name, f'f="$0".query; [ $# = 0 ] && f="$0".table; cat "$f"; exit {code}')

    def find(self, system: str = "Linux", seconds: float = 120) -> ThisMachine:
        tools = Tools(root=str(self.root), path=str(self.bin), system=system, seconds=seconds)
        return find_this_machine(tools)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_one_gpu_is_a_device_of_the_catalog(machine: Machine) -> None:
    machine.prints("nvidia-smi", RTX_4090)
    found = machine.find()
    assert found.spec == "rtx-4090" and found.notes == ()
    assert found.line == (
        "NVIDIA GeForce RTX 4090, 23.99 GiB; AMD Ryzen 9 7950X 16-Core Processor; 2 cores; "
        "62.5 GiB of RAM"
    )


@pytest.mark.parametrize(
    ("printed", "spec"),
    [
        (RTX_4090 * 2, "2xrtx-4090"),
        (RTX_4090 + "NVIDIA GeForce RTX 3060, 12288 MiB, [N/A]\n", "rtx-3060-12gb+rtx-4090"),
        ("NVIDIA GeForce RTX 4060 Ti, 16380 MiB, [N/A]\n", "rtx-4060-ti-16gb mem=16380MiB"),
        ("NVIDIA GeForce RTX 4070 Laptop GPU, 8188 MiB, [N/A]\n", "rtx-4070-laptop mem=8188MiB"),
        ("NVIDIA H100 80GB HBM3, 81559 MiB, Disabled\n" * 8, "8xh100-sxm"),
        ("Quadro RTX 9999, 10240 MiB, [N/A]\n", "mem=10240MiB"),
        ("NVIDIA GeForce RTX 4090, 49140 MiB, [N/A]\n", "mem=49140MiB"),
        ("NVIDIA GB10, [N/A], [N/A]\n", "gb10 mem=64000MiB"),
    ],
)
def test_what_nvidia_smi_prints_becomes_words(machine: Machine, printed: str, spec: str) -> None:
    machine.prints("nvidia-smi", printed)
    found = machine.find()
    assert found.spec == spec
    count, device = parse_devices(found.spec)
    assert count == len(found.gpus) and device.memory <= max(x.memory for x in found.gpus)


def test_mig_counts_the_largest_slice(machine: Machine) -> None:
    machine.prints("nvidia-smi", "NVIDIA A100-SXM4-80GB, 81920 MiB, Enabled\n", table=MIG_TABLE)
    found = machine.find()
    assert found.spec == "mem=19968MiB" and "MIG slice of NVIDIA A100-SXM4-80GB" in found.line
    assert any("one slice" in x for x in found.notes)
    machine.prints("nvidia-smi", "NVIDIA A100-SXM4-80GB, 81920 MiB, Enabled\n", table="")
    assert not machine.find().gpus and "MIG mode" in machine.find().notes[0]


def test_driver_from_before_mig_is_asked_again(machine: Machine) -> None:
    script = """case "$1" in
*mig*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2;;
*) echo 'Tesla P40, 24451 MiB';;
esac"""
    machine.tool("nvidia-smi", script)
    assert machine.find().gpus[0].name == "p40"


@pytest.mark.parametrize(
    ("text", "code", "note"),
    [
        (NO_DRIVER, 9, "couldn't communicate with the NVIDIA driver"),
        ("", 0, "shows no GPU"),
        ("", 1, "nvidia-smi failed"),
        ("garbage\n", 0, "shows no GPU"),
        ("\x1b[31m,\x00\n,,,\n9, 99999999999999 MiB\n", 0, "says no memory"),
    ],
)
def test_failing_tool_is_noted_and_ram_counts(
    machine: Machine, text: str, code: int, note: str
) -> None:
    machine.prints("nvidia-smi", text, code)
    found = machine.find()
    assert found.spec == "mem=64000MiB" and "no GPU" in found.line
    assert any(note in x for x in found.notes) and "\x1b" not in "".join(found.notes)


def test_missing_tool_with_a_card_is_noted(machine: Machine) -> None:
    assert machine.find().notes == ()
    machine.write("sys/class/drm/card0/device/vendor", "0x10de\n")
    assert "is its driver installed" in machine.find().notes[0]


def test_hanging_tool_is_ended_with_its_children(machine: Machine, tmp_path: Path) -> None:
    machine.tool("nvidia-smi", f"sleep 100000 & echo $! > {tmp_path}/pid; sleep 100000")
    found = machine.find(seconds=1)
    assert found.spec == "mem=64000MiB" and "did not answer" in found.notes[0]
    if (tmp_path / "pid").exists():
        stat = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
        for _ in range(600):  # a killed process may still run on another core for a moment
            if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return
            time.sleep(0.05)
        pytest.fail("the child still runs")


def test_endless_output_is_bounded(machine: Machine) -> None:
    machine.tool("nvidia-smi", "while :; do echo 'NVIDIA GeForce RTX 4090, 24564 MiB'; done")
    assert "printed more than" in machine.find().notes[0]


def test_tool_in_a_relative_folder_is_not_run(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.prints("nvidia-smi", RTX_4090)
    monkeypatch.chdir(machine.bin)
    for path in (".", "", "bin"):
        tools = Tools(root=str(machine.root), path=path, system="Linux")
        assert not find_this_machine(tools).gpus


def test_wsl_finds_its_own_tool(machine: Machine) -> None:
    machine.write("proc/version", "Linux version 5.15.167.4-microsoft-standard-WSL2\n")
    folder = machine.root / "usr/lib/wsl/lib"
    machine.tool("nvidia-smi", f"echo '{RTX_4090.strip()}'", folder)
    found = machine.find()
    assert found.spec == "rtx-4090" and any("WSL" in x for x in found.notes)


@pytest.mark.parametrize(
    ("printed", "spec"),
    [
        (ROCM, "rx-7900-xt mem=20464MiB"),
        (ROCM_OLD, "mi100 mem=32752MiB"),
        (ROCM_TWO, "mem=16368MiB"),
        ({"card0": {"VRAM Total Memory (B)": "21458059264"}}, "mem=20464MiB"),
    ],
)
def test_what_rocm_smi_prints_becomes_words(
    machine: Machine, printed: dict[str, dict[str, str]], spec: str
) -> None:
    machine.prints(
        "rocm-smi", "WARNING: AMD GPU device(s) is/are in a low-power state\n" + json.dumps(printed)
    )
    found = machine.find()
    assert found.spec == spec and found.notes == ()


def test_hostile_json_of_rocm_smi_is_no_gpu(machine: Machine) -> None:
    for text in ('{"card0": 5}', "{" * 100_000, '{"card0": {"Card Series": [1]}}', "[1]", '{"a"'):
        machine.prints("rocm-smi", text)
        assert machine.find().notes == ("rocm-smi shows no GPU",)


def test_sysfs_answers_without_rocm_smi(machine: Machine) -> None:
    card = "sys/class/drm/card1/device"
    machine.write(f"{card}/vendor", "0x1002\n")
    machine.write(f"{card}/device", "0x744c\n")
    machine.write(f"{card}/mem_info_vram_total", "25753026560\n")
    assert machine.find().spec == "mem=24560MiB" and "AMD GPU 0x744c" in machine.find().line
    machine.write(f"{card}/product_name", "AMD Radeon RX 7900 XTX\n")
    assert machine.find().spec == "rx-7900-xtx mem=24560MiB"
    machine.write(f"{card}/mem_info_vram_total", "536870912\n")
    assert not machine.find().gpus and "how much of it is not known" in machine.find().notes[0]
    machine.write(f"{card}/mem_info_gtt_total", "33554432000\n")
    machine.write(f"{card}/product_name", "Radeon 780M\n")
    found = machine.find()
    assert found.spec == "radeon-780m-32gb mem=32512MiB" and "shares the RAM" in found.notes[0]


@pytest.mark.parametrize(
    ("chip", "memory", "spec"),
    [
        ("Apple M1", "8 GB", "m1-8gb"),
        ("Apple M3 Max", "36 GB", "m3-max-36gb"),
        ("Apple M9 Ultra", "96 GB", "mem=65536MiB"),
    ],
)
def test_system_profiler_names_the_chip(
    machine: Machine, chip: str, memory: str, spec: str
) -> None:
    text = APPLE.replace("Apple M1", chip).replace("8 GB", memory)
    machine.prints("system_profiler", text)
    found = machine.find(system="Darwin")
    assert found.spec == spec and found.cores == 8 and found.line.startswith(chip)
    machine.prints("system_profiler", "", 1)
    with pytest.raises(LlamathError, match="no GPU and no memory"):
        machine.find(system="Darwin").spec  # noqa: B018


@pytest.mark.parametrize(
    ("files", "gibibytes"),
    [
        ({"sys/fs/cgroup/memory.max": "8589934592\n"}, 8),
        ({"sys/fs/cgroup/memory.max": "max\n"}, None),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "4294967296\n"}, 4),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "4294967296\n", "sys/fs/cgroup/a/memory.max": "2147483648\n"}, 2),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ({"proc/self/cgroup": "4:memory:/docker/x\n", "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "6442450944\n"}, 6),
        ({"proc/self/cgroup": "0::/../../etc\n", "etc/memory.max": "1024\n"}, None),
    ],
)  # fmt: skip
def test_limit_of_a_container_is_its_memory(
    machine: Machine, files: dict[str, str], gibibytes: int | None
) -> None:
    for name, text in files.items():
        machine.write(name, text)
    found = machine.find()
    assert found.spec == f"mem={gibibytes * 1024 if gibibytes else 64000}MiB"
    assert any("container" in x for x in found.notes) == (gibibytes is not None)


def test_machine_without_files_is_an_error(tmp_path: Path) -> None:
    tools = Tools(root=str(tmp_path), path=str(tmp_path), system="Linux")
    with pytest.raises(LlamathError, match="no GPU and no memory") as error:
        find_this_machine(tools).spec  # noqa: B018
    assert "mem=24GiB" in error.value.hint


def run(*words: str) -> Result:
    return CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(cli, list(words))


@pytest.mark.slow
def test_on_this_equals_the_words_it_prints(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.prints("nvidia-smi", RTX_4090)
    monkeypatch.setenv("PATH", f"{machine.bin}{os.pathsep}{os.environ['PATH']}")
    for command in ("fit", "quants", "memory"):
        here, there = (run(command, "gpt2", "--on", x) for x in ("this", "rtx-4090"))
        assert here.exit_code == 0 and here.stdout == there.stdout
        assert "this machine: NVIDIA GeForce RTX 4090" in here.stderr
        assert "--on 'rtx-4090'" in " ".join(here.stderr.split())
    assert (
        "rtx-4090+rtx-3060-12gb"
        in run("fit", "gpt2", "--on", "this+rtx-3060-12gb", "--brief").stdout
    )
    both = json.loads(run("fit", "gpt2", "--on", "this,h100", "--json").stdout)
    assert [x["gpu"]["name"] for x in both["machines"]] == ["rtx-4090", "h100-sxm"]


def test_this_is_refused_to_programs() -> None:
    with pytest.raises(LlamathError, match="the command line alone"):
        llamath.fit("gpt2", on="this")
    with capture_output(10**6) as captured:
        CliRunner().invoke(cli, ["fit", "gpt2", "--on", "this"])
    assert captured.error is not None and "the command line alone" in str(captured.error)


def test_measured_rates_of_this_machine_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llamath.analysis.size.fit.calibration import Calibration
    from llamath.cli.this_machine_option import remember_measured

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    here = find_this_machine()
    measured = Calibration(
        machine=here.processor,
        engine="native",
        threads=2,
        model="Tiny",
        memory=here.memory,
        bandwidth=20 * 10**9,
        flops={"fp32": 10**11},
        decode_share=0.5,
        prefill_share=0.25,
    )
    assert "`llamath gpus this` measures its speed" in " ".join(
        run("fit", "gpt2", "--on", "this").stderr.split()
    )
    remember_measured(measured)
    data = json.loads(run("fit", "gpt2", "--on", "this", "--json").stdout)
    ceiling = data["ceilings"]["decode"]["tokens_per_second"]
    assert data["expected"]["decode"] == pytest.approx(ceiling / 2)
    assert "20.0 GB/s as measured here" in " ".join(
        run("memory", "gpt2", "--on", "this").stderr.split()
    )
    remember_measured(measured.replace(machine="another processor"))
    assert json.loads(run("fit", "gpt2", "--on", "this", "--json").stdout)["ceilings"] is None
    (tmp_path / "llamath" / "machine.json").write_text("{")
    assert run("fit", "gpt2", "--on", "this").exit_code == 0


def test_note_of_this_machine_is_one_line_of_words(machine: Machine) -> None:
    machine.prints("nvidia-smi", RTX_4090 * 2)
    assert re.fullmatch(
        r"2 × NVIDIA GeForce RTX 4090, 23\.99 GiB each; [^\n]+", machine.find().line
    )


def test_blank_lines_of_a_tool_are_read_in_linear_time(machine: Machine) -> None:
    """A million of them took hours in a pattern that began at each and went on over all others."""
    machine.tool("system_profiler", "head -c 1000000 /dev/zero | tr '\\0' '\\n'; echo '  Chip: M9'")
    found = machine.find(system="Darwin")
    assert found.processor == "M9" and not found.gpus
