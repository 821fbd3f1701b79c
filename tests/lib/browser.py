"""Debian's Chromium, headless, driven through a pipe by its DevTools protocol: pages as people get them.

Only the standard library. https://chromedevtools.github.io/devtools-protocol/ has the commands.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium", path="/usr/bin:/usr/local/bin")
MISSING = "no chromium: apt-get install chromium"
PATIENCE = 120.0


class Browser:
    """One page of a browser of its own, until close()."""

    def __init__(self, width=1280, height=900):
        self.directory = tempfile.mkdtemp(prefix="browser")
        theirs, self.to = os.pipe()
        self.source, back = os.pipe()
        args = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--hide-scrollbars",
                "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking",
                "--disable-component-update", f"--user-data-dir={self.directory}", f"--window-size={width},{height}"]
        if os.geteuid() == 0:
            args.append("--no-sandbox")
        # It reads commands at descriptor 3 and answers at 4.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{back}', "bash", CHROMIUM, *args, "about:blank"],
            pass_fds=(theirs, back), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self.directory, "XDG_CONFIG_HOME": self.directory,
                 "XDG_CACHE_HOME": self.directory})
        os.close(theirs)
        os.close(back)
        self.buffer, self.number, self.events, self.session = b"", 0, [], None
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def _receive(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.source], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            some = os.read(self.source, 1 << 20)
            if not some:
                raise EOFError("the browser has ended")
            self.buffer += some
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def command(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._receive(deadline)
            if answer.get("id") != self.number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def open(self, url):
        """A page anew, at the size and in the colours that it began with."""
        self.command("Emulation.clearDeviceMetricsOverride")
        self.command("Emulation.setEmulatedMedia", features=[])
        self.command("Page.navigate", url="about:blank")
        self.events.clear()
        self.command("Page.navigate", url=url)

    def value(self, expression):
        """What JavaScript says, also to an expression that awaits."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.source)
        shutil.rmtree(self.directory, ignore_errors=True)

    def wait(self, expression, what=None):
        deadline = time.monotonic() + PATIENCE
        while not (said := self.value(expression)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what or expression} never came; the page: {self.text('body')[:3000]}")
            time.sleep(0.1)
        return said

    def text(self, selector):
        return self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def complaints(self):
        """What the browser has logged as an error: exceptions, what a policy kept from running, failed loads."""
        self.value("0")
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(params["entry"]["text"])
        return found

    def media(self, **features):
        self.command("Emulation.setEmulatedMedia",
                     features=[{"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    def size(self, width, height, mobile=False, scale=1):
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                     mobile=mobile)

    def press(self, key, code=None):
        for kind in ("keyDown", "keyUp"):
            self.command("Input.dispatchKeyEvent", type=kind, key=key, code=code or key,
                         **({"windowsVirtualKeyCode": 13, "text": "\r"} if key == "Enter" and kind == "keyDown" else
                            {"windowsVirtualKeyCode": 9} if key == "Tab" else {}))

    def screenshot(self, path, whole=False):
        data = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
