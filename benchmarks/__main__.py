"""All drivers, one after another: `python -m benchmarks`."""

from benchmarks import formulations, quality, simulator_speed, solver_steps

if __name__ == "__main__":
    simulator_speed.main()
    solver_steps.main([])
    formulations.main([])
    quality.main([])
