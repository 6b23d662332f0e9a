"""The page at `/`: a request to edit, its plan drawn, compared, and taken along.

It is static: ES modules without a build step, served from the package, talking to the same endpoints as any other client.
Its policy allows scripts, styles and connections from this service alone, nothing inline, and no text as markup: whatever
a request holds, it cannot become part of the page.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.staticfiles import StaticFiles

from models.request import CacheMode, Comparison, Costs, Method, Objective

__all__ = ["add_page"]

FOLDER = Path(__file__).parents[1] / "static" / "page"
FRESH = {"Cache-Control": "no-cache"}  # asked again each time, answered 304: modules of two versions never mix

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


class _Modules(StaticFiles):
    def file_response(self, *arguments: Any, **named: Any) -> Response:
        response = super().file_response(*arguments, **named)
        response.headers.update(FRESH)
        return response


def _choices() -> str:
    """What a request may choose from, for the page's form: the names that the models know, with a sentence where there is one."""
    choices = {
        "/objective": dict.fromkeys(Objective, ""),
        "/options/method": {method: method.can.says for method in Method},
        "/options/caches": dict.fromkeys(CacheMode, ""),
        "/query/predicates/op": dict.fromkeys(Comparison, ""),
        "/costs": dict.fromkeys(Costs.model_fields, ""),
    }
    return json.dumps(choices, separators=(",", ":"))


def add_page(app: FastAPI) -> None:
    """The route, and what the page loads."""
    index = (FOLDER / "index.html").read_text("utf-8").replace("CHOICES", escape(_choices())).encode()
    app.mount("/static/page", _Modules(directory=FOLDER), name="page")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        headers = {"Content-Security-Policy": PAGE_POLICY, "Referrer-Policy": "no-referrer", **FRESH}
        return Response(index, headers=headers, media_type="text/html")
