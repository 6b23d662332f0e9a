"""The service: routes over the registry of endpoints, problems for whatever goes wrong.

The event loop only moves bytes. A request gets a place (or a 503), its body is read up to the limit (or a 413), and a
worker process decodes, validates, solves and encodes; the answer's bytes go out as they came, or at the end of a stream of
incumbents. The pool, not this module, knows about processes; the worker, not this module, knows about models.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.service.access import Access, BadKeyError, TooFastError
from app.service.answers import Answers, Key
from app.service.endpoints import ENDPOINTS, Endpoint
from app.service.frames import ABANDONED
from app.service.metrics import METRICS_MEDIA_TYPE, Metrics
from app.service.openapi_document import INFO, SERVICE_PROBLEMS, SOLVE_PROBLEMS, TAGS, describe, description, request_body, solve_responses
from app.service.page import add_page
from app.service.pool import Answer, OverloadedError, Pool, Tell, WorkerLostError
from app.service.problems import PROBLEM_MEDIA_TYPE, problem
from app.service.settings import Settings, settings_from
from app.service.stream import QUIET, EventStream, Newest, wants_stream
from app.service.traces import Traces, trace_id, traces_from
from models.service import Health, Readiness

__all__ = ["create_app"]

STATIC = Path(__file__).parents[1] / "static"
RETRY_AFTER = {"Retry-After": "1"}  # seconds: a place is free as soon as one solve ends, and most take milliseconds
QUICK = 0.02  # seconds of a solve before the service looks whether its client is still there
REFUSAL_PAUSE = 0.25  # seconds: clients that ask again at once would take the event loop from those that were let in
SANE_ID = re.compile(r"[A-Za-z0-9._\-]{1,64}")

# Swagger UI needs its own script, style and inline pictures, and this service's document: nothing from elsewhere.
DOCS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

log = logging.getLogger("watersmeet.http")


class RefusedError(Exception):
    """A request that is answered with a problem."""

    def __init__(self, status: int, detail: str, about_body: bool = False, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.response = _problem_response(status, detail, [("", detail)] if about_body else [], headers)


class ClientGoneError(Exception):
    """The client closed its connection before it was answered."""


def _problem_response(status: int, detail: str, errors: list[tuple[str, str]] | None = None, headers: dict[str, str] | None = None) -> Response:
    return Response(problem(status, detail, errors or ()), status, headers, PROBLEM_MEDIA_TYPE)


def create_app(settings: Settings | None = None, pool: Pool | None = None) -> FastAPI:
    """The service as an ASGI application; its workers start and end with its lifespan."""
    settings = settings or settings_from()
    pool = pool or Pool(settings)
    answers, access = Answers(settings.cache_bytes), Access(settings.keys, settings.rate_limit)
    metrics, traces = Metrics(pool, answers), traces_from()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        pool.open()
        try:
            yield
        finally:
            await pool.close()
            if traces is not None:
                traces.close()

    app = FastAPI(
        title="Watersmeet",
        summary="Plans for n-way joins over windows of streams",
        description=INFO,
        version=version("watersmeet"),
        openapi_tags=TAGS,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    solves = {e.path: _solve_route(index, e, pool, metrics, settings, answers, access) for index, e in enumerate(ENDPOINTS)}
    for endpoint in ENDPOINTS:
        app.add_api_route(
            endpoint.path,
            solves[endpoint.path],
            methods=["POST"],
            response_model=endpoint.answer,
            response_description=endpoint.answer.__doc__ or "The answer.",
            operation_id=endpoint.operation_id,
            summary=endpoint.summary,
            description=description(endpoint),
            tags=["solvers" if endpoint.path.startswith("/v1/solvers/") else "plans"],
            responses=solve_responses(endpoint),
            openapi_extra=request_body(endpoint),
        )
    _add_service_routes(app, pool, metrics)
    add_page(app)
    app.add_exception_handler(RefusedError, _answer_refused)
    app.add_exception_handler(HTTPException, _answer_http_exception)
    app.state.traces = traces
    routes = frozenset(getattr(route, "path", "") for route in app.routes)
    app.add_middleware(_Outermost, metrics=metrics, traces=traces, routes=routes, solves=solves)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    described = describe(app)
    app.openapi = lambda: described  # type: ignore[method-assign]
    return app


Solve = Callable[[Request], Awaitable[Response]]


def _solve_route(index: int, endpoint: Endpoint, pool: Pool, metrics: Metrics, settings: Settings, answers: Answers, access: Access) -> Solve:
    async def solve(request: Request) -> Response:
        _admit(request, access)
        _check_media_type(request)
        newest = Newest() if endpoint.streams and wants_stream(_header(request, b"accept")) else None
        source = "miss"
        try:
            with ExitStack() as places:
                places.enter_context(pool.place())
                body = await _read_body(request, settings)
                key = answers.key(endpoint, body) if settings.cache_bytes else None
                answer = answers.kept(key) if key else None
                if answer is not None:
                    source = "hit"
                else:
                    if key is not None and answers.in_flight(key):
                        source = "shared"  # it takes no worker, but it waits like the others, and keeps its place
                    solving = asyncio.ensure_future(work(key, request, body, newest))
                    if not await _over_or_told(request, solving, newest):
                        kept = places.pop_all()
                        solving.add_done_callback(lambda _: kept.close())  # not only when a slow reader has read it all
                        return stream(request, solving, newest or Newest(), source)
                    answer = solving.result()
        except (OverloadedError, WorkerLostError) as failed:
            if isinstance(failed, OverloadedError):
                await asyncio.sleep(REFUSAL_PAUSE)
            raise _refusal(failed) from None
        except ClientGoneError:
            return Response(status_code=ABANDONED)
        if answer.status != 200:
            return Response(answer.body, answer.status, _timing(answer), PROBLEM_MEDIA_TYPE)
        if newest is not None:
            return stream(request, _done(answer), newest, source)
        count(answer, source)
        if source == "hit":
            return _Kept(answer, endpoint.streams)
        vary = {"Vary": "Accept"} if endpoint.streams else {}
        headers = {"ETag": f'"{answer.etag}"', "X-Cache": source, **_timing(answer), **vary}
        return Response(answer.body, headers=headers, media_type="application/json")

    def work(key: Key | None, request: Request, body: bytes, newest: Newest | None) -> Coroutine[Any, Any, Answer]:
        def solved(tell: Tell | None) -> Coroutine[Any, Any, Answer]:
            return pool.solve(index, request.state.request_id, body, tell)

        def ask(tell: Tell | None) -> Coroutine[Any, Any, Answer]:
            traces: Traces | None = request.app.state.traces
            return solved(tell) if traces is None else traces.solve(request.state.span, solved, tell)

        tell = newest.put if newest else None
        return answers.solve(key, ask, tell) if key else ask(tell)

    def stream(request: Request, solving: asyncio.Future[Answer], newest: Newest, source: str) -> Response:
        def finished(status: int, told: int) -> None:
            request.state.status = status  # what the log and the metrics say: the stream itself began with 200
            metrics.streamed(endpoint.path, told)
            if status == 200:
                count(solving.result(), source)

        return EventStream(solving, newest, _disconnected(request), _told_of, finished, {"X-Cache": source})

    def count(answer: Answer, source: str) -> None:
        metrics.came_from(source)
        if source == "miss":
            metrics.solved(endpoint.path, answer.seconds)

    return solve


class _Kept(Response):
    """A kept answer."""

    def __init__(self, answer: Answer, streams: bool) -> None:
        self.status_code, self.body, self.background = 200, answer.body, None
        self.raw_headers = [*answer.kept_headers, *([(b"vary", b"Accept")] if streams else [])]


def _timing(answer: Answer) -> dict[str, str]:
    """Where the time went, in milliseconds (W3C Server Timing)."""
    return {"Server-Timing": f"queue;dur={1e3 * answer.waited:.1f}, solve;dur={1e3 * answer.seconds:.1f}"}


def _done(answer: Answer) -> asyncio.Future[Answer]:
    done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    done.set_result(answer)
    return done


def _refusal(failed: OverloadedError | WorkerLostError) -> RefusedError:
    if isinstance(failed, OverloadedError):
        return RefusedError(503, "Every worker is busy and the queue is full; try again shortly.", headers=RETRY_AFTER)
    return RefusedError(
        500, "The solve did not end within its time limit and was stopped." if failed.timed_out else "The server failed on this request."
    )


def _told_of(failed: BaseException) -> tuple[int, bytes]:
    """What a stream that has begun says of a failure."""
    if isinstance(failed, (OverloadedError, WorkerLostError)):
        response = _refusal(failed).response
        return response.status_code, bytes(response.body)
    log.error("stream failed", exc_info=failed)
    return 500, problem(500, "The server failed on this request; its log says why.")


def _header(request: Request, name: bytes) -> str:
    """The first of this name, or nothing. `Request.headers` looks through all of them for each name, which is a tenth of a kept answer's time."""
    headers: dict[bytes, bytes] = request.scope["state"]["headers"]
    return headers.get(name, b"").decode("latin-1")


def _admit(request: Request, access: Access) -> None:
    if access.open:
        return
    try:
        access.admit(_header(request, b"x-api-key"), request.client.host if request.client else "")
    except BadKeyError:
        raise RefusedError(401, "This service asks for a key; send it as X-API-Key.", headers={"WWW-Authenticate": "ApiKey"}) from None
    except TooFastError as fast:
        raise RefusedError(429, "Past the rate limit; ask again later.", headers={"Retry-After": str(fast.seconds)}) from None


def _check_media_type(request: Request) -> None:
    media_type, _, parameters = _header(request, b"content-type").partition(";")
    if media_type.strip().lower() != "application/json":
        given = f"not {media_type.strip()[:80]}" if media_type.strip() else "and it has no Content-Type"
        raise RefusedError(415, f"The body must be application/json, {given}.", about_body=True)
    charset = parameters.lower().replace('"', "").partition("charset=")[2].partition(";")[0].strip()
    if charset not in ("", "utf-8", "utf8"):
        raise RefusedError(415, f"The body must be UTF-8, not {charset[:80]}.", about_body=True)
    encoding = _header(request, b"content-encoding").strip().lower()
    if encoding not in ("", "identity"):
        raise RefusedError(415, f"The body must come as it is, without Content-Encoding, not {encoding[:80]}.", about_body=True)


async def _read_body(request: Request, settings: Settings) -> bytes:
    """The body, as long as it keeps to the limits of size and time."""
    declared = _header(request, b"content-length")
    too_large = declared.isdecimal() and int(declared[:20]) > settings.body_bytes
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(settings.body_seconds):
            while more and not too_large:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                body += message.get("body", b"")
                more = message.get("more_body", False)
                too_large = len(body) > settings.body_bytes
    except TimeoutError:
        raise RefusedError(408, f"The body did not arrive within {settings.body_seconds:g} seconds.", about_body=True) from None
    if too_large:
        raise RefusedError(413, f"The body must be at most {settings.body_bytes} bytes.", about_body=True)
    return bytes(body)


async def _over_or_told(request: Request, solving: asyncio.Future[Answer], newest: Newest | None) -> bool:
    """Wait for the answer: True when it is there. False when there is something to tell before it, or to say that it takes a while.

    Raises ClientGoneError where the client has gone, and has the solve stopped then.
    """
    others: set[asyncio.Future[Any]] = set()
    try:
        if newest is None and (await asyncio.wait({solving}, timeout=QUICK))[0]:
            return True  # most answers come so soon that nobody has to watch for clients who leave
        gone = asyncio.ensure_future(_disconnected(request))
        others = {gone} if newest is None else {gone, asyncio.ensure_future(newest.told())}
        await asyncio.wait({solving, *others}, timeout=None if newest is None else QUIET, return_when=asyncio.FIRST_COMPLETED)
        if gone.done() and not solving.done():
            raise ClientGoneError
        return solving.done()
    except BaseException:
        solving.cancel()
        raise
    finally:
        for other in others:
            other.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _add_service_routes(app: FastAPI, pool: Pool, metrics: Metrics) -> None:
    @app.get("/healthz", operation_id="health", tags=["service"], summary="Is it up", responses=SERVICE_PROBLEMS)
    async def health() -> Health:
        """Answers at once, whatever the workers are doing."""
        return Health(status="ok")

    @app.get("/readyz", operation_id="readiness", tags=["service"], summary="Is it ready", responses={503: SOLVE_PROBLEMS[503], **SERVICE_PROBLEMS})
    async def readiness() -> Readiness:
        """Yes only when every worker is warm; until then 503."""
        if not pool.ready:
            raise RefusedError(503, f"Warming up: {pool.warm} of {pool.size} workers are warm.", headers=RETRY_AFTER)
        return Readiness(status="ready", workers=pool.warm, version=app.version)

    @app.get(
        "/metrics",
        operation_id="metrics",
        tags=["service"],
        summary="How it is doing",
        response_class=Response,
        responses={200: {"description": "Figures for Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}}, **SERVICE_PROBLEMS},
    )
    async def figures() -> Response:
        """Requests by route and status, latencies, solve times, queue length, busy workers."""
        return Response(metrics.render(), media_type=METRICS_MEDIA_TYPE)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response((STATIC / "docs.html").read_bytes(), headers={"Content-Security-Policy": DOCS_POLICY}, media_type="text/html")

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(json.dumps(app.openapi()), media_type="application/json")


async def _answer_refused(_: Request, refused: Exception) -> Response:
    assert isinstance(refused, RefusedError)
    return refused.response


async def _answer_http_exception(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)
    headers = dict(failure.headers or {})
    path = str(request.scope["path"])[:200]
    detail = str(failure.detail)
    if failure.status_code == 404:
        close = difflib.get_close_matches(path, [endpoint.path for endpoint in ENDPOINTS], n=1)
        detail = f"There is nothing at {path}" + (f"; did you mean {close[0]}?" if close else "; see /docs.")
    elif failure.status_code == 405:
        detail = f"{path} takes {headers.get('Allow', headers.get('allow', 'another method'))}, not {request.method[:20]}."
    return _problem_response(failure.status_code, detail, headers=headers)


class _Outermost:
    """Around every request: its id, its line in the log, its count in the metrics, and a problem for what nobody caught.

    Solves are answered from here. FastAPI has the same routes and describes them; its own way to them, which looks for parameters to check
    and finds none, takes half as long as answering with bytes that are kept.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, traces: Traces | None, routes: frozenset[str], solves: dict[str, Solve]) -> None:
        self._app, self._metrics, self._traces, self._routes, self._solves = app, metrics, traces, routes, solves

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        solve = self._solves.get(scope["path"]) if scope["method"] == "POST" else None
        if solve is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await solve(Request(scope, receive))
        except RefusedError as refused:
            response = refused.response
        await response(scope, receive, send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(reversed(scope["headers"]))  # of several the first
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given if SANE_ID.fullmatch(given) else token_hex(16)
        scope.setdefault("state", {}).update(request_id=request_id, headers=headers)
        began, status = time.perf_counter(), 0
        route = scope["path"] if scope["path"] in self._routes else "other"
        traced = trace_id(headers)
        if self._traces is not None:
            span = scope["state"]["span"] = self._traces.begin(scope["method"], route, headers, request_id)
            traced = f"{span.get_span_context().trace_id:032x}"
        said = {"request_id": request_id, **({"trace_id": traced} if traced else {})}

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] += [(b"x-request-id", request_id.encode()), (b"x-content-type-options", b"nosniff")]
            await send(message)

        try:
            await self._answer(scope, receive, send_with_id)
        except Exception:
            log.exception("request failed", extra={**said, "path": scope["path"]})
            if status:
                raise
            await _problem_response(500, "The server failed on this request; its log says why.")(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - began
            status = scope["state"].get("status", status)
            self._metrics.answered(route, status, seconds)
            log.info(
                "request",
                extra={**said, "method": scope["method"], "path": scope["path"], "status": status, "seconds": round(seconds, 6)},
            )
            if self._traces is not None:
                self._traces.end(span, status)
