"""What the page at / is made of; how it works is tested in tests/browser."""

from __future__ import annotations

import json
import re
from html import unescape

import httpx
import pytest

from models.request import CacheMode, Comparison, Costs, Method, Objective
from tests.app.serving import EXAMPLES, ROOT

FOLDER = ROOT / "app" / "static" / "page"
MOST_BYTES = 300_000  # all of it, uncompressed: it loads over a slow line as well


def _fetched_later() -> set[str]:
    """Scripts that are fetched when somebody first asks for what they do, with those that they import."""
    waiting = re.findall(r'import\("\./([^"]+)"\)', (FOLDER / "main.js").read_text("utf-8"))
    found: set[str] = set()
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += re.findall(r'from "\./([^"]+)"', (FOLDER / name).read_text("utf-8"))
    return {f"static/page/{name}" for name in found}


def test_the_page_loads_only_what_the_service_has(service: httpx.Client) -> None:
    page = service.get("/")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert not re.search(r"https?:|//", page.text)
    loaded = set(re.findall(r'(?:src|href)="(static/[^"]+)"', page.text)) | _fetched_later()
    for path in loaded:
        found = service.get(f"/{path}")
        assert found.status_code == 200 and found.headers["cache-control"] == "no-cache", path
        assert service.get(f"/{path}", headers={"If-None-Match": found.headers["etag"]}).status_code == 304, path
    assert {path.rsplit("/", 1)[1] for path in loaded} | {"index.html"} == {file.name for file in FOLDER.iterdir()}


def test_its_policy_allows_nothing_inline_and_nothing_from_elsewhere(service: httpx.Client) -> None:
    policy = service.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy
    text = (FOLDER / "index.html").read_text("utf-8")
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)


def test_scripts_make_no_markup_from_text() -> None:
    for file in FOLDER.glob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", file.read_text("utf-8")), file.name


def test_it_is_light() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < MOST_BYTES


def test_its_examples_are_those_of_the_document(pytestconfig: pytest.Config) -> None:
    """A copy, because only what is below app/ is installed; --rewrite makes it anew."""
    examples = {file.stem: json.loads(file.read_text("utf-8")) for file in EXAMPLES}
    copy = FOLDER / "examples.json"
    if pytestconfig.getoption("--rewrite"):
        copy.write_text(json.dumps(examples, separators=(",", ":")) + "\n", "utf-8")
    assert json.loads(copy.read_text("utf-8")) == examples


def test_its_choices_are_those_of_a_request(service: httpx.Client) -> None:
    found = re.search(r'<meta name="choices" content="([^"]*)">', service.get("/").text)
    assert found
    listed = json.loads(unescape(found[1]))
    for name, choices in (
        ("/query/predicates/op", Comparison),
        ("/objective", Objective),
        ("/options/method", Method),
        ("/options/caches", CacheMode),
    ):
        assert list(listed[name]) == [choice.value for choice in choices]
    assert list(listed["/costs"]) == list(Costs.model_fields)
    for name in listed:
        assert f'CHOICES["{name}"]' in (FOLDER / "form.js").read_text("utf-8")


def test_it_says_what_each_search_is_for(service: httpx.Client) -> None:
    page = unescape(service.get("/").text)
    assert all(method.can.says in page for method in Method)
