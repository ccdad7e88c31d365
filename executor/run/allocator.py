"""The C library's memory allocator, told not to give memory back between steps.

Activations that are freed at the end of a step would go back to the system and be mapped, zeroed and
faulted in again, page by page, in the next one: a tenth of a step on a CPU, and a time that no
profile of a stage in its steady state can know.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
"""Of glibc's malloc.h."""
TRIM_BYTES, PAD_BYTES = 2**31 - 1, 2**26


def keep_freed_memory() -> None:
    """Keep what is freed for later, for the rest of the process; elsewhere than with glibc nothing happens."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for option, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, TRIM_BYTES), (_M_TOP_PAD, PAD_BYTES)):
            library.mallopt(option, value)
