"""Gymnasium environments, planning and rollouts."""
