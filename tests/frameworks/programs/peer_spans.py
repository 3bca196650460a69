"""Count the spans of each side for each comparison of bench/peers_job.py that traces."""

import json
import sys
from collections import Counter
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

sys.path.append(str(Path(__file__).parents[3] / "bench"))
import peers_job

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)  # the first one counts
peers_job.CHUNK, peers_job.BATCH = 100, 50

counts = {}
for row in peers_job._traced(sys.argv[1], 2):
    scopes = [span.instrumentation_scope.name.partition(".")[0] for span in exporter.get_finished_spans()]
    counts[row.name] = Counter(scopes)
    exporter.clear()
print(json.dumps(counts))
