"""A real headless Chromium for tests of pages, driven by its own protocol over a pipe: no driver to install.

`Page` gathers whatever went wrong in it: exceptions, errors on the console, loads that failed, loads from elsewhere.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
SECONDS = 60.0
"""Until an answer, on a machine that has other things to do."""
KEYS = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}


def chromium() -> str:
    """The browser of this machine; the test is skipped where there is none."""
    found = os.environ.get("DKGE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser here: none of {', '.join(NAMES)} (apt-get install chromium), and no DKGE_CHROMIUM")
    return found


class Browser:
    """One process with one page."""

    def __init__(self, process: subprocess.Popen[bytes], send: int, receive: int) -> None:
        self._process, self._send, self._receive = process, send, receive
        self._numbers = itertools.count(1)
        self._buffer = b""
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command and its answer; events that come before it are kept."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._send, data) :]
        deadline = time.monotonic() + SECONDS
        while True:
            told = self._next(deadline)
            if told.get("id") == number:
                assert "error" not in told, f"{method}: {told['error']}"
                result: dict[str, Any] = told["result"]
                return result

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser said nothing for {SECONDS:.0f} s"
            more = os.read(self._receive, 1 << 16)
            assert more, f"the browser ended with {self._process.poll()}"
            self._buffer += more
        line, self._buffer = self._buffer.split(b"\0", 1)
        told: dict[str, Any] = json.loads(line)
        if "method" in told:
            self.events.append(told)
        return told


class Page:
    """What a user sees and does."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        for domain in ("Page", "Runtime", "Network", "Log"):
            browser.call(f"{domain}.enable")

    def open(self, address: str, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load an address at a size, and wait for it."""
        mobile = width < 600
        self._browser.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._browser.call("Emulation.setEmulatedMedia", media="", features=scheme)
        self._browser.call("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete'")

    def run(self, expression: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        found = self._browser.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str, seconds: float = SECONDS) -> Any:
        """Until an expression is true; its value."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(expression)):
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {expression}"
            time.sleep(0.05)
        return value

    def press(self, key: str) -> None:
        """A key of the keyboard: one of its names, or a character."""
        text = {} if key in KEYS else {"text": key}
        more = {"text": "\r"} if key == "Enter" else text
        code = KEYS.get(key, ord(key[0].upper()))
        self._browser.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
        self._browser.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Text where the focus is."""
        self._browser.call("Input.insertText", text=text)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """A picture of the page."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        found = self._browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def print(self, path: Path) -> None:
        """As a PDF."""
        path.write_bytes(base64.b64decode(self._browser.call("Page.printToPDF", printBackground=True)["data"]))

    def problems(self, may_fail: Callable[[str], bool] = lambda address: False) -> list[str]:
        """All that went wrong so far. `may_fail`: addresses whose answer may be an error."""
        self.run("1")
        found = []
        for event in self._browser.events:
            told = event["params"]
            match event["method"]:
                case "Runtime.exceptionThrown":
                    found.append(f"exception: {told['exceptionDetails']}")
                case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                    found.append(f"console: {told['args']}")
                case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                    if not may_fail(told["entry"].get("url", "")):
                        found.append(f"log: {told['entry']}")
                case "Network.loadingFailed" if not told.get("canceled"):
                    found.append(f"failed: {told}")
        return found

    def requests(self) -> list[str]:
        """The addresses that were asked for, in their order."""
        self.run("1")
        sent = (event for event in self._browser.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"] for event in sent]


@contextmanager
def open_browser(profile: Path) -> Iterator[Page]:
    """A browser with an empty profile in a folder of its own; it ends with the context."""
    from_us, to_browser = os.pipe()
    from_browser, to_us = os.pipe()
    # The browser reads commands from descriptor 3 and writes to 4; a shell puts them there.
    command = f'exec "$@" 3<&{from_us} 4>&{to_us}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", command, "browser", chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(from_us, to_us),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(from_us)
    os.close(to_us)
    try:
        browser = Browser(process, to_browser, from_browser)
        pages = browser.call("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        yield Page(browser)
    finally:
        os.close(to_browser)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(from_browser)
