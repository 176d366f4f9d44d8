"""`solve`: from data to a reward, and the search for a proof."""
