"""`python -m dashboards`: writes the three files beside this one."""

from __future__ import annotations

from pathlib import Path

from dashboards import effects, frame, overview, store

FOLDER = Path(__file__).parent
PLANS = (overview.plan, effects.plan, store.plan)


def files() -> dict[str, str]:
    """By file name, what it holds."""
    plans = [plan() for plan in PLANS]
    return {f"{plan.name}.json": frame.text(frame.built(plan)) for plan in plans}


if __name__ == "__main__":
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
