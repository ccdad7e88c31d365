"""The examples in the documentation are true."""

import doctest
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_a_page_hold(page):
    """Every interpreter session on the page gives what it shows."""
    failed, _ = doctest.testfile(str(page), module_relative=False)
    assert failed == 0
