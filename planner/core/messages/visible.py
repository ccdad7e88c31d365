"""Text with control and invisible characters escaped, safe to print on a terminal."""

import re
import unicodedata

_ASIDE_FROM_PLAIN = re.compile(r"[^ -~]")
_ASIDE_FROM_PLAIN_LINES = re.compile(r"[^\n\t -~]")
_WITHOUT_LOOK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks without a glyph: Unicode's Default_Ignorable_Code_Point outside of category Cf."""


def visible(text: object) -> str:
    r"""The text on one line, with hidden characters escaped as `\x1b`, `\n` or `\u202e`.

    Hidden are control characters, including those of text direction, zero-width characters, line separators,
    lone surrogates and unassigned code points. Letters and symbols of all scripts stay as they are.
    """
    return _ASIDE_FROM_PLAIN.sub(_shown, str(text))


def visible_lines(text: str) -> str:
    """The same for text of several lines, in which line breaks and tabs stay."""
    return _ASIDE_FROM_PLAIN_LINES.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    letter = match[0]
    has_look = letter.isprintable() or unicodedata.category(letter) == "Zs"
    return letter if has_look and not _WITHOUT_LOOK.match(letter) else letter.encode("unicode_escape").decode()
