#!/usr/bin/env python3
"""Uses the page of `collector view` in a real browser without a window, and tells what it shows.

    view.py ADDRESS DIRECTORY PICTURE PID COLLECTOR

ADDRESS is what the command printed, DIRECTORY where its sessions are: the first of them is the one that the test has made, and
the second is removed in the end. PID is the command, which is ended then, and COLLECTOR the program that it is. Prints one line of JSON; whatever is not as it should be ends it with words.
"""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from browser import Browser

HOSTILE = "<img src=x onerror=window.harmed=1>"


class Page(Browser):
    """A page that keeps what goes wrong in it."""

    def __init__(self):
        self.wrong = []
        super().__init__()
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")
        # Certificates of tests are issued by nobody.
        self.call("Security.setIgnoreCertificateErrors", ignore=True)

    def receive(self):
        message = super().receive()
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.wrong.append(parameters["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        elif message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.wrong.append(parameters["entry"]["text"])
        return message

    def idle(self):
        self.evaluate("spoor.idle()")

    def open(self, hash_):
        self.evaluate(f"location.hash = {json.dumps(hash_)}")
        # The page hears of it in a turn of its own.
        self.evaluate("new Promise(resolve => setTimeout(resolve, 50))")
        self.idle()

    def key(self, key, code, modifiers=0):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code, modifiers=modifiers, **text)
        self.idle()

    def mouse(self, *steps):
        """Presses at the first place on the canvas, moves over the others, and lets go at the last."""
        left, top = self.evaluate("(({x, y}) => [x, y])(document.getElementById('boxes').getBoundingClientRect())")
        places = [(x + left, y + top) for x, y in steps]
        last = places[-1]
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=places[0][0], y=places[0][1], button="left", clickCount=1)
        for x, y in places[1:]:
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=last[0], y=last[1], button="left", clickCount=1)
        self.idle()

    def drawn(self, **wanted):
        found = self.evaluate("spoor.drawn()")
        return [one for one in found if all(one[key] == value for key, value in wanted.items())]

    def save(self, act, folder):
        """What the page has the browser save: its name and its bytes."""
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=folder)
        act()
        while True:
            names = os.listdir(folder)
            if names and not any(name.endswith(".crdownload") or name.startswith(".") for name in names):
                with open(os.path.join(folder, names[0]), "rb") as file:
                    return names[0], file.read()
            if time.monotonic() > self.deadline:
                sys.exit(f"nothing was saved: {names}")
            self.evaluate("new Promise(resolve => setTimeout(resolve, 20))")

    def click(self, selector):
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def sheet(self):
        return self.evaluate("document.getElementById('sheet').innerText")


def check(condition, words):
    if not condition:
        sys.exit(f"it is not so that {words}")


def main(address, directory, picture, pid, collector, *arguments):
    sessions = sorted(os.listdir(directory))
    saved = os.path.join(os.path.dirname(directory), "saved")
    page = Page()
    try:
        page.call("Page.navigate", url=address)
        page.wait_for("typeof spoor === 'object'", "the start of the page")
        page.idle()
        check("token" not in page.evaluate("location.href"), "the token left the address")
        check(page.evaluate("document.cookie") == "", "no script can read the cookie")
        listed = page.evaluate("[...document.querySelectorAll('a[data-session]')].map(one => one.dataset.session)")
        check(listed == sessions, f"all sessions are listed: {listed}")

        page.open(f"#/s/{sessions[0]}")
        boxes = page.drawn(kind="box")
        check(any(one["count"] > 100 for one in boxes), "narrow calls are folded")
        check(all(one["width"] >= 1 for one in boxes), "everything can be seen")
        frames = page.evaluate("spoor.frames()")
        page.evaluate("new Promise(resolve => setTimeout(resolve, 300))")
        check(page.evaluate("spoor.frames()") == frames, "nothing is drawn while nothing changes")
        headers = page.evaluate("document.getElementById('rows').innerText")
        check("<script>" in headers, f"names of threads are text: {headers}")

        # Hours away, and a few nanoseconds long.
        page.key("/", "Slash")
        check(page.evaluate("document.activeElement.id") == "query", "the search has the focus")
        page.call("Input.insertText", text="needle")
        page.key("Enter", "Enter")
        needle = page.drawn(kind="box", name="needle")
        check(len(needle) == 1, f"one call is shown and not two: {needle}")
        check(needle[0]["end"] - needle[0]["start"] == 7, f"times are exact: {needle}")
        check(page.evaluate("spoor.state()")["span"]["start"] == needle[0]["start"], "it is chosen")
        check("needle" in page.sheet() and "7 ns" in page.sheet(), f"it is described: {page.sheet()}")
        found = {"start": needle[0]["start"], "end": needle[0]["end"]}
        check(page.evaluate("document.activeElement.id") == "scroll", "keys are the timeline's again")
        page.key("Enter", "Enter")
        check("from the other end" in page.evaluate("document.getElementById('found').textContent"), "Enter goes on")
        page.key("f", "KeyF")
        fitted = page.drawn(kind="box", name="needle")[0]
        check(fitted["width"] > 200, f"it fills the window: {fitted}")
        page.key("s", "KeyS")
        wide = page.drawn(kind="box", name="needle")[0]
        check(abs(wide["width"] - fitted["width"] * 0.7) < 2, f"S zooms out: {fitted} {wide}")
        page.key("w", "KeyW")
        page.key("d", "KeyD")
        check(page.drawn(kind="box", name="needle")[0]["x"] < fitted["x"], "D moves to the right")
        page.key(".", "Period")
        check(page.evaluate("spoor.state()")["span"]["start"] > found["start"], "there is a next call")
        page.key(",", "Comma")
        check(page.evaluate("spoor.state()")["span"]["start"] == found["start"], "and back")
        page.screenshot(picture)

        # What is missing.
        page.key("0", "Digit0")
        gap = page.drawn(kind="gap")[0]
        check(gap["width"] >= 3, f"a gap can be seen: {gap}")
        page.mouse((max(gap["x"], 0) + 1, gap["y"] + 2))
        check("network" in page.sheet() and "5 events" in page.sheet(), f"its cause is told: {page.sheet()}")
        check("5 events missing" in page.evaluate("document.getElementById('loss').textContent"), "loss is told")

        # What was chosen, and back.
        page.key("1", "Digit1")
        page.key("Escape", "Escape")
        rows = page.evaluate("""[...document.querySelectorAll('#sheet tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))""")
        check(any(HOSTILE in row[0] for row in rows), f"hostile names are text: {rows}")
        page.mouse((200, 60), (300, 60), (500, 62))
        chosen = page.evaluate("spoor.state()")["range"]
        check(chosen and chosen[0] < chosen[1], "dragging chooses a part of the time")
        check("range=" in page.evaluate("location.hash"), "it is in the address")
        check("chosen" in page.evaluate("document.getElementById('tabs').innerText"), "the table is of it")
        name, part = page.save(lambda: page.key("p", "KeyP"), saved)
        check(name == f"{sessions[0]}.perfetto-trace", f"the trace has a name: {name}")
        with open(os.path.join(os.path.dirname(directory), "part.perfetto"), "wb") as file:
            file.write(part)
        page.evaluate("history.back(); new Promise(resolve => setTimeout(resolve, 100))")
        page.idle()
        check(page.evaluate("spoor.state()")["range"] is None, "back is back")
        for tab in ("flame", "tree", "calls", "top"):
            page.evaluate(f"document.getElementById('tab-{tab}').click()")
            page.idle()
        page.evaluate("document.querySelector('#sheet th button[data-key=count]').click()")
        page.idle()
        calls = page.evaluate("[...document.querySelectorAll('#sheet tbody tr')].map(row => Number(row.cells[2].innerText.replaceAll(',', '')))")
        check(calls == sorted(calls, reverse=True), f"the table is sorted: {calls}")

        # What is saved.
        name, whole = page.save(lambda: page.click("#perfetto"), saved)
        check(len(whole) > len(part) > 100, f"a part is less than the whole: {len(part)} of {len(whole)} bytes")
        with open(os.path.join(os.path.dirname(directory), "whole.perfetto"), "wb") as file:
            file.write(whole)
        name, png = page.save(lambda: page.click("#picture"), saved)
        check(name == f"{sessions[0]}.png" and png.startswith(b"\x89PNG") and len(png) > 1000, f"a picture is saved: {name}")
        name, table = page.save(lambda: page.evaluate("[...document.querySelectorAll('#tabs button')].find(one => one.textContent === 'CSV').click()"), saved)
        lines = list(csv.reader(io.StringIO(table.decode(), newline="")))
        check(name == f"{sessions[0]}-top.csv" and [row[2] for row in lines[1:]] == [str(count) for count in calls], f"the table is saved: {lines}")
        check(any(HOSTILE in row[0] for row in lines), f"with its names: {lines}")

        page.open(f"#/diff?a={sessions[0]}&b={sessions[1]}")
        page.click("#main input[type=checkbox]")
        page.wait_for("document.getElementById('main').innerText.includes('needle')", "the comparison of two sessions")
        compared = page.evaluate("[...document.querySelectorAll('#main tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))")
        check("A: " in page.evaluate("document.getElementById('main').innerText"), "what is missing is told")

        elements = page.evaluate("document.querySelectorAll('img, iframe, script:not([src]), [onerror]').length")
        check(elements == 0 and page.evaluate("window.harmed") is None, "no name became markup")
        check(page.wrong == [], f"nothing went wrong: {page.wrong}")

        # What is gone is gone with words.
        page.open(f"#/s/{sessions[1]}")
        check(len(page.drawn()) > 0, "it was there")
        shutil.rmtree(os.path.join(directory, sessions[1]))
        page.wait_for("document.getElementById('message').textContent.includes('there is no session')", "a word that it is gone")

        # So is the server, and another one in its place, which has another token.
        os.kill(int(pid), signal.SIGINT)
        said = "document.getElementById('message').textContent"
        page.wait_for(f"{said}.includes('The server does not answer')", "a word that the server is gone")
        port = address.split("/")[2].rsplit(":", 1)[1]
        arguments = [argument.replace(":0", f":{port}") for argument in arguments] or ["--listen", f"127.0.0.1:{port}"]
        command = [collector, "view", "--no-open", *arguments, directory]
        another = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            new = another.stdout.readline().strip()
            page.wait_for(f"{said}.includes('knows no token')", "a word that there is another server")
            # The new address is opened where the page is already. There is one session left.
            page.open("#" + new.split("#")[1])
            page.wait_for("spoor.drawn().length > 0", "the page to go on")
            check("token" not in page.evaluate("location.hash"), "the token is no part of the address any more")
        finally:
            another.kill()
            another.wait()
        print(json.dumps({"top": rows, "needle": found, "compared": compared, "range": chosen}))
    finally:
        page.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
