"""Bases, products of bases, rewards, extrema and inequalities of functions."""
