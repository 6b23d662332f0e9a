"""What ended a pipeline that reads or writes topics, in one sentence that a person can act on."""

from __future__ import annotations

import re

from spark_adapter.errors import MARK
from spark_adapter.expressions import said

__all__ = ["explained"]

# What Spark or Kafka's client says, and what it means here.
MEANINGS = (
    (
        r"KAFKA_DATA_LOSS|may have been lost because they are not available in Kafka|OffsetOutOfRange",
        "a topic no longer has records that the checkpoint goes on with (retention has deleted them, or it was made anew): "
        'go on with what is left (option failOnDataLoss: "false" of the source), or start anew with another checkpoint (and startingOffsets)',
    ),
    (
        r"UnknownTopicOrPartition|not present in metadata",
        "a topic that the pipeline uses is gone from its brokers; create it again and start the pipeline with the same checkpoint, which goes on",
    ),
    (
        r"(kafka\S*TimeoutException|TimeoutException.*(Kafka|broker|node assignment|metadata)|Timed out waiting for a node assignment)",
        "no Kafka broker has answered for too long; once they are back, start the pipeline with the same checkpoint, which goes on",
    ),
)


def explained(error: BaseException) -> str:
    """Why a pipeline ended: our own sentence or one for what is known of Kafka, else what Spark says."""
    whole = str(error)
    own = re.search(re.escape(MARK) + r"(.*?)(?: SQLSTATE|$)", whole, re.MULTILINE)
    if own is not None:
        return own[1].rstrip(" .;")
    for pattern, meaning in MEANINGS:
        if re.search(pattern, whole, re.IGNORECASE):
            return meaning
    return said(error)
