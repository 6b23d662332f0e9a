"""`python -m app` is `watersmeet`."""

from __future__ import annotations

import sys

from app.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
