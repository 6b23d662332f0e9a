"""What takes processes of its own: a cluster whose executors are struck, and pipelines that are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.executor_kills import struck
from tests.bench.kill_trials import trials

pytestmark = pytest.mark.spark_processes


def test_a_cluster_whose_executors_are_halted_and_killed_gives_every_row_once(tmp_path: Path) -> None:
    """Ten batches, so that state is read back, by executors that run the code that was sent to them; tasks are run again, and twice at a time."""
    outcome = struck(tmp_path, batches=10, blows=2, seed=1)
    assert (outcome.halted, outcome.killed) == (1, 1)
    assert outcome.batches >= 10
    assert outcome.executors_lost >= 1
    assert outcome.speculated >= 1
    assert outcome.expected > 1000
    assert outcome.right, outcome


def test_three_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    hits, expected, wrong = trials(tmp_path, kills=3, seed=1)
    assert (hits, wrong) == (3, 0)
    assert expected > 100
