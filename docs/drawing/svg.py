"""SVG text: boxes, lines and words on a white sheet, so that a picture reads on dark pages too."""

from __future__ import annotations

from html import escape

SANS = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
MONO = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"

INK, SOFT, LINE, SHEET = "#1f2933", "#5f6c7b", "#c5ccd6", "#ffffff"
COLOURS = {
    "engine": ("#e3effc", "#3573b9"),
    "memory": ("#fdf1d8", "#c98a1b"),
    "fetch": ("#e2f4ee", "#2f8f6f"),
    "dram": ("#eceff3", "#6b7785"),
    "field": ("#f3eefc", "#7b5bb5"),
    "none": ("#f6f7f9", "#c5ccd6"),
}
"""Fill and edge of each kind of box."""

Point = tuple[float, float]


def width_of(text: str, size: float, *, mono: bool = False) -> float:
    """Pixels that a text takes at most, in the widest of the fonts that may show it."""
    return len(text) * size * (0.602 if mono else 0.6)


class Sheet:
    """A picture of fixed size; everything is drawn in the order of the calls."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height = width, height
        self._items = [f"<title>{escape(title)}</title>"]
        self.box(0.5, 0.5, width - 1, height - 1, SHEET, LINE, radius=8)

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, edge: str, *, radius: float = 6,
        dashed: bool = False,
    ) -> None:  # fmt: skip
        """A rectangle."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._items.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" '
            f'fill="{fill}" stroke="{edge}"{dash}/>'
        )

    def text(
        self, x: float, y: float, text: str, *, size: float = 13, colour: str = INK, anchor: str = "start",
        bold: bool = False, mono: bool = False,
    ) -> None:  # fmt: skip
        """One line; ``y`` is its base line, ``anchor`` the part of it that stands at ``x``: start, middle or end."""
        weight = ' font-weight="bold"' if bold else ""
        family = f' font-family="{MONO}"' if mono else ""
        spaces = ' xml:space="preserve"' if mono else ""
        self._items.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{colour}" text-anchor="{anchor}"'
            f"{weight}{family}{spaces}>{escape(text)}</text>"
        )

    def line(
        self, points: list[Point], *, colour: str = SOFT, width: float = 1.6, arrow: bool = False, both: bool = False,
        dashed: bool = False,
    ) -> None:  # fmt: skip
        """A line with corners; ``arrow`` gives it a head at its end, ``both`` one at each end."""
        place = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._items.append(f'<polyline points="{place}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dash}/>')
        if arrow or both:
            self._head(points[-2], points[-1], colour)
        if both:
            self._head(points[1], points[0], colour)

    def _head(self, start: Point, end: Point, colour: str) -> None:
        length = max(abs(end[0] - start[0]), abs(end[1] - start[1]))
        dx, dy = (end[0] - start[0]) / length, (end[1] - start[1]) / length
        back = (end[0] - 9 * dx, end[1] - 9 * dy)
        corners = (end, (back[0] - 4.5 * dy, back[1] + 4.5 * dx), (back[0] + 4.5 * dy, back[1] - 4.5 * dx))
        place = " ".join(f"{x:g},{y:g}" for x, y in corners)
        self._items.append(f'<polygon points="{place}" fill="{colour}"/>')

    def svg(self) -> str:
        """The whole text of the picture."""
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{SANS}" role="img">'
        return "\n".join([head, *self._items, "</svg>", ""])
