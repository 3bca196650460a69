"""A plain producing application: sends the files that it is given, and tells of each report.

python send_values.py SERVERS TOPIC FILE...
"""

import json
import sys
from pathlib import Path

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from headerware import Producer

servers, topic, *files = sys.argv[1:]
reports: list[str | None] = []
request = NonRecordingSpan(SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1)))
with trace.use_span(request), Producer({"bootstrap.servers": servers, "client.id": "orders"}) as producer:
    for name in files:
        producer.produce(
            topic,
            Path(name).read_bytes(),
            Path(name).name,
            headers=[("a", b"1"), ("a", None), ("content-type", b"application/octet-stream")],
            on_delivery=lambda error, _: reports.append(None if error is None else str(error)),
        )
    producer.flush()
sys.stdout.write(json.dumps(reports))
