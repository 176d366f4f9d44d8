"""The state space, input checks, files, progress lines, and parallel work."""
