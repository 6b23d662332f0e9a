"""What documents and docstrings say is so: names lead to the code, and examples give what they show."""

from __future__ import annotations

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

from solvers.model.cost import CostModel
from tests.sizes import product_files

ROOT = Path(__file__).parent.parent
DOCUMENTS = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")), *sorted((ROOT / "docs").glob("*.md"))]
ROOMS = "app|docs|models|openapi|solvers|spark_adapter|tests"
TERMS = {
    "bound",
    "cell",
    "connected set",
    "excess",
    "frontier",
    "grid",
    "headroom",
    "kept",
    "mjoin",
    "piece",
    "proof",
    "qualified",
    "seed",
    "shedding",
    "staircase",
    "stem",
    "tree_proof",
    "watermark",
}
EXAMPLES = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in product_files() if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_and_link_leads_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [document.parent / link for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    paths = [ROOT / path for path in re.findall(rf"`((?:{ROOMS})/[\w./-]*)`", text)]
    modules = [ROOT / f"{name.replace('.', '/')}.py" for name in re.findall(r"python -m (tests\.bench\.\w+)", text)]
    assert [str(path) for path in (*links, *paths, *modules) if not path.exists() and path.stem != "NAME"] == []


def test_every_bench_that_code_speaks_of_exists() -> None:
    sources = [path for room in ROOMS.split("|") for path in (ROOT / room).rglob("*.py")]
    named = {name for path in sources for name in re.findall(r"tests[./]bench[./](\w+)", path.read_text(encoding="utf-8"))}
    assert "random_claims" in named
    assert sorted(name for name in named if not (ROOT / "tests" / "bench" / f"{name}.py").exists()) == []


def test_the_way_from_the_readme_to_hash_or_nested_loop_is_written_down() -> None:
    assert "(docs/architecture.md)" in DOCUMENTS[0].read_text(encoding="utf-8")
    for name in ("README.md", "docs/architecture.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "`solvers/model/cost.py`" in text and CostModel.hashed_in_binary.__name__ in text


def test_the_glossary_explains_every_term() -> None:
    explained = set(re.findall(r"\*\*([^*]+)\*\*", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")))
    assert TERMS - explained == set()


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_in_docstrings_give_what_they_show(module: str) -> None:
    outcome = doctest.testmod(import_module(module))
    assert outcome.attempted and not outcome.failed
