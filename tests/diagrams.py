"""Draw the diagrams of the documentation as SVG, which follow the dark scheme of their reader.

``make pages`` writes them into docs/diagrams/. A drawing has boxes, arrows and texts on a canvas that is
narrow enough for a telephone.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH: Final = 520
LINE: Final = 20
STYLE: Final = """\
text { font: 14px ui-sans-serif, system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.code { font-family: ui-monospace, monospace; font-size: 13px }
.note { fill: #59636e; font-size: 13px }
.box { fill: #f6f8fa; stroke: #818b98 }
.ours { fill: #ddf4ff; stroke: #0969da }
.bad { fill: #ffebe9; stroke: #cf222e }
.off { fill: none; stroke: #818b98; stroke-dasharray: 4 3 }
.line { fill: none; stroke: #59636e; stroke-width: 1.5 }
.head { fill: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .note { fill: #9198a1 }
  .box { fill: #212830; stroke: #656c76 }
  .ours { fill: #121d2f; stroke: #4493f8 }
  .bad { fill: #25171c; stroke: #f85149 }
  .off { stroke: #656c76 }
  .line { stroke: #9198a1 }
  .head { fill: #9198a1 }
}
"""
Kind = Literal["box", "ours", "bad", "off"]


class Drawing:
    """Collect the parts of a diagram."""

    def __init__(self, height: int, title: str) -> None:
        self.height: Final = height
        self.title: Final = title
        self._parts: list[str] = []

    def box(
        self, x: int, y: int, width: int, lines: Sequence[str], kind: Kind = "box", height: int = 0
    ) -> None:
        """Draw a box with a title, and lines of code below it."""
        height = height or LINE * len(lines) + 14
        self._parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>')
        for number, line in enumerate(lines):
            self.text(x + 12, y + 22 + LINE * number, line, "code" if number else "title")

    def text(self, x: int, y: int, text: str, kind: str = "note", anchor: str = "start") -> None:
        """Write a line of text."""
        where = f'x="{x}" y="{y}" text-anchor="{anchor}"'
        self._parts.append(f'<text class="{kind}" {where} xml:space="preserve">{escape(text)}</text>')

    def arrow(self, *points: tuple[int, int]) -> None:
        """Draw an arrow along points."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self._parts.append(f'<polyline class="line" points="{path}" marker-end="url(#head)"/>')

    def line(self, x: int, y: int, to_y: int) -> None:
        """Draw a vertical, dashed line."""
        self._parts.append(f'<path class="off" d="M{x} {y}V{to_y}"/>')

    def svg(self) -> str:
        """Return the diagram as a file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
            f'width="{WIDTH}" height="{self.height}" role="img">'
        )
        marker = (
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker>'
        )
        style = f"<style>\n{STYLE}</style>"
        title = f"<title>{escape(self.title)}</title>"
        return "\n".join([head, title, style, marker, *self._parts, "</svg>", ""])


def record() -> Drawing:
    """Draw a record on its way."""
    made = Drawing(444, "A record on its way: as the application sends it, in Kafka, and as it is received")
    made.box(20, 10, 480, ["The application sends", "value   396 bytes", "tenant  north"])
    made.arrow((260, 84), (260, 132))
    made.text(276, 112, "trail → compress → sign")
    made.box(
        20,
        136,
        480,
        [
            "Kafka stores",
            "value        78 bytes, zstd",
            "tenant       north",
            "hw.trail     1,at=1795370343909;by=orders;into=...",
            "hw.compress  zstd",
            "hw.sig       AQtvcmRlcnMtMjAyNgABF21vY2tDbHVz...",
        ],
        "ours",
    )
    made.arrow((260, 270), (260, 318))
    made.text(276, 298, "sign → compress → trail")
    made.box(
        20,
        322,
        480,
        [
            "The other application receives",
            "value     396 bytes",
            "tenant    north",
            "hw.trail  produced by orders, read by billing",
        ],
    )
    made.text(20, 436, "A record that was changed on the way is refused at sign.")
    return made


def chain() -> Drawing:
    """Draw the chain in both directions."""
    steps = [
        ("serialize", "objects ⇄ bytes"),
        ("trail", "where the record has been"),
        ("compress", "smaller, before encryption"),
        ("encrypt", "only readers with the key"),
        ("slice", "large messages in parts"),
        ("sign", "last: it covers all of it"),
    ]
    bottom = 70 + 52 * len(steps)
    made = Drawing(bottom + 62, "One list of interceptors: down on send, up on consume")
    made.box(70, 10, 380, ["Application"])
    for number, (word, text) in enumerate(steps):
        y = 66 + 52 * number
        made.box(110, y, 300, [word], "ours", height=40)
        made.text(206, y + 24, text, "note")
    made.box(70, bottom, 380, ["Kafka"])
    made.arrow((90, 48), (90, bottom - 4))
    made.arrow((430, bottom), (430, 52))
    made.text(80, 210, "send", "title", "end")
    made.text(440, 210, "consume", "title")
    made.text(260, bottom + 54, "The same list configures both ends.", "note", "middle")
    return made


def rotation() -> Drawing:
    """Draw the rotation of a signing key."""
    made = Drawing(258, "A rotation: the next version of a key is distributed before it signs")
    made.text(20, 24, "headerware keys rotate --lead 10m", "code")
    made.line(170, 34, 214)
    made.line(330, 34, 214)
    made.text(170, 232, "version 2 is made", "note", "middle")
    made.text(330, 232, "the lead is over", "note", "middle")
    made.text(20, 66, "version 1", "title")
    made.box(20, 76, 310, ["signs, and verifies"], "ours", height=40)
    made.box(330, 76, 170, ["verifies old records"], "box", height=40)
    made.text(20, 148, "version 2", "title")
    made.box(170, 158, 160, ["copied to readers"], "off", height=40)
    made.box(330, 158, 170, ["signs, and verifies"], "ours", height=40)
    made.text(20, 252, "time →")
    made.text(500, 252, "No restart: clients follow their keyring file.", "note", "end")
    return made


def guard() -> Drawing:
    """Draw a guard in front of a topic."""
    made = Drawing(418, "A guard: admitted records go to the egress topic, refused records to dead letters")
    made.box(20, 10, 300, ["Producers", "sign, with a certificate"])
    made.arrow((170, 64), (170, 96))
    made.box(20, 100, 300, ["ingress.orders", "everybody may write"])
    made.arrow((170, 154), (170, 186))
    made.box(
        20,
        190,
        300,
        [
            "headerware guard",
            "1 is the signature valid?",
            "2 does the policy allow it?",
            "3 is it there already?",
        ],
        "ours",
    )
    made.arrow((170, 284), (170, 330))
    made.text(182, 312, "yes: once, byte for byte")
    made.box(20, 334, 300, ["orders", "only the guard may write"])
    made.arrow((320, 237), (356, 237))
    made.box(360, 210, 140, ["dead letters", "with a reason"], "bad")
    made.text(366, 198, "no")
    made.text(20, 410, "Consumers may read only the topic orders.")
    return made


def micro_batch() -> Drawing:
    """Draw a micro-batch of Spark's structured streaming."""
    made = Drawing(
        468, "A micro-batch: decoded, changed, encoded and written; then the ledger, then the commit"
    )
    made.box(20, 10, 220, ["Kafka", "offsets 100 to 180"])
    made.arrow((130, 64), (130, 96))
    made.box(20, 100, 220, ["decode", "sign → compress → trail"], "ours")
    made.text(256, 122, "on the executors; a message in slices")
    made.text(256, 142, "may wait for a later batch")
    made.arrow((130, 154), (130, 186))
    made.box(20, 190, 220, ["your transform", "frame.where(...)"])
    made.arrow((130, 244), (130, 276))
    made.box(20, 280, 220, ["encode", "trail → compress → sign"], "ours")
    made.arrow((130, 334), (130, 366))
    made.box(20, 370, 220, ["Kafka", "written at least once"])
    made.arrow((240, 397), (296, 397), (296, 344))
    made.box(300, 280, 200, ["ledger", "1 batch 7 is done"], "ours")
    made.arrow((400, 280), (400, 248))
    made.box(300, 190, 200, ["Spark's checkpoint", "2 batch 7 is committed"])
    made.text(20, 446, "After a failure Spark repeats the batch; the ledger says which")
    made.text(20, 464, "attempt counts.")
    return made


def drawn() -> dict[str, str]:
    """Return the file of each diagram by its path."""
    diagrams = {
        "record": record,
        "chain": chain,
        "rotation": rotation,
        "guard": guard,
        "micro-batch": micro_batch,
    }
    return {f"docs/diagrams/{name}.svg": draw().svg() for name, draw in diagrams.items()}
