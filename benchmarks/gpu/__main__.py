"""`python -m benchmarks.gpu`."""

import sys

from benchmarks.gpu.driver import main

if __name__ == "__main__":
    sys.exit(main())
