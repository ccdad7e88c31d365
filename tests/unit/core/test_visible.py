"""Text that hides nothing."""

import sys
import unicodedata

import pytest

from stagecut.planner.core.messages.visible import visible, visible_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("\x00\x7f\x85\x9b", r"\x00\x7f\x85\x9b"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\u202e\u2066\u200e\u061c", r"\u202e\u2066\u200e\u061c"),
        ("\u200b\u200d\u2060\ufeff\u00ad", r"\u200b\u200d\u2060\ufeff\xad"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\udcff", r"\udcff"),
        ("\U000e0041\U000e0100", r"\U000e0041\U000e0100"),
        ("\u115f\u3164\ufe0f\u034f", r"\u115f\u3164\ufe0f\u034f"),
        ("\ue000\U0010ffff", r"\ue000\U0010ffff"),
    ],
)
def test_hidden_characters_become_escapes(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    "text", ["plain ~!\\", "Köln", "שלום", "مرحبا", "日本語", "한국", "क्षि", "e\u0301", "🙂", "1\u202f000\u3000x"]
)
def test_what_has_a_look_stays(text):
    assert visible(text) == text


def test_lines_and_tabs_stay_where_there_are_lines():
    assert visible_lines("a\n\tb\r\n") == "a\n\tb\\r\n"


def test_no_character_that_unicode_calls_invisible_is_left():
    """Every code point there is; what is shown of it is shown again as it is."""
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    left = visible(everything)
    categories = {unicodedata.category(letter) for letter in set(left)}
    assert categories & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} == set()
    assert visible(left) == left
