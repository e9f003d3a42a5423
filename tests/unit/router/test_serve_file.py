import pytest

from router.config import DEPLOYMENTS
from router.serve_file import check_checkpoint, check_serve_file


@pytest.mark.parametrize(
    ("raw", "application", "field"),
    [
        ({"http_options": {"port": 800000}}, {}, "http_options.port"),
        ({"http_options": {"port": -1}}, {}, "http_options.port"),
        ({}, {"route_prefix": "tessera"}, "route_prefix"),
        ({}, {"route_prefix": "/tessera/"}, "route_prefix"),
        ({}, {"deployments": [{"name": "EncoderPol"}]}, "deployments"),
    ],
)
def test_what_would_show_only_at_deployment(raw, application, field):
    with pytest.raises(ValueError, match=field):
        check_serve_file(raw, application, DEPLOYMENTS)


def test_what_can_be_deployed():
    deployments = [{"name": name} for name in DEPLOYMENTS]
    check_serve_file({}, {}, DEPLOYMENTS)
    check_serve_file({"http_options": None}, {"route_prefix": "/a/b", "deployments": deployments}, DEPLOYMENTS)
    check_serve_file({"http_options": {"port": 0}}, {"route_prefix": "/"}, DEPLOYMENTS)


def test_a_checkpoint_is_looked_for(tmp_path, tiny_checkpoint, monkeypatch):
    check_checkpoint(str(tiny_checkpoint))
    check_checkpoint("meta-llama/Llama-4-Scout-17B-16E-Instruct")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").mkdir()
    for missing in (str(tmp_path / "gone"), "./gone", "a/b/c", "demo/gone"):
        with pytest.raises(ValueError, match="no folder"):
            check_checkpoint(missing)
    with pytest.raises(ValueError, match=r"config\.json"):
        check_checkpoint("./demo")
