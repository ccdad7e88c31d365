"""Checksums of the files of a checkpoint: taken while they are written, compared before anything is restored."""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_CHUNK_BYTES = 2**20
_DIGEST_BYTES = 32


class FileSum(NamedTuple):
    """What a file must have."""

    size: int
    """Bytes."""
    digest: str
    """BLAKE2b, of 256 bits."""


class HashedFile(io.BufferedIOBase):
    """A new file, summed while it is written.

    A fault of the disk is kept: torch's writer of archives hides it behind one of its own.

    Parameters
    ----------
    path
        Of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("wb")
        self._digest, self._size = _digest(), 0
        self.fault: OSError | None = None

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, content: Any) -> int:
        """Write all of it."""
        view = memoryview(content).cast("B")
        try:
            self._file.write(view)
        except OSError as fault:
            self.fault = self.fault or OSError(fault.errno, fault.strerror, str(self._path))
            raise
        self._digest.update(view)
        self._size += len(view)
        return len(view)

    def tell(self) -> int:
        """Bytes so far."""
        return self._size

    def flush(self) -> None:
        """Hand everything to the system."""
        if not self._file.closed:
            try:
                self._file.flush()
            except OSError as fault:
                self.fault = self.fault or OSError(fault.errno, fault.strerror, str(self._path))
                raise

    def fileno(self) -> int:
        """For a flush to the disk."""
        return self._file.fileno()

    def close(self) -> None:
        """Flush, and close."""
        try:
            super().close()
        finally:
            self._file.close()

    @property
    def sum(self) -> FileSum:
        """Of what was written."""
        return FileSum(self._size, self._digest.hexdigest())


def sum_of(content: bytes) -> FileSum:
    """Of a file with this content."""
    digest = _digest()
    digest.update(content)
    return FileSum(len(content), digest.hexdigest())


def damage(folder: Path, sums: Mapping[str, FileSum]) -> str | None:
    """What is wrong with the first file that does not have the content that was written; None if all have."""
    for name, expected in sorted(sums.items()):
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            return f"{name} is missing"
        if size < expected.size:
            return f"{name} is cut short: it has {size} of {expected.size} bytes"
        if size > expected.size or _sum_of_file(path) != expected:
            return f"{name} is damaged: its content is not what was written"
    return None


def _sum_of_file(path: Path) -> FileSum:
    digest, size = _digest(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return FileSum(size, digest.hexdigest())


def _digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)
