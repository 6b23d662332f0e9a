"""SQL on the page: pasted, planned, mended, refused."""

from __future__ import annotations

from tests.app.serving import example
from tests.browser.driving import PATIENCE, Service

SQL = """SELECT b.price, p.name FROM bids b
JOIN auctions a ON b.auction = a.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' MINUTE
JOIN persons p ON a.seller = p.id AND a.ts BETWEEN p.ts - INTERVAL '1' MINUTE AND p.ts + INTERVAL '10' MINUTE"""


def test_sql_is_planned_and_figures_filled_in_survive_its_mending(page_service: Service) -> None:
    with page_service.opened() as it:
        it.page.click("#paste-sql")
        it.page.fill("#sql", SQL)
        it.page.wait_for_selector("#sql-notes li", timeout=PATIENCE)
        it.settled()
        meant = it.asked("/v1/requests", {"sql": SQL})["request"]["query"]
        assert it.request()["query"] == meant
        assert "no rate is given for b, a, p" in it.page.inner_text("#sql-notes")
        it.edit("/query/streams/0/rate", "920")
        it.edit("/query/predicates/0/selectivity", "0.001")
        assert it.fingerprint() == it.asked("/v1/plans", it.request())["fingerprint"]
        it.page.fill("#sql", SQL.replace("'5' MINUTE", "'4' MINUTE").replace("b.auction = a.id", "b.auction = a.nr"))
        it.page.wait_for_function("() => document.getElementById('json').value.includes('a.nr')", timeout=PATIENCE)
        it.settled()
        streams, predicates = it.request()["query"]["streams"], it.request()["query"]["predicates"]
        assert [(stream["name"], stream["rate"], stream["window"]["seconds"]) for stream in streams][:2] == [("b", 920, 60), ("a", 1, 240)]
        assert predicates[0]["right"] == "a.nr" and predicates[0]["selectivity"] != 0.001


def test_faults_of_sql_are_said_with_their_places_and_the_last_plan_stays(page_service: Service) -> None:
    with page_service.opened() as it:
        before = it.request()
        it.page.click("#paste-sql")
        it.page.fill("#sql", SQL.replace("JOIN persons", "LEFT JOIN persons"))
        it.page.wait_for_selector("#sql-faults p", timeout=PATIENCE)
        assert it.page.inner_text("#sql-faults") == "line 3, column 1: LEFT JOIN of p is not planned: plans are inner joins"
        assert it.request() == before
        it.page.select_option("#sql-dialect", "postgres")
        it.page.fill("#sql", SQL.replace("'1' MINUTE", "'00:01:00'"))
        it.page.wait_for_selector("#sql-notes li", timeout=PATIENCE)
        assert it.page.is_hidden("#sql-faults")
        it.pick("star")
        assert it.page.input_value("#sql") == "" and it.request() == example("star")
