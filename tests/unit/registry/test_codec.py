from __future__ import annotations

import pytest

from headerware.core.errors import WireFormatError
from headerware.core.headers import Headers
from headerware.registry.wire.codec import HEADER, Form, HeaderIdCodec
from headerware.registry.wire.packed_block import MAX_PACKED

FORMS = pytest.mark.parametrize("form", ["packed", "keys"])
IDS = {"orders.total": 65_537, "x": 2**32 - 1, "hw.ids": 12}
NAMES = {header_id: name for name, header_id in IDS.items()}


def codec(form: Form = "packed") -> HeaderIdCodec:
    return HeaderIdCodec(IDS.get, NAMES.get, form=form)


class TestHeaderIdCodec:
    @FORMS
    def test_leaves_a_name_that_is_shorter_than_its_id(self, form: Form) -> None:
        headers = Headers([("x", b"1")])
        assert codec(form).encode(headers) is headers

    @FORMS
    def test_names_may_stay_that_have_an_id(self, form: Form) -> None:
        headers = Headers([("orders.total", b"1"), ("10.0.0.7", b"")])
        stays = HeaderIdCodec(IDS.get, NAMES.get, form=form, stays=lambda _: True)
        assert stays.encode(headers) is headers

    @FORMS
    def test_an_alias_is_not_read_back_as_another_name(self, form: Form) -> None:
        headers = Headers([("total", b"1")])
        aliases = HeaderIdCodec({"total": 65_537}.get, NAMES.get, form=form)
        assert aliases.encode(headers) is headers

    @FORMS
    def test_an_id_of_the_block_itself_is_neither_written_nor_read(self, form: Form) -> None:
        with pytest.raises(WireFormatError, match=r"a header is called hw\.ids"):
            codec(form).encode(Headers([(HEADER, b"")]))
        with pytest.raises(WireFormatError, match="named by an id"):
            codec(form).decode(Headers([("~M", b"")]))
        with pytest.raises(WireFormatError, match="named by an id"):
            codec(form).decode(Headers([(HEADER, b"1-!")]))

    def test_learns_the_name_of_an_id_that_had_none(self) -> None:
        names: dict[int, str] = {}
        learning = HeaderIdCodec(lambda _: None, names.get)
        wire = Headers([("~KAAAH", b"")])
        assert learning.decode(wire).names() == ("10.0.0.7",)
        names[0x0A000007] = "ours"
        assert learning.decode(wire).names() == ("ours",)
        assert learning.unknown_ids == 1

    def test_too_many_headers_for_a_block_travel_as_keys(self) -> None:
        headers = Headers([("orders.total", None)] * (MAX_PACKED + 1))
        wire = codec().encode(headers)
        assert set(wire.names()) == {"~QAB"}
        assert codec().decode(wire) == headers
