"""Pictures as SVG text: the records of `charts` as inline SVG, with their legend and the numbers behind them.

A picture has a title and a description for screen readers. Text and axes have the colour of the text around them;
curves have a colour and a class (``c0``, ``c1``, …), so that a style sheet can choose other colours on a dark page.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from html import escape
from math import ceil, floor, isfinite, log10, nan
from typing import Any, NamedTuple

import numpy as np

from certirl.ground.domain import Array
from certirl.ground.status import rounded_down
from certirl.show.charts import (
    COLOURS,
    LOOKS,
    MARK,
    SHADES,
    Bars,
    Chart,
    Curve,
    Intervals,
    Map,
    Picture,
    Point,
    Span,
    edges,
    log_ticks,
    number,
    runs,
)

_WIDTH = 560  # of a picture, in its own units
_HEIGHTS = {Chart: 300, Map: 400}
_TOP, _BOTTOM, _RIGHT = 32, 50, 16
_CHARACTER = 9.5  # width of a character of a tick label at the size on phones
_BAR = 34  # height of a bar with the space below it
_DRAWN = 400  # points of a curve that are drawn
_READ = 160  # places of a chart at which numbers can be read
_READ_CELLS = 64  # cells of a map along each coordinate at which numbers can be read
_LINE_OF_TEXT = 58  # characters that fit beside each other at the size on phones
_LABEL = 22  # characters of the name of a bar; the description has all of them
_SHORT = 17  # rows of a table, and cells of the table of a map along each coordinate

_HALO = 'fill="black" stroke="white" stroke-width="3" stroke-linejoin="round" paint-order="stroke"'
_MARK = f'fill="{COLOURS[MARK]}" stroke="white" stroke-width="2"'


class Tone(NamedTuple):
    """How a report and a card show a status: the class of a style sheet, the colour on white, a sign."""

    name: str
    colour: str
    sign: str


_GOOD, _FINE, _PLAIN = Tone("good", "#0b6b3a", "✓"), Tone("fine", "#0b5cad", "✓"), Tone("plain", "#46525f", "○")
_OPEN, _BAD = Tone("open", "#855000", "?"), Tone("bad", "#a81c2f", "✕")
# What is proved, tested, only estimated, open, and refuted.
TONES = {
    **dict.fromkeys(("certified", "confirmed"), _GOOD),
    **dict.fromkeys(("validated", "bounded", "certified in part"), _FINE),
    **dict.fromkeys(("solved", "estimated"), _PLAIN),
    **dict.fromkeys(("undetermined", "conditional", "not certified", "nothing claimed"), _OPEN),
    **dict.fromkeys(("infeasible", "certified infeasible", "rejected"), _BAD),
}


class Readings(NamedTuple):
    """The numbers of a picture at some places, in words."""

    head: list[str]  # names of the columns; the first one is the place
    # one for each place. Of a map: one for each place along y, from below, with a number for each along x
    rows: list[list[str]]
    # x, y: the places as shares of the width and of the height of the picture; y is empty but for maps
    x: list[float]
    y: list[float]
    names: tuple[list[str], list[str]]  # of a map, the places along x and y in words
    area: list[float]  # left, top, width and height of the plotted area, as shares of the picture


def draw(picture: Picture, name: str) -> str:
    """A picture as an ``<svg>`` element; all ids in it begin with a name, and no other ids of the page may."""
    frame = _frame(picture)
    writers: dict[type, Callable[..., str]] = {Bars: _bars, Intervals: _bars, Map: _map, Chart: _chart}
    words = escape(description(picture))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {frame.height:g}" role="img" '
        f'aria-labelledby="{name}-title {name}-words" fill="currentColor" font-size="13" font-family="system-ui">'
        f'<title id="{name}-title">{escape(title_of(picture))}</title><desc id="{name}-words">{words}</desc>'
        f"{writers[type(picture)](picture, frame, name)}</svg>"
    )


def title_of(picture: Picture) -> str:
    """The title of a picture on one line, or what it shows."""
    if picture.title:
        return picture.title.replace("\n", "; ")
    if isinstance(picture, Bars | Intervals):
        return picture.label
    return picture.value_label if isinstance(picture, Map) else picture.y_label


def description(picture: Picture) -> str:
    """A picture in a sentence, for those who do not see it."""
    if isinstance(picture, Bars | Intervals):
        terms = "; ".join(f"{bar.label} {bar.words}" for bar in picture.rows)
        return f"{picture.label}: {terms}."
    if isinstance(picture, Map):
        where = f"{picture.x_label} from {_ends(picture.x)} and {picture.y_label} from {_ends(picture.y)}"
        return f"Map of {picture.value_label} over {where}: {_ends(picture.values)}."
    each = [f"{curve.label} from {_ends(curve.y)}" for curve in picture.curves if curve.label]
    each += [f"horizontal line: {level.label}" for level in picture.levels if level.label]
    shaded = [f"{number(low, 3)} to {number(high, 3)} ({label})" for low, high, label, _ in picture.spans if low < high]
    more = f" and {len(shaded) - 8} more" if len(shaded) > 8 else ""
    each += [f"shaded: {', '.join(shaded[:8])}{more}"] if shaded else []
    return f"{picture.y_label} over {picture.x_label}: {'; '.join(each) or 'nothing'}."


def _ends(values: Array) -> str:
    finite = values[np.isfinite(values)]
    return f"{number(finite.min(), 3)} to {number(finite.max(), 3)}" if finite.size else "nowhere"


# The frame -----------------------------------------------------------------------------------------------------------


class _Frame(NamedTuple):
    """The plotted area: the ranges of both axes, and the space around it."""

    x: tuple[float, float]
    y: tuple[float, float]
    left: float
    right: float
    top: float
    bottom: float
    height: float

    def across(self, x: Any) -> Any:
        return self.left + (x - self.x[0]) / (self.x[1] - self.x[0]) * (self.right - self.left)

    def down(self, y: Any) -> Any:
        return self.bottom - (y - self.y[0]) / (self.y[1] - self.y[0]) * (self.bottom - self.top)

    @property
    def area(self) -> list[float]:
        width, height = self.right - self.left, self.bottom - self.top
        return [self.left / _WIDTH, self.top / self.height, width / _WIDTH, height / self.height]


def _frame(picture: Picture) -> _Frame:
    if isinstance(picture, Bars | Intervals):
        rows = picture.rows
        ends = [0.0, *(end for bar in rows for end in (bar.start, bar.end))]
        low, high = min(ends), max(ends)
        top, bottom = 4.0, 4.0 + _BAR * len(rows)
        words = max(84, 20 + 7 * max((len(bar.words) for bar in rows), default=0))
        return _Frame((low, high if high > low else low + 1), (0, 1), 180, _WIDTH - words, top, bottom, bottom + 4)
    height = _HEIGHTS[type(picture)]
    if isinstance(picture, Map):
        x, y = ((float(borders[0]), float(borders[-1])) for borders in map(edges, (picture.x, picture.y)))
        right = _WIDTH - _space(_shade_ticks(picture)) - 34
    else:
        ends = [end for span in picture.spans for end in (span.low, span.high)]
        every = np.concatenate([*(curve.x for curve in picture.curves), ends if not picture.curves else []])
        low, high = (float(every.min()), float(every.max())) if every.size else (0.0, 1.0)
        x, y = (low, high) if low < high else (low - 0.5, high + 0.5), (picture.low, picture.high)
        right = _WIDTH - _RIGHT
    return _Frame(x, y, _space(_ticks(*y)), right, _TOP, height - _BOTTOM, height)


def _ticks(low: float, high: float, count: int = 5) -> list[tuple[float, str]]:
    """Round numbers between two others, with their labels."""
    raw = (high - low) / count
    power = 10.0 ** floor(log10(raw))
    step = next(size * power for size in (1.0, 2.0, 2.5, 5.0, 10.0) if size * power >= raw * (1 - 1e-9))
    values = [k * step for k in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]
    if max(map(abs, values), default=0.0) >= 1e6 or step < 1e-4:
        return [(value, number(value)) for value in values]
    places = next(places for places in range(8) if abs(round(step, places) - step) < 1e-9 * step or places == 7)
    return [(value, f"{value + 0.0:,.{places}f}".replace("-", "−")) for value in values]


def _space(ticks: Sequence[tuple[float, str]]) -> float:
    return 14 + _CHARACTER * max((len(label) for _, label in ticks), default=1)


def _axes(frame: _Frame, x_label: str, y_label: str, *, lines: bool, most: int = _LINE_OF_TEXT) -> str:
    left, right, bottom = frame.left, frame.right, frame.bottom
    drawn = []
    for value, label in _ticks(*frame.x):
        across = frame.across(value)
        drawn.append(f'<path d="M{across:.1f} {bottom}v5" stroke="currentColor" opacity=".4"/>')
        drawn.append(f'<text x="{across:.1f}" y="{bottom + 21}" text-anchor="middle">{label}</text>')
    for value, label in _ticks(*frame.y):
        down = frame.down(value)
        if lines:
            drawn.append(f'<path d="M{left:.1f} {down:.1f}H{right:.1f}" stroke="currentColor" opacity=".12"/>')
        drawn.append(f'<text x="{left - 8:.1f}" y="{down + 4.5:.1f}" text-anchor="end">{label}</text>')
    drawn.append(f'<path d="M{left:.1f} {bottom}H{right:.1f}" stroke="currentColor" opacity=".4"/>')
    below, above = escape(_short(x_label, _LINE_OF_TEXT)), escape(_short(y_label, most))
    drawn.append(f'<text class="axis" x="{right:.1f}" y="{bottom + 44}" text-anchor="end">{below}</text>')
    drawn.append(f'<text class="axis" x="2" y="17">{above}</text>')
    return "".join(drawn)


def _short(label: str, most: int) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


# Charts --------------------------------------------------------------------------------------------------------------


def _look(role: str, number: int | None = None, kind: str = "stroke") -> str:
    """The attributes of what has a role: a line, or with the kind "fill" a shape."""
    look, style = LOOKS[role], ("ink", "currentColor")
    if number is not None:
        style = f"c{number % len(COLOURS)}", COLOURS[number % len(COLOURS)]
    attributes = [f'class="{style[0]}" {kind}="{style[1]}"', f'opacity="{look.opacity:g}"' if look.opacity < 1 else ""]
    if kind == "stroke":
        attributes.append(f'fill="none" stroke-width="{look.width:g}" stroke-linejoin="round"')
    if look.dashes:
        attributes.append(f'stroke-dasharray="{" ".join(f"{look.width * dash:.3g}" for dash in look.dashes)}"')
    return " ".join(filter(None, attributes))


def _chart(chart: Chart, frame: _Frame, name: str) -> str:
    size = f'width="{frame.right - frame.left:.1f}" height="{frame.bottom - frame.top:.1f}"'
    clip = f'<clipPath id="{name}-area"><rect x="{frame.left:.1f}" y="{frame.top}" {size}/></clipPath>'
    body = [_span(frame, span) for span in chart.spans]
    body += [_band(frame, curve) for curve in chart.curves if curve.lower is not None]
    for value, label in chart.levels:
        where = f"M{frame.left:.1f} {frame.down(value):.1f}H{frame.right:.1f}"
        body.append(f'<path d="{where}" {_look("level" if label else "axis")}/>')
    body += [_curve(frame, curve) for curve in chart.curves]
    inside = f'<g clip-path="url(#{name}-area)">{"".join(body)}</g>'
    axes = _axes(frame, chart.x_label, chart.y_label, lines=True)
    return f"<defs>{clip}</defs>{axes}{inside}{_marks(frame, chart.points, beside=True)}"


def _span(frame: _Frame, span: Span) -> str:
    left, right = frame.across(span.low), frame.across(span.high)
    if span.low == span.high:
        return f'<path d="M{left:.1f} {frame.top}V{frame.bottom}" {_look("edge", span.colour)}/>'
    size = f'width="{right - left:.1f}" height="{frame.bottom - frame.top}"'
    return f'<rect x="{left:.1f}" y="{frame.top}" {size} {_shade(span)}/>'


def _shade(span: Span) -> str:
    return _look("grey" if span.colour is None else "shade", span.colour, "fill")


def _line(x: Array, y: Array) -> str:
    """A path through points, interrupted where y is not finite."""
    steps, pen = list[str](), "M"
    for across, down in zip(x.tolist(), y.tolist(), strict=True):
        if isfinite(down):
            steps.append(f"{pen}{across:.1f} {down:.1f}")
        pen = "L" if isfinite(down) else "M"
    return "".join(steps)


def _thin(count: int, most: int) -> slice:
    return slice(None, None, max(1, ceil(count / most)))


def _limited(frame: _Frame, y: Array) -> Array:
    """Heights in the picture, cut off not far outside the plotted area."""
    return np.clip(frame.down(y), frame.top - 50, frame.bottom + 50)


def _curve(frame: _Frame, curve: Curve) -> str:
    if curve.style == "points":
        dots = zip(frame.across(curve.x).tolist(), frame.down(curve.y).tolist(), strict=True)
        path = "".join(f"M{across:.1f} {down:.1f}h0" for across, down in dots if isfinite(down))
        dot = _look("dots" if len(curve.x) > 60 else "dot", curve.colour)
        return f'<path d="{path}" {dot} stroke-linecap="round"/>'
    keep = _thin(len(curve.y), _DRAWN)
    x, y = (curve.x, curve.y) if curve.style == "steps" else (curve.x[keep], curve.y[keep])
    if curve.style == "steps":
        x, y = np.repeat(x, 2)[1:-1], np.repeat(y, 2)
    return f'<path d="{_line(frame.across(x), _limited(frame, y))}" {_look(curve.style, curve.colour)}/>'


def _band(frame: _Frame, curve: Curve) -> str:
    keep, pieces = _thin(len(curve.y), _DRAWN), list[str]()
    x, lower, upper = (np.asarray(values)[keep] for values in (curve.x, curve.lower, curve.upper))
    for start, stop in runs(np.isfinite(lower) & np.isfinite(upper)):
        run = slice(start, stop)
        around, heights = np.append(x[run], x[run][::-1]), np.append(lower[run], upper[run][::-1])
        pieces.append(_line(frame.across(around), _limited(frame, heights)) + "z")
    return f'<path d="{"".join(pieces)}" {_look("band", curve.colour, "fill")}/>'


def _marks(frame: _Frame, points: Sequence[Point], *, beside: bool) -> str:
    """Marked places; with ``beside`` their labels are written next to them."""
    drawn = []
    for x, y, label in points:
        across, down = frame.across(x), frame.down(y)
        drawn.append(f'<circle cx="{across:.1f}" cy="{down:.1f}" r="5.5" class="mark" {_MARK}/>')
        if beside and label:
            at_right = across > (frame.left + frame.right) / 2
            place = f'x="{across + (-8 if at_right else 8):.1f}" y="{down - 8:.1f}"'
            drawn.append(f'<text {place} text-anchor="{"end" if at_right else "start"}">{escape(label)}</text>')
    return "".join(drawn)


# Maps ----------------------------------------------------------------------------------------------------------------


def _shares(chart: Map, values: Array) -> Array:
    """Values as shares of the range of colours."""
    scale: Callable[[Any], Any] = np.log if chart.is_log else np.asarray
    low, high = scale(chart.low), scale(chart.high)
    return (scale(values) - low) / (high - low) if high > low else np.full(np.shape(values), 0.5)


def _shade_ticks(chart: Map) -> list[tuple[float, str]]:
    if chart.is_log:
        return [(tick, number(tick, 3)) for tick in log_ticks(chart.low, chart.high)]
    return _ticks(chart.low, chart.high) if chart.low < chart.high else [(chart.low, number(chart.low, 3))]


def _png(levels: Array) -> str:
    """Shades between 0 and 1 ``[m, n]``, NaN for none, as the address of a picture."""
    table = np.array([[int(shade[i : i + 2], 16) for i in (1, 3, 5)] for shade in SHADES], dtype=float)
    places = np.linspace(0, len(table) - 1, 255)
    palette = np.stack([np.interp(places, np.arange(len(table)), channel) for channel in table.T], axis=1)
    indices = np.where(np.isnan(levels), 0, 1 + np.round(254 * np.clip(np.nan_to_num(levels), 0, 1))).astype(np.uint8)
    rows = np.insert(indices, 0, 0, axis=1).tobytes()  # each row begins with the number of its filter

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", levels.shape[1], levels.shape[0], 8, 3, 0, 0, 0)
    colours = bytes(3) + palette.round().astype(np.uint8).tobytes()
    body = {b"IHDR": header, b"PLTE": colours, b"tRNS": b"\0", b"IDAT": zlib.compress(rows, 9), b"IEND": b""}
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, content) for kind, content in body.items())
    return f"data:image/png;base64,{base64.b64encode(whole).decode()}"


def _map(chart: Map, frame: _Frame, name: str) -> str:
    left, top, width, height = frame.left, frame.top, frame.right - frame.left, frame.bottom - frame.top
    place = f'x="{left:.1f}" y="{top}" width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none"'
    is_smooth = bool(np.isfinite(chart.values).all()) and min(chart.values.shape) > 60
    sharp = "" if is_smooth else ' image-rendering="pixelated"'
    body = [f'<rect class="empty" {place[: place.index(" preserve")]} opacity=".08"/>']
    body.append(f'<image {place}{sharp} href="{_png(_shares(chart, chart.values)[::-1])}"/>')
    if chart.hatched is not None:
        body.append(_hatching(chart, frame, name))
    lines = "".join(_line(frame.across(line[:, 0]), frame.down(line[:, 1])) for line in chart.borders)
    body += [_border(lines)] if lines else []
    most = max(_LINE_OF_TEXT - 2 - len(chart.value_label), 12)  # both stand above the map
    body.append(_axes(frame, chart.x_label, chart.y_label, lines=False, most=most))
    body.append(_shade_bar(chart, frame))
    for x, y, label in chart.words:
        place = f'x="{frame.across(x):.1f}" y="{frame.down(y) + 4.5:.1f}" text-anchor="middle"'
        body.append(f"<text {place} {_HALO}>{escape(label)}</text>")
    return "".join(body) + _marks(frame, chart.points, beside=False)


def _border(path: str) -> str:
    halo, border = (_look(role).replace("currentColor", ink) for role, ink in (("halo", "white"), ("border", "black")))
    return f'<path d="{path}" {halo}/><path d="{path}" {border}/>'


def _hatching(chart: Map, frame: _Frame, name: str) -> str:
    borders, path = frame.across(edges(chart.x)), list[str]()
    row_height = (frame.bottom - frame.top) / len(chart.y)
    for y, row in zip(chart.y, np.asarray(chart.hatched), strict=True):
        for start, stop in runs(row):
            top = f"{borders[start]:.1f} {frame.down(y) - row_height / 2:.1f}"
            path.append(f"M{top}H{borders[stop]:.1f}v{row_height:.2f}H{borders[start]:.1f}z")
    pattern = (
        f'<pattern id="{name}-hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<path d="M1 0V7" stroke="white" stroke-width="1.6"/><path d="M2.4 0V7" stroke="black" opacity=".5"/></pattern>'
    )
    return f'<defs>{pattern}</defs><path d="{"".join(path)}" fill="url(#{name}-hatch)"/>'


def _shade_bar(chart: Map, frame: _Frame) -> str:
    left, height = frame.right + 14, frame.bottom - frame.top
    place = f'x="{left:.1f}" y="{frame.top}" width="12" height="{height:.1f}" preserveAspectRatio="none"'
    drawn = [f'<image {place} href="{_png(np.linspace(1, 0, 64)[:, None])}"/>']
    for value, label in _shade_ticks(chart):
        down = frame.bottom - float(_shares(chart, np.array(value))) * height
        drawn.append(f'<text x="{left + 18:.1f}" y="{down + 4.5:.1f}">{label}</text>')
    end = f'<text class="axis" x="{_WIDTH - 4}" y="17" text-anchor="end">{escape(chart.value_label)}</text>'
    return "".join(drawn) + end


# Bars ----------------------------------------------------------------------------------------------------------------


def _bars(bars: Bars | Intervals, frame: _Frame, name: str) -> str:
    zero, drawn = frame.across(0.0), list[str]()
    for row, bar in enumerate(bars.rows):
        place, (low, high) = frame.top + row * _BAR + 5, sorted((frame.across(bar.start), frame.across(bar.end)))
        size = f'width="{max(high - low, 1.5):.1f}" height="{_BAR - 10}"'
        label = escape(_short(bar.label, _LABEL))
        drawn.append(f'<text x="{frame.left - 12}" y="{place + 17}" text-anchor="end">{label}</text>')
        drawn.append(f'<rect x="{low:.1f}" y="{place}" {size} rx="2" {_look("bar", bar.colour, "fill")}/>')
        words = f'class="number" x="{high + 8:.1f}" y="{place + 17}"'
        drawn.append(f"<text {words}>{escape(bar.words)}</text>")
        if bar.mark is not None:
            line = f'd="M{frame.across(bar.mark):.1f} {place - 3}v{_BAR - 4}"'
            drawn.append(f'<path {line} stroke="currentColor" stroke-width="1.8"/>')
    return f'<path d="M{zero:.1f} {frame.top}V{frame.bottom}" {_look("axis")}/>{"".join(drawn)}'


# Legends and numbers -------------------------------------------------------------------------------------------------


def legend(picture: Picture) -> list[tuple[str, str]]:
    """What is drawn how: a small ``<svg>`` and the words for each; labels that are in the picture are left out."""
    if isinstance(picture, Bars | Intervals):
        return []
    if isinstance(picture, Map):
        hatch = "".join(f'<path d="M{x} 16L{x + 16} 0" stroke="currentColor"/>' for x in (-8, -2, 4, 10, 16))
        items = [(_border("M0 8H24"), picture.border_label), (hatch, picture.hatched_label)]
        items.append(('<rect class="empty" width="24" height="16" opacity=".15"/>', picture.empty_label))
        items += [(f'<circle class="mark" cx="12" cy="8" r="5.5" {_MARK}/>', point.label) for point in picture.points]
    else:
        items = [(_span_key(span), span.label) for span in picture.spans]
        items += [(_curve_key(curve), curve.label) for curve in picture.curves]
        items += _bands_key([curve for curve in picture.curves if curve.band])
        items += [(f'<path d="M2 8H24" {_look("level")}/>', level.label) for level in picture.levels if level.label]
    keys: dict[str, dict[str, None]] = {}  # of one label all shapes, one upon the other
    for shape, words in items:
        keys.setdefault(words, {})[shape] = None
    box = '<svg class="key" viewBox="0 0 24 16" width="24" height="16" aria-hidden="true" fill="currentColor">'
    return [(f"{box}{''.join(shapes)}</svg>", words) for words, shapes in keys.items() if words]


def _curve_key(curve: Curve) -> str:
    if curve.style == "points":
        return f'<circle cx="12" cy="8" r="4" {_look("bar", curve.colour, "fill")}/>'
    return f'<path d="M0 8H24" {_look(curve.style, curve.colour)}/>'


def _bands_key(curves: Sequence[Curve]) -> list[tuple[str, str]]:
    """The colours of all bands with the same meaning, side by side."""
    colours, width = list(dict.fromkeys(curve.colour for curve in curves)), 24 / max(len(curves), 1)
    shapes = (
        f'<rect x="{place * width:.1f}" y="2" width="{width:.1f}" height="12" {_look("band", colour, "fill")}/>'
        for place, colour in enumerate(colours)
    )
    return [("".join(shapes), curves[0].band)] if curves else []


def _span_key(span: Span) -> str:
    if span.low == span.high:
        return f'<path d="M12 0V16" {_look("edge", span.colour)}/>'
    return f'<rect width="24" height="16" {_shade(span)}/>'


def readings(picture: Picture) -> Readings:
    """The numbers of a picture: at evenly spaced places of a chart, in some cells of a map, all terms of a sum."""
    frame = _frame(picture)
    if isinstance(picture, Bars | Intervals):
        terms = [[bar.label, bar.words] for bar in picture.rows]
        return Readings(["term", picture.label], terms, [], [], ([], []), [])
    if isinstance(picture, Map):
        return _map_readings(picture, frame)
    places = np.linspace(*frame.x, _READ + 1)
    lines = [curve for curve in picture.curves if curve.style != "points"]
    if picture.curves and (not lines or len(lines[0].x) <= _READ):
        places = np.unique(np.concatenate([curve.x for curve in lines or picture.curves]))
    columns = [_places(places, frame.x)]
    columns += [_values(curve, places) for curve in picture.curves]
    head = [picture.x_label, *(curve.label or picture.y_label for curve in picture.curves)]
    if any(span.low < span.high for span in picture.spans):
        head.append("shaded")
        columns.append([_shading(picture.spans, place) for place in places])
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Readings(head, rows, _rounded(frame.across(places) / _WIDTH), [], ([], []), frame.area)


def _places(places: Array, ends: tuple[float, float]) -> list[str]:
    """Places on an axis in words, to a thousandth of its length."""
    decimals = 3 - floor(log10(ends[1] - ends[0]))
    return [number(round(float(place), decimals) + 0.0, 6) for place in places]


def _shading(spans: Iterable[Span], place: float) -> str:
    return "; ".join(
        dict.fromkeys(span.label for span in spans if span.low <= place <= span.high and span.low < span.high)
    )


def _values(curve: Curve, places: Array) -> list[str]:
    """A curve at some places, with its band, in words."""
    if curve.style == "points":
        nearest = np.abs(places[:, None] - curve.x).argmin(axis=1)
        reach = (places[-1] - places[0]) / len(places)
        return [
            number(curve.y[index]) if abs(curve.x[index] - place) <= reach else number(nan)
            for index, place in zip(nearest, places, strict=True)
        ]
    if curve.style == "steps":
        cells = np.clip(np.searchsorted(curve.x, places, side="right") - 1, 0, len(curve.y) - 1)
        return [number(value) for value in curve.y[cells]]
    if len(curve.x) < 2 or not (np.diff(curve.x) > 0).all():
        order = np.argsort(curve.x, kind="stable")
        return [number(value) for value in np.interp(places, curve.x[order], curve.y[order])]
    lists = [np.interp(places, curve.x, values) for values in (curve.y, curve.lower, curve.upper) if values is not None]
    if len(lists) < 3:
        return [number(value) for value in lists[0]]
    return [_with_band(*values) for values in zip(*lists, strict=True)]


def _with_band(value: float, lower: float, upper: float) -> str:
    if np.isnan(lower) or np.isnan(upper):
        return number(value)
    if upper == value:
        return f"{number(value)} (at least {number(rounded_down(lower, 4))})"
    return f"{number(value)} ({number(lower)} to {number(upper)})"


def _map_readings(chart: Map, frame: _Frame) -> Readings:
    across, upward = (_thin(len(axis), _READ_CELLS) for axis in (chart.x, chart.y))
    x, y, values = chart.x[across], chart.y[upward], chart.values[upward, across]
    rows = [[number(value, 3) for value in row] for row in values]
    if chart.hatched is not None:
        for row, column in np.argwhere(chart.hatched[upward, across]):
            rows[row][column] += f", {chart.hatched_label}"
    names = _places(x, frame.x), _places(y, frame.y)
    head = [chart.x_label, chart.y_label, chart.value_label]
    where = _rounded(frame.across(x) / _WIDTH), _rounded(frame.down(y) / frame.height)
    return Readings(head, rows, *where, names, frame.area)


def _rounded(shares: Array) -> list[float]:
    return [round(float(share), 4) for share in shares]


def table(picture: Picture) -> tuple[list[str], list[list[str]], str]:
    """The numbers of a picture as a short table: its head, its rows, and which of the numbers these are."""
    numbers = readings(picture)
    if isinstance(picture, Map):
        across, upward = (_thin(len(names), _SHORT) for names in numbers.names)
        head = [f"{picture.y_label} ↓, {picture.x_label} →", *numbers.names[0][across]]
        lines = zip(numbers.names[1][upward], numbers.rows[upward], strict=True)
        rows = [[name, *row[across]] for name, row in lines][::-1]
        return head, rows, f"{picture.value_label} at {len(rows)} × {len(head) - 1} of {picture.values.size:,} cells."
    keep = slice(None) if isinstance(picture, Bars | Intervals) else _thin(len(numbers.rows), _SHORT)
    rows = numbers.rows[keep]
    note = (
        f"All of {title_of(picture)}."
        if len(rows) == len(numbers.rows)
        else f"At {len(rows)} of {len(numbers.rows)} places."
    )
    return numbers.head, rows, note
