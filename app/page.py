"""The page at `/`: a request to edit, its plan drawn, compared, and taken along.

It is static: ES modules without a build step, served from the package, talking to the same endpoints as any other client.
Its policy allows scripts, styles and connections from this service alone, nothing inline, and no text as markup: whatever
a request holds, it cannot become part of the page.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Response

__all__ = ["add_page"]

INDEX = Path(__file__).parent / "static" / "page" / "index.html"

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


def add_page(app: FastAPI) -> None:
    """The route; what the page loads is below /static."""

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        headers = {"Content-Security-Policy": PAGE_POLICY, "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
        return Response(INDEX.read_bytes(), headers=headers, media_type="text/html")
