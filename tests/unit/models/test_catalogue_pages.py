"""The pages of the documentation that the catalogue writes."""

from pathlib import Path

import pytest

from stagecut.models.tables import clusters_page, models_page

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("page", [models_page, clusters_page], ids=["models", "clusters"])
def test_committed_page_is_what_the_catalogue_says(page):
    """If this fails: python -m stagecut.models.tables models > docs/models.md, and the same for clusters."""
    name = page.__name__.removesuffix("_page")
    assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == page()
