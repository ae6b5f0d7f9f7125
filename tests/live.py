#!/usr/bin/env python3
"""Watches a program in the page of a collector that records it, in a real browser without a window.

    live.py ADDRESS FOLLOW... ---- PTHREADS...

ADDRESS is what the collector printed. FOLLOW is a command that traces a program which calls `echoes` for every line that it is
sent; PTHREADS one that traces a program with threads. Prints one line of JSON: the calls that were shown, and how many seconds
behind they were. Whatever is not as it should be ends it with words.
"""

import json
import subprocess
import sys
import time

from view import Page, check

LINES = 300
ECHOES = "spoor.drawn().filter(one => one.name === 'echoes')"
LAST = f"Math.max(0, ...{ECHOES}.map(one => one.end))"
SHOWN = f"{ECHOES}.reduce((sum, one) => sum + one.count, 0)"


def arrows(page, known):
    """Follows an arrow from a thread to what has created it, in the session that is not the known one."""
    new = f"[...document.querySelectorAll('a[data-session]')].map(one => one.dataset.session).find(one => one !== {json.dumps(known)})"
    page.wait_for(f"Boolean({new})", "another session in the list")
    page.open(f"#/s/{page.evaluate(new)}")
    page.key("/", "Slash")
    page.call("Input.insertText", text="returns")
    page.key("Enter", "Enter")
    before = page.evaluate("spoor.state()")["span"]
    cause = "[...document.querySelectorAll('#sheet dt')].find(one => one.textContent === 'Created by')?.nextSibling.firstChild"
    page.wait_for(f"Boolean({cause})", "the cause of a thread")
    name = page.evaluate(f"{cause}.textContent").split(" at ")[0]
    page.evaluate(f"{cause}.click()")
    page.wait_for(f"document.querySelector('#sheet dd')?.textContent === {json.dumps(name)}", "the span that is the cause")
    after = page.evaluate("spoor.state()")["span"]
    check(after["row"] != before["row"] and after["start"] <= before["start"], f"another thread was first: {after} {before}")
    check(any(one["row"] == after["row"] and one["start"] == after["start"] for one in page.drawn(kind="box")), "it is drawn")


def main(address, *commands):
    split = commands.index("----")
    page = Page()
    program = None
    try:
        page.call("Page.navigate", url=address)
        page.wait_for("typeof spoor === 'object'", "the start of the page")
        page.idle()
        program = subprocess.Popen(commands[:split], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        say = lambda: (program.stdin.write(b"line\n" * LINES), program.stdin.flush())
        page.wait_for("document.querySelectorAll('a[data-session]').length === 1", "a session in the list")
        session = page.evaluate("document.querySelector('a[data-session]').dataset.session")
        page.open(f"#/s/{session}")
        page.wait_for("document.getElementById('follow').getAttribute('aria-pressed') === 'true'", "that the end is followed")
        check("echoes" not in page.sheet(), f"nothing was said yet: {page.sheet()}")
        behind = []
        for turn in (1, 2):
            end, last = page.evaluate("spoor.state()")["window"][1], page.evaluate(LAST)
            said = time.monotonic()
            say()
            page.wait_for(f"{LAST} > {last}", f"turn {turn} in the timeline")
            behind.append(time.monotonic() - said)
            page.wait_for("document.getElementById('sheet').innerText.includes('echoes')", "what is hot now")
            check(page.evaluate("spoor.state()")["window"][1] > end, "the window follows")
        program.stdin.close()
        threads = subprocess.Popen(commands[split + 1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        program.wait(50)
        page.wait_for("document.getElementById('title').textContent.includes('it has ended')", "the word that it has ended")
        page.wait_for("document.getElementById('follow').hidden", "the end of following")
        page.key("0", "Digit0")
        page.wait_for(f"{SHOWN} === {2 * LINES}", "all calls")
        shown = page.evaluate(SHOWN)
        check(page.wrong == [], f"nothing went wrong: {page.wrong}")
        page.open("#/sessions")
        threads.wait(50)
        arrows(page, session)
        print(json.dumps({"shown": shown, "behind": behind}))
    finally:
        page.close()
        if program:
            program.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
