"""The table of strategies in the documentation."""

from pathlib import Path

from stagecut.models.strategy_table import strategy_table

PAGE = Path(__file__).parents[3] / "docs" / "sharding.md"


def test_the_page_has_the_placements_of_the_catalogue():
    """If this fails: `python -m stagecut.models.strategy_table` writes what belongs between the marks."""
    begin, end = (f"<!-- strategies: {word} -->\n" for word in ("begin", "end"))
    shown = PAGE.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]
    assert shown == strategy_table()
