import pytest

from router.config_error import ConfigError
from router.live_settings import live_settings


def keys(*entries):
    return {"api_keys": list(entries)}


def test_keys_are_named_and_found_elsewhere():
    found = live_settings(keys({"name": "acme", "file": "/keys/acme", "tenant": "a"}, {"name": "ci", "env": "CI_KEY"}))
    assert [(key.name, key.tenant, key.trusted) for key in found.api_keys] == [
        ("acme", "a", False),
        ("ci", None, False),
    ]


SECRET = "sk-1234567890abcdef"


@pytest.mark.parametrize(
    ("user_config", "message"),
    [
        ({}, "user_config.api_keys: required"),
        ("x", "user_config: .*dictionary"),
        (keys(), "user_config.api_keys: .*at least 1 item"),
        ({"api_kyes": []}, "user_config.api_kyes: unknown key; did you mean 'api_keys'"),
        ({"api_keys": SECRET}, "never|not here"),
        (keys(SECRET), "not here"),
        (keys({"name": "a", "key": SECRET}), "not here"),
        (keys({"name": "a"}), r"user_config.api_keys\[0\]: a: one of `file` and `env`"),
        (keys({"name": "a", "env": "A", "file": "b"}), "one of `file` and `env`"),
        (keys({"name": "a:b", "env": "A"}), r"user_config.api_keys\[0\].name"),
        (keys({"name": "a", "env": "A", "tenant": ""}), r"user_config.api_keys\[0\].tenant"),
        (keys({"name": "a", "env": "A"}, {"name": "a", "env": "B"}), "'a' stands there twice"),
        (keys({"name": "a", "env": "A", "request_per_minute": 1}), "did you mean 'requests_per_minute'"),
        (keys({"name": "a", "env": "A", "requests_per_minute": 0}), r"requests_per_minute: .*got 0"),
    ],
)
def test_what_is_wrong_is_named_and_no_key_repeated(user_config, message):
    with pytest.raises(ConfigError, match=message) as caught:
        live_settings(user_config)
    assert SECRET not in str(caught.value)
