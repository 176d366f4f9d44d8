"""The theorems of the paper as calculators."""
