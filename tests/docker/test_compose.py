"""The container files, checked without an engine: Docker and Flower accept what they say."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedsuite.cli.main import main
from fedsuite.config import RunConfig
from fedsuite.core.settings import RunFailed
from fedsuite.flower.compat import option_parsers
from fedsuite.nodes.identity import read_node_data

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
STACKS = {
    "plain": ["compose.yml"],
    "tls": ["compose.yml", "compose.tls.yml"],
    "superlink": ["compose.superlink.yml"],
    "supernode": ["compose.supernode.yml"],
}
PARSERS = option_parsers()
SERVICE_KEYS = set(
    "build cap_drop command depends_on environment healthcheck image ports profiles restart "
    "security_opt stop_grace_period volumes".split()
)
CONDITIONS = {"service_healthy", "service_completed_successfully"}
VARIABLE = re.compile(r"\$\{(\w+)(?::?([-?])([^}]*))?\}")


def dotenv(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


EXAMPLE = dotenv(DOCKER / ".env.example")


def variables(text: str) -> list[tuple[str, str, str]]:
    """Every ${NAME}, how it is guarded ("-" a default, "?" required, "" not), and by what."""
    return VARIABLE.findall(re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE))


def filled(value: Any) -> Any:
    """A document with its variables as compose fills them in when nothing but names is set."""
    if isinstance(value, dict):
        return {key: filled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item) for item in value]
    if isinstance(value, str):
        return VARIABLE.sub(lambda m: m[3] if m[2] == "-" else EXAMPLE[m[1]], value)
    return value


def merged(base: Any, over: Any) -> Any:
    """Two files as compose merges them: mappings join, volumes join, commands are replaced."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    both = {**base, **over}
    for key in base.keys() & over.keys():
        joins = key == "volumes" and isinstance(base[key], list)
        both[key] = [*base[key], *over[key]] if joins else merged(base[key], over[key])
    return both


def stack(name: str) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for file in STACKS[name]:
        document = merged(document, yaml.safe_load((DOCKER / file).read_text()))
    return filled(document)


def words(service: dict[str, Any]) -> list[str]:
    assert isinstance(service["command"], list), "podman-compose splits strings before it fills in"
    return [str(word) for word in service["command"]]


def has_healthcheck(service: dict[str, Any]) -> bool:
    """Say whether the image's own check, or one in its place, is on."""
    return not service.get("healthcheck", {}).get("disable", False)


def mounts(service: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Return source, target and whether it is read-only, of each volume."""
    found = []
    for volume in service.get("volumes", []):
        if isinstance(volume, dict):
            found.append((volume["source"], volume["target"], volume.get("read_only", False)))
        else:
            source, target, *mode = volume.split(":")
            found.append((source, target, mode == ["ro"]))
    return found


def every_service() -> list[Any]:
    return [
        pytest.param(name, service, id=f"{name}-{service}")
        for name in STACKS
        for service in stack(name)["services"]
    ]


def test_every_compose_file_is_checked() -> None:
    listed = {file for files in STACKS.values() for file in files}
    assert listed == {path.name for path in DOCKER.glob("compose*.yml")}


@pytest.mark.parametrize("name", STACKS)
def test_top_level(name: str) -> None:
    document = stack(name)
    known = {"name", "services", "volumes", "secrets"}
    assert {key for key in document if not key.startswith("x-")} <= known
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]*", document["name"])


@pytest.mark.parametrize(("name", "service"), every_service())
def test_service(name: str, service: str) -> None:
    document = stack(name)
    it = document["services"][service]
    assert set(it) <= SERVICE_KEYS
    _, _, tag = it["image"].rpartition(":")
    assert tag and tag != "latest", f"{it['image']} has no exact tag"
    assert it["cap_drop"] == ["ALL"]
    assert it["security_opt"] == ["no-new-privileges:true"]
    for source, target, _ in mounts(it):
        assert target.startswith("/")
        assert source in document["volumes"] or source[0] in "./", f"{source} is not declared"


@pytest.mark.parametrize(("name", "service"), every_service())
def test_waits_for_what_exists_and_can_be_waited_for(name: str, service: str) -> None:
    services = stack(name)["services"]
    for target, how in services[service].get("depends_on", {}).items():
        assert target in services
        assert how["condition"] in CONDITIONS
        if how["condition"] == "service_healthy":
            assert has_healthcheck(services[target]), f"{target} has no health check to wait for"
        else:
            assert words(services[target])[0].startswith("/app/docker/"), f"{target} never ends"


@pytest.mark.parametrize("name", STACKS)
def test_no_circle_of_waiting(name: str) -> None:
    services = stack(name)["services"]
    left = {service: set(it.get("depends_on", {})) for service, it in services.items()}
    while left:
        free = {service for service, needs in left.items() if not needs & left.keys()}
        assert free, f"{sorted(left)} wait for each other"
        left = {service: needs for service, needs in left.items() if service not in free}


@pytest.mark.parametrize(("name", "service"), every_service())
def test_commands_are_real(name: str, service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    it = stack(name)["services"][service]
    command, *rest = words(it)
    if command in PARSERS:
        arguments = parse_strictly(PARSERS[command](), rest)
        if command == "flower-supernode":
            settings = shlex.split(arguments.node_config)
            numbers = dict(setting.split("=", 1) for setting in settings)
            place = read_node_data({key: int(value) for key, value in numbers.items()})
            assert place.num_partitions == 4
        return
    script = ROOT / command.removeprefix("/app/")
    assert script.is_file() and script.stat().st_mode & 0o111
    if script.name == "job.sh":
        started: list[RunConfig] = []

        def note(config: RunConfig, *options: Any) -> Path:
            started.append(config)
            raise RunFailed("noted")

        monkeypatch.setattr("fedsuite.engines.start.start_run", note)
        assert main(["run", *it["environment"]["RUN"].split()]) == 1
        assert [config.num_rounds for config in started] == [5]


def parse_strictly(parser: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Parse as the command would; an option it does not have fails the test."""
    try:
        return parser.parse_args(arguments)
    except SystemExit:
        pytest.fail(f"{parser.description}: {arguments} is not accepted")


@pytest.mark.parametrize("option", ["--insecure", "--no-such-option"])
def test_an_option_flower_does_not_have_is_found(option: str) -> None:
    parser = PARSERS["flower-superlink"]()
    if option == "--insecure":
        assert parse_strictly(parser, [option]).insecure
    else:
        with pytest.raises(pytest.fail.Exception):
            parse_strictly(parser, [option])


def test_four_nodes_have_four_quarters() -> None:
    for name in ("plain", "tls"):
        services = stack(name)["services"]
        configs = [words(it)[-1] for service, it in services.items() if service.startswith("node-")]
        assert configs == [f"--node-config=partition-id={i} num-partitions=4" for i in range(4)]


@pytest.mark.parametrize("name", ["tls", "superlink", "supernode"])
def test_nothing_is_plain_text_with_tls(name: str) -> None:
    for service, it in stack(name)["services"].items():
        command = words(it)
        assert "--insecure" not in command
        options = " ".join(command)
        if command[0] == "flower-superlink":
            assert "--enable-supernode-auth" in command and "--ssl-keyfile=" in options
            assert it["environment"]["HEALTH_URL"].startswith("https://")
        if command[0] == "flower-supernode":
            assert "--auth-supernode-private-key=" in options and "--root-certificates=" in options
        if service in ("job", "register"):
            assert it["environment"]["CA"].startswith("/secrets/")


def test_only_owners_see_a_secret() -> None:
    """Private keys are mounted by the one-shot service that makes them and by one owner."""
    services = stack("tls")["services"]
    for volume, maker, owner in [
        ("server", "certs", "superlink"),
        *((f"key-{i}", "keys", f"node-{i}") for i in range(4)),
    ]:
        users = {
            service: readonly
            for service, it in services.items()
            for source, _, readonly in mounts(it)
            if source == volume
        }
        assert users == {maker: False, owner: True}


@pytest.mark.parametrize("file", sorted(DOCKER.glob("compose*.yml")), ids=lambda path: path.name)
def test_every_variable_is_explained_and_has_its_default(file: Path) -> None:
    for name, guard, default in variables(file.read_text()):
        assert name in EXAMPLE, f"{name} is not in .env.example"
        assert guard, f"{name} has neither a default nor a word on what it is"
        if guard == "-":
            assert EXAMPLE[name] == default


def test_no_variable_is_explained_in_vain() -> None:
    text = "".join(path.read_text() for path in DOCKER.glob("compose*.yml"))
    assert set(EXAMPLE) == {name for name, _, _ in variables(text)}


def instructions(text: str) -> list[tuple[str, str]]:
    """A Dockerfile's instructions with continued lines joined, comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    pairs = (line.split(None, 1) for line in joined.splitlines() if line.strip())
    return [(word.upper(), rest) for word, rest in pairs]


def test_dockerfile() -> None:
    steps = instructions((DOCKER / "Dockerfile").read_text())
    stages: list[str] = []
    for _, rest in (step for step in steps if step[0] == "FROM"):
        image, *name = rest.split()
        assert image in stages or re.search(r":[\w.-]*\d[\w.-]*$", image), f"{image} is not pinned"
        stages += name[1:]
    assert len(stages) >= 2, "a stage that builds and one that runs"
    last = steps[max(i for i, (word, _) in enumerate(steps) if word == "FROM") :]
    users = [rest for word, rest in last if word == "USER"]
    assert users and users[-1].split(":")[0] not in ("root", "0")
    assert any(word == "HEALTHCHECK" and "CMD" in rest for word, rest in last)
    assert not any(word == "ADD" for word, _ in steps)
    text = " ".join(rest for _, rest in steps)
    assert "-c constraints.txt" in text and "latest" not in text
    for run in (rest for word, rest in steps if word == "RUN" and "apt-get install" in rest):
        assert "--no-install-recommends" in run and "rm -rf /var/lib/apt/lists/*" in run


def test_build_arguments_are_the_dockerfiles() -> None:
    steps = instructions((DOCKER / "Dockerfile").read_text())
    taken = {rest.split("=")[0] for word, rest in steps if word == "ARG"}
    for name in STACKS:
        for service in stack(name)["services"].values():
            if "build" in service:
                assert set(service["build"]["args"]) == taken
                assert (DOCKER / service["build"]["context"]).resolve() == ROOT
                assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_image_gets_what_the_app_is_made_of() -> None:
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in rules
    for name in ("pyproject.toml", "constraints.txt", "fedsuite", "strategies", "clients", "tasks"):
        assert f"!{name}" in rules
    assert not any("docker/.env" in rule for rule in rules)


@pytest.mark.parametrize("script", sorted(DOCKER.glob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_sound(script: Path) -> None:
    shell = shutil.which("dash") or shutil.which("sh")
    assert shell is not None
    done = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def compose_command() -> list[str]:
    """The compose that is installed here, if any; it needs no engine to read files."""
    if shutil.which("docker"):
        asked = subprocess.run(["docker", "compose", "version"], capture_output=True)
        if asked.returncode == 0:
            return ["docker", "compose"]
    return ["podman-compose"] if shutil.which("podman-compose") else []


@pytest.mark.docker
@pytest.mark.parametrize("name", STACKS)
def test_compose_itself_accepts_them(name: str) -> None:
    command = compose_command()
    if not command:
        pytest.skip("neither `docker compose` nor `podman-compose` is installed")
    command += ["--env-file", str(DOCKER / ".env.example")]
    for file in STACKS[name]:
        command += ["-f", str(DOCKER / file)]
    quiet = ["-q"] if command[0] == "docker" else []
    done = subprocess.run([*command, "config", *quiet], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
