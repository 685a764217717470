"""`find_this_machine`: the GPUs, memory and cores of this machine, by nvidia-smi, rocm-smi,
system_profiler, sysfs and /proc.

What these print is not trusted: it is read up to a limit of bytes and of seconds, and what it does
not say is unknown.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby, islice
from threading import Thread
from typing import NamedTuple

from ..utils.errors import LlamathError, safe
from ..utils.number_format import format_count
from ..utils.record_type import Record
from .known_devices import find_chip, find_device

SECONDS = 20.0
"""The longest that a tool may take; a driver that is loaded first takes some seconds."""
_MOST_BYTES = 1 << 20
_MOST_GPUS = 64
_LEAST_VRAM = 1 << 30
"""Less is what a processor's own graphics reserve."""
_WSL_TOOLS = "usr/lib/wsl/lib"
_MIB = 1 << 20


class FoundGPU(Record):
    """A GPU as a tool names it."""

    title: str
    memory: int  # bytes
    name: str = ""  # in the catalog; empty: it is not there

    @property
    def spec(self) -> str:
        """The words for --on."""
        if not self.name:
            return f"mem={self.memory // _MIB}MiB"
        known = find_device(self.name).memory
        return self.name if known == self.memory else f"{self.name} mem={self.memory // _MIB}MiB"


class ThisMachine(Record):
    """The GPUs, memory and cores of a machine."""

    gpus: tuple[FoundGPU, ...]
    processor: str
    cores: int  # 0: unknown
    memory: int  # bytes of RAM that programs here may use; 0: unknown
    notes: tuple[str, ...] = ()

    @property
    def spec(self) -> str:
        """The words for --on that stand for this machine."""
        if not self.gpus:
            if not self.memory:
                hint = "describe it: 'mem=24GiB bw=1TB/s'"
                notes = "; ".join(self.notes)
                message = "no GPU and no memory of this machine was found"
                raise LlamathError(f"{message}{f': {notes}' if notes else ''}", hint=hint)
            return f"mem={self.memory // _MIB}MiB"
        runs = ((spec, len(list(x))) for spec, x in groupby(sorted(x.spec for x in self.gpus)))
        return "+".join(f"{n}x{spec}" if n > 1 else spec for spec, n in runs)

    @property
    def line(self) -> str:
        """The machine in one line."""
        parts: list[str] = []
        for (title, memory), same in groupby(sorted((x.title, x.memory) for x in self.gpus)):
            n = len(list(same))
            size = f"{memory / 2**30:.2f} GiB"
            parts.append(f"{n} × {title}, {size} each" if n > 1 else f"{title}, {size}")
        parts = parts or ["no GPU"]
        parts += [self.processor] if self.processor else []
        parts += [format_count(self.cores, "core")] if self.cores else []
        parts += [f"{self.memory / 2**30:.1f} GiB of RAM"] if self.memory else []
        return "; ".join(parts)


class Tools(NamedTuple):
    """Where tools and files of a system are looked for."""

    root: str = "/"
    path: str | None = None  # None: PATH
    system: str = ""  # Linux, Darwin or Windows
    seconds: float = SECONDS

    def file(self, name: str) -> str:
        """Return what a file has, up to a limit; an empty string if it cannot be read."""
        with suppress(OSError), open(os.path.join(self.root, name), "rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
        return ""

    def find(self, tool: str) -> str:
        """Return the path of a tool; never one in a folder that is relative to the current one."""
        path = os.environ.get("PATH", "") if self.path is None else self.path
        folders = [*path.split(os.pathsep), os.path.join(self.root, _WSL_TOOLS)]
        names = [tool, f"{tool}.exe"] if self.system == "Windows" else [tool]
        for folder in folders:
            for name in names:
                found = os.path.join(folder, name)
                if os.path.isabs(folder) and os.path.isfile(found) and os.access(found, os.X_OK):
                    return found
        return ""

    def run(self, tool: str, *arguments: str) -> tuple[str, str]:
        """Return what a tool printed, and what went wrong."""
        program = self.find(tool)
        if not program:
            return "", f"{tool} is not installed"
        try:
            process = subprocess.Popen(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=os.environ | {"LC_ALL": "C"},
            )
        except OSError as error:
            return "", f"{tool} cannot be run: {error.strerror}"
        data: list[bytes] = []
        pipe = process.stdout
        assert pipe is not None
        reader = Thread(target=lambda: data.append(pipe.read(_MOST_BYTES + 1)), daemon=True)
        reader.start()
        reader.join(self.seconds)
        hangs = reader.is_alive()
        if not hangs and len(data[0]) <= _MOST_BYTES:
            with suppress(subprocess.TimeoutExpired):
                process.wait(self.seconds)
        if hangs or process.poll() is None:
            _end(process)
        reader.join()
        pipe.close()
        if hangs:
            return "", f"{tool} did not answer within {self.seconds:g} seconds"
        if len(data[0]) > _MOST_BYTES:
            return "", f"{tool} printed more than {_MOST_BYTES:,} bytes"
        text = data[0].decode("utf-8", "replace")
        if process.returncode:
            first = next((x.strip() for x in text.splitlines() if x.strip()), "")
            words = f": {safe(first, 120)}" if first else ""
            return "", f"{tool} failed{words}"
        return text, ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def find_this_machine(tools: Tools | None = None) -> ThisMachine:
    """Return the GPUs, memory and cores of this machine."""
    tools = tools or Tools(system=platform.system())
    if tools.system == "Darwin":
        return _find_apple(tools)
    memory, memory_notes = _find_memory(tools)
    gpus, notes = _find_nvidia(tools, memory)
    if not gpus:
        gpus, more = _find_amd(tools, memory)
        notes = [*notes, *more]
    processor, cores = _find_processor(tools)
    if "microsoft" in tools.file("proc/version").lower():
        memory_notes.append("WSL: the RAM is that of its virtual machine")
    return ThisMachine(
        gpus=tuple(gpus[:_MOST_GPUS]),
        processor=processor,
        cores=cores,
        memory=memory,
        notes=(*notes, *memory_notes),
    )


def _find_nvidia(tools: Tools, ram: int) -> tuple[list[FoundGPU], list[str]]:
    fields = "name,memory.total,mig.mode.current"
    if not tools.find("nvidia-smi"):
        there = any(tools.file(f"{x}/vendor").strip() == "0x10de" for x in _cards(tools))
        note = "a GPU of NVIDIA is there, but nvidia-smi is not: is its driver installed?"
        return [], [note] if there else []
    text, problem = tools.run("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    if "valid field" in problem:  # a driver from before MIG
        fields = "name,memory.total"
        text, problem = tools.run("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    if problem:
        return [], [problem]
    found: list[FoundGPU] = []
    slices: list[str] = []
    notes: list[str] = []
    for line in islice(text.splitlines(), _MOST_GPUS):
        title, _, rest = line.partition(",")
        size = re.match(r"\s*(\d{1,9}) MiB", rest)
        title = safe(title.strip(), 60)
        if rest.strip().lower().endswith("enabled"):
            slices.append(title)
        elif size:
            found.append(_named(title, int(size[1]) * _MIB))
        elif rest and ram and _is_unified(title):
            found.append(_named(title, ram))
            notes.append(f"{title} shares the RAM with the system and its programs")
        elif rest:
            notes.append(f"nvidia-smi says no memory of {title}")
    if slices:
        if largest := max(_slice_sizes(tools), default=0):
            found.append(FoundGPU(title=f"MIG slice of {slices[0]}", memory=largest))
            notes.append("MIG: a process sees one slice; the largest is taken")
        else:
            notes.append(f"{slices[0]} is in MIG mode, without a slice that nvidia-smi shows")
    if not found and not notes:
        notes.append("nvidia-smi shows no GPU")
    return found, notes


def _is_unified(name: str) -> bool:
    with suppress(LlamathError):
        return find_device(name).unified
    return False


def _slice_sizes(tools: Tools) -> Iterator[int]:
    """Yield the bytes of each MIG slice, from the table that nvidia-smi prints."""
    text, _ = tools.run("nvidia-smi")
    row = r"^\|\s*\d+\s+\d+\s+\d+\s+\d+\s*\|\s*\d+MiB\s*/\s*(\d{1,9})MiB"
    for match in islice(re.finditer(row, text, re.MULTILINE), _MOST_GPUS):
        yield int(match[1]) * _MIB


def _find_amd(tools: Tools, ram: int) -> tuple[list[FoundGPU], list[str]]:
    notes: list[str] = []
    found: list[tuple[str, int]] = []
    if tools.find("rocm-smi"):
        text, problem = tools.run(
            "rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json"
        )
        found = list(_rocm_cards(text))
        if problem or not found:
            notes.append(problem or "rocm-smi shows no GPU")
    if not found:
        found = list(_sysfs_cards(tools))
    large = [x for x in found if x[1] >= _LEAST_VRAM]
    if found and not large:  # graphics of a processor, which use the RAM
        title = found[0][0]
        share = max(
            (_number(tools.file(f"{x}/mem_info_gtt_total")) for x in _cards(tools)), default=0
        )
        memory = min(share + found[0][1], ram) if share and ram else 0
        if not memory:
            return [], [*notes, f"{title} uses the RAM: how much of it is not known"]
        return [_named(title, memory)], [*notes, f"{title} shares the RAM with the system"]
    return [_named(title, memory) for title, memory in large], notes


def _rocm_cards(text: str) -> Iterator[tuple[str, int]]:
    """Yield the title and the bytes of each GPU that rocm-smi lists."""
    try:
        data = json.loads(text[text.find("{") :]) if "{" in text else {}
    except (ValueError, RecursionError):
        return
    cards = data.items() if isinstance(data, dict) else ()
    for name, card in islice(cards, _MOST_GPUS):
        if not name.startswith("card") or not isinstance(card, dict):
            continue
        words = {str(x).lower(): str(y) for x, y in card.items()}
        titles = [words.get("card series", ""), words.get("card model", ""), "AMD GPU"]
        title = next(x for x in titles if x and x != "N/A")
        memory = _number(words.get("vram total memory (b)", ""))
        if memory:
            yield safe(title, 60), memory


def _sysfs_cards(tools: Tools) -> Iterator[tuple[str, int]]:
    for card in _cards(tools):
        memory = _number(tools.file(f"{card}/mem_info_vram_total"))
        if tools.file(f"{card}/vendor").strip() == "0x1002" and memory:
            product = tools.file(f"{card}/product_name").strip()
            yield safe(product or f"AMD GPU {tools.file(f'{card}/device').strip()}", 60), memory


def _cards(tools: Tools) -> list[str]:
    folder = "sys/class/drm"
    with suppress(OSError):
        names = sorted(os.listdir(os.path.join(tools.root, folder)))
        cards = [x for x in names if re.fullmatch(r"card\d{1,4}", x)]
        return [f"{folder}/{x}/device" for x in cards[:_MOST_GPUS]]
    return []


def _number(text: str) -> int:
    match = re.fullmatch(r"\s*(\d{1,18})\s*", text, re.ASCII)
    return int(match[1]) if match else 0


def _named(title: str, memory: int) -> FoundGPU:
    """Return a GPU with its name in the catalog: of a chip that is sold with several sizes, the
    one whose memory is nearest.
    """
    short = title[title.index("[") + 1 : -1] if title.endswith("]") and "[" in title else title
    with suppress(LlamathError):
        sizes = find_chip(short) or [find_device(short)]
        nearest = min(sizes, key=lambda x: abs(x.nominal - memory))
        if nearest.unified or abs(nearest.nominal - memory) < nearest.nominal / 8:
            return FoundGPU(title=title, memory=memory, name=nearest.name)
    return FoundGPU(title=title, memory=memory)


def _find_memory(tools: Tools) -> tuple[int, list[str]]:
    """Return the RAM that this process may use: what the machine has, or the limit of its
    container.
    """
    match = re.search(r"^MemTotal:\s*(\d{1,15}) kB", tools.file("proc/meminfo"), re.MULTILINE)
    total = int(match[1]) * 1024 if match else 0
    limit = min(_container_limits(tools), default=0)
    if limit and (not total or limit < total):
        whole = f" of {total / 2**30:.1f}" if total else ""
        return limit, [f"RAM: the limit of this container, {limit / 2**30:.1f}{whole} GiB"]
    return total, []


def _container_limits(tools: Tools) -> Iterator[int]:
    """Yield the limits of memory of the control groups of this process, of versions 1 and 2."""
    places = {"sys/fs/cgroup": "memory.max", "sys/fs/cgroup/memory": "memory.limit_in_bytes"}
    groups = {place: ["/"] for place in places}
    for line in islice(tools.file("proc/self/cgroup").splitlines(), 64):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if ".." in path.split("/"):
            continue
        if not controllers:
            groups["sys/fs/cgroup"].append(path)
        elif "memory" in controllers.split(","):
            groups["sys/fs/cgroup/memory"].append(path)
    for place, name in places.items():
        for path in groups[place]:
            parts = [x for x in path.split("/") if x][:_MOST_GPUS]
            for n in range(len(parts) + 1):
                found = _number(tools.file("/".join((place, *parts[:n], name))))
                if found:
                    yield found


def _find_processor(tools: Tools) -> tuple[str, int]:
    text = tools.file("proc/cpuinfo")
    match = re.search(r"^model name\s*:[ \t]*(.+)", text, re.MULTILINE)
    cores = len(re.findall(r"^processor\s*:", text, re.MULTILINE))
    own = os.cpu_count() or 0 if tools.root == "/" else 0
    return safe(match[1].strip(), 100) if match else "", cores or own


def _find_apple(tools: Tools) -> ThisMachine:
    text, problem = tools.run("system_profiler", "SPHardwareDataType")
    words = dict(re.findall(r"^ *([A-Z][A-Za-z ]{0,39}): *(.{1,80})$", text, re.MULTILINE))
    chip = safe(words.get("Chip", ""), 60)
    size = re.match(r"(\d{1,4}) GB", words.get("Memory", ""))
    cores = re.match(r"(\d{1,3})", words.get("Total Number of Cores", ""))
    memory = int(size[1]) << 30 if size else 0
    gpus: tuple[FoundGPU, ...] = ()
    notes = [problem] if problem else []
    if chip and size:
        try:
            known = find_device(f"{chip} {size[1]}GB")
            gpus = (FoundGPU(title=chip, memory=known.memory, name=known.name),)
        except LlamathError:
            gpus = (FoundGPU(title=chip, memory=memory * 2 // 3),)
            notes.append(
                f"{chip} with {size[1]} GB is not in the catalog: a GPU may use two thirds"
            )
    return ThisMachine(
        gpus=gpus,
        processor=chip or safe(words.get("Processor Name", ""), 60),
        cores=int(cores[1]) if cores else 0,
        memory=memory,
        notes=tuple(notes),
    )
