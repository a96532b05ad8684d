"""``placewright devices``: what this machine really has."""

from __future__ import annotations

import json
from typing import Any

import typer

from placewright.cli import options as o
from placewright.cli.doing import doing


def devices(as_json: o.Json = False, quiet: o.Quiet = False) -> None:
    """List the processor, its memory and instruction sets, and the devices that installed runtimes see.

    Examples:

    placewright devices

    placewright profile zoo:resnet-50 --cluster cores:2 -o profile.json
    """
    with doing("asking the runtimes for their devices"):
        found = _found()
    if as_json:
        typer.echo(json.dumps(found))
        return
    if quiet:
        names = [f"{runtime} {d['name']}" for runtime, entry in found["runtimes"].items() for d in entry["devices"]]
        typer.echo("\n".join(["host cpu", *names]))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from placewright.text import bytes_text

    host = found["host"]
    table = Table("where", "device", "what it is")
    sets = ", ".join(host["instruction_sets"]) or "instruction sets unknown"
    memory = bytes_text(host["memory_bytes"])
    table.add_row("host", "cpu", f"{host['name']}, {host['cores']} cores at {host['clock_hz'] / 1e9:.2f} GHz, {memory}")
    table.add_row("", "", sets)
    for runtime, entry in found["runtimes"].items():
        if not entry["version"]:
            table.add_row(runtime, "—", escape(f"not installed: pip install 'placewright[{entry['extra']}]'"))
            continue
        rows = entry["devices"] or [{"name": "—", "full_name": entry["note"]}]
        for row in rows:
            size = f", {bytes_text(row['memory_bytes'])}" if "memory_bytes" in row else ""
            table.add_row(f"{runtime} {entry['version']}", escape(row["name"]), escape(row["full_name"] + size))
    Console().print(table)


def _found() -> dict[str, Any]:
    from placewright.costs.machine import cuda_devices, openvino_devices, package_version, processor

    runtimes: dict[str, Any] = {}
    for runtime, lister, none_found in (
        ("openvino", openvino_devices, "no devices"),
        ("torch", cuda_devices, "the processor only: no CUDA device"),
    ):
        version = package_version(runtime)
        entry: dict[str, Any] = {"version": version, "extra": runtime, "devices": [], "note": none_found}
        if version:
            try:
                entry["devices"] = lister()
            except Exception as error:  # a broken installation is a finding, too
                entry["note"] = f"does not load: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        runtimes[runtime] = entry
    return {"host": processor(), "runtimes": runtimes}
