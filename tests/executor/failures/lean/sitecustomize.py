"""For programs that train nothing: spares them `torch._dynamo`, whose import takes as long as that of all the rest."""

import sys
from types import SimpleNamespace

CACHES = SimpleNamespace(clear_lru_cache=lambda: None)
sys.modules["torch._dynamo"] = SimpleNamespace(trace_rules=CACHES)  # all that joining a process group asks of it
