"""Text that hides nothing: what a terminal would obey, or would not show, is written as an escape."""

import re
import unicodedata

_ASIDE_FROM_PLAIN = re.compile(r"[^ -~]")
_ASIDE_FROM_PLAIN_LINES = re.compile(r"[^\n\t -~]")
_WITHOUT_LOOK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks that nothing is drawn for: Default_Ignorable_Code_Point of Unicode outside of its category Cf."""


def visible(text: object) -> str:
    r"""The text in one line, its hidden characters as escapes such as `\x1b`, `\n` or `\u202e`.

    Hidden are controls, also those of direction, characters without width, separators of lines, lone
    surrogates, and code points that stand for nothing. Letters and signs of all scripts stay as they are.
    """
    return _ASIDE_FROM_PLAIN.sub(_shown, str(text))


def visible_lines(text: str) -> str:
    """The same for a text of several lines, which may be indented by tabs."""
    return _ASIDE_FROM_PLAIN_LINES.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    letter = match[0]
    has_look = letter.isprintable() or unicodedata.category(letter) == "Zs"
    return letter if has_look and not _WITHOUT_LOOK.match(letter) else letter.encode("unicode_escape").decode()
