"""Control headless Chromium through a pipe with the DevTools protocol, without other packages."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # It is not available to root, who may run the tests.
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_browser() -> str | None:
    """Return the path of a browser; None if none is installed. `CHROMIUM` can name another one."""
    named = [os.environ["CHROMIUM"]] if os.environ.get("CHROMIUM") else []
    return next((path for name in [*named, *NAMES] if (path := shutil.which(name))), None)


class Tab:
    """A tab of the browser, and the events in it."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._buffer, self._count, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, timeout: float = 60, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self._read(deadline, method)
            if answer.get("id") != self._count:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            result: dict[str, Any] = answer["result"]
            return result

    def _read(self, deadline: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reads], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser did not answer: {what}")
            part = os.read(self._reads, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer

    def open(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def goto(self, path: Path) -> None:
        """Open a file and wait until it is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + 60
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read(deadline, "load"))

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).textContent"))

    def value(self, selector: str) -> float:
        """Return a number with all of its digits."""
        return float(self.run(f"document.querySelector({json.dumps(selector)}).dataset.value"))

    def press(self, key: str) -> None:
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        codes |= {"Home": 36, "End": 35, "Tab": 9, " ": 32, "Enter": 13}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type="rawKeyDown" if kind == "keyDown" else kind,
                key=key,
                code="Space" if key == " " else key,
                windowsVirtualKeyCode=codes[key],
            )
            if key == " " and kind == "keyDown":
                self.call("Input.dispatchKeyEvent", type="char", text=" ")

    def mouse(self, kind: str, x: float, y: float) -> None:
        held = {"button": "left", "buttons": 1, "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    def scheme(self, name: str) -> None:
        """Prefer the "light" or the "dark" color scheme."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.call("Emulation.setEmulatedMedia", media="", features=features)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path: Path) -> None:
        printed = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(printed["data"]))

    def events_of(self, method: str) -> list[dict[str, Any]]:
        """Return the events of one kind since the page was opened."""
        self.run("0")  # The browser sends all earlier events before this result.
        return [event["params"] for event in self.events if event.get("method") == method]


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Tab]:
    """Start a browser with one tab, and end it afterwards."""
    browser_in, own_out = os.pipe()
    own_in, browser_out = os.pipe()

    def pipes() -> None:
        # The browser uses the descriptors 3 and 4.
        inward, outward = os.dup(browser_in), os.dup(browser_out)
        os.dup2(inward, 3)
        os.dup2(outward, 4)

    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=pipes,
        pass_fds=(3, 4),
    )
    os.close(browser_in)
    os.close(browser_out)
    tab = Tab(own_in, own_out)
    try:
        tab.open()
        yield tab
    finally:
        with suppress(OSError, RuntimeError, TimeoutError):
            tab._session = ""
            tab.call("Browser.close", timeout=10)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(own_in)
        os.close(own_out)
