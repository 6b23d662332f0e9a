"""How many connected sets a table may have; apart from the compiled code, which takes a while to import."""

from __future__ import annotations

__all__ = ["HASTY_SETS", "MAX_SETS"]

MAX_SETS = 1 << 20
"""All subsets of 20 streams: 100 MB of tables, a third of a second."""
HASTY_SETS = 300_000
"""Where time is short: tables and seeds of that many take a quarter of a second."""
