from __future__ import annotations

import io
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, Literal

import msgspec
import pytest
import zstandard

from headerware.core.context import Context
from headerware.core.errors import CompressionError, ConfigError
from headerware.core.headers import Headers
from headerware.core.hooks import Place, Role
from headerware.core.record import Record
from headerware.dictionaries.dictionary import COMPRESS_HEADER
from headerware.interceptors.compress import FIRST_BYTES, Compress, is_compressed

TEXT = b'{"order": 1, "status": "new", "amount": 12.5}, ' * 20
CODECS = pytest.mark.parametrize("codec", ["zstd", "gzip"])
Codec = Literal["zstd", "gzip"]


def step(**options: Any) -> Any:
    return Compress(**options).open(Context())


def record(value: bytes | None, *headers: tuple[str, bytes | None]) -> Record:
    return Record("orders", value, b"k", Headers(headers), 3, 5, 1, 7)


class TestCompressOnSend:
    @CODECS
    def test_makes_the_value_smaller_and_says_so(self, codec: Codec) -> None:
        sent = step(codec=codec).on_send(record(TEXT, ("a", b"1")))
        assert len(sent.value) < len(TEXT) / 5
        assert sent.headers == Headers([("a", b"1"), (COMPRESS_HEADER, codec)])
        assert sent.replace(value=TEXT, headers=Headers([("a", b"1")])) == record(TEXT, ("a", b"1"))

    @CODECS
    def test_gives_the_same_bytes_every_time(self, codec: Codec) -> None:
        assert step(codec=codec).on_send(record(TEXT)) == step(codec=codec).on_send(record(TEXT))

    def test_gzip_is_readable_by_anyone_and_holds_no_time(self) -> None:
        value = step(codec="gzip").on_send(record(TEXT)).value
        assert zlib.decompress(value, 31) == TEXT
        assert value[4:8] == bytes(4)

    def test_zstd_states_the_size(self) -> None:
        value = step().on_send(record(TEXT)).value
        assert zstandard.frame_content_size(value) == len(TEXT)

    @CODECS
    def test_a_level_makes_a_difference(self, codec: Codec) -> None:
        words = Random(1).choices([b"alpha ", b"beta ", b"gamma ", b"delta ", b"epsilon "], k=4000)
        fast, best = (step(codec=codec, level=level).on_send(record(b"".join(words))) for level in (1, 9))
        assert len(best.value) < len(fast.value)


class TestCompressLeavesAlone:
    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (None, "empty"),
            (b"", "empty"),
            (b"a" * 127, "small"),
            (Random(1).randbytes(1000), "incompressible"),
            (b"\x1f\x8b\x08" + b"a" * 1000, "format"),
        ],
    )
    def test_values_that_do_not_pay(self, value: bytes | None, reason: str) -> None:
        opened, given = step(), record(value)
        assert opened.on_send(given) is given
        assert opened.stats()[f"left_alone_{reason}"] == 1

    def test_a_record_that_is_compressed(self) -> None:
        opened, given = step(), record(TEXT, (COMPRESS_HEADER, b"gzip"))
        assert opened.on_send(given) is given
        assert opened.stats()["left_alone_encoded"] == 1

    def test_two_steps_in_one_chain_read_back_what_they_wrote(self) -> None:
        left, right = step(codec="gzip"), step(codec="zstd")
        assert left.on_consume(right.on_consume(right.on_send(left.on_send(record(TEXT))))) == record(TEXT)

    @pytest.mark.parametrize(
        "content_type",
        [
            b"image/png",
            b"IMAGE/PNG",
            b" image/png ; name=x",
            b"application/zip",
            b"font/woff2",
            b"video/mp4;codecs=a",
        ],
    )
    @pytest.mark.parametrize("name", ["content-type", "Content-Type"])
    def test_content_types_that_are_compressed(self, content_type: bytes, name: str) -> None:
        opened, given = step(), record(TEXT, (name, content_type))
        assert opened.on_send(given) is given
        assert opened.stats()["left_alone_content_type"] == 1

    @pytest.mark.parametrize(
        "content_type",
        [None, b"", b"application/json", b"image/svg+xml", b"text/plain; of=image/png", b"\xff"],
    )
    def test_but_not_others(self, content_type: bytes | None) -> None:
        assert step().on_send(record(TEXT, ("content-type", content_type))).value != TEXT

    def test_of_several_content_types_the_last_counts(self) -> None:
        given = record(TEXT, ("content-type", b"text/plain"), ("content-type", b"image/png"))
        assert step().on_send(given) is given

    def test_content_types_of_your_own(self) -> None:
        opened = step(skip_content_types=("Application/X-*", "!application/x-text"))
        assert opened.on_send(record(TEXT, ("content-type", b"application/x-raw"))).value == TEXT
        assert opened.on_send(record(TEXT, ("content-type", b"application/x-text"))).value != TEXT
        assert opened.on_send(record(TEXT, ("content-type", b"image/png"))).value != TEXT

    def test_no_content_types_at_all(self) -> None:
        assert step(skip_content_types=()).on_send(record(TEXT, ("content-type", b"image/png"))).value != TEXT

    def test_more_content_types_than_are_remembered(self) -> None:
        opened = step()
        for number in range(300):
            assert opened.on_send(record(TEXT, ("content-type", b"image/%d" % number))).value == TEXT
        assert opened._is_skipped.total() <= 256

    def test_the_margin_counts_the_header(self) -> None:
        smaller = len(zstandard.ZstdCompressor(level=3).compress(TEXT)) + 17
        share = 1 - smaller / len(TEXT)
        assert step(margin=share - 0.001).on_send(record(TEXT)).value != TEXT
        assert step(margin=share + 0.001).on_send(record(TEXT)).value == TEXT


class TestCompressOnConsume:
    def test_passes_what_is_not_compressed(self) -> None:
        given = record(TEXT, ("a", b"1"))
        assert step().on_consume(given) is given

    @CODECS
    def test_gives_back_what_was_sent_whatever_its_own_codec(self, codec: Codec) -> None:
        given = record(TEXT, ("a", b"1"), ("a", None))
        assert step().on_consume(step(codec=codec).on_send(given)) == given

    def test_takes_the_header_from_wherever_it_stands(self) -> None:
        sent = step().on_send(record(TEXT))
        between = sent.with_headers(Headers([("a", b"1"), *sent.headers, ("b", b"2")]))
        assert step().on_consume(between) == record(TEXT, ("a", b"1"), ("b", b"2"))

    def test_refuses_two_headers(self) -> None:
        sent = step().on_send(record(TEXT))
        with pytest.raises(CompressionError, match="appears 2 times"):
            step().on_consume(sent.with_headers(Headers([*sent.headers, *sent.headers])))

    def test_goes_on_after_a_refusal(self) -> None:
        opened, sent = step(), step().on_send(record(TEXT))
        for cut in (sent.value[:-1], sent.value + b"\0", b"junk"):
            with pytest.raises(CompressionError):
                opened.on_consume(sent.replace(value=cut))
            assert opened.on_consume(sent).value == TEXT


class TestCompressCounts:
    def test_what_it_did(self) -> None:
        opened = step()
        sent = opened.on_send(record(TEXT))
        opened.on_consume(sent)
        opened.on_send(record(None))
        assert {name: count for name, count in opened.stats().items() if count} == {
            "bytes_in": len(TEXT),
            "bytes_out": len(sent.value),
            "compressed": 1,
            "decompressed": 1,
            "left_alone_empty": 1,
        }


class TestCompressOptions:
    @pytest.mark.parametrize(
        ("codec", "level"), [("zstd", 0), ("zstd", 23), ("zstd", -8), ("gzip", 0), ("gzip", 10)]
    )
    def test_refuses_a_level_that_the_codec_does_not_have(self, codec: Codec, level: int) -> None:
        with pytest.raises(ConfigError, match=f"level: expected a level of {codec}.*found {level}") as caught:
            Compress(codec=codec, level=level)
        assert caught.value.path == "level"

    def test_refuses_a_codec_that_there_is_not(self) -> None:
        wrong: Any = "lz4"
        with pytest.raises(ConfigError, match="codec: expected one of zstd, gzip, found 'lz4'") as caught:
            Compress(codec=wrong)
        assert caught.value.path == "codec"

    def test_refuses_a_level_that_is_text_in_code(self) -> None:
        wrong: Any = "3"
        with pytest.raises(ConfigError, match=r"level: .*found '3'"):
            Compress(level=wrong)

    @pytest.mark.parametrize(("codec", "level"), [("zstd", -7), ("zstd", 22), ("gzip", 1), ("gzip", 9)])
    def test_takes_the_outermost_levels(self, codec: Codec, level: int) -> None:
        assert step().on_consume(step(codec=codec, level=level).on_send(record(TEXT))).value == TEXT

    @pytest.mark.parametrize(
        "option",
        [{"margin": 1}, {"margin": -0.1}, {"min_bytes": -1}, {"max_decompressed_bytes": 0}, {"codec": "lz4"}],
    )
    def test_refuses_numbers_that_mean_nothing(self, option: dict[str, Any]) -> None:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(option, Compress)

    def test_takes_flat_text(self) -> None:
        options = msgspec.convert({"level": "9", "margin": "0.1"}, Compress, strict=False)
        assert (options.level, options.margin) == (9, 0.1)

    def test_declares_what_it_decodes(self) -> None:
        assert (Compress.type, Compress.role, Compress.place) == ("compress", Role.TRANSFORM, Place.COMPRESS)
        assert Compress.decodes == (COMPRESS_HEADER,)


class TestCompressThreads:
    def test_eight_threads_share_one_step(self) -> None:
        # One zstd context used by two threads at once ends the process: this is where it would.
        opened = step()

        def work(seed: int) -> bool:
            random = Random(seed)
            values = [bytes(random.choices(b"abcdef", k=random.randrange(200, 20_000))) for _ in range(150)]
            return all(opened.on_consume(opened.on_send(record(value))).value == value for value in values)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(8)))


class TestCompressedFormats:
    @pytest.mark.parametrize(
        "value",
        [
            zlib.compress(b"x", wbits=31),
            zstandard.ZstdCompressor().compress(b"x"),
            b"BZh91AY&SY",
            b"\xfd7zXZ\x00",
            b"\x04\x22\x4d\x18",
            b"\xff\x06\x00\x00sNaPpY",
            b"\x82SNAPPY\x00",
            b"7z\xbc\xaf\x27\x1c",
            b"Rar!\x1a\x07\x01\x00",
            b"\x89PNG\r\n\x1a\n",
            b"\xff\xd8\xff\xe0",
            b"GIF87a",
            b"GIF89a",
            b"RIFF\x10\x00\x00\x00WEBPVP8 ",
            b"\x00\x00\x00\x18ftypisom",
            b"\x1a\x45\xdf\xa3",
            b"OggS",
            b"fLaC",
            b"ID3\x04",
            b"PAR1",
            b"wOF2",
            b"wOFF",
        ],
    )
    def test_are_told_by_their_first_bytes(self, value: bytes) -> None:
        assert value[0] in FIRST_BYTES
        assert is_compressed(value + b"more")
        assert not is_compressed(value[:1])

    def test_an_archive_is_told(self) -> None:
        with io.BytesIO() as file:
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("a", "b")
            assert is_compressed(file.getvalue())

    @pytest.mark.parametrize(
        "value",
        [
            b"{}",
            b"PK is a name",
            b"BZhello, world",
            b"RIFF\x10\x00\x00\x00WAVEfmt ",
            b"GIF",
            b"\x00\x00\x00\x01abcd",
        ],
    )
    def test_others_are_not(self, value: bytes) -> None:
        assert not is_compressed(value)
