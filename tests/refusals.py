"""What is refused, in one sentence."""

import pytest


def refused(sentence, call, /, *arguments, kind=ValueError, **settings):
    """Check that a call is refused with this sentence, a pattern, and that no other error is behind it."""
    with pytest.raises(kind, match=sentence) as caught:
        call(*arguments, **settings)
    assert "\n" not in str(caught.value) and caught.value.__cause__ is None
