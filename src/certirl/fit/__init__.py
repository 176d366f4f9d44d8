"""From moments to operators and from operators to a reward."""
