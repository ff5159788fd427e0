"""compose.yaml: what it says fits together, and every service of semel's own runs as it is written there.

There is no container engine here. What is not shown: the images, the users and the volumes' owners, the
network between them, the published ports. What is: each command with its tokens and policies, the traffic,
the figures that come of it, and Prometheus itself where it is installed.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.core.policy import PolicySet
from proxy.core.reachable import may_be
from proxy.policy_file import load_policies
from tests.composed import COMPOSE, FILE, IMAGE, SERVICES, Mount, Place, mounts
from tests.dockerfile import ROOT
from tests.docs.pages import blocks
from tests.docs.pasting import free_ports

DASHBOARDS = ROOT / "dashboards"
PAGE = ROOT / "docs" / "how-to" / "grafana.md"
OWN = sorted(name for name, said in SERVICES.items() if "build" in said)
ALL_MOUNTS = [(service, mount) for service in SERVICES for mount in mounts(service)]
BOUND = sorted({mount.source for _, mount in ALL_MOUNTS if mount.is_of_the_repository})
# Enough for every habit once, whatever the chances; the seed makes it the same every time.
CALLS, SEED = 90, 7
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}


def policies(directory: Path = ROOT / "proxy" / "demo" / "policies") -> PolicySet:
    return load_policies([directory])


# ---- what the file says ----


def test_the_services_are_there_and_have_their_pictures() -> None:
    """semel's own are built here; the others have a tag that says exactly which."""
    assert set(SERVICES) == {"tokens", "semel", "toy", "traffic", "prometheus", "grafana"}
    assert OWN == ["semel", "tokens", "toy", "traffic"]
    assert {SERVICES[name]["build"] for name in OWN} == {"."}
    for name in set(SERVICES) - set(OWN):
        assert re.fullmatch(r"[\w-]+/[\w-]+:v?\d+\.\d+\.\d+", SERVICES[name]["image"]), name


def test_ports_are_published_to_this_machine_alone() -> None:
    """Grafana lets everybody look who reaches it."""
    published = {name: said["ports"] for name, said in SERVICES.items() if "ports" in said}
    assert set(published) == {"semel", "prometheus", "grafana"}
    for ports in published.values():
        for port in ports:
            assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port), port
    assert not [name for name, said in SERVICES.items() if said.get("network_mode") == "host"]


@pytest.mark.parametrize("source", BOUND)
def test_what_is_mounted_is_in_the_repository(source: str) -> None:
    """A missing one would become an empty directory of root's."""
    assert (ROOT / source).exists()
    used = [mount for _, mount in ALL_MOUNTS if mount.source == source]
    assert {mount.mode for mount in used} == {"ro"}


def test_each_volume_has_one_writer() -> None:
    """Named ones only, all declared; the tokens are written by the service that makes them."""
    named = [(service, mount) for service, mount in ALL_MOUNTS if not mount.is_of_the_repository]
    assert {mount.source for _, mount in named} == set(COMPOSE["volumes"])
    writers = {mount.source: service for service, mount in named if mount.mode == "rw"}
    assert writers == {"tokens": "tokens", "state": "semel", "prometheus": "prometheus", "grafana": "grafana"}
    assert len(writers) == sum(mount.mode == "rw" for _, mount in named)
    # A new volume takes its owner from what the image has there: the directory of semel's user.
    (volume,) = next(step.words for step in IMAGE if step.word == "VOLUME")
    for service in ("tokens", "semel"):
        assert [mount.target for mount in mounts(service) if mount.mode == "rw"] == [volume]


def test_there_is_no_secret_in_it() -> None:
    """No token, no password, no key; nor a variable that would take one from somebody's shell."""
    text = FILE.read_text()
    assert not re.search(r"semel_[\w-]{20,}|whsec_|\$\{?[A-Za-z]", text)
    variables = [name for said in SERVICES.values() for name in said.get("environment", {})]
    assert not [name for name in variables if re.search("PASSWORD|TOKEN|SECRET|KEY", name)]


def test_who_waits_for_whom_can_be_waited_for() -> None:
    """Healthy needs a check; only what ends can have ended; nobody waits in a circle."""
    after: dict[str, set[str]] = {}
    for name, said in SERVICES.items():
        after[name] = set(said.get("depends_on", {}))
        for other, how in said.get("depends_on", {}).items():
            check = SERVICES[other].get("healthcheck", {"test": "the image's"} if other in OWN else {})
            assert how["condition"] in CONDITIONS
            assert how["condition"] != "service_healthy" or "test" in check, (name, other)
            assert (how["condition"] == "service_completed_successfully") == (other == "tokens")
    while after:
        ready = {name for name, others in after.items() if not others & set(after)}
        assert ready, f"in a circle: {after}"
        after = {name: others for name, others in after.items() if name not in ready}
    # The image's asks for semel's port, and neither of these listens there.
    for name in ("tokens", "traffic"):
        assert SERVICES[name]["healthcheck"] == {"disable": True}


def test_addresses_name_services_and_their_ports() -> None:
    """Policies, the scrape and the data source; and a service's name may lead into a private network."""
    toy = SERVICES["toy"]["command"]
    offered = {("toy", int(port)) for port in (toy[toy.index("--tools") + 1], toy[toy.index("--model") + 1])}
    upstreams = policies().upstreams.values()
    assert {(one.host, one.port) for one in upstreams} == offered
    for one in upstreams:
        assert may_be(one.host, "172.18.0.3", one.said_of(one.host, one.port)), one.name
    (job,) = read("prometheus.yml")["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["semel:8080"]}]
    assert SERVICES["semel"]["ports"] == ["127.0.0.1:8080:8080"]
    (source,) = read("provisioning/datasources/prometheus.yaml")["datasources"]
    assert (source["url"], source["isDefault"]) == ("http://prometheus:9090", True)


def test_grafana_finds_its_dashboards() -> None:
    """All three where the provider looks, and the first of them is where one arrives."""
    (provider,) = read("provisioning/dashboards/semel.yaml")["providers"]
    folder = provider["options"]["path"]
    shown = {mount.target for mount in mounts("grafana") if mount.source.endswith(".json")}
    assert shown == {f"{folder}/{name}.json" for name in ("overview", "effects", "store")}
    said = SERVICES["grafana"]["environment"]
    assert said["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{folder}/overview.json"
    assert said["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    where = {mount.source: mount.target for mount in mounts("grafana")}
    for kind in ("datasources", "dashboards"):
        assert where[f"./dashboards/provisioning/{kind}"] == f"/etc/grafana/provisioning/{kind}"


def read(name: str) -> Any:
    return yaml.safe_load((DASHBOARDS / name).read_text())


# ---- what its services do ----


@pytest.fixture
def place(tmp_path: Path) -> Place:
    known = ("semel:8080", "toy:9000", "toy:9001", "prometheus:9090")
    return Place(tmp_path, dict(zip(known, map(int, free_ports(len(known))), strict=True)))


def token_of(place: Place, role: str) -> str:
    return (place.directory / "tokens" / role).read_text()


def asked(url: str, **headers: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@contextmanager
def semel_at_work(place: Place) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Tokens made, the toy and semel up."""
    made = place.run("tokens")
    assert made.returncode == 0, made.stderr
    with ExitStack() as stack:
        toy = stack.enter_context(place.running("toy", "the model is ready on"))
        yield {"toy": toy, "semel": stack.enter_context(place.running("semel", "semel is ready on"))}


def figures(place: Place) -> dict[str, float]:
    """By the metric's name with its labels, as semel writes them."""
    bearer = f"Bearer {token_of(place, 'metrics')}"
    status, text = asked(f"http://127.0.0.1:{place.ports['semel:8080']}/metrics", Authorization=bearer)
    assert status == 200, text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def figure(found: dict[str, float], name: str, **labels: str) -> float:
    """The sum over all other labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(
        value
        for series, value in found.items()
        if re.split(r"[{ ]", series)[0] == name and all(one in series for one in wanted)
    )


def test_tokens_are_made_once_and_each_is_readable_for_its_owner(place: Place) -> None:
    """The next start finds them. Prometheus is another user: it enters, reads its own, and sees no list."""
    first, second = place.run("tokens"), place.run("tokens")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout == second.stdout == f"the operator's token: {token_of(place, 'operator')}\n"
    directory = place.directory / "tokens"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (directory, *directory.iterdir())}
    assert modes == {
        "tokens": 0o711, "metrics": 0o444, "agent": 0o400, "operator": 0o400, "semel.yaml": 0o400,
    }  # fmt: skip
    settings = (directory / "semel.yaml").read_text()
    assert not [role for role in ("agent", "operator", "metrics") if token_of(place, role) in settings]


def test_the_commands_run_and_the_figures_show_it(place: Place) -> None:
    """The traffic as it is written, bounded: all that the dashboards are about happens, and nothing twice."""
    with semel_at_work(place) as servers:
        done = place.run("traffic", "--rate", "200", "--calls", str(CALLS), "--seed", str(SEED))
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert f"seed {SEED}\n" in done.stdout
        assert re.search(rf"^{CALLS} calls: executed \d+, ", done.stdout, re.MULTILINE), done.stdout
        found = figures(place)
        shows_what_the_agents_did(found)
        shows_no_more_than_the_toy_did(place, found)
        lets_in_only_those_with_a_token(place)
        is_healthy_and_ends_when_asked(place, servers)


def shows_what_the_agents_did(found: dict[str, float]) -> None:
    for status in ("executed", "replayed", "joined", "passed", "refused"):
        assert figure(found, "semel_calls_total", status=status) > 0, status
    for problem in ("in-doubt", "awaiting-approval", "diverged", "denied"):
        assert figure(found, "semel_problems_total", type=problem) > 0, problem
    for code in ("200", "429", "503", "lost"):
        assert figure(found, "semel_upstream_responses_total", code=code) > 0, code
    for upstream in ("model", "search", "payments", "mail"):
        assert figure(found, "semel_saved_usd_total", upstream=upstream) > 0, upstream
        assert figure(found, "semel_spent_usd_total", upstream=upstream) > 0, upstream
    assert figure(found, "semel_duplicates_prevented_total", rule="charge") > 0
    assert figure(found, "semel_duplicates_prevented_total", rule="send") > 0
    assert figure(found, "semel_shadow_duplicates_prevented_total") == 1
    assert figure(found, "semel_suspected_polls_total") == 1
    assert figure(found, "semel_divergences_total") == 1
    # What waits for a person is bounded: one payment in ten minutes, one refund until it is decided.
    assert figure(found, "semel_calls_in_state", state="in_doubt") == 1
    assert figure(found, "semel_calls_in_state", state="awaiting_approval") == 1


def shows_no_more_than_the_toy_did(place: Place, found: dict[str, float]) -> None:
    """The toy's books: every charge was answered or lost, and none was made in answer to a repeat."""
    books = json.loads(asked(f"http://127.0.0.1:{place.ports['toy:9000']}/books")[1])
    answers = {code: figure(found, "semel_upstream_responses_total", rule="charge", code=code)
               for code in ("200", "lost")}  # fmt: skip
    assert books["charge"] == sum(answers.values())
    assert figure(found, "semel_calls_total", rule="charge") > books["charge"]
    assert books["refund"] == 0
    model = json.loads(asked(f"http://127.0.0.1:{place.ports['toy:9001']}/requests")[1])
    assert model["requests"] == figure(found, "semel_upstream_responses_total", upstream="model")


def lets_in_only_those_with_a_token(place: Place) -> None:
    metrics = f"http://127.0.0.1:{place.ports['semel:8080']}/metrics"
    assert asked(metrics)[0] == 401
    assert asked(metrics, Authorization=f"Bearer {token_of(place, 'agent')}")[0] == 403
    refused = place.run("traffic", "--token-file", str(place.directory / "tokens" / "metrics"))
    assert refused.returncode == 1
    assert "does not let these agents in" in refused.stderr


def is_healthy_and_ends_when_asked(place: Place, servers: dict[str, subprocess.Popen[str]]) -> None:
    check = place.health("toy")
    assert subprocess.run(check, capture_output=True, timeout=30, check=False).returncode == 0
    with place.running("traffic", "agents at work") as traffic:
        for process in (traffic, *servers.values()):
            process.send_signal(signal.SIGTERM)
            assert process.wait(45) == 0
    assert subprocess.run(check, capture_output=True, timeout=30, check=False).returncode != 0


# ---- Prometheus itself ----


def configuration(place: Place) -> Path:
    """Of the file that is mounted, and beside it the rules; a shorter time between two scrapes."""
    here = {mount.target: place.source(mount) for mount in mounts("prometheus")}
    mounted = here["/etc/prometheus/prometheus.yml"]
    assert here["/etc/prometheus/alerts.yaml"].parent == mounted.parent
    text = mounted.read_text().replace("/run/tokens/metrics", str(here["/run/tokens"] / "metrics"))
    assert text.count("_interval: 5s") == 2
    mounted.write_text(text.replace("_interval: 5s", "_interval: 1s"))
    return mounted


def shown_on_the_page(place: Place) -> Path:
    """What docs/how-to/grafana.md gives to be pasted into one's own."""
    (shown,) = [block.text for block in blocks(PAGE, "text") if block.text.startswith("rule_files")]
    configured = configuration(place).with_name("own.yml")
    token = str(place.directory / "tokens" / "metrics")
    configured.write_text(re.sub(r"(?<=credentials_file: )\S+", token, shown))
    return configured


@pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool, of Debian's package prometheus")
@pytest.mark.parametrize("configured", [configuration, shown_on_the_page])
def test_prometheus_s_own_check_has_nothing_to_say(place: Place, configured: Callable[[Place], Path]) -> None:
    """With the rules beside it, and the token's file where it is."""
    assert place.run("tokens").returncode == 0
    command = ["promtool", "check", "config", str(configured(place))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (place.directory / "tokens" / "metrics").unlink()
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode != 0


@pytest.mark.skipif(not shutil.which("prometheus"), reason="needs prometheus, of Debian's package")
def test_prometheus_scrapes_semel_with_its_token(place: Place) -> None:
    """A real one, with the configuration that is mounted: the target is up, and its figures are there."""
    flags = [word for word in SERVICES["prometheus"]["command"] if not word.startswith("--config")]
    port = place.ports["prometheus:9090"]
    with semel_at_work(place), (place.directory / "prometheus.log").open("w") as log:
        data = Mount("prometheus", "/prometheus", "rw")
        words = [word.replace("=/prometheus", f"={place.source(data)}") for word in flags]
        config = f"--config.file={configuration(place)}"
        command = ["prometheus", config, f"--web.listen-address=127.0.0.1:{port}", *words]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            while told(port, 'up{job="semel"}') != "1":
                assert process.poll() is None, (place.directory / "prometheus.log").read_text()
                time.sleep(0.05)
            assert told(port, "semel_build_info") == "1"
        finally:
            process.kill()
            process.wait(30)


def told(port: int, query: str) -> str | None:
    """An instant query's only value; None while there is none."""
    try:
        status, text = asked(f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}")
    except urllib.error.URLError:
        return None  # it does not listen yet
    found = json.loads(text)["data"]["result"] if status == 200 else []
    return str(found[0]["value"][1]) if found else None
