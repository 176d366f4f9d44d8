"""Run the code of a page and compare what it prints with what the page shows.

Words are compared exactly. Numbers are compared to the digits that are the same on every processor: the last digits of
a double depend on the processor, its linear algebra and its compiler, and a number that is printed with a few digits
can lie next to a rounding boundary. So a number with a decimal point or an exponent may differ by one unit of its last
printed digit; whole numbers (counts, sizes, actions) may not differ at all. Two kinds of whole numbers are not
compared, since they depend on comparisons with a tolerance: the calls of a solver with its rows at the end, and the
rounds of value iteration with their residual.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
NUMBER = re.compile(r"(?<![\w.])[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")
EFFORT = re.compile(r"\b[\d,]+ solves?, [\d,]+ rows?|\b\d+ rounds?, residual \S+")
CUT = "…"  # a line of its own: stands for lines that the page does not show


def same_number(shown: str, printed: str) -> bool:
    """Whole numbers must be equal, others within one unit of the last digit of the more precise one."""
    first, second = (Decimal(number.replace(",", "").replace("−", "-")) for number in (shown, printed))
    if not set(shown + printed) & set(".e"):
        return first == second
    last = min(int(number.as_tuple().exponent) for number in (first, second))
    return abs(first - second) <= Decimal((0, (1,), last))


def same_line(shown: str, printed: str) -> bool:
    """The words are equal, and the numbers agree."""
    first, second = (EFFORT.sub("effort", line.rstrip()) for line in (shown, printed))
    if NUMBER.sub("#", first) != NUMBER.sub("#", second):
        return False
    return all(map(same_number, NUMBER.findall(first), NUMBER.findall(second)))


def find(shown: str, printed: list[str], start: int = 0) -> int | None:
    """The line after the first place from ``start`` on where the shown lines were printed consecutively; None if none.

    A line "…" stands for any number of lines. Indented lines belong to the line above them, so a block that begins or
    ends within such a paragraph needs a line "…", too.
    """
    sections = [part.splitlines() for part in re.split(rf"^ *{CUT} *(?:\n|$)", shown, flags=re.M)]
    for number, lines in enumerate(sections):
        places = range(start, len(printed) - len(lines) + 1)
        at = next((at for at in places if all(map(same_line, lines, printed[at:]))), None)
        if at is None or (number == 0 and lines[0].startswith("  ")):
            return None
        start = at + len(lines)
    return None if lines and printed[start:] and printed[start].startswith("  ") else start


def parts(text: str) -> list[tuple[str, str]]:
    """The blocks of a page in order: ("python", code), ("text", output) and ("command", …) with its output."""
    blocks, shown, lines = list[tuple[str, str]](), False, iter(text.splitlines(keepends=True))
    for line in lines:
        command = line.startswith("    $ certirl ")
        if line.startswith("```"):
            kind, body = line[3:].strip(), "".join(iter(lambda: next(lines), "```\n"))
            blocks += [(kind, body)] * (kind in ("python", "text"))
        elif command:
            blocks += [("command", line.strip().removeprefix("$ certirl ")), ("text", "")]
        elif shown and line.startswith("    "):
            blocks[-1] = ("text", blocks[-1][1] + line[4:])
        shown = command or (shown and line.startswith("    "))
    return blocks


def script(blocks: list[tuple[str, str]]) -> str:
    """The Python blocks and the commands whose output is shown, in order."""
    code = ["from certirl.cli import main as _certirl\n"]
    for (kind, body), (_, after) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "python":
            code.append(body)
        elif kind == "command" and after:
            code.append(f"_certirl({shlex.split(body)!r})\n")
    return "\n".join(code)


def pictures(page: str) -> list[str]:
    """The pictures that a page shows and its own code draws."""
    return re.findall(r"\]\((?:docs/)?pictures/(\S+)\)", (ROOT / page).read_text())


def folder_of(page: str) -> Path:
    """Where the pictures of a page are."""
    return (ROOT / page).parent / ("docs/pictures" if page == "README.md" else "pictures")


def run(page: str, folder: Path) -> list[str]:
    """Run a page in an empty folder, where it must draw the pictures that it shows; returns what it prints."""
    (folder / "page.py").write_text(script(parts((ROOT / page).read_text())))
    command = [sys.executable, "-u", "page.py"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert [name for name in pictures(page) if not (folder / name).is_file()] == []
    return done.stdout.splitlines()


def draw(page: str) -> None:
    """Draw the pictures of a page again, in few colours, so that their files are small."""
    from PIL import Image

    with TemporaryDirectory() as folder:
        run(page, Path(folder))
        for name in pictures(page):
            target = folder_of(page) / name
            target.parent.mkdir(exist_ok=True)
            with Image.open(Path(folder, name)) as picture:
                picture.convert("RGB").quantize(256, kmeans=1, dither=Image.Dither.NONE).save(target, optimize=True)
            print(target.relative_to(ROOT), f"{target.stat().st_size:,} bytes")


def check(page: str, folder: Path) -> None:
    """Run a page; every block of output must have been printed, in the order of the page."""
    blocks = parts((ROOT / page).read_text())
    shown = [body for kind, body in blocks if kind == "text" and body]
    assert shown and any(kind == "python" for kind, _ in blocks)
    printed, at = run(page, folder), 0
    for block in shown:
        after = find(block, printed, at)
        assert after is not None, f"{page} shows\n{block}\nbut what was printed then is\n" + "\n".join(printed[at:])
        at = after


if __name__ == "__main__":  # draws the pictures of the pages named, or of all
    every = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
    drawing = [page for page in every if pictures(page) and parts((ROOT / page).read_text())]
    for named in sys.argv[1:] or drawing:
        draw(named)
