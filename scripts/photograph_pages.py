"""Take the gallery's screenshots of pages: `python -m scripts.photograph_pages`. It needs Chromium and Pillow.

No test compares the pictures, because browsers draw letters differently. `tests/show/test_page_browser.py` checks what
the pages say.
"""

from __future__ import annotations

import io
import shlex
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from cutegen.cli.main import main as cutegen
from tests.show.browser import Page, open_browser

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
COLORS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Photograph:
    """A page in a size and a theme, after a search and clicks."""

    name: str
    request: str
    size: tuple[int, int]
    dark: bool = False
    search: str = ""
    clicks: tuple[str, ...] = ()


PHOTOGRAPHS = (
    Photograph(name="page_sm80", request="sm80_hgemm_tn --arch sm_80", size=(1280, 1180), search="a,12,40"),
    Photograph(
        name="page_sm80_plain",
        request="sm80_hgemm_tn --arch sm_80",
        size=(1280, 1420),
        search="a,12,40",
        clicks=("#shared-plain",),
    ),
    Photograph(
        name="page_sm90_dark", request="sm90_hgemm_tn --arch sm_90", size=(2560, 1440), dark=True, search="b,100,40"
    ),
    Photograph(name="page_result", request="sm90_bf16_swiglu --arch sm_90", size=(1280, 1180), search="c,5,200"),
    Photograph(name="page_layout", request='--layout "Sw<3,3,3> o (8,64):(64,1)"', size=(1280, 800), search="3,20"),
)


def main() -> None:
    """Write every screenshot to the gallery's directory of pictures."""
    with open_browser() as page, TemporaryDirectory() as folder:
        for each in PHOTOGRAPHS:
            path = Path(folder) / f"{each.name}.html"
            if cutegen(["show", *shlex.split(each.request), "--out", str(path)]):
                raise SystemExit(1)
            (PICTURES / f"{each.name}.png").write_bytes(_taken(page, each, path))


def _taken(page: Page, photograph: Photograph, path: Path) -> bytes:
    width, height = photograph.size
    scheme = "dark" if photograph.dark else "light"
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.open(path.read_text(encoding="utf-8"), path.parent)
    page.driver.execute_script("document.documentElement.style.scrollbarWidth = 'none'")
    if photograph.search:
        page.search(photograph.search)
    for selector in photograph.clicks:
        page.click(selector)
    page.driver.execute_script("window.scrollTo(0, 0); document.activeElement.blur()")
    page.leave()
    image = Image.open(io.BytesIO(page.driver.get_screenshot_as_png())).convert("RGB")
    # Keep the most common colors exact, so that gray stays gray.
    common = sorted(image.getcolors(1 << 24), reverse=True)[:COLORS]
    palette = Image.new("P", (1, 1))
    palette.putpalette([channel for _, color in common for channel in color])
    small = image.quantize(palette=palette, dither=Image.Dither.NONE)
    out = io.BytesIO()
    small.save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main()
