"""CSV."""

from __future__ import annotations

import tracemalloc
from typing import Any, cast

import pytest

from headerware.connect.data import Struct
from headerware.core.errors import BadRecordError, ConfigError, ObjectError
from headerware.sources import Extracted, Input
from headerware.sources.conformance import ExtractorConformance
from headerware.sources.extractor import extracted
from headerware.sources.extractors import CsvExtractor
from tests.source_objects import MadeObject, MemoryObject, problems, records, values

SAMPLE = b'id,city\r\n1,Bern\r\n\r\n2,"a ""quoted""\r\nname"\r\n3,"x,y"\n4,'


class TestCsv(ExtractorConformance):
    extractor = CsvExtractor()
    sample, count = SAMPLE, 4
    damaged = b'id,city\n1,"SECRET never ends\n2,b\n'
    bad = b"id,city\n1,SECRET,3\n2,SECRET\n"


class TestCsvWithSchemas(ExtractorConformance):
    extractor = CsvExtractor(schemas=True)
    sample, count = SAMPLE, 4


class TestCsvWithoutHeader(ExtractorConformance):
    extractor = CsvExtractor(header=False)
    sample, count = SAMPLE, 5


class TestCsvByLines(ExtractorConformance):
    extractor = CsvExtractor(quoted_newlines=False)
    sample, count = b'id,city\r\n1,Bern\r\n\r\n2,"a, b"\r\n3,c\n4,', 4
    bad = b'id,city\n1,"SECRET never ends\n2,SECRET\n'


class TestCsvByLinesWithoutHeader(ExtractorConformance):
    extractor = CsvExtractor(quoted_newlines=False, header=False)
    sample, count = b"1,Bern\n2,b\n3,c\n4,", 4


class TestRows:
    def test_have_the_names_of_the_header(self) -> None:
        assert values(CsvExtractor(), SAMPLE) == [
            {"id": "1", "city": "Bern"},
            {"id": "2", "city": 'a "quoted"\r\nname'},
            {"id": "3", "city": "x,y"},
            {"id": "4", "city": ""},
        ]

    def test_have_numbers_for_names_without_a_header(self) -> None:
        assert values(CsvExtractor(header=False), b"1,2\n3,4\n") == [
            {"field0": "1", "field1": "2"},
            {"field0": "3", "field1": "4"},
        ]

    @pytest.mark.parametrize("schemas", [False, True])
    def test_have_numbers_for_names_that_are_missing(self, *, schemas: bool) -> None:
        (found,) = values(CsvExtractor(schemas=schemas), b",a,\n0,1,2\n")
        assert dict(found) == {"field0": "0", "a": "1", "field2": "2"}

    @pytest.mark.parametrize("header", [True, False])
    def test_have_names_that_are_given(self, *, header: bool) -> None:
        extractor = CsvExtractor(header=header, columns=["a", "b"])
        found = values(extractor, b"1,2\n3,4\n")
        assert found == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}][header:]

    def test_may_be_structs(self) -> None:
        (found,) = values(CsvExtractor(schemas=True), b"id,city\n1,Bern\n")
        assert isinstance(found, Struct)
        found.validate()
        assert found.to_dict() == {"id": "1", "city": "Bern"}

    def test_may_have_other_delimiters_and_quotes(self) -> None:
        extractor = CsvExtractor(delimiter=";", quote="'", escape="\\")
        assert values(extractor, b"a;b\n'x;y';z\\;\n") == [{"a": "x;y", "b": "z;"}]
        for none in (None, ""):
            extractor = CsvExtractor(quote=none, delimiter="\t")
            assert values(extractor, b'a\tb\n"x\ty"\n') == [{"a": '"x', "b": 'y"'}]

    @pytest.mark.parametrize(
        "encoding", ["latin-1", "cp1252", "shift_jis", "utf-16-le", "utf-16", "cp500", "iso2022_jp"]
    )
    def test_are_in_an_encoding(self, encoding: str) -> None:
        city = "東京" if "jis" in encoding or "jp" in encoding else "Zürich"
        data = f"id,city\n1,{city}\n".encode(encoding)
        assert values(CsvExtractor(encoding=encoding), data) == [{"id": "1", "city": city}]

    @pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
    def test_follow_a_byte_order_mark(self, encoding: str) -> None:
        data = "id,city\n1,Zürich\n".encode(encoding)
        assert values(CsvExtractor(encoding="latin-1"), data) == [{"id": "1", "city": "Zürich"}]

    def test_of_many_fields_are_long(self) -> None:
        data = b"a,b\n" + b'"' + b"x" * 500_000 + b'",1\n'
        assert len(values(CsvExtractor(), data)[0]["a"]) == 500_000

    def test_have_sizes(self) -> None:
        sizes = [cast("Extracted", record).size_bytes for record in records(CsvExtractor(), SAMPLE)]
        assert sizes[0] == len(b"1,Bern\r\n")


class TestRagged:
    def test_are_refused_one_by_one(self) -> None:
        found = records(CsvExtractor(), b"a,b\n1\n1,2\n1,2,3\n")
        assert [isinstance(record, BadRecordError) for record in found] == [True, False, True]
        assert "has 3 fields, expected 2" in str(found[2])

    @pytest.mark.parametrize("schemas", [False, True])
    def test_may_be_fitted(self, *, schemas: bool) -> None:
        found = values(CsvExtractor(ragged="fit", schemas=schemas), b"a,field2\n1\n1,2\n1,2,3\n")
        for value in found if schemas else []:
            value.validate()
        assert [value.to_dict() if schemas else value for value in found] == [
            {"a": "1", "field2": None},
            {"a": "1", "field2": "2"},
            {"a": "1", "field2": "2", "field2_": "3"},
        ]

    @pytest.mark.parametrize("schemas", [False, True])
    def test_count_the_names_that_are_made_up_for_them(self, *, schemas: bool) -> None:
        extractor = CsvExtractor(ragged="fit", schemas=schemas, max_record_bytes=10_000)
        found = records(extractor, b"a,b\n1,2" + b"," * 100 + b"\n" + b"," * 200 + b"\n3,4\n")
        assert [isinstance(record, BadRecordError) for record in found] == [False, True, False]
        assert "more than 10000 bytes" in str(found[1])

    def test_of_many_lengths_share_their_names(self) -> None:
        data = b"".join(b"," * width + b"\n" for width in range(300, 600))
        names = [
            list(row) for row in values(CsvExtractor(columns=["field7"], header=False, ragged="fit"), data)
        ]
        assert names[0][:9] == ["field7", *(f"field{at}" for at in range(1, 7)), "field7_", "field8"]
        assert all(name is other for row in names for name, other in zip(row, names[-1], strict=False))


class TestBadRows:
    @pytest.mark.parametrize(
        ("row", "problem"),
        [
            (b'"1"x,2', "is not CSV"),
            (b"\xff,2", "is not utf-8"),
            (b"\x00,2", "NUL"),
            (b"x" * 2_000, "max_record_bytes"),
        ],
    )
    def test_are_one_error(self, row: bytes, problem: str) -> None:
        extractor = CsvExtractor(max_record_bytes=1_000)
        data = b"a,b\n1,2\n" + row + b"\n3,4\n"
        assert values(extractor, data) == [{"a": "1", "b": "2"}, None, {"a": "3", "b": "4"}]
        (found,) = problems(extractor, data)
        assert problem in found
        assert "byte 8" in found

    @pytest.mark.parametrize("row", [b'"' + b"x" * 2_000 + b'",2', b'"x\n' + b"y\n" * 1_000 + b'",2'])
    def test_whose_end_nobody_knows_are_an_error_of_the_object(self, row: bytes) -> None:
        with pytest.raises(ObjectError, match="max_record_bytes"):
            records(CsvExtractor(max_record_bytes=1_000), b"a,b\n1,2\n" + row + b"\n3,4\n")

    def test_with_a_missing_quotation_mark_spoil_one_row_if_lines_are_rows(self) -> None:
        data = b'a,b\n1,"2\n3,4\n5,"6"\n'
        assert values(CsvExtractor(quoted_newlines=False), data) == [
            None,
            {"a": "3", "b": "4"},
            {"a": "5", "b": "6"},
        ]

    def test_with_a_carriage_return_say_so(self) -> None:
        found = records(CsvExtractor(), b"a,b\n1,2\r3,4\n5,6\r\n")
        assert "carriage return" in str(found[0])
        assert values(CsvExtractor(), b"a,b\n1,2\r3,4\n5,6\r\n") == [None, {"a": "5", "b": "6"}]
        with pytest.raises(ObjectError, match="lines must end with a line feed"):
            values(CsvExtractor(), b"a,b\r1,2\r")

    def test_of_endless_fields_at_the_head_are_an_error_of_the_object(self) -> None:
        with pytest.raises(ObjectError, match="more than 10000 bytes"):
            values(CsvExtractor(max_record_bytes=10_000), b"," * 200 + b"\n")

    def test_at_the_head_are_an_error_of_the_object(self) -> None:
        with pytest.raises(ObjectError, match="first row"):
            records(CsvExtractor(), b"\xff,b\n1,2\n")
        with pytest.raises(ObjectError, match="twice"):
            records(CsvExtractor(), b"a,a\n1,2\n")


class TestGrowing:
    @pytest.mark.parametrize("rest", [b"3", b'3,"4\n', b'3,"4'])
    def test_leaves_an_unfinished_row(self, rest: bytes) -> None:
        item = MemoryObject(b"a,b\n1,2\n" + rest, grows=True)
        assert values(CsvExtractor(), item) == [{"a": "1", "b": "2"}]


class TestMemory:
    def test_does_not_grow_with_the_object(self) -> None:
        block = b"".join(b"%d,text,%s\n" % (n, b"x" * 80) for n in range(1_000))

        def peak(blocks: int) -> int:
            item = MadeObject(b"a,b,c\n" if not at else block for at in range(blocks))
            tracemalloc.start()
            try:
                assert sum(1 for _ in extracted(CsvExtractor(), Input(item))) == (blocks - 1) * 1_000
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

        assert peak(16) < peak(4) + (1 << 18)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"delimiter": ""}, "delimiter"),
            ({"delimiter": "||"}, "delimiter"),
            ({"delimiter": '"'}, "delimiter"),
            ({"quote": "\n"}, "quote"),
            ({"quote": "«"}, "quote"),
            ({"columns": ["a", "a"]}, "columns"),
            ({"encoding": "klingon"}, "encoding"),
            ({"encoding": "hex"}, "encoding"),
        ],
    )
    def test_that_cannot_work_are_refused(self, options: dict[str, Any], path: str) -> None:
        with pytest.raises(ConfigError, match=path):
            CsvExtractor(**options)
