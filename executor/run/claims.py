"""Which rank tells of a fault that several of them see, where there is no launcher to collect what they say."""

import hashlib
from typing import TYPE_CHECKING

from stagecut.executor.run.faults import OWN, ErrorReport

if TYPE_CHECKING:
    import torch.distributed as dist

_OWN, _WAITED = "told/own", "told/waited"


def is_first_to_tell(report: ErrorReport, store: "dist.Store | None") -> bool:  # type: ignore[name-defined]
    """Whether no other rank has told the same; what ranks only notice of others is told where nobody has told more.

    Parameters
    ----------
    store
        That all ranks have in common; None, or one that has gone with the rank that served it: nobody can know.
    """
    if store is None:
        return True
    try:
        if report.kind not in OWN:
            return not store.check([_OWN]) and int(store.add(_WAITED, 1)) == 1
        store.set(_OWN, "")
        digest = hashlib.sha256(f"{report.kind}: {report.message}".encode()).hexdigest()
        return int(store.add(f"{_OWN}/{digest}", 1)) == 1
    except RuntimeError:
        return True
