"""The independent checker of saved certificates, in exact arithmetic."""
