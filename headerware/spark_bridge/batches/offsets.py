"""The offsets of a micro-batch, as Spark has written them into its checkpoint."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_up_to(spark: SparkSession, query_id: str, batch: int) -> str | None:
    """Return a fingerprint of the offsets that a batch is read up to; it is the same in a replay only.

    Args:
        spark: the session that runs the batch.
        query_id: the streaming query's id.
        batch: the batch's number.

    Returns:
        16 hexadecimal digits; None in a release of Spark that keeps its queries elsewhere.
    """
    session: Any = spark
    try:
        queries = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001 - no public way
        query = queries.get(session._jvm.java.util.UUID.fromString(query_id))  # noqa: SLF001 - as above
        sources = query.offsetLog().get(batch).get().offsets()
        # As text, for what was read back from the checkpoint is of another class.
        offsets = [sources.apply(index) for index in range(sources.size())]
        texts = [offset.get().json() if offset.isDefined() else "" for offset in offsets]
    except (Py4JError, AttributeError, TypeError):
        return None
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]
