"""Certificates, refutations and the bounds behind them."""
