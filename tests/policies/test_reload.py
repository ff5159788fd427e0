"""Policies that change while semel runs. `check_now` does at once what a poll does in its time."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.policy_file import PolicyMistakes, load_policies
from proxy.reload import Kept, PolicyWatch, Reloaded

GOOD = """
upstream: {name}
base_url: http://{host}
rules:
  - {{name: send, match: {{method: POST, path: {path}}}}}
"""


def write(file: Path, name: str = "mail", host: str = "a.example", path: str = "/send") -> None:
    file.write_text(GOOD.format(name=name, host=host, path=path))


class Watched:
    """A directory, a watch on it, and what the watch told."""

    def __init__(self, root: Path) -> None:
        self.own, self.presets = root / "own", root / "presets"
        self.own.mkdir()
        self.presets.mkdir()
        self.told: list[Reloaded | Kept] = []
        self.news = asyncio.Event()
        write(self.own / "mail.yaml")

    def tell(self, what: Reloaded | Kept) -> None:
        self.told.append(what)
        self.news.set()

    def watch(self, every: float = 3600.0) -> PolicyWatch:
        return PolicyWatch([self.own], tell=self.tell, presets=self.presets, every=every)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@contextlib.asynccontextmanager
async def running(watch: PolicyWatch) -> AsyncIterator[PolicyWatch]:
    watch.start()
    try:
        yield watch
    finally:
        await watch.stop()


def hosts(watch: PolicyWatch) -> dict[str, str]:
    return {name: upstream.host for name, upstream in watch.current.upstreams.items()}


async def test_nothing_changed_nothing_told(watched: Watched) -> None:
    watch = watched.watch()
    before = watch.current
    assert not await watch.check_now()
    assert watch.current is before
    assert watched.told == []


async def test_a_good_change_is_swapped_in_whole(watched: Watched) -> None:
    watch = watched.watch()
    before = watch.current
    write(watched.own / "mail.yaml", host="b.example")
    assert await watch.check_now()
    assert hosts(watch) == {"mail": "b.example"}
    assert before.upstreams["mail"].host == "a.example", "who holds the old set keeps the old set"
    assert watched.told == [Reloaded(watch.current, ())]


async def test_a_change_of_recipes_says_which(watched: Watched) -> None:
    watch = watched.watch()
    write(watched.own / "mail.yaml", path="/send/now")
    await watch.check_now()
    (told,) = watched.told
    assert isinstance(told, Reloaded)
    assert told.renamed == (("mail", "send"),)


async def test_bad_then_good(watched: Watched) -> None:
    """A bad set keeps the old one and is told once; the next good one is taken."""
    watch = watched.watch()
    before = watch.current
    (watched.own / "mail.yaml").write_text("upstream: mail\nbase_url: nowhere\nrules: 5\n")
    assert not await watch.check_now()
    assert not await watch.check_now()
    assert watch.current is before
    (told,) = watched.told
    assert isinstance(told, Kept)
    assert [(m.line, m.col) for m in told.mistakes] == [(2, 11), (3, 8)]
    write(watched.own / "mail.yaml", host="b.example")
    assert await watch.check_now()
    assert hosts(watch) == {"mail": "b.example"}
    assert isinstance(watched.told[-1], Reloaded)


async def test_one_bad_file_holds_back_the_good_ones(watched: Watched) -> None:
    """The set is consistent: all of it or nothing."""
    watch = watched.watch()
    write(watched.own / "mail.yaml", host="b.example")
    (watched.own / "other.yaml").write_text("upstream: other\n")
    assert not await watch.check_now()
    assert hosts(watch) == {"mail": "a.example"}


async def test_files_appear_and_disappear(watched: Watched) -> None:
    watch = watched.watch()
    write(watched.own / "other.yml", name="other", host="other.example")
    assert await watch.check_now()
    assert set(hosts(watch)) == {"mail", "other"}
    (watched.own / "mail.yaml").unlink()
    assert await watch.check_now()
    assert set(hosts(watch)) == {"other"}
    (watched.own / "other.yml").unlink()
    assert not await watch.check_now(), "an empty directory is a mistake"
    assert set(hosts(watch)) == {"other"}


async def test_a_directory_that_vanishes_and_comes_back(watched: Watched) -> None:
    watch = watched.watch()
    away = watched.own.rename(watched.own.with_name("away"))
    assert not await watch.check_now()
    assert hosts(watch) == {"mail": "a.example"}
    write(away / "mail.yaml", host="b.example")
    away.rename(watched.own)
    assert await watch.check_now()
    assert hosts(watch) == {"mail": "b.example"}


async def test_an_editor_that_writes_by_rename_with_the_old_time_is_seen(watched: Watched) -> None:
    """Same size, same modification time: inode and change time tell."""
    watch = watched.watch()
    file, fresh = watched.own / "mail.yaml", watched.own / ".mail.yaml.swp"
    before = file.stat()
    write(fresh, host="b.example")
    os.utime(fresh, ns=(before.st_atime_ns, before.st_mtime_ns))
    fresh.replace(file)
    after = file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert await watch.check_now()
    assert hosts(watch) == {"mail": "b.example"}


async def test_a_mounted_directory_swapped_by_link_is_seen(watched: Watched) -> None:
    """As container platforms do it: files are links into a directory that is itself a link."""
    for name, host in (("one", "one.example"), ("two", "two.example")):
        (watched.own / f"..{name}").mkdir()
        write(watched.own / f"..{name}" / "mail.yaml", host=host)
    (watched.own / "mail.yaml").unlink()
    (watched.own / "..data").symlink_to("..one")
    (watched.own / "mail.yaml").symlink_to("..data/mail.yaml")
    watch = watched.watch()
    assert hosts(watch) == {"mail": "one.example"}
    (watched.own / "..new").symlink_to("..two")
    (watched.own / "..new").replace(watched.own / "..data")
    assert await watch.check_now()
    assert hosts(watch) == {"mail": "two.example"}


async def test_a_preset_that_is_extended_is_watched_too(watched: Watched) -> None:
    write(watched.presets / "base.yaml", name="base")
    (watched.own / "mail.yaml").write_text("upstream: mail\nextends: base\n")
    watch = watched.watch()
    write(watched.presets / "base.yaml", name="base", host="b.example")
    assert await watch.check_now()
    assert hosts(watch) == {"mail": "b.example"}


async def test_files_that_change_while_they_are_read_are_read_again(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read half before and half after an edit is never used."""
    watch = watched.watch()

    def read_slowly(*args: object, **kwargs: object) -> object:
        found = load_policies(*args, **kwargs)  # type: ignore[arg-type]
        write(watched.own / "mail.yaml", host="c.example")
        return found

    monkeypatch.setattr("proxy.reload.load_policies", read_slowly)
    write(watched.own / "mail.yaml", host="b.example")
    assert not await watch.check_now()
    assert hosts(watch) == {"mail": "a.example"}
    monkeypatch.undo()
    assert await watch.check_now()
    assert hosts(watch) == {"mail": "c.example"}


async def test_a_poll_leaves_a_file_alone_until_it_is_still(watched: Watched) -> None:
    """A half-written file can be valid YAML: only what two looks in a row saw alike is loaded."""
    watch = watched.watch()
    full = (watched.own / "mail.yaml").read_text()
    (watched.own / "mail.yaml").write_text(full[: full.index("rules")])
    await watch._check_when_still()
    assert watched.told == []
    write(watched.own / "mail.yaml", host="b.example")
    await watch._check_when_still()
    assert watched.told == []
    await watch._check_when_still()
    assert hosts(watch) == {"mail": "b.example"}
    assert len(watched.told) == 1


async def test_the_running_watch_finds_a_change_by_itself(watched: Watched) -> None:
    async with running(watched.watch(every=0.01)) as watch:
        write(watched.own / "mail.yaml", host="b.example")
        await asyncio.wait_for(watched.news.wait(), 20)
        assert hosts(watch) == {"mail": "b.example"}


async def test_an_observer_that_fails_does_not_end_the_watch(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    failed = asyncio.Event()

    def tell(what: Reloaded | Kept) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("observer")
        watched.tell(what)

    watch = PolicyWatch([watched.own], tell=tell, presets=watched.presets, every=0.01)
    async with running(watch):
        write(watched.own / "mail.yaml", host="b.example")
        await asyncio.wait_for(failed.wait(), 20)
        write(watched.own / "mail.yaml", host="c.example")
        await asyncio.wait_for(watched.news.wait(), 20)
    assert hosts(watch) == {"mail": "c.example"}
    assert "tried again" in caplog.text


async def test_stop_ends_the_task_and_may_be_called_twice(watched: Watched) -> None:
    watch = watched.watch()
    watch.start()
    watch.start()
    assert len([task for task in asyncio.all_tasks() if task.get_name() == "policy-watch"]) == 1
    await watch.stop()
    await watch.stop()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "policy-watch"]


async def test_at_the_start_a_bad_set_is_an_error(watched: Watched) -> None:
    (watched.own / "mail.yaml").write_text("")
    with pytest.raises(PolicyMistakes, match="the file is empty"):
        watched.watch()
