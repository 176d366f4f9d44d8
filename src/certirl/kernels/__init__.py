"""Sums of products of basis functions, on a core and on a GPU."""
