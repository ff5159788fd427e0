"""The embedded store with a thousand and with a million rows: lookup, start, memory."""
from __future__ import annotations
from pathlib import Path

def measure_store(work: Path, rows: int) -> list[tuple[str, float, str, float]]:
    return []
