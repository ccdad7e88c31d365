"""Units, and quantities formatted for display."""

KB, MB, GB, TB = 1e3, 1e6, 1e9, 1e12
GIB = 2.0**30
GBIT_PER_S = 1e9 / 8
US, MS = 1e-6, 1e-3


def format_bytes(num_bytes: float) -> str:
    """Bytes with a decimal prefix and three significant digits, for example `12.9 GB`."""
    for size, unit in ((TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "kB")):
        if abs(num_bytes) >= size:
            return f"{num_bytes / size:.3g} {unit}"
    return f"{num_bytes:.3g} B"


def format_seconds(seconds: float) -> str:
    """Seconds with a prefix and four significant digits, for example `83.27 ms`."""
    for size, unit in ((1.0, "s"), (MS, "ms"), (US, "us")):
        if abs(seconds) >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"
