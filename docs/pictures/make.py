#!/usr/bin/env python3
"""Makes the pictures of the viewer that the README shows: records a real program, and looks at it in a browser without a window.

    docs/pictures/make.py [FOLDER]

FOLDER has `agent` and `collector`; it is target/release unless another is named. Needs Chromium and Debian's Python.
"""

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


def record(binaries, folder):
    """Traces the program, and returns when its threads ran."""
    traces = str(folder / "traces")
    options = ["--quiet", "--complete", "--no-detail", "-o", traces]
    command = [binaries / "agent", "record", *options, "--", "/usr/bin/python3", "-c", PROGRAM]
    subprocess.run(command, check=True, cwd=folder)
    command = [binaries / "collector", "spans", traces, "--kind", "thread", "--json"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    threads = [span for span in map(json.loads, lines) if span["type"] == "span"]
    return traces, min(span["start_ns"] for span in threads), max(span["end_ns"] for span in threads)


def enter(page, address, session):
    page.call("Page.navigate", url=address)
    page.wait_for("typeof spoor === 'object'", "the start of the page")
    page.idle()
    page.open(f"#/s/{session}")
    page.wait_for("spoor.drawn().length > 0", "the overview")


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


def main(binaries):
    with tempfile.TemporaryDirectory() as folder:
        traces, start, end = record(binaries, pathlib.Path(folder))
        session = os.listdir(traces)[0]
        command = [binaries / "collector", "view", "--no-open", traces]
        viewer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        page = Page()
        try:
            enter(page, viewer.stdout.readline().strip(), session)
            height_of_panel(page, 210)
            # The first thread waits for the others.
            page.evaluate("document.querySelector('#rows button[aria-expanded]').click()")
            margin = (end - start) // 50
            page.open(f"#/s/{session}?window={start - margin},{end + margin}&tab=top")
            shoot(page, "timeline")
            height_of_panel(page, 590)
            page.key("0", "Digit0")
            page.key("2", "Digit2")
            shoot(page, "flame-graph")
        finally:
            page.close()
            viewer.terminate()
            viewer.wait()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release").resolve())
