"""The one family of exceptions, each with the exit code of the command line."""


class StagecutError(Exception):
    """Base of every error raised on purpose; an internal fault when raised as such."""

    exit_code = 1


class BadInputError(StagecutError):
    """Something the user gave cannot be used.

    Parameters
    ----------
    complaints
        One line per fault: what is wrong, where, what was got, what is accepted.
    """

    exit_code = 3

    def __init__(self, *complaints: str) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = complaints


class OutputError(BadInputError):
    """An output cannot be written; nothing was."""


class UnsupportedError(BadInputError):
    """A solver was asked for a problem that its formulation cannot express."""


class FaultWarning(RuntimeWarning):
    """A search met an internal fault, and its result is what it had by then. An error in the tests."""


def in_one_line(fault: BaseException) -> str:
    """Type and words of an error."""
    return " ".join(f"{type(fault).__name__}: {fault}".split()).removesuffix(":")
