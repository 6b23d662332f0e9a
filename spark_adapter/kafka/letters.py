"""Records that do not decode, written to a topic: a small query beside the pipeline, one per stream with `on_bad: {topic: …}`.

A query of Spark's has one sink, so the pipeline itself cannot write them. The small query reads the topic once more, with a checkpoint of its own
in the pipeline's, and is at work before the pipeline reads its first record: what the pipeline drops is written, at least once.
"""

from __future__ import annotations

import time

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from models.bindings import BadTopic, Bindings
from spark_adapter.checkpoint import Folder
from spark_adapter.kafka.topics import bad_records, judged, letters_options, reading_options

__all__ = ["Letters"]

PATIENCE = 60.0  # seconds for a query to have written down where it begins
POLL_SECONDS = 0.05
OFTEN = "1 second"  # bad records are few, and nobody waits for them


class Letters:
    """The queries of one pipeline; none where no stream asks for one."""

    def __init__(self, bindings: Bindings, spark: SparkSession) -> None:
        self._bindings, self._spark = bindings, spark
        self._queries: list[StreamingQuery] = []

    def start(self) -> None:
        """Start them, and wait until each has fixed where it begins."""
        for name, binding in self._bindings.streams.items():
            source = binding.source
            if not isinstance(source.on_bad, BadTopic):
                continue
            frame = self._spark.readStream.format(source.format).options(**reading_options(source)).load()
            place = f"{self._bindings.checkpoint.rstrip('/')}/bad/{name}"
            writer = bad_records(judged(frame, source)).writeStream.format("kafka").options(**letters_options(source))
            writer = writer.option("checkpointLocation", place)
            now = self._bindings.trigger.available_now
            query = (writer.trigger(availableNow=True) if now else writer.trigger(processingTime=OFTEN)).start()
            self._queries.append(query)
            folder, deadline = Folder(self._spark, place), time.monotonic() + PATIENCE
            while query.isActive and not folder.names("sources/0") and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)

    def failure(self) -> StreamingQueryException | None:
        """What ended one of them before its time."""
        for query in self._queries:
            error = None if query.isActive else query.exception()
            if error is not None:
                return error
        return None

    def finish(self) -> None:
        """Wait for the end of those that end by themselves."""
        for query in self._queries:
            query.awaitTermination()

    def work_through(self) -> None:
        for query in self._queries:
            query.processAllAvailable()

    def stop(self) -> None:
        for query in self._queries:
            query.stop()
