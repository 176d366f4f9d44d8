"""``python -m certirl``."""

from certirl.cli import main

raise SystemExit(main())
