"""Read one message that is collected on disk, and print its digest and how much memory that took, in MiB."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from headerware import Chain, Consumer, StoredBytes
from headerware.interceptors import Sign, Slice, Trail

servers, topic, folder, keyring = sys.argv[1:]
LARGE = 1 << 30
chain = Chain(
    [
        Trail(service="reader"),
        Slice(
            stream_above_bytes=1_000_000,
            stream_folder=folder,
            max_message_bytes=LARGE,
            max_pending_bytes=LARGE,
        ),
        Sign(keyring=keyring),
    ]
)
settings = {
    "bootstrap.servers": servers,
    "group.id": topic,
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 4096,  # by default librdkafka reads 64 MiB ahead
}
with Consumer(settings, chain=chain) as consumer:
    consumer.subscribe([topic])
    while (message := consumer.poll(10.0)) is None:
        pass
    value: Any = message.value()
    assert isinstance(value, StoredBytes)
    with value.open() as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
# Not ru_maxrss, which is also that of the process that started this one.
status = Path("/proc/self/status").read_text(encoding="utf-8")
peak_kib = int(status.partition("VmHWM:")[2].split()[0])
sys.stdout.write(f"{digest} {len(value)} {peak_kib // 1024}")
