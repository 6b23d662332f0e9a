"""Figures of the service in the format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from app.service.answers import Answers
from app.service.pool import Pool

__all__ = ["METRICS_MEDIA_TYPE", "Metrics"]

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# From a warm plan of a few streams (a millisecond) to the longest time limit (five minutes).
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class _Collector(Collector):
    """What the pool and the kept answers know anyway, read when it is asked for."""

    def __init__(self, pool: Pool, answers: Answers) -> None:
        self._pool, self._answers = pool, answers

    def collect(self) -> Iterator[Metric]:
        pool = self._pool
        waiting = pool.waiting + self._answers.sharing
        yield InfoMetricFamily("watersmeet_build", "What runs.", {"version": version("watersmeet")})
        yield GaugeMetricFamily("watersmeet_queue_length", "Requests waiting for a worker, or for the solve of another request.", waiting)
        yield GaugeMetricFamily("watersmeet_kept_answers_bytes", "Bytes of answers kept for requests that come again.", self._answers.bytes_kept)
        yield GaugeMetricFamily("watersmeet_busy_workers", "Workers that are solving.", pool.busy)
        yield GaugeMetricFamily("watersmeet_warm_workers", "Workers that are up and warm.", pool.warm)
        yield CounterMetricFamily("watersmeet_stopped_solves", "Solves that were told to stop because nobody waited.", pool.stopped)
        yield CounterMetricFamily("watersmeet_replaced_workers", "Workers that ended before their time and were replaced.", pool.replaced)


class Metrics:
    """One registry per service, so that two in one process do not mix."""

    def __init__(self, pool: Pool, answers: Answers) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, which nothing here reads
        self._registry = CollectorRegistry()
        self._requests = Counter("watersmeet_http_requests_total", "Requests answered.", ["route", "status"], registry=self._registry)
        self._latency = Histogram(
            "watersmeet_http_request_seconds",
            "From a request's first byte to its answer's last.",
            ["route"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._solve = Histogram("watersmeet_solve_seconds", "Time in the solver.", ["route"], buckets=BUCKETS, registry=self._registry)
        self._answers = Counter(
            "watersmeet_answers_total", "Answers by where they came from: hit, shared, miss.", ["source"], registry=self._registry
        )
        self._streams = Counter("watersmeet_streams_total", "Streams of events, those that were left included.", ["route"], registry=self._registry)
        self._incumbents = Counter("watersmeet_incumbents_total", "Incumbents sent in streams.", ["route"], registry=self._registry)
        self._registry.register(_Collector(pool, answers))
        # Series that were found once: looking one up by its labels takes longer than counting.
        self._answered: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._came_from: dict[str, Counter] = {}

    def answered(self, route: str, status: int, seconds: float) -> None:
        series = self._answered.get((route, status))
        if series is None:
            series = self._answered[route, status] = self._requests.labels(route, str(status)), self._latency.labels(route)
        series[0].inc()
        series[1].observe(seconds)

    def solved(self, route: str, seconds: float) -> None:
        self._solve.labels(route).observe(seconds)

    def streamed(self, route: str, incumbents: int) -> None:
        self._streams.labels(route).inc()
        self._incumbents.labels(route).inc(incumbents)

    def came_from(self, source: str) -> None:
        series = self._came_from.get(source)
        if series is None:
            series = self._came_from[source] = self._answers.labels(source)
        series.inc()

    def render(self) -> bytes:
        return generate_latest(self._registry)
