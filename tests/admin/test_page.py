"""The operator's page as files: what a browser is told of them, and what their sources may not hold."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from proxy.admin.pages import DIRECTORY, PAGES
from tests.admin.scene import problem, scene
from tests.admin.test_session import TOKENS
from tests.inside import call
from tests.process import ROOT

SOURCES = sorted(DIRECTORY.iterdir())
# What makes markup or code of a text, and what would load something from elsewhere.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|javascript:|DOMParser"
    r"|createContextualFragment|setHTML|srcdoc|\bimport\(|localStorage|sessionStorage|document\.cookie"
    r"|setTimeout\(\s*[\"'`]|https?://(?!www\.w3\.org/2000/svg\b)"
)
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", re.IGNORECASE)


async def test_every_file_of_the_page_is_kept_to_itself(tmp_path: Path) -> None:
    """Nothing inline, nothing from elsewhere, in no frame, in no cache; open to whoever has no token yet."""
    async with scene(tmp_path, tokens=TOKENS) as world:
        for path in PAGES:
            got = await call(world.port, "GET", path)
            assert (got.status, got.body) == (200, PAGES[path][1])
            policy = str(got.get("Content-Security-Policy"))
            directives = dict(one.strip().split(" ", 1) for one in policy.split(";"))
            assert directives == {
                "default-src": "'none'",
                "script-src": "'self'",
                "style-src": "'self'",
                "connect-src": "'self'",
                "img-src": "'self'",
                "base-uri": "'none'",
                "form-action": "'none'",
                "frame-ancestors": "'none'",
                "require-trusted-types-for": "'script'",
                "trusted-types": "'none'",
            }
            for name, value in {
                "X-Frame-Options": "DENY",
                "X-Content-Type-Options": "nosniff",
                "Cache-Control": "no-store",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Opener-Policy": "same-origin",
                "Cross-Origin-Resource-Policy": "same-origin",
            }.items():
                assert got.get(name) == value, (path, name)
            head = await call(world.port, "HEAD", path)
            assert (head.status, head.body, head.get("Content-Length")) == (200, b"", str(len(got.body)))


async def test_the_page_is_only_read(tmp_path: Path) -> None:
    """Another method is told so; what is not one of its files is not there."""
    async with scene(tmp_path) as world:
        refused = await call(world.port, "POST", "/_semel/", {}, b"x")
        assert problem(refused) == (405, "method-not-allowed")
        for path in ("page/", "page/nothing.js", "page/index.html", "page/%2e%2e/pages.py"):
            assert (await world.ask("GET", path)).status in (400, 404), path


async def test_the_address_without_its_slash_leads_to_the_page(tmp_path: Path) -> None:
    """People leave it out."""
    async with scene(tmp_path, tokens=TOKENS) as world:
        got = await call(world.port, "GET", "/_semel")
        assert (got.status, got.get("Location")) == (308, "/_semel/")


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_no_source_makes_markup_or_code_of_a_text(source: Path) -> None:
    """Whatever was recorded stays text; the page's policy would refuse the rest."""
    text = source.read_text(encoding="utf-8")
    assert FORBIDDEN.findall(text) == []
    if source.suffix == ".html":
        assert INLINE.findall(text) == []


def test_the_words_that_are_looked_for_would_be_found() -> None:
    """A pattern that finds nothing anywhere proves nothing."""
    for wrong in ("a.innerHTML = b", "eval(x)", 'href="javascript:x"', "fetch('https://x.example')",
                  "document.write(x)", "x.insertAdjacentHTML(y)", "x.outerHTML"):  # fmt: skip
        assert FORBIDDEN.search(wrong), wrong
    assert INLINE.search("<script>x</script>")
    assert INLINE.search('<p onclick="x">')
    assert not INLINE.search('<script type="module" src="page/main.js"></script>')


def test_every_file_is_used_and_every_used_file_is_there() -> None:
    """Of what the page names, and what its scripts import."""
    named = set()
    for source in SOURCES:
        text = source.read_text(encoding="utf-8")
        named |= set(re.findall(r'(?:src|href)="page/([^"]+)"', text)) | set(
            re.findall(r'from "\./([^"]+)"', text)
        )
    assert named == {source.name for source in SOURCES} - {"index.html"}


def test_an_installed_semel_has_the_page(tmp_path: Path) -> None:
    """The wheel holds the files, not only the checkout."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    inside = {Path(name).name for name in ZipFile(wheel).namelist() if name.startswith("proxy/admin/page/")}
    assert inside == {source.name for source in SOURCES}
