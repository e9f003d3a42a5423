"""The images: what hadolint would say of the Dockerfiles, and what they are built from."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.unit.k8s.chart import CHART, K8S, values_of

ROOT = K8S.parent
DOCKERFILES = {"Dockerfile": "gpu", "Dockerfile.cpu": "cpu"}


def instructions(name: str) -> list[tuple[str, str]]:
    """(instruction, arguments) of each line, continued lines joined, comments dropped."""
    text = (K8S / "docker" / name).read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines()]


def arguments(name: str, instruction: str) -> list[str]:
    return [rest for word, rest in instructions(name) if word == instruction]


@pytest.fixture(params=DOCKERFILES)
def name(request) -> str:
    return request.param


def test_the_base_is_rays_own_image_of_the_projects_release_and_python(name) -> None:
    assert arguments(name, "FROM") == ["${RAY_IMAGE}"]
    (base,) = (rest.split("=", 1)[1] for rest in arguments(name, "ARG") if rest.startswith("RAY_IMAGE="))
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["annotations"]["tessera/ray"]
    assert re.fullmatch(rf"rayproject/ray:{re.escape(version)}-py311-(gpu|cpu)", base)
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()


def test_it_does_not_end_as_root(name) -> None:
    user = arguments(name, "USER")[-1]
    assert re.fullmatch(r"[1-9][0-9]*", user), "Kubernetes can only verify a number"
    assert "sudo" not in " ".join(arguments(name, "RUN"))


def test_the_rules_of_clean_images_hold(name) -> None:
    words = [word for word, _ in instructions(name)]
    assert "ADD" not in words
    assert "MAINTAINER" not in words
    assert all(path.startswith("/") for path in arguments(name, "WORKDIR"))
    for command in arguments(name, "RUN"):
        unquoted = re.sub(r"\"[^\"]*\"", "", command)
        assert not re.search(r"\bcd\b|\||;", unquoted), "a failing step must fail the build"
        assert "apt-get" not in command
        for install in re.findall(r"pip install[^&]*", command):
            assert "--no-cache-dir" in install
    for option in re.findall(r"--chown=(\S+)", " ".join(arguments(name, "COPY"))):
        assert option == "1000:100"


def test_no_secret_is_built_in(name) -> None:
    text = " ".join(arguments(name, "ENV") + arguments(name, "ARG") + arguments(name, "COPY"))
    assert not re.search(r"token|password|secret|key", text, re.IGNORECASE)


def test_the_project_is_installed_from_the_repository_with_its_build_of_vllm(name) -> None:
    installs = re.findall(r"pip install (.*?)(?:&&|$)", " ".join(arguments(name, "RUN")))
    assert [install.split() for install in installs] == [["--no-cache-dir", f'".[{DOCKERFILES[name]}]"']]
    assert re.search(rf"^{DOCKERFILES[name]} = \[\"vllm\S*==0\.32\.0\"\]", (ROOT / "pyproject.toml").read_text(), re.M)


def test_the_builder_gets_what_the_packages_need_and_nothing_else(name) -> None:
    ignore = (K8S / "docker" / f"{name}.dockerignore").read_text().split("\n")
    let_through = {line[1:] for line in ignore if line.startswith("!")}
    assert "*" in ignore
    packages = {"encoder_pool", "llm_pool", "router"} | ({"demo"} if name == "Dockerfile.cpu" else set())
    assert let_through == packages | {"pyproject.toml", "README.md", "LICENSE"}
    assert all((ROOT / path).exists() for path in let_through)


def test_the_cpu_demo_serves_the_model_that_is_in_its_image() -> None:
    source = values_of("values-cpu-demo.yaml")["tessera"]["model"]["source"]
    assert source == "/opt/tessera/demo/checkpoint"
    assert "--chown=1000:100 . /opt/tessera/" in arguments("Dockerfile.cpu", "COPY")
    assert (ROOT / "demo" / "checkpoint" / "config.json").exists()


def test_the_tag_in_the_comments_is_the_charts() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    for name, image in (("Dockerfile", "tessera"), ("Dockerfile.cpu", "tessera-cpu")):
        text = (K8S / "docker" / name).read_text()
        assert f"docker build -f k8s/docker/{name} -t {image}:{version} ." in text
