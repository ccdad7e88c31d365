"""Checksums of checkpoint files: computed while writing, compared before anything is restored."""

import hashlib
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

_DIGEST_BYTES = 32


class FileSum(NamedTuple):
    """Size and checksum of a file."""

    size: int
    """Bytes."""
    digest: str
    """BLAKE2b, 256 bits."""


class HashedFile(io.BufferedIOBase):
    """A new file whose checksum is computed while it is written.

    Disk errors are kept, because torch's archive writer hides them behind errors of its own.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("wb")
        self._digest, self._size = _digest(), 0
        self.fault: OSError | None = None

    def writable(self) -> bool:
        """Always true: the file is open for writing."""
        return True

    def write(self, content: Any) -> int:
        """Write all of it."""
        view = memoryview(content).cast("B")
        with self._kept_errors():
            self._file.write(view)
        self._digest.update(view)
        self._size += len(view)
        return len(view)

    def tell(self) -> int:
        """Bytes so far."""
        return self._size

    def flush(self) -> None:
        """Pass everything to the system."""
        if not self._file.closed:
            with self._kept_errors():
                self._file.flush()

    def fileno(self) -> int:
        """Used to sync the file to disk."""
        return self._file.fileno()

    def close(self) -> None:
        """Flush, and close."""
        try:
            super().close()
        finally:
            self._file.close()

    @property
    def sum(self) -> FileSum:
        """Checksum of what was written."""
        return FileSum(self._size, self._digest.hexdigest())

    @contextmanager
    def _kept_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            self.fault = self.fault or OSError(fault.errno, fault.strerror, str(self._path))
            raise


def sum_of(content: bytes) -> FileSum:
    """Checksum of a file with this content."""
    return FileSum(len(content), _digest(content).hexdigest())


def damage(folder: Path, sums: Mapping[str, FileSum]) -> str | None:
    """What is wrong with the first damaged file; None if all are intact."""
    for name, expected in sorted(sums.items()):
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            return f"{name} is missing"
        if size < expected.size:
            return f"{name} is truncated: it has {size} of {expected.size} bytes"
        if size > expected.size or _sum_of_file(path) != expected:
            return f"{name} is damaged: its content is not what was written"
    return None


def _sum_of_file(path: Path) -> FileSum:
    with path.open("rb") as file:
        return FileSum(path.stat().st_size, hashlib.file_digest(file, _digest).hexdigest())


def _digest(content: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES)
