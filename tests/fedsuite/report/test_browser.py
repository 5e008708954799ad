"""The report in a real browser: it fits a phone, follows dark mode and shows what it holds."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
PROBE = """<!DOCTYPE html><iframe id="page" src="index.html" style="width:{width}px;height:800px">
</iframe><pre id="found"></pre><script>
document.getElementById("page").onload = () => {{
  const inner = document.getElementById("page").contentDocument;
  const style = inner.defaultView.getComputedStyle(inner.body);
  const texts = [...inner.querySelectorAll("figure:not(.wide) svg text")];
  const heights = texts.map(t => t.getBoundingClientRect().height).filter(h => h > 0);
  const label = inner.defaultView.getComputedStyle(inner.querySelector("svg text"));
  document.getElementById("found").textContent = [
    "width=" + inner.documentElement.scrollWidth, "page=" + style.backgroundColor,
    "ink=" + style.color, "label=" + label.fill, "figures=" + inner.querySelectorAll("svg").length,
    "least=" + Math.min(...heights).toFixed(1)].join(";");
}};
</script>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("no Chromium on this machine")


def look(chromium: str, report: Path, folder: Path, width: int, dark: bool) -> dict[str, str]:
    """Open the page at a width and return what the browser made of it."""
    shutil.copy(report / "index.html", folder)
    (folder / "probe.html").write_text(PROBE.format(width=width))
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += ["--allow-file-access-from-files", "--virtual-time-budget=2000", "--dump-dom"]
    command += [f"--user-data-dir={folder / 'profile'}", "--window-size=1400,900"]
    command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    done = subprocess.run(
        [*command, (folder / "probe.html").as_uri()], capture_output=True, text=True, timeout=120
    )
    found = re.search(r'<pre id="found">(.+?)</pre>', done.stdout)
    assert found, done.stderr[-2000:]
    return dict(part.split("=", 1) for part in found[1].split(";"))


def brightness(colour: str) -> float:
    return sum(float(n) for n in re.findall(r"[\d.]+", colour)[:3]) / 3


def test_it_fits_a_phone(chromium: str, report: Path, tmp_path: Path) -> None:
    seen = look(chromium, report, tmp_path, 360, dark=False)
    assert int(seen["width"]) <= 360
    assert int(seen["figures"]) > 10
    assert float(seen["least"]) >= 9
    assert brightness(seen["page"]) > 200 > 100 > brightness(seen["ink"])
    assert brightness(seen["label"]) < 100


def test_it_follows_dark_mode(chromium: str, report: Path, tmp_path: Path) -> None:
    seen = look(chromium, report, tmp_path, 1200, dark=True)
    assert brightness(seen["page"]) < 60 and brightness(seen["ink"]) > 200
    assert seen["label"] == seen["ink"]
