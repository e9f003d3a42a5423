import hmac

import pytest

from router import api_keys
from router.api_keys import ApiKeyError, ApiKeys
from router.errors import ApiError
from router.live_settings import ApiKeySettings

OLD, NEW = "old-key-0123456789", "new-key-0123456789"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "old").write_text(OLD + "\n")
    (tmp_path / "new").write_text(NEW)
    return tmp_path


def key(folder, name, **more):
    return ApiKeySettings(name=name, file=str(folder / name), **more)


def refused(keys, authorization):
    with pytest.raises(ApiError) as caught:
        keys.find(authorization)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert caught.value.headers() == {"WWW-Authenticate": "Bearer"}
    return True


def test_without_configuration_everyone_is_served():
    keys = ApiKeys()
    keys.configure(None)
    assert keys.find(None) is None
    assert keys.find("Bearer whatever") is None


def test_keys_come_from_files_and_variables(folder, monkeypatch):
    monkeypatch.setenv("SOME_KEY", NEW)
    keys = ApiKeys()
    keys.configure([key(folder, "old"), ApiKeySettings(name="ci", env="SOME_KEY")])
    assert keys.find(f"Bearer {OLD}").name == "old"
    assert keys.find(f"bearer {NEW}").name == "ci"


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        OLD,
        f"Basic {OLD}",
        f"Bearer {OLD}x",
        f"Bearer {OLD} {OLD}",
        "B ü",
    ],
)
def test_what_is_no_valid_key(folder, authorization):
    keys = ApiKeys()
    keys.configure([key(folder, "old")])
    assert refused(keys, authorization)


def test_every_key_is_compared_in_constant_time_wherever_it_stands(folder, monkeypatch):
    compared = []
    honest = hmac.compare_digest

    def compare(a, b):
        compared.append(len(a))
        return honest(a, b)

    monkeypatch.setattr(api_keys.hmac, "compare_digest", compare)
    keys = ApiKeys()
    keys.configure([key(folder, "old"), key(folder, "new")])
    for sent in (OLD, NEW):
        keys.find(f"Bearer {sent}")
    assert refused(keys, "Bearer x")
    assert compared == [32] * 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "old: file .*FileNotFoundError"),
        (b"", "empty"),
        (b" \n", "empty"),
        (b"short", "at least 16"),
        (b"first-key-0123456789\nsecond-key-0123456789", "one key"),
        ("schlüssel-0123456789".encode(), "ASCII"),
        (b"\xff" * 20, "UnicodeDecodeError"),
    ],
)
def test_a_start_with_a_key_that_cannot_be_used_is_refused(folder, content, message):
    (folder / "old").unlink() if content is None else (folder / "old").write_bytes(content)
    with pytest.raises(ApiKeyError, match=message) as caught:
        ApiKeys().configure([key(folder, "new"), key(folder, "old")])
    assert "0123456789" not in str(caught.value)


def test_a_variable_that_is_not_set(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ApiKeyError, match="environment variable NO_SUCH_KEY"):
        ApiKeys().configure([ApiKeySettings(name="a", env="NO_SUCH_KEY")])


def test_the_same_key_under_two_names(folder):
    (folder / "new").write_text(OLD)
    with pytest.raises(ApiKeyError, match="new: the same key as old"):
        ApiKeys().configure([key(folder, "old"), key(folder, "new")])


def test_a_key_meant_for_vllm_would_protect_nothing(folder, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", NEW)
    with pytest.raises(ApiKeyError, match="VLLM_API_KEY is set, but protects nothing"):
        ApiKeys().configure(None)
    keys = ApiKeys()
    keys.configure([ApiKeySettings(name="a", env="VLLM_API_KEY")])
    assert keys.find(f"Bearer {NEW}").name == "a"


def test_rotation(folder):
    keys = ApiKeys()
    keys.configure([key(folder, "old")])
    keys.configure([key(folder, "old"), key(folder, "new")])
    assert keys.find(f"Bearer {OLD}").name == "old"
    assert keys.find(f"Bearer {NEW}").name == "new"
    keys.configure([key(folder, "new")])
    assert refused(keys, f"Bearer {OLD}")


async def test_a_changed_file_is_taken_up(folder):
    keys = ApiKeys()
    keys.configure([key(folder, "old")])
    (folder / "old").write_text(NEW)
    await keys.reread()
    assert keys.find(f"Bearer {NEW}").name == "old"
    assert refused(keys, f"Bearer {OLD}")


async def test_later_a_key_that_cannot_be_read_is_left_out_and_closes_no_door(folder):
    keys = ApiKeys()
    keys.configure([key(folder, "old")])
    keys.configure([key(folder, "new"), key(folder, "late")])
    assert refused(keys, f"Bearer {OLD}"), "what was revoked is revoked at once"
    assert keys.find(f"Bearer {NEW}").name == "new"
    (folder / "late").write_text(OLD)
    await keys.reread()
    assert keys.find(f"Bearer {OLD}").name == "late"
    for file in folder.iterdir():
        file.unlink()
    await keys.reread()
    assert refused(keys, f"Bearer {NEW}"), "no key that is left opens the door"
