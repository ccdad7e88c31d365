"""The exceptions, each with its exit code on the command line."""


class StagecutError(Exception):
    """Base class of deliberate errors; raised directly, it is an internal fault."""

    exit_code = 1


class BadInputError(StagecutError):
    """Unusable input from the user.

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
    """An output could not be written, and nothing was."""


class UnsupportedError(BadInputError):
    """A problem that the requested solver or target cannot express."""


class StoppedError(Exception):
    """A computation was told to stop before its end."""


class FaultWarning(RuntimeWarning):
    """An internal fault ended a search, whose result is what it had by then. An error in the tests."""


def in_one_line(fault: BaseException) -> str:
    """Type and message of an error on one line."""
    return " ".join(f"{type(fault).__name__}: {fault}".split()).removesuffix(":")
