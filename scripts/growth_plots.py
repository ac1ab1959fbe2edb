"""Draws growth curves as SVG, with logarithmic axes and without third-party packages."""

import html
import math
import re

FIGURE = re.compile(r"^([a-z]+)_(\d+)_(.+)$")
WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 60, 170, 30, 40
COLOURS = ["#1b6ca8", "#c8553d", "#3a7d44", "#8e5aa8", "#b07d12", "#4a4a4a", "#0f8b8d", "#d1495b"]


def curves(figures):
    """Groups figures named `curve_size_figure` as {curve: {figure: [(size, value)]}}, without values that are not positive."""
    found = {}
    for name, value in figures.items():
        if match := FIGURE.match(name):
            curve, size, figure = match.groups()
            series = found.setdefault(curve, {}).setdefault(figure, [])
            if value is not None and value > 0:
                series.append((int(size), value))
    return {curve: {name: points for name, points in series.items() if points} for curve, series in found.items()}


def decades(values):
    """Returns the exponents of the powers of ten around all values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return range(low, max(high, low + 1) + 1)


def plot(title, series):
    """Returns one plot as SVG."""
    points = [point for line in series.values() for point in line]
    across, up = decades([x for x, _ in points]), decades([y for _, y in points])

    def place(x, y):
        part = lambda value, axis: (math.log10(value) - axis[0]) / (axis[-1] - axis[0])
        return (LEFT + part(x, across) * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - part(y, up) * (HEIGHT - TOP - BOTTOM))

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="18" font-size="13" font-weight="bold">{html.escape(title)}</text>',
    ]
    for exponent in across:
        x, bottom = place(10**exponent, 10.0 ** up[0])
        out.append(f'<path d="M{x:.1f} {TOP}V{bottom:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{10**exponent:,}</text>')
    for exponent in up:
        left, y = place(10 ** across[0], 10.0**exponent)
        out.append(f'<path d="M{left:.1f} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{10.0**exponent:,.12g}</text>')
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [place(x, y) for x, y in line]
        out.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        y = TOP + 10 + 18 * number
        out.append(f'<path d="M{WIDTH - RIGHT + 14} {y - 4}h16" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 36}" y="{y}">{html.escape(name)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def write(figures, titles, folder):
    """Writes one file for each curve, and returns the titles and names of the files."""
    folder.mkdir(exist_ok=True)
    written = []
    for curve, series in curves(figures).items():
        if curve in titles and series:
            (folder / f"{curve}.svg").write_text(plot(titles[curve], series))
            written.append((titles[curve], f"{curve}.svg"))
    return written
