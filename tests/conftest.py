"""What holds for all tests."""

import signal

# A shell lets what it starts in the background ignore Ctrl-C, and so do the children of that; some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
