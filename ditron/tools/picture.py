"""A counterexample as a picture: the lanes of the ranks as rows, the tasks around, what is wrong.

Marked tasks are red (class `marked`), what stands around is grey, a missing edge is dashed (class
`missing`). The picture is made from the counterexample alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ditron.analysis.counterexample import Arrow, Found, Mark
from ditron.analysis.plan_records import LaneRecord

LABEL, BOX, GAP, ROW = 240, 164, 34, 64  # widths and the height of a row, pixels
LINE, WRAP = 17, 110  # a line of text, and how many characters it holds
STYLE = """\
text { font: 12px system-ui, sans-serif; fill: #222 }
.title { font-weight: 600 } .lane { fill: #555 } .more, .seq { fill: #888; font-size: 10px }
.task rect { fill: #eef0f3; stroke: #b5bac4 }
.marked rect { fill: #fbd5d0; stroke: #c22f1e; stroke-width: 2 }
.edge { fill: none; stroke: #444; stroke-width: 1.5 }
.missing { stroke: #c22f1e; stroke-dasharray: 6 4; stroke-width: 2 }
.label { fill: #444; font-size: 11px; paint-order: stroke; stroke: #fff; stroke-width: 4px }
.missing-label { fill: #c22f1e }"""
HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
    ' orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" fill="#444"/></marker>'
)

Place = tuple[float, float]


def draw(found: Found) -> str:
    """The picture as the text of an SVG file."""
    text = [part for line in found.text.splitlines() for part in _wrapped(line)]
    top = LINE * (len(text) + 1) + 12
    places: dict[Mark, Place] = {
        (task, lane.launch): (float(LABEL + column * (BOX + GAP)), float(top + row * ROW))
        for row, lane in enumerate(found.lanes)
        for column, task in enumerate(lane.tasks)
    }
    columns = max((len(lane.tasks) for lane in found.lanes), default=0)
    width = max(LABEL + columns * (BOX + GAP) + 60, 860)
    height = top + len(found.lanes) * ROW + 16
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}">',
        f"<title>{escape(text[0] if text else '')}</title>",
        f"<style>{STYLE}</style><defs>{HEAD}</defs>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for i, line in enumerate(text):
        kind = ' class="title"' if i == 0 else ""
        space = ' xml:space="preserve"'
        body.append(f'<text x="12" y="{LINE * (i + 1) + 4}"{kind}{space}>{escape(line)}</text>')
    marks = set(found.marks())
    for row, lane in enumerate(found.lanes):
        body += _lane(lane, top + row * ROW, places, marks)
    for i, arrow in enumerate(found.arrows()):
        body += _arrow(arrow, places, i)
    return "\n".join([*body, "</svg>", ""])


def _wrapped(line: str) -> Iterator[str]:
    while len(line) > WRAP:
        cut = line.rfind(" ", 20, WRAP)
        cut = WRAP if cut < 0 else cut
        yield line[:cut]
        line = "      " + line[cut:].lstrip()
    yield line


def _lane(lane: LaneRecord, y: float, places: dict[Mark, Place], marks: set[Mark]) -> Iterator[str]:
    later = {0: "", 1: ", next launch"}.get(lane.launch, f", {lane.launch} launches later")
    name = f"rank {lane.rank}: {lane.engine} lane {lane.lane}{later}"
    yield f'<text x="12" y="{y + 22}" class="lane">{escape(name)}</text>'
    if lane.before:
        yield f'<text x="12" y="{y + 36}" class="more">{lane.before} tasks before these</text>'
    for task in lane.tasks:
        x, _ = places[task, lane.launch]
        kind = "task marked" if (task, lane.launch) in marks else "task"
        yield f'<g class="{kind}"><title>{escape(f"{task} [{task.location}]")}</title>'
        yield f'<rect x="{x}" y="{y}" width="{BOX}" height="36" rx="4"/>'
        yield f'<text x="{x + 8}" y="{y + 16}">{escape(_short(task.name))}</text>'
        yield f'<text x="{x + 8}" y="{y + 30}" class="seq">task {task.seq}</text></g>'
    if lane.after and lane.tasks:
        x = places[lane.tasks[-1], lane.launch][0] + BOX + 8
        yield f'<text x="{x}" y="{y + 22}" class="more">and {lane.after} more</text>'


def _short(name: str) -> str:
    return name if len(name) <= 19 else f"{name[:18]}…"


def _arrow(arrow: Arrow, places: dict[Mark, Place], number: int) -> Iterator[str]:
    if arrow.source not in places or arrow.target not in places:
        return
    (x1, y1), (x2, y2) = places[arrow.source], places[arrow.target]
    x1, x2 = x1 + BOX / 2, x2 + BOX / 2
    if y1 == y2:  # one lane: over the boxes, in a bow
        path = f"M{x1} {y1}C{x1} {y1 - 24} {x2 + 1} {y2 - 24} {x2 + 1} {y2}"
        middle = y1 - 20
    else:
        y1, y2 = (y1 + 36, y2) if y1 < y2 else (y1, y2 + 36)
        middle = (y1 + y2) / 2
        path = f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"
    kind = "edge missing" if arrow.missing else "edge"
    label = "label missing-label" if arrow.missing else "label"
    yield f'<path d="{path}" class="{kind}" marker-end="url(#head)"/>'
    x = (x1 + x2) / 2 + 6
    y = middle + 4 + 12 * (number % 2)
    yield f'<text x="{x}" y="{y}" class="{label}">{escape(arrow.label)}</text>'
