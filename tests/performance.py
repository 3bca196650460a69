"""Write the tables and plots of docs/performance.md from bench/results.json; ``make pages`` runs it.

Each group has the comparisons that answer one question of a user. bench/RESULTS.md has all comparisons.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.diagrams import WIDTH, Drawing
from tests.links import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.diagrams import Kind

Results = Mapping[str, Mapping[str, Any]]
"""The rows of the bench by name."""

PAGE: Final = "docs/performance.md"
GENERATED: Final = re.compile(r"(?<=\n)## Summary\n.*?(?=### What each does\n)", re.DOTALL)
"""The part of the page that this module writes."""
FIELD: Final = re.compile(r"\{(ratio|us|reference us): ([^}]+)\}")
"""A figure in a sentence: which one, and the name of its row."""

LEFT: Final = 20
SPAN: Final = WIDTH - 2 * LEFT
STEP: Final = 58


class Comparison(NamedTuple):
    """A row of a table.

    Attributes:
        name: the name of the row in bench/results.json.
        what: what was measured, in fewer words.
        against: the reference.
    """

    name: str
    what: str
    against: str


class Group(NamedTuple):
    """The comparisons for one question.

    Attributes:
        word: a word for the file of the plot.
        title: the heading.
        meaning: what the figures mean for a user; its fields are those of FIELD.
        comparisons: the rows of the table. The plot has the ratios of those with the unit of the first.
    """

    word: str
    title: str
    meaning: str
    comparisons: tuple[Comparison, ...]


PRODUCER: Final = "confluent-kafka's producer"
CONSUMER: Final = "confluent-kafka's consumer"
BY_HAND: Final = "the same headers, zstd and HMAC by hand"
PRIMITIVES: Final = "bare zstd, HKDF, AES-GCM and HMAC"
CIPHER: Final = "bare HKDF and AES-GCM"
ALONE: Final = "a signature for each record"
INSTRUMENTED: Final = "OpenTelemetry's instrumentation"
BARE_SPARK: Final = "zstd and HMAC on values, in `mapInArrow`"
LOOP: Final = "a loop by hand that cannot resume"
EIGHTH: Final = "a file of an eighth"
JUDGED: Final = "a loop by hand with the same chain"
RAW_LARGE: Final = "raw records of 900,000 bytes"
STORE: Final = "bare calls of the store, with SHA-256"
MESSAGE: Final = "the message itself"
FASTSTREAM: Final = "FastStream with a middleware"
QUIX_STREAMS: Final = "Quix Streams"
CONNECT: Final = "Kafka Connect's class, with JSON in and out"
CONNECT_ALONE: Final = "Kafka Connect's class, in a JVM that optimises fully"

GROUPS: Final = (
    Group(
        "chain",
        "A chain, step by step",
        "Sending through an empty chain has {ratio: produce, empty chain} of confluent-kafka's rate; with "
        "trail, compression and an HMAC a record of 1.5 KB takes "
        "{us: produce, trail + compress + sign (HMAC)} us to send and "
        "{us: consume, trail + compress + sign (HMAC)} us to consume.",
        (
            Comparison("produce, empty chain", "produce, empty chain", PRODUCER),
            Comparison("produce, 4 no-op interceptors", "produce, 4 interceptors that do nothing", PRODUCER),
            Comparison("produce, trail + compress + sign (HMAC)", "produce, trail, compress, sign", BY_HAND),
            Comparison("consume, empty chain", "consume, empty chain", CONSUMER),
            Comparison("consume, 4 no-op interceptors", "consume, 4 interceptors that do nothing", CONSUMER),
            Comparison("consume, trail + compress + sign (HMAC)", "consume, trail, compress, sign", BY_HAND),
        ),
    ),
    Group(
        "sizes",
        "Small and large records",
        "The cost of a long chain (trail, expire, compress, encrypt, slice, sign) depends more on the number "
        "of records than on their size: a send takes "
        "{us: the full chain on send, 142-byte values, against its primitives} us with a value of 142 bytes, "
        "and {us: the full chain on send, 1,484-byte values, against its primitives} us with 1,484 bytes.",
        tuple(
            Comparison(
                f"the full chain on {side}, {size}-byte values, against its primitives",
                f"the full chain on {side}, {size} bytes",
                PRIMITIVES,
            )
            for size in ("142", "1,484")
            for side in ("send", "consume")
        ),
    ),
    Group(
        "encryption",
        "Encryption",
        "With a key for each record, a value of 142 bytes takes "
        "{us: encrypt on send against bare AES-GCM and HKDF, 142-byte values} us to encrypt and "
        "{us: decrypt on consume against bare AES-GCM and HKDF, 142-byte values} us to decrypt.",
        (
            *(
                Comparison(
                    f"{word} on {side} against bare AES-GCM and HKDF, {size}-byte values",
                    f"{word}, {size} bytes",
                    CIPHER,
                )
                for size in ("142", "1,484")
                for word, side in (("encrypt", "send"), ("decrypt", "consume"))
            ),
            Comparison(
                "both ways: trail + compress + encrypt + sign, against the same without encrypt",
                "trail, compress, encrypt, sign, both ways",
                "the same without encrypt",
            ),
            Comparison(
                "encrypt: CPU a megabyte, in values of 1 KB and more",
                "CPU a megabyte, both ways",
                "what Kroxylicious publishes for its proxy, which was not run here",
            ),
        ),
    ),
    Group(
        "signatures",
        "A signature for a record, and for a batch",
        "An Ed25519 signature for each record takes "
        "{reference us: sign, ed25519: batches against a signature a record} us to sign and "
        "{reference us: verify, ed25519: batches against a signature a record} us to verify; a signature for "
        "a batch of 256 records takes {us: sign, ed25519: batches against a signature a record} and "
        "{us: verify, ed25519: batches against a signature a record} us a record.",
        (
            *(
                Comparison(
                    f"{word}, {algorithm}: batches against a signature a record",
                    f"{word} a batch, {title}",
                    ALONE,
                )
                for algorithm, title in (
                    ("ed25519", "Ed25519"),
                    ("ecdsa-p256", "ECDSA P-256"),
                    ("rsa-pss-sha256", "RSA-PSS"),
                )
                for word in ("sign", "verify")
            ),
            Comparison(
                "sign: tree and path of a batch against Ed25519 a record",
                "sign: tree and path of a batch",
                "Ed25519 for each record",
            ),
            Comparison(
                "verify: tree and path of a batch against Ed25519 a record",
                "verify: tree and path of a batch",
                "Ed25519 for each record",
            ),
        ),
    ),
    Group(
        "tracing",
        "Tracing",
        "A span for each record adds {us: tracing added to produce, a span a record, sampler 1%} us of CPU "
        "if the sampler takes 1% and {us: tracing added to produce, a span a record, sampler on} us if it "
        "takes all; a span for each batch adds {us: tracing added to produce_many, a span a batch} us a "
        "record.",
        (
            *(
                Comparison(
                    f"tracing added to produce, a span a record, sampler {sampler}",
                    f"CPU of a span a record, sampler {sampler}",
                    INSTRUMENTED,
                )
                for sampler in ("off", "1%", "on")
            ),
            Comparison(
                "tracing added to produce_many, a span a batch", "CPU of a span a batch", INSTRUMENTED
            ),
            Comparison(
                "tracing without an SDK: trace in the chain against a no-op interceptor",
                "CPU without an SDK, reference by ours",
                "an interceptor that does nothing",
            ),
        ),
    ),
    Group(
        "spark",
        "Spark",
        "Two cores decode a record of 1.5 KB in {us: Spark decode, trail + zstd + HMAC} us and encode one in "
        "{us: Spark encode, trail + zstd + HMAC} us, Spark's own work included.",
        (
            Comparison("Spark decode, trail + zstd + HMAC", "decode with trail, zstd, HMAC", BARE_SPARK),
            Comparison("Spark encode, trail + zstd + HMAC", "encode with trail, zstd, HMAC", BARE_SPARK),
            Comparison(
                "Spark decode, against the same by hand",
                "decode, against the same by hand",
                "trail, zstd and HMAC by hand, in `mapInArrow`",
            ),
            Comparison(
                "Spark foreachBatch, read and written through the chain",
                "foreachBatch, both ways, with the ledger",
                "the connector's own read and write",
            ),
            Comparison("Spark decode, two cores against one", "decode on two cores", "one core"),
            Comparison(
                "Spark, a batch of 600 records with six messages in slices: time",
                "time of a batch of 600 records, with slices",
                "a batch without a chain",
            ),
            Comparison(
                "Spark, a batch of 160 records on 8 partitions: CPU",
                "CPU of a batch of 160 records",
                "a batch without a chain",
            ),
            Comparison(
                "Spark decode, memory of a worker after 10,000,000 records",
                "memory after 10,000,000 records",
                "after the first 1,000,000",
            ),
        ),
    ),
    Group(
        "sources",
        "Sources",
        "In transactions and with offsets to resume from, a row of 140 bytes takes "
        "{us: CSV into Kafka, rows of 140 bytes} us from a CSV file into Kafka, and "
        "{us: Parquet into Kafka, rows of 140 bytes} us from Parquet.",
        (
            Comparison("CSV into Kafka, rows of 140 bytes", "CSV, 140 bytes", LOOP),
            Comparison("JSON lines into Kafka, rows of 140 bytes", "JSON lines, 140 bytes", LOOP),
            Comparison("Parquet into Kafka, rows of 140 bytes", "Parquet, 140 bytes", LOOP),
            Comparison(
                "JSON lines as bytes into Kafka, rows of 140 bytes", "lines as bytes, 140 bytes", LOOP
            ),
            Comparison("JSON lines into Kafka, rows of 1,400 bytes", "JSON lines, 1,400 bytes", LOOP),
            Comparison(
                "CSV into Kafka, at least once, rows of 140 bytes", "CSV, at least once, 140 bytes", LOOP
            ),
            Comparison("CSV, a file of 1,024 MiB, growth of memory", "memory for 1 GiB of CSV", EIGHTH),
            Comparison(
                "JSON lines, a file of 1,024 MiB, growth of memory", "memory for 1 GiB of JSON lines", EIGHTH
            ),
            Comparison(
                "Parquet, a file of 1,024 MiB, growth of memory", "memory for 1 GiB of Parquet", EIGHTH
            ),
        ),
    ),
    Group(
        "workers",
        "Workers beside the broker",
        "A guard on one partition takes {us: guard, hmac-sha256} us for a record with an HMAC and "
        "{us: guard, ed25519} us for one with Ed25519, and a pass of retention "
        "{us: retention by header, a pass over a topic} us for each record of the topic.",
        (
            Comparison("guard, hmac-sha256", "guard, HMAC", JUDGED),
            Comparison("guard, ed25519", "guard, Ed25519", JUDGED),
            Comparison("guard, ed25519, natively", "guard, Ed25519, with native steps", JUDGED),
            Comparison(
                "retention by header, a pass over a topic", "a pass of retention", "a read with the headers"
            ),
            Comparison(
                "a pass of retention by header over a compacted topic",
                "a pass of retention, compacted topic",
                "a read with a look at one header",
            ),
            Comparison(
                "retention by header, a copy without the half that has expired",
                "retention: a copy without the expired half",
                "a copy of all records",
            ),
            Comparison(
                "compaction by header, a tenth of the records wins",
                "compaction: read twice, write a tenth",
                "read once, write all",
            ),
            Comparison(
                "chargeback in one process, against reading and summing sizes",
                "chargeback in one process",
                "a read that sums sizes",
            ),
            Comparison(
                "memory for a pass of retention over 1,000,000 records",
                "memory for 1,000,000 records, retention",
                "1,000 records",
            ),
            Comparison(
                "memory for 10,000,000 keys that get tombstones",
                "memory for 10,000,000 keys, retention",
                "50,000 keys",
            ),
            Comparison(
                "memory for the winners of 10,000,000 keys",
                "memory for 10,000,000 keys, compaction",
                "50,000 keys",
            ),
        ),
    ),
    Group(
        "large-messages",
        "Large messages",
        "A message of 64 MiB in slices moves at {ratio: 64 MiB message, produced and consumed} of the rate "
        "of raw records of the same total, and through a claim in S3 at "
        "{ratio: 64 MiB value, through a claim in S3} of the rate of bare calls of the store.",
        (
            Comparison("64 MiB message, produced", "slices, produced", RAW_LARGE),
            Comparison("64 MiB message, produced and consumed", "slices, produced and consumed", RAW_LARGE),
            Comparison("64 MiB value, through a claim in S3", "claim in S3, stored and fetched", STORE),
            Comparison("64 MiB value, through a claim in a folder", "claim in a folder", STORE),
            Comparison("64 MiB message, growth of memory, produce", "memory to produce slices", MESSAGE),
            Comparison("64 MiB message, growth of memory, consume", "memory to consume slices", MESSAGE),
        ),
    ),
    Group(
        "dead-letters",
        "Dead letters",
        "If every record of a topic is forged, a consumer takes {us: dead letters of forged records} us for "
        "each: it verifies the record, stores its dead letter, and commits no offset before that.",
        (
            Comparison(
                "dead letters of forged records",
                "dead letters of forged records",
                "a loop by hand: one HMAC, one `produce`, a flush for each batch",
            ),
        ),
    ),
    Group(
        "peers",
        "Side by side",
        "Beside what one would use instead, with the same broker, records and settings of librdkafka: with a "
        "trail, sending has {ratio: produce, trail against confluent-kafka} of the rate of confluent-kafka "
        "itself, and with a span for each record "
        "{ratio: produce, trace against OpenTelemetry's instrumentation} of the rate of OpenTelemetry's "
        "instrumentation. Publishing from asyncio has "
        "{ratio: asyncio publish, trail against FastStream with a middleware} of FastStream's rate. Copying "
        "a topic one by one has {ratio: copy a topic one by one and add a header, against Quix Streams} of "
        "the rate of Quix Streams.",
        (
            Comparison("produce, trail against confluent-kafka", "produce with a trail", PRODUCER),
            Comparison("consume(500), trail against confluent-kafka", "consume with a trail", CONSUMER),
            Comparison(
                "asyncio produce, against AIOProducer",
                "produce from asyncio, no chain",
                "confluent-kafka's AIOProducer",
            ),
            *(
                Comparison(
                    f"{call}, trace against OpenTelemetry's instrumentation",
                    f"{call}, spans of all records",
                    INSTRUMENTED,
                )
                for call in ("produce", "poll", "consume(500)")
            ),
            Comparison(
                "asyncio publish, trail against FastStream with a middleware",
                "publish from asyncio with a trail",
                FASTSTREAM,
            ),
            Comparison(
                "asyncio consume, trail against FastStream with a middleware",
                "consume in asyncio with a trail",
                FASTSTREAM,
            ),
            *(
                Comparison(
                    f"copy a topic {how} and add a header, against Quix Streams",
                    f"copy a topic {how}, add a header",
                    QUIX_STREAMS,
                )
                for how in ("in batches", "one by one")
            ),
            *(
                comparison
                for kind in ("InsertHeader", "HeaderFrom$Value", "DropHeaders")
                for comparison in (
                    Comparison(f"Connect: {kind}, with a schema", f"`{kind}`", CONNECT),
                    Comparison(
                        f"Connect: {kind}, with a schema, against Java without JSON",
                        f"`{kind}` alone",
                        CONNECT_ALONE,
                    ),
                )
            ),
        ),
    ),
)


def measured() -> Results:
    """Return the rows of bench/results.json by name."""
    rows = json.loads((ROOT / "bench" / "results.json").read_text(encoding="utf-8"))
    return {row["name"]: row for row in rows}


def lacking(results: Results) -> list[str]:
    """Return the names that the page uses and the bench no longer has."""
    tables = [each.name for group in GROUPS for each in group.comparisons]
    sentences = [field[2] for group in GROUPS for field in FIELD.finditer(group.meaning)]
    return [name for name in dict.fromkeys(tables + sentences) if name not in results]


def performance(results: Results) -> dict[str, str]:
    """Return the page and its plots by their paths; a comparison without a row is left out."""
    by_hand = (ROOT / PAGE).read_text(encoding="utf-8")
    text = "\n".join([*_summary(results), *(line for group in GROUPS for line in _section(group, results))])
    files = {PAGE: GENERATED.sub(lambda _: f"{text}\n", by_hand)}
    return files | {f"docs/{_plot_of(group)}": plot(group, results).svg() for group in GROUPS}


def figure(number: float) -> str:
    """Return a figure as a document writes it."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def bar_ratio(row: Mapping[str, Any]) -> float | None:
    """Return the bar of a row as a ratio to the reference, None if it has none."""
    if not row["bar"]:
        return None
    *kind, _, _, number = row["bar"].split()
    bar, reference = float(number), float(row["reference"])
    return {"": bar, "ours": bar / reference, "adds": (reference + bar) / reference}["".join(kind)]


def plot(group: Group, results: Results) -> Drawing:
    """Draw the ratios of a group, the reference as 1, and the bars as dashed lines."""
    rows = _rows(group, results)
    rows = [(each, row) for each, row in rows if row["unit"] == rows[0][1]["unit"]]
    drawing = Drawing(STEP * len(rows) + 40, f"{group.title}: ratios to the reference")
    ratios = [ratio for _, row in rows for ratio in (row["ratio"], bar_ratio(row)) if ratio is not None]
    scale = SPAN / max([1.0, *ratios])
    for number, (each, row) in enumerate(rows):
        y = STEP * number
        drawing.text(LEFT, y + 20, each.what, "title")
        bar = f", {row['bar']}" if row["bar"] else ""
        drawing.text(WIDTH - LEFT, y + 20, f"{figure(row['ratio'])}{bar}", anchor="end")
        kind: Kind = "bad" if row["holds"] is False else "ours"
        drawing.box(LEFT, y + 30, max(2, round(row["ratio"] * scale)), [], kind, height=14)
        drawing.box(LEFT, y + 44, max(2, round(scale)), [], height=6)
        if (at := bar_ratio(row)) is not None:
            drawing.line(LEFT + round(at * scale), y + 27, y + 54)
    drawing.text(
        LEFT, STEP * len(rows) + 26, "Blue: ours. Red: ours, misses its bar. Grey: reference. Dashed: bar."
    )
    return drawing


def _plot_of(group: Group) -> str:
    return f"diagrams/performance-{group.word}.svg"


def _rows(group: Group, results: Results) -> list[tuple[Comparison, Mapping[str, Any]]]:
    return [(each, results[each.name]) for each in group.comparisons if each.name in results]


def _summary(results: Results) -> Iterator[str]:
    rows = [(group, *found) for group in GROUPS for found in _rows(group, results)]
    held = sum(row["holds"] is True for _, _, row in rows)
    missed = [f"- {group.title}: {each.what}" for group, each, row in rows if row["holds"] is False]
    yield from ("## Summary", "", _machine(), "")
    yield f"The tables have {len(rows)} comparisons. {held} hold their bar. {len(missed)} miss it:"
    yield from ("", *(missed or ["- none"]), "")


def _machine() -> str:
    """Return the sentence of bench/RESULTS.md about the machine and the versions."""
    text = (ROOT / "bench" / "RESULTS.md").read_text(encoding="utf-8")
    found = re.search(r"^Measured on .*?\.(?= |$)", text, re.MULTILINE)
    return found[0] if found else ""


def _section(group: Group, results: Results) -> Iterator[str]:
    """Yield a group: its heading, its sentence, its plot and its table."""
    rows = _rows(group, results)
    yield from (f"## {group.title}", "", FIELD.sub(lambda field: _said(field, results), group.meaning), "")
    if not rows:
        return
    yield from (f"![{group.title}: the ratios of the table, with their bars]({_plot_of(group)})", "")
    yield "| what | ours | against | ratio | bar | holds |"
    yield "| --- | ---: | --- | ---: | --- | --- |"
    for each, row in rows:
        ours = f"{figure(row['ours'])} {row['unit'].replace('us/record', 'us a record')}"
        against = f"{each.against}: {figure(row['reference'])}"
        holds = {True: "yes", False: "**no**", None: ""}[row["holds"]]
        yield f"| {each.what} | {ours} | {against} | {figure(row['ratio'])} | {row['bar']} | {holds} |"
    yield ""


def _said(field: re.Match[str], results: Results) -> str:
    """Return a figure of a sentence."""
    kind, name = field.groups()
    if name not in results:
        return "?"
    row = results[name]
    if kind == "ratio":
        return f"{row['ratio']:.0%}"
    found = row["reference" if kind == "reference us" else "ours"]
    return f"{found if row['unit'] == 'us/record' else 1e6 / found:.1f}"
