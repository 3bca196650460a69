"""Time zones in texts: offsets, and English names; of several zones with one name, Java takes the first."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headerware.connect.errors import ConnectDataError

_MINUTE_MS: Final = 60_000
_MILLISECOND: Final = timedelta(milliseconds=1)
_HOUR: Final = timedelta(hours=1)
_HOURS: Final = 24
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS: Final = (datetime(1900, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND
"""Java has no local mean time before 1900."""
_LAST_MS: Final = (datetime(9999, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND


class NamedZone(NamedTuple):
    """A zone that is named in a text."""

    key: str
    """Its name in the time zone database."""
    names: tuple[str, str, str, str]
    """Long and short in standard time, long and short in summer time."""
    saving: timedelta | None = None
    """The time that the name adds to standard time; None if the zone itself decides."""

    def to_utc(self, local_ms: int) -> int:
        """Return the milliseconds since the epoch of a local time."""
        at = _within(local_ms).replace(tzinfo=self._zone())
        offset = at.utcoffset() or timedelta()
        if self.saving is not None:
            offset += self.saving - (at.dst() or timedelta())
        return local_ms - offset // _MILLISECOND

    def local(self, epoch_ms: int) -> tuple[int, tuple[str, str, str]]:
        """Return the local time, and the zone as ``Z`` writes it, with its short and long names."""
        at = _within(epoch_ms).astimezone(self._zone())
        offset = at.utcoffset() or timedelta()
        long, short = self.names[2:] if at.dst() else self.names[:2]
        sign, minutes = ("-" if offset < timedelta() else "+"), abs(offset) // timedelta(minutes=1)
        written = f"{sign}{minutes // 60:02d}{minutes % 60:02d}"
        return epoch_ms + offset // _MILLISECOND, (written, short, long)

    def _zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.key)
        except ZoneInfoNotFoundError:
            raise ConnectDataError(
                f"the time zone database has no {self.key}; install the package tzdata"
            ) from None


def _within(epoch_ms: int) -> datetime:
    """Return the nearest datetime from 1900 on that has the same offset."""
    return _EPOCH + timedelta(milliseconds=min(max(epoch_ms, _FIRST_MS), _LAST_MS))


def _rows(*rows: str) -> dict[str, NamedZone]:
    """Return the zones by name, in the order in which Java looks for them."""
    zones: dict[str, NamedZone] = {}
    for row in rows:
        key, long, short, summer_long, summer_short, saves = row.split("|")
        names = (long, short, summer_long, summer_short)
        for index, name in enumerate(names):
            same = name.lower() == names[(index + 2) % 4].lower()
            summer = index >= 2
            saving = None if same or (summer and not saves) else _HOUR if summer else timedelta()
            zones.setdefault(name.lower(), NamedZone(key, names, saving))
    return zones


_ZONES: Final = _rows(
    "UTC|Coordinated Universal Time|UTC|Coordinated Universal Time|UTC|",
    "America/Los_Angeles|Pacific Standard Time|PST|Pacific Daylight Time|PDT|+",
    "America/Denver|Mountain Standard Time|MST|Mountain Daylight Time|MDT|+",
    "America/Chicago|Central Standard Time|CST|Central Daylight Time|CDT|+",
    "America/New_York|Eastern Standard Time|EST|Eastern Daylight Time|EDT|+",
    "Pacific/Honolulu|Hawaii-Aleutian Standard Time|HST|Hawaii-Aleutian Daylight Time|HDT|",
    "America/Anchorage|Alaska Standard Time|AKST|Alaska Daylight Time|AKDT|+",
    "America/Halifax|Atlantic Standard Time|AST|Atlantic Daylight Time|ADT|+",
    "America/St_Johns|Newfoundland Standard Time|NST|Newfoundland Daylight Time|NDT|+",
    "Europe/Paris|Central European Standard Time|CET|Central European Summer Time|CEST|+",
    "GMT|Greenwich Mean Time|GMT|Greenwich Mean Time|GMT|",
    "Asia/Jerusalem|Israel Standard Time|IST|Israel Daylight Time|IDT|+",
    "Asia/Tokyo|Japan Standard Time|JST|Japan Daylight Time|JDT|",
    "Europe/Bucharest|Eastern European Standard Time|EET|Eastern European Summer Time|EEST|+",
    "Asia/Shanghai|China Standard Time|CST|China Daylight Time|CDT|",
    "Australia/Darwin|Australian Central Standard Time|ACST|Australian Central Daylight Time|ACDT|",
    "Australia/Sydney|Australian Eastern Standard Time|AEST|Australian Eastern Daylight Time|AEDT|+",
    "America/Sao_Paulo|Brasilia Standard Time|BRT|Brasilia Summer Time|BRST|",
    "Pacific/Auckland|New Zealand Standard Time|NZST|New Zealand Daylight Time|NZDT|+",
    "Asia/Karachi|Pakistan Standard Time|PKT|Pakistan Summer Time|PKST|",
    "Asia/Dubai|Gulf Standard Time|GST|Gulf Daylight Time|GDT|",
    "Asia/Seoul|Korean Standard Time|KST|Korean Daylight Time|KDT|",
    "Europe/Minsk|Moscow Standard Time|MSK|Moscow Summer Time|MSD|",
    "Africa/Maseru|South Africa Standard Time|SAST|South Africa Summer Time|SAST|",
    "Europe/Lisbon|Western European Standard Time|WET|Western European Summer Time|WEST|+",
    "Europe/Jersey|Greenwich Mean Time|GMT|British Summer Time|BST|+",
    "Asia/Hong_Kong|Hong Kong Standard Time|HKT|Hong Kong Summer Time|HKST|",
    "Asia/Singapore|Singapore Standard Time|SGT|Singapore Summer Time|SGST|",
    "Australia/Perth|Australian Western Standard Time|AWST|Australian Western Daylight Time|AWDT|",
)
_NAMES: Final = re.compile("|".join(map(re.escape, _ZONES)), re.IGNORECASE | re.ASCII)


def read_zone(text: str, start: int, at: int) -> tuple[int | NamedZone, int] | None:
    """Read an offset like ``+0100``, ``GMT`` with or without an offset like ``+1:00``, or a zone's name.

    The field begins at ``start``; its first character that is not white space is at ``at``. Return the offset
    in milliseconds or the zone, and the index after it; None if there is neither.
    """
    sign = _sign(text, at)
    if sign:
        return _read_offset(text, at + 1, sign, digits=2, colon=False)
    if text[at] in "Gg" and text[start : start + 3].lower() == "gmt":
        sign = _sign(text, start + 3)
        if not sign:
            return 0, start + 3
        return _read_offset(text, start + 4, sign, digits=1, colon=True)
    match = _NAMES.match(text, at)
    return None if match is None else (_ZONES[match[0].lower()], match.end())


def read_iso_zone(text: str, at: int, count: int) -> tuple[int, int] | None:
    """Read ``Z``, or an offset in the form of ``X``, ``XX`` or ``XXX``: ``+01``, ``+0100``, ``+01:00``."""
    if text[at] == "Z":
        return 0, at + 1
    sign = _sign(text, at)
    if not sign:
        return None
    return _read_offset(text, at + 1, sign, digits=2, colon=count == 3, minutes=count != 1)


def _sign(text: str, at: int) -> int:
    return {"+": 1, "-": -1}.get(text[at : at + 1], 0)


def _read_offset(
    text: str, at: int, sign: int, *, digits: int, colon: bool, minutes: bool = True
) -> tuple[int, int] | None:
    """Read hours of at least ``digits`` digits, and minutes; return the milliseconds and the end."""
    match = _OFFSETS[digits, colon, minutes].match(text, at)
    if match is None or int(match[1]) >= _HOURS:
        return None
    of_hour = int(match[2]) if minutes else 0
    return sign * (int(match[1]) * 60 + of_hour) * _MINUTE_MS, match.end()


_OFFSETS: Final = {
    (digits, colon, minutes): re.compile(
        f"([0-9]{{{digits},2}})" + (f"{':' if colon else ''}([0-5][0-9])" if minutes else "")
    )
    for digits in (1, 2)
    for colon in (False, True)
    for minutes in (False, True)
}
