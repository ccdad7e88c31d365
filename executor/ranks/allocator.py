"""Makes glibc's memory allocator keep freed memory.

Otherwise activations freed at the end of a step would go back to the system and be mapped, zeroed and faulted in again,
page by page, in the next step: a tenth of a step on a CPU, which no steady-state profile of a stage can include.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
"""From glibc's malloc.h."""
TRIM_BYTES, PAD_BYTES = 2**31 - 1, 2**26


def keep_freed_memory() -> None:
    """Keep freed memory for the rest of the process. No effect without glibc."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for option, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, TRIM_BYTES), (_M_TOP_PAD, PAD_BYTES)):
            library.mallopt(option, value)
