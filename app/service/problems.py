"""Problems as bytes: application/problem+json, RFC 9457 (contract §4)."""

from __future__ import annotations

from collections.abc import Iterable

from models.problem import Problem, ProblemError

__all__ = ["PROBLEM_MEDIA_TYPE", "TITLES", "problem"]

PROBLEM_MEDIA_TYPE = "application/problem+json"

# RFC 9110's names; the standard library still has the older ones of 413 and 422.
TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


def problem(status: int, detail: str, errors: Iterable[tuple[str, str]] = ()) -> bytes:
    """The body of a problem; `errors` are (pointer, sentence)."""
    return (
        Problem(
            type="about:blank",
            title=TITLES.get(status, "Error"),
            status=status,
            detail=detail,
            errors=[ProblemError(pointer=where, detail=what) for where, what in errors],
        )
        .model_dump_json()
        .encode()
    )
