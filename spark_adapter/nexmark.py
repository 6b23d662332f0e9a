"""A generated auction site, after NEXMark: persons who come by, auctions they open or touch, bids on these.

The site has a fixed number of accounts and of listings. A row of `persons` is an account seen on the site, a row of
`auctions` a listing opened or changed by its seller of the moment, a row of `bids` a bid on some listing. All draws are uniform
and independent, so a plan's assumptions hold and its predictions can be held against what a run measures: rates are
those of the request, and any two rows of `bids` and `auctions` match with probability 1 / listings.

Rows arrive in order, one after the other at even distances per stream. The same seed gives the same bytes, in files
of the same names and modification times: Spark takes files in the order of these.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

__all__ = ["SCHEMAS", "Site", "rows", "write"]

SCHEMAS = {
    "persons": "id BIGINT, name STRING, city STRING, ts TIMESTAMP",
    "auctions": "id BIGINT, seller BIGINT, item STRING, reserve DOUBLE, ts TIMESTAMP",
    "bids": "auction BIGINT, bidder BIGINT, price DOUBLE, ts TIMESTAMP",
}
START = datetime(2026, 1, 1, tzinfo=UTC)
FIRST_FILE = 1_000_000_000  # modification time of the first file, in seconds; any would do that is the same each time
CITIES = ("Bergen", "Cusco", "Dakar", "Hobart", "Kyoto", "Oulu", "Porto", "Tartu")
ITEMS = ("anvil", "bicycle", "clock", "drum", "easel", "fiddle", "globe", "harp")


@dataclass(frozen=True, slots=True)
class Site:
    """How large and how busy the site is."""

    rates: Mapping[str, float]
    """Rows a second, per stream."""
    accounts: int
    listings: int
    seconds: float
    """How long it is watched."""
    seed: int = 0


def rows(site: Site, stream: str) -> Iterator[dict[str, Any]]:
    """The rows of one stream in order of arrival; `ts` is a datetime. Each stream has its own generator: none depends on another."""
    draw = random.Random(f"{site.seed} {stream}")
    step = 1_000_000 / site.rates[stream]
    for k in range(int(site.seconds * site.rates[stream])):
        ts = START + timedelta(microseconds=int((k + 0.5) * step))
        if stream == "persons":
            account = draw.randrange(site.accounts)
            yield {"id": account, "name": f"person {account}", "city": CITIES[account % len(CITIES)], "ts": ts}
        elif stream == "auctions":
            listing, seller = draw.randrange(site.listings), draw.randrange(site.accounts)
            yield {"id": listing, "seller": seller, "item": ITEMS[listing % len(ITEMS)], "reserve": float(draw.randrange(1, 500)), "ts": ts}
        else:
            yield {
                "auction": draw.randrange(site.listings),
                "bidder": draw.randrange(site.accounts),
                "price": draw.randrange(100, 100_000) / 100,
                "ts": ts,
            }


def write(site: Site, folder: Path, files: int) -> None:
    """All streams as JSON lines, one folder each, cut at the same event times into `files` files."""
    length = timedelta(seconds=site.seconds) / files
    for stream in SCHEMAS:
        target = folder / stream
        target.mkdir(parents=True, exist_ok=True)
        parts: list[list[str]] = [[] for _ in range(files)]
        for row in rows(site, stream):
            part = min(files - 1, (row["ts"] - START) // length)
            parts[part].append(json.dumps({**row, "ts": row["ts"].isoformat()}) + "\n")
        for k, lines in enumerate(parts):
            path = target / f"{k:05}.json"
            path.write_text("".join(lines))
            os.utime(path, (FIRST_FILE + k, FIRST_FILE + k))
