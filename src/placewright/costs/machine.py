"""What this machine is: processor, cores, memory, and the devices that installed runtimes see."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
from pathlib import Path
from typing import Any

_INSTRUCTION_SETS = {
    "sse4_2": "SSE4.2",
    "avx": "AVX",
    "avx2": "AVX2",
    "fma": "FMA",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "avx_vnni": "AVX-VNNI",
    "amx_tile": "AMX",
    "amx_bf16": "AMX BF16",
    "asimd": "NEON",
    "sve": "SVE",
    "bf16": "BF16",
}
_ASSUMED_CLOCK_HZ = 3.0e9


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> dict[str, Any]:
    """Name, cores, clock, memory and instruction sets of the host."""
    text = _text("/proc/cpuinfo")
    flags = _flags(text)
    return {
        "name": _field(text, "model name") or platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "cores": core_count(),
        "clock_hz": clock_hz(),
        "memory_bytes": _memory_bytes(),
        "instruction_sets": [label for flag, label in _INSTRUCTION_SETS.items() if flag in flags],
    }


def clock_hz() -> float:
    """The processor's clock: its highest where the system tells it, its present one otherwise."""
    highest = _text("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()
    if highest.isdigit():
        return float(highest) * 1e3
    now = _field(_text("/proc/cpuinfo"), "cpu MHz")
    return float(now) * 1e6 if now else _ASSUMED_CLOCK_HZ


def core_flops_per_s(precision: str) -> float:
    """Peak arithmetic of one core, estimated from clock and instruction sets: two fused multiply-adds per cycle."""
    flags = _flags(_text("/proc/cpuinfo"))
    lanes = 8 if "avx2" in flags or "avx512f" in flags else 4
    faster = 2 if precision == "bf16" and has_bf16() else 1
    return clock_hz() * 2 * 2 * lanes * faster


def has_bf16() -> bool:
    """The processor multiplies bf16 numbers itself."""
    return bool(_flags(_text("/proc/cpuinfo")) & {"avx512_bf16", "amx_bf16", "bf16"})


def machine_text() -> str:
    """One line for the head of a profile."""
    host = processor()
    return f"{host['name']}, {host['cores']} cores, {host['memory_bytes'] / 2**30:.0f} GiB, {platform.system()}"


def package_version(name: str) -> str:
    """Version of an installed package, "" if it is not installed."""
    try:
        return importlib.metadata.version(name) if importlib.util.find_spec(name) else ""
    except (importlib.metadata.PackageNotFoundError, ImportError, ValueError):
        return ""


def openvino_devices() -> list[dict[str, Any]]:
    """Devices that OpenVINO lists; the package must be installed."""
    import openvino as ov

    core = ov.Core()
    rows = []
    for name in core.available_devices:
        try:
            full_name = str(core.get_property(name, "FULL_DEVICE_NAME"))
        except RuntimeError:  # a plugin whose device went away
            full_name = ""
        rows.append({"name": name, "full_name": full_name.strip()})
    return rows


def cuda_devices() -> list[dict[str, Any]]:
    """CUDA devices that PyTorch lists; the package must be installed."""
    import torch

    if not torch.cuda.is_available():
        return []
    found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return [
        {"name": f"cuda:{i}", "full_name": p.name, "memory_bytes": float(p.total_memory)} for i, p in enumerate(found)
    ]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:  # another operating system
        return ""


def _field(text: str, name: str) -> str:
    match = re.search(rf"^{re.escape(name)}\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _flags(text: str) -> set[str]:
    return set((_field(text, "flags") or _field(text, "Features")).split())


def _memory_bytes() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return 0.0
