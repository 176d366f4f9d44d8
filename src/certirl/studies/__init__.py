"""Studies and benchmarks, run by name from the command line."""
