"""Examples at the end of help texts."""


def example(*lines: str) -> str:
    r"""The epilog of a command: its examples, one a line, which `\b` keeps click from wrapping."""
    return "\n  ".join(("\b\nExample:", *lines))
