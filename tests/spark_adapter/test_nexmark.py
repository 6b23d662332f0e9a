"""The generated site is the same every time, as busy as asked, and Spark takes its files in order."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

from spark_adapter.nexmark import SCHEMAS, Site, rows, write

SITE = Site({"persons": 1.0, "auctions": 3.0, "bids": 40.0}, accounts=50, listings=80, seconds=60)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.json"))}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    write(SITE, tmp_path / "first", 3)
    write(SITE, tmp_path / "second", 3)
    assert content(tmp_path / "first") == content(tmp_path / "second")
    other = Site(SITE.rates, SITE.accounts, SITE.listings, SITE.seconds, seed=1)
    write(other, tmp_path / "third", 3)
    assert content(tmp_path / "third") != content(tmp_path / "first")


def test_files_are_dated_in_order_and_cut_at_the_same_event_times(tmp_path: Path) -> None:
    write(SITE, tmp_path, 3)
    for stream in SCHEMAS:
        files = sorted((tmp_path / stream).iterdir())
        dates = [file.stat().st_mtime for file in files]
        assert dates == sorted(set(dates))
        assert [len(file.read_text().splitlines()) for file in files] == [SITE.rates[stream] * 20] * 3


def test_rates_and_draws_are_as_asked() -> None:
    bids = list(rows(SITE, "bids"))
    assert len(bids) == 2400
    assert all(a["ts"] < b["ts"] for a, b in itertools.pairwise(bids))
    drawn = Counter(bid["auction"] for bid in bids)
    assert set(drawn) == set(range(80))
    assert max(drawn.values()) < 2 * 2400 / 80
