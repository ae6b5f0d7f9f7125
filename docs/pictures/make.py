#!/usr/bin/env python3
"""Makes the pictures of the viewer that the documents show: records programs, and looks at them in a browser without a window.

    docs/pictures/make.py [FOLDER]

FOLDER has `agent` and `collector`; it is target/release unless another is named. Needs Chromium, gcc and Debian's Python.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from view import Page  # noqa: E402

MOST_BYTES = 250 * 1000
# Without source lines, which have paths of this machine.
OPTIONS = ["--quiet", "--complete", "--no-detail", "--lines", "none"]
PROGRAM = """
import json, re, threading, zlib

def work():
    for _ in range(3):
        text = json.dumps({str(key): [key] * 5 for key in range(200)})
        json.loads(text)
        zlib.compress(text.encode())
        re.sub("[0-9]+", "x", text)

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def record(binaries, traces, *program):
    command = [binaries / "agent", "record", *OPTIONS, "-o", traces, "--", *program]
    subprocess.run(command, check=True)


def threads(binaries, traces):
    """When the first thread began that the program made, and when the last ended."""
    command = [binaries / "collector", "spans", traces, "--kind", "thread", "--json"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found = [span for span in map(json.loads, lines) if span["type"] == "span"]
    return min(span["start_ns"] for span in found), max(span["end_ns"] for span in found)


@contextlib.contextmanager
def look(binaries, traces):
    """The page of a session, with its first thread closed, which waits for the others."""
    viewer = subprocess.Popen([binaries / "collector", "view", "--no-open", traces], stdout=subprocess.PIPE, text=True)
    page = Page()
    try:
        page.call("Page.navigate", url=viewer.stdout.readline().strip())
        page.wait_for("typeof spoor === 'object'", "the start of the page")
        page.idle()
        page.open(f"#/s/{session_of(traces)}")
        page.wait_for("spoor.drawn().length > 0", "the overview")
        page.evaluate("document.querySelector('#rows button[aria-expanded]').click()")
        page.idle()
        yield page
    finally:
        page.close()
        viewer.terminate()
        viewer.wait()


def session_of(traces):
    return os.listdir(traces)[0]


def height_of_panel(page, height):
    """Drags the line between the timeline and the panel."""
    left, top = page.evaluate("(({x, y}) => [x, y + 3])(document.getElementById('separator').getBoundingClientRect())")
    bottom = page.evaluate("innerHeight")
    for kind, y in (("mousePressed", top), ("mouseMoved", bottom - height), ("mouseReleased", bottom - height)):
        page.call("Input.dispatchMouseEvent", type=kind, x=left + 300, y=y, button="left", buttons=1, clickCount=1)
    page.idle()


def shoot(page, name):
    # Nothing is pointed at.
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=640, y=5)
    page.evaluate("document.activeElement.blur()")
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.evaluate("new Promise(resolve => setTimeout(resolve, 300))")
        page.idle()
        path = HERE / f"{name}-{scheme}.png"
        page.screenshot(path)
        size = path.stat().st_size
        if size > MOST_BYTES:
            sys.exit(f"{path} has {size} bytes, and may have {MOST_BYTES}")
        print(f"{path.relative_to(ROOT)}: {size} bytes")


def python(binaries, folder):
    traces = folder / "python"
    record(binaries, traces, "/usr/bin/python3", "-c", PROGRAM)
    start, end = threads(binaries, traces)
    margin = (end - start) // 50
    with look(binaries, traces) as page:
        height_of_panel(page, 210)
        page.open(f"#/s/{session_of(traces)}?window={start - margin},{end + margin}&tab=top")
        shoot(page, "timeline")
        height_of_panel(page, 590)
        page.key("0", "Digit0")
        page.key("2", "Digit2")
        shoot(page, "flame-graph")


def convoy(binaries, folder):
    program, traces = folder / "convoy", folder / "locked"
    flags = ["-O1", "-D_GNU_SOURCE", "-pthread", "-o", program]
    subprocess.run(["gcc", *flags, ROOT / "fixtures/targets/convoy.c"], check=True)
    record(binaries, traces, program)
    with look(binaries, traces) as page:
        height_of_panel(page, 210)
        lock = max(page.drawn(kind="box", name="pthread_mutex_lock"), key=lambda box: box["width"])
        page.mouse((lock["x"] + 3, lock["y"] + 3))
        page.key("r", "KeyR")
        page.key("1", "Digit1")
        shoot(page, "convoy")


def main(binaries):
    with tempfile.TemporaryDirectory() as folder:
        python(binaries, pathlib.Path(folder))
        convoy(binaries, pathlib.Path(folder))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release").resolve())
