"""Logs of episodes and tables: what makes `Transitions` of them."""

from certirl.data.episodes import Episode, from_episodes
from certirl.data.tables import read, stream

__all__ = ["Episode", "from_episodes", "read", "stream"]
__dir__ = __all__.copy
