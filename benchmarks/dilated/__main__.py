"""`python -m benchmarks.dilated`."""

from benchmarks.dilated.driver import main

if __name__ == "__main__":
    main()
