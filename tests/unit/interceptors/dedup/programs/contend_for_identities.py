"""Take identities from a partition of one's own, as others do from theirs, and print the numbers delivered.

Says that it is ready, and begins when it is told to.

python contend_for_identities.py STORE PARTITION UPTO
"""

import sys

from headerware import Chain, Context, Headers, Record
from headerware.interceptors import Dedup, Identity

store, partition, upto = sys.argv[1:]
with Chain([Dedup(store=store)]).open(Context(group_id="billing", side="consumer")) as session:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for number in range(int(upto)):
        headers = Headers({"hw.id": Identity.numbered(bytes(range(16)), number).encode()})
        record = Record("orders", b"v", headers=headers, partition=int(partition), offset=number)
        if session.consume([record]):
            sys.stdout.write(f"{number}\n")
            sys.stdout.flush()
    assert session.stats()["dedup"]["store_failures"] == 0
