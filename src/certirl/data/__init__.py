"""Transitions, simulators, experts, moments, episodes and tables."""
