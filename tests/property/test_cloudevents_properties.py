from __future__ import annotations

import contextlib
from datetime import timedelta, timezone
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headerware import Headers, SerdeError
from headerware.serdes import CloudEvent, CloudEvents, SerdeContext
from headerware.serdes.cloudevents.event import OPTIONAL, REQUIRED

TEXT = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff"), min_size=1, max_size=20
)
TREE_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
LEAVES = (
    st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TREE_TEXT
)
TREES = st.recursive(LEAVES, lambda own: st.lists(own) | st.dictionaries(TREE_TEXT, own), max_leaves=8)
NAMES = st.text("abz019", min_size=1, max_size=20).filter(lambda name: name not in {*REQUIRED, *OPTIONAL})
ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
DATA = st.one_of(
    st.tuples(st.just("application/json"), TREES | st.none()),
    st.tuples(st.just("text/plain; charset=utf-16"), TREE_TEXT),
    st.tuples(st.just("image/png"), st.binary() | st.none()),
    st.tuples(st.just("application/cbor"), TREES),
    st.just((None, None)),
)
EVENTS = st.builds(
    lambda typed, **attributes: CloudEvent(datacontenttype=typed[0], data=typed[1], **attributes),
    DATA,
    id=TEXT,
    source=st.text("abz/:?#.%20".replace("%20", ""), min_size=1, max_size=20),
    type=TEXT,
    subject=st.none() | TEXT,
    dataschema=st.none() | st.just("urn:x"),
    time=st.none() | st.datetimes(timezones=ZONES),
    extensions=st.dictionaries(NAMES, TEXT | st.just(""), max_size=4),
)
MODES = st.sampled_from(["binary", "structured"])
FUNCTIONS: dict[str, Any] = {
    mode: CloudEvents(mode=mode).open(SerdeContext()) for mode in ("binary", "structured")
}
SOUND: list[tuple[str, bytes | None]] = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"7"),
    ("ce_source", b"/shop"),
    ("ce_type", b"placed"),
]
JSON_EVENT = Headers({"content-type": "application/cloudevents+json"})


def read(headers: Headers, payload: bytes | None) -> Any:
    return FUNCTIONS["binary"].deserialize("t", headers, payload)


class TestCloudEvents:
    @given(MODES, EVENTS)
    def test_any_event_comes_back(self, mode: str, event: CloudEvent) -> None:
        payload, headers = FUNCTIONS[mode].serialize("t", Headers({"own": b"1"}), event)
        found, after = read(headers, payload)
        assert found == event
        assert after.names() == (("own", "content-type") if event.datacontenttype else ("own",))
        assert FUNCTIONS[mode].serialize("t", after, found) == (payload, headers)

    @given(
        st.lists(
            st.sampled_from([*SOUND, ("ce_time", b"2026-01-02T12:00:00Z")])
            | st.tuples(
                st.sampled_from(
                    ["ce_id", "ce_", "ce_x", "ce_time", "content-type", "ce_datacontenttype", "other"]
                ),
                st.none() | st.binary(max_size=20),
            )
        ),
        st.none() | st.binary(max_size=40),
    )
    def test_any_headers_are_refused_or_read(
        self, pairs: list[tuple[str, bytes | None]], payload: bytes | None
    ) -> None:
        with contextlib.suppress(SerdeError):
            read(Headers(pairs), payload)

    @given(st.binary(max_size=60))
    def test_any_payload_of_an_event_in_json_is_refused(self, payload: bytes) -> None:
        with contextlib.suppress(SerdeError):
            read(JSON_EVENT, payload)
            raise AssertionError("an event was read from noise")

    @given(
        st.dictionaries(
            st.sampled_from([*REQUIRED, *OPTIONAL, "x", "data", "data_base64"]), TREES | TEXT | st.none()
        )
    )
    def test_any_members_are_refused_or_read(self, members: dict[str, Any]) -> None:
        with contextlib.suppress(SerdeError):
            sound = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "placed"}
            read(JSON_EVENT, msgspec.json.encode(sound | members))

    @given(EVENTS, st.data())
    def test_an_event_in_json_that_was_cut_is_refused(self, event: CloudEvent, data: st.DataObject) -> None:
        payload, headers = FUNCTIONS["structured"].serialize("t", Headers(), event)
        size = data.draw(st.integers(0, len(payload) - 1))
        with contextlib.suppress(SerdeError):
            read(headers, payload[:size])
            raise AssertionError("half an event was read")
