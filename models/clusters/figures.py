"""The tables of figures beside this module."""

import csv
from pathlib import Path


def rows(name: str) -> list[dict[str, str]]:
    """Rows of `NAME.csv`, each by column."""
    with Path(__file__).with_name(f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
