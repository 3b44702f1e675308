"""A headless Chromium that opens pages, for tests; where there is none, they are skipped."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
TIMEOUT_S = 20
SETTLED = "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()));"


class Page:
    """One open page: what it says, by the names that its values have, and what a user does to it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, text: str, folder: Path) -> None:
        """Open a page out of a file in `folder`; what was logged before is forgotten."""
        path = folder / "page.html"
        path.write_text(text, encoding="utf-8")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(path.as_uri())
        self.settle()

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.driver.execute_async_script(SETTLED)

    def said(self, where: str = "#journey") -> dict[str, str]:
        """The values that a part of the page shows, by their names: their text as it stands on the page."""
        script = """
            const found = {};
            for (const each of document.querySelectorAll(`${arguments[0]} [data-name]`)) {
                found[each.dataset.name] = each.querySelector("dd").innerText;
            }
            return found;"""
        found: dict[str, str] = self.driver.execute_script(script, where)
        return found

    def text(self, selector: str) -> str:
        """The text of an element."""
        from selenium.webdriver.common.by import By

        found: str = self.driver.find_element(By.CSS_SELECTOR, selector).text
        return found

    def click(self, selector: str) -> None:
        """Click an element, wherever the page has to go for that."""
        from selenium.webdriver.common.by import By

        found = self.driver.find_element(By.CSS_SELECTOR, selector)
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
        found.click()
        self.settle()

    def search(self, text: str) -> None:
        """Type into the search box, and press return."""
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys

        field = self.driver.find_element(By.ID, "search")
        field.clear()
        field.send_keys(text, Keys.RETURN)
        field.send_keys(Keys.ESCAPE)
        self.settle()

    def press(self, *keys: str) -> None:
        """Press keys on the page itself."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()
        self.settle()

    def slide(self, name: str, to: int) -> None:
        """Move a slider with the arrow keys of the keyboard."""
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys

        field = self.driver.find_element(By.ID, f"slide-{name}")
        steps = to - int(field.get_attribute("value"))
        if steps:
            field.send_keys(*[Keys.ARROW_RIGHT if steps > 0 else Keys.ARROW_LEFT] * abs(steps))
        self.driver.execute_script("document.activeElement.blur()")
        self.settle()

    def hover(self, view: str, x: float, y: float) -> None:
        """Bring the pointer to a share (x, y) of a view's picture, 0 to 1 from its left upper corner."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.by import By

        picture = self.driver.find_element(By.CSS_SELECTOR, f"#view-{view} canvas.over")
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", picture)
        size = picture.size
        ActionChains(self.driver, duration=0).move_to_element_with_offset(
            picture, round((x - 0.5) * size["width"]), round((y - 0.5) * size["height"])
        ).perform()
        self.settle()

    def leave(self) -> None:
        """Take the pointer away from every picture."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.by import By

        head = self.driver.find_element(By.CSS_SELECTOR, "#head h1")
        ActionChains(self.driver, duration=0).move_to_element(head).perform()
        self.settle()

    @property
    def complaints(self) -> list[str]:
        """Every line of the console, whatever its level."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    @property
    def requests(self) -> list[str]:
        """Every address that the page has asked for, itself left out."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
        addresses = [each["request"]["url"] for each in sent]
        # The browser's own new tab may still be loading when a page is opened.
        inside = ("data:", "blob:", "chrome://", "about:")
        return [url for url in addresses if not url.startswith(inside) and url != self.driver.current_url]


@contextmanager
def open_browser() -> Iterator[Page]:
    """A browser with a profile of its own. Skips the test where there is none, and says what is missing."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: pip install 'cutegen[dev]'")
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    driver_program = shutil.which("chromedriver")
    if program is None or driver_program is None:
        pytest.skip("no Chromium with its driver here: apt-get install chromium chromium-driver")
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1280,900"):
            options.add_argument(flag)
        options.binary_location = program
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(driver_program)
        driver = webdriver.Chrome(options=options, service=service)
        try:
            driver.set_script_timeout(TIMEOUT_S)
            driver.get("about:blank")
            yield Page(driver)
        finally:
            driver.quit()


def until(held: Callable[[], bool], seconds: float = TIMEOUT_S) -> bool:
    """True if something comes to hold in time."""
    end = time.monotonic() + seconds
    while not held():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
