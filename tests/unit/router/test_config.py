import subprocess
import sys

import pytest
import yaml

from router.config import AppConfig, check_file, main, parse_args
from router.config_error import ConfigError

GOOD = {"model": {"source": "some/model"}}


def serve_file(tmp_path, args=GOOD, **more):
    app = {"name": "tessera", "import_path": "router.app:build_app", "route_prefix": "/", "args": args}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"applications": [app | more.pop("app", {})], **more}))
    return path


def test_defaults_need_only_a_model():
    config = parse_args(GOOD)
    assert config.model.names == ("some/model",)
    assert (config.encoder.replicas, config.llm.replicas, config.router.replicas) == (1, 1, 1)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "args.model: required, but absent"),
        ({"model": {"sorce": "x"}}, "args.model"),
        (GOOD | {"encoder": {"replica": 2}}, "args.encoder.replica: unknown key; did you mean 'replicas'?"),
        (GOOD | {"encoders": {}}, "args.encoders: unknown key; did you mean 'encoder'?"),
        (GOOD | {"encoder": {"replicas": 0}}, "args.encoder.replicas: .*greater than or equal to 1.*got 0"),
        (GOOD | {"router": {"max_images": "many"}}, "args.router.max_images: .*integer"),
        (GOOD | {"router": {"fetch_private_networks": ["10.0.0.0/99"]}}, "args.router.fetch_private_networks"),
        (GOOD | {"llm": {"engine_kwargs": {"max_modle_len": 5}}}, "args.llm.engine_kwargs: .*max_model_len"),
        (GOOD | {"llm": {"engine_kwargs": {"enable_mm_embeds": True}}}, "args.llm.engine_kwargs: .*enable_mm_embeds"),
        (GOOD | {"llm": {"frontend_kwargs": {"tool_parser": "x"}}}, "args.llm.frontend_kwargs: .*tool_parser"),
    ],
)
def test_a_wrong_key_or_value_is_named(args, message):
    with pytest.raises(ConfigError, match=message):
        parse_args(args)


def test_every_field_is_documented():
    def undocumented(schema):
        return [
            f"{name}.{field}"
            for name, model in schema["$defs"].items()
            for field, value in model["properties"].items()
            if "description" not in value
        ]

    assert undocumented(AppConfig.model_json_schema()) == []


def test_a_whole_file_is_checked(tmp_path):
    assert check_file(serve_file(tmp_path)).model.source == "some/model"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"proxy_loc": "HeadOnly"}, "proxy_loc: unknown key; did you mean 'proxy_location'?"),
        ({"http_options": {"prot": 1}}, "http_options.prot: unknown key; did you mean 'port'?"),
        ({"app": {"deployments": [{"name": "X", "num_replica": 2}]}}, r"deployments\[0\].num_replica: unknown key"),
        (
            {"app": {"deployments": [{"name": "EncoderPool", "num_replicas": 2, "max_ongoing_requests": 3}]}},
            "EncoderPool: max_ongoing_requests is set in `args:`",
        ),
        (
            {"app": {"deployments": [{"name": "LLMPool", "user_config": {}}]}},
            "LLMPool: user_config is set in `args:`, not here; only num_replicas may be",
        ),
        (
            {"app": {"deployments": [{"name": "Router", "user_config": {"api_key": []}}]}},
            "user_config.api_key: unknown key; did you mean 'api_keys'?",
        ),
        ({"app": {"import_path": "other:app"}}, "exactly one must have import_path"),
    ],
)
def test_serves_own_keys_are_checked_too(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        check_file(serve_file(tmp_path, **change))


def test_a_number_of_replicas_may_stand_outside_the_arguments(tmp_path):
    path = serve_file(tmp_path, app={"deployments": [{"name": "EncoderPool", "num_replicas": 2}]})
    assert check_file(path).encoder.replicas == 1


def test_api_keys_stand_in_the_routers_user_config(tmp_path):
    keys = {"api_keys": [{"name": "a", "env": "KEY_OF_A"}]}
    check_file(serve_file(tmp_path, app={"deployments": [{"name": "Router", "user_config": keys}]}))


AUTOSCALING = {"max_replicas": 4, "target_load": 34}


@pytest.mark.parametrize(
    ("app", "message"),
    [
        (
            {"deployments": [{"name": "EncoderPool", "num_replicas": 2}]},
            "EncoderPool: num_replicas is the autoscaler's",
        ),
        (
            {"autoscaling_policy": {"policy_function": "router.autoscaling:SharedGpus"}},
            r"autoscaling_policy: needs args.encoder.autoscaling and args.llm.autoscaling",
        ),
    ],
)
def test_what_of_autoscaling_stands_outside_the_arguments(tmp_path, app, message):
    path = serve_file(tmp_path, args=GOOD | {"encoder": {"autoscaling": AUTOSCALING}}, app=app)
    with pytest.raises(ConfigError, match=message):
        check_file(path)


def test_a_file_that_is_no_yaml_or_absent(tmp_path):
    with pytest.raises(ConfigError, match="absent.yaml"):
        check_file(tmp_path / "absent.yaml")
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match="broken.yaml"):
        check_file(tmp_path / "broken.yaml")


def test_the_command_prints_one_line_and_fails(tmp_path):
    path = serve_file(tmp_path, args=GOOD | {"encodr": {}})
    done = subprocess.run([sys.executable, "-m", "router.config", "--check", str(path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"{path}: args.encodr: unknown key; did you mean 'encoder'?"]


def test_the_schema_is_printed(capsys):
    assert main(["--schema"]) == 0
    assert '"title": "AppConfig"' in capsys.readouterr().out
