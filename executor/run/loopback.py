"""What keeps the connections of a run that has all its ranks on one machine inside that machine."""

import sys

_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"
ONLY_LOOPBACK = {"GLOO_SOCKET_IFNAME": _INTERFACE, "NCCL_SOCKET_IFNAME": _INTERFACE}
"""Environment variables: gloo and NCCL open their ports on this interface alone."""
