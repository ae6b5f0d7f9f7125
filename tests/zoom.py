#!/usr/bin/env python3
"""Zooms into a session in the page of `collector view`, in a real browser without a window, and tells how long that takes.

    zoom.py ADDRESS SESSION

ADDRESS is what the command printed. Prints one line of JSON: milliseconds until the first picture is drawn, and for each step from
all of the session to a microsecond at three places; the bytes of the page's own heap, and the most that its process has taken.
Whatever is not as it should be ends it with words.
"""

import json
import sys
import time

from view import Page, check

PLACES = 3
NARROWEST_NS = 1_000


def taken_bytes(page):
    """The most that the processes of pages have taken."""
    session, page.session = page.session, None
    processes = page.call("SystemInfo.getProcessInfo")["processInfo"]
    page.session = session
    most = 0
    for process in processes:
        if process["type"] == "renderer":
            with open(f"/proc/{process['id']}/status", encoding="utf-8") as status:
                peak = next(line for line in status if line.startswith("VmHWM:"))
            most = max(most, int(peak.split()[1]) << 10)
    return most


def main(address, session):
    page = Page()
    try:
        page.call("Page.navigate", url=address)
        page.wait_for("typeof spoor === 'object'", "the start of the page")
        page.idle()
        page.call("Performance.enable")

        def show(query):
            started = time.monotonic()
            # The page hears of it in a turn of its own.
            page.evaluate(
                f"location.hash = {json.dumps(f'#/s/{session}{query}')};"
                "new Promise(resolve => setTimeout(resolve)).then(() => spoor.idle())"
            )
            took = (time.monotonic() - started) * 1000
            check(page.drawn(kind="box"), f"something is drawn of {session}{query}")
            return took

        first_ms, steps = show(""), []
        first, last = page.evaluate("spoor.state().window") or page.evaluate(
            f"fetch('/api/s/{session}/meta').then(answer => answer.json()).then(meta => meta.range)"
        )
        for place in range(1, PLACES + 1):
            middle, width = first + (last - first) * place // (PLACES + 1), (last - first) // 2
            while width > NARROWEST_NS:
                steps.append(show(f"?window={max(first, middle - width // 2)},{min(last, middle + width // 2)}"))
                width //= 2
        metrics = {one["name"]: one["value"] for one in page.call("Performance.getMetrics")["metrics"]}
        check(not page.wrong, f"nothing goes wrong: {page.wrong}")
        told = {"first_ms": first_ms, "steps_ms": steps, "heap_bytes": int(metrics["JSHeapUsedSize"])}
        print(json.dumps(told | {"taken_bytes": taken_bytes(page)}))
    finally:
        page.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
