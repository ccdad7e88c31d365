"""All drivers, one after another: `python -m benchmarks`."""

from benchmarks import quality, simulator_speed

simulator_speed.main()
quality.main([])
