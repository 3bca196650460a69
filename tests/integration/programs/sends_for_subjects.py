"""Send records for the subjects 0, 1, 2 ... until it is killed; print each number that is delivered."""

import sys

from headerware import Producer

servers, config = sys.argv[1:]
settings = {"bootstrap.servers": servers, "headerware.config": config, "linger.ms": 0, "log_level": 0}
with Producer(settings) as producer:
    for number in range(1_000_000):
        customer = f"customer-{number}"
        producer.produce("orders", customer, "k", headers={"customer": customer})
        producer.flush()
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
