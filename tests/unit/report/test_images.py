"""Formats of pictures."""

import warnings
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.report.images import ImageFormat, encoded, image_format, reproducible


def test_format_follows_the_suffix():
    assert image_format(Path("out/plan.PNG"), what="a chart") is ImageFormat.PNG
    assert image_format(Path("plan.svg"), what="a chart") is ImageFormat.SVG


@pytest.mark.parametrize("name", ["plan.pdf", "plan", "png"])
def test_other_suffixes_are_refused(name):
    with pytest.raises(BadInputError, match=r"a chart must be a \.png or \.svg file"):
        image_format(Path(name), what="a chart")


def test_letters_that_the_font_lacks_are_drawn_without_a_warning():
    figure = Figure()
    figure.suptitle("日本語")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with reproducible():
            assert encoded(figure, ImageFormat.PNG)
