"""Same request, same bytes: in every process, over HTTP and on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.app.serving import EXAMPLES, ROOT, post, served


def answers(seed: str) -> list[bytes]:
    """The answers of one fresh server process to every example, and to a replan of it, each asked twice."""
    with served(PYTHONHASHSEED=seed, WATERSMEET_WORKERS="1", WATERSMEET_CACHE_BYTES="0") as client:
        given = []
        for file in EXAMPLES:
            first, second = (post(client, "/v1/plans", file.read_bytes()) for _ in range(2))
            assert first.status_code == 200 and first.content == second.content
            given.append(first.content)
            drifted = json.loads(file.read_bytes())
            drifted["query"]["streams"][0]["rate"] *= 20
            asked = {"plan": json.loads(first.content), "request": drifted}
            first, second = (post(client, "/v1/replans", asked) for _ in range(2))
            assert first.status_code == 200 and first.content == second.content
            given.append(first.content)
        return given


def printed(file: str) -> Any:
    return json.loads(subprocess.run([sys.executable, "-m", "app", "plan", file], cwd=ROOT, capture_output=True, check=True).stdout)


def test_two_fresh_servers_give_the_same_bytes_and_the_command_line_the_same_plan() -> None:
    assert EXAMPLES
    first = answers("0")
    assert first == answers("random")
    assert printed(str(EXAMPLES[0])) == json.loads(first[0])
