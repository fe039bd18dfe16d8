"""How a value of a benchmark and its set-up are written, on a terminal and on a page alike. Owns that form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kvchat.bench.report import Column, Kind, Stat, Value
from kvchat.commands.table import size_text

MISSING = "-"
SPREAD = "± is half of the way from the lowest to the highest, as a part of the median"


def facts(setup: Mapping[str, Any]) -> dict[str, str]:
    """The set-up in short, by what each line is about."""
    machine, model, engine = (section(setup, name) for name in ("machine", "model", "engine"))
    ram = machine.get("ram_bytes")
    memory = f", {size_text(ram)} RAM" if isinstance(ram, int) else ""
    return {
        "model": f"{model.get('name')}, {model.get('architecture')}, {model.get('attention')}",
        "machine": f"{machine.get('cpu')}, {machine.get('cores_physical')} cores{memory}",
        "programs": f"kvchat {machine.get('kvchat')}, llama-cpp-python {machine.get('llama_cpp_python')}",
        "system": f"{machine.get('os')}, Python {machine.get('python')}",
        "engine": f"context {engine.get('context')}, threads {engine.get('threads')}, "
        f"layers on a GPU {engine.get('gpu_layers')}"
        + (", without extra CPU buffers" if engine.get("extra_buffers") is False else ""),
        "measured": f"{setup.get('date')}",
    }


def section(setup: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A group of facts; a report that comes from elsewhere may lack it."""
    found = setup.get(name)
    return found if isinstance(found, Mapping) else {}


def value_text(column: Column, value: Value) -> str:
    """A value, with its spread where it was measured more than once: "57.3 ±2%"."""
    if value is None:
        return MISSING
    if isinstance(value, Stat):
        median = number_text(column.kind, value.median)
        return f"{median} ±{value.spread / 2:.0%}" if value.count > 1 else median
    return value if isinstance(value, str) else number_text(column.kind, value)


def number_text(kind: Kind, value: float) -> str:
    """One number, by what it is."""
    return _FORMS[kind](value)


_FORMS: dict[Kind, Callable[[float], str]] = {
    "text": str,
    "count": lambda value: f"{value:,.0f}",
    "rate": lambda value: f"{value:,.1f}" if value < 1000 else f"{value:,.0f}",
    "bytes": lambda value: size_text(round(value)),
    "bytes_rate": lambda value: f"{value / 1e6:,.1f}",
    "seconds": lambda value: f"{value:.3f} s" if value < 10 else f"{value:,.1f} s",
    "share": lambda value: f"{value:.1%}" if value < 1 else "100%",
    "ratio": lambda value: f"{value:.2f}" if value < 100 else f"{value:,.0f}",
    "number": lambda value: f"{value:.3g}",
}
