"""`make bench`: every benchmark, one after the other; each prints its figures."""

from __future__ import annotations

import importlib
from pathlib import Path


def main() -> None:
    for file in sorted(Path(__file__).parent.glob("bench_*.py")):
        print(f"== {file.stem}", flush=True)
        importlib.import_module(f"tests.bench.{file.stem}").main()


if __name__ == "__main__":
    main()
