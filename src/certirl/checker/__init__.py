"""The independent checker of saved certificates and refutations, in floating point with proved errors."""
