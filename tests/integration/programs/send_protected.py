"""An application that sends encrypted and signed messages, every third in slices, and notes confirmations.

python send_protected.py SERVERS TOPIC KEYRING LOG FIRST LAST [PAUSE]

Messages FIRST to LAST are sent one after the other, with a pause of so many seconds before each slice. Each
line of LOG is on disk before the next one is sent.
"""

import os
import random
import sys
import time

from headerware import Chain, Producer, Record
from headerware.interceptors import Encrypt, Sign, Slice
from headerware.keyring.services import FileKeys

servers, topic, keyring, log, first, last, *pause = sys.argv[1:]


class Slowly:
    """Pauses before each slice."""

    def on_send(self, record: Record) -> Record:
        """Pause if it is one."""
        if pause and "hw.slice" in record.headers:
            time.sleep(float(pause[0]))
        return record


chain = Chain(
    [
        Encrypt(key_service=FileKeys(keyring=keyring), key_id="cards"),
        Slice(max_bytes=2_000),
        Slowly(),
        Sign(keyring=keyring, key_id="shop"),
    ]
)
# Each slice is a request of its own, so that a kill finds some of them sent and some not.
one_by_one = {"batch.num.messages": 1, "linger.ms": 0, "max.in.flight.requests.per.connection": 1}
errors: list[object] = []
with (
    open(log, "a", encoding="utf-8") as lines,  # noqa: PTH123 - a program of few words
    Producer({"bootstrap.servers": servers, **one_by_one}, chain=chain) as producer,
):
    for number in range(int(first), int(last) + 1):
        size = 1_000_000 if number % 3 == 2 else 10
        value = b"%05d 4111-1111 " % number + random.Random(number).randbytes(size)
        producer.produce(topic, value, b"key", 0, on_delivery=lambda error, _: errors.append(error))
        producer.flush()
        if errors.pop() is not None:
            raise SystemExit(f"message {number} was not stored")
        lines.write(f"{number}\n")
        lines.flush()
        os.fsync(lines.fileno())
