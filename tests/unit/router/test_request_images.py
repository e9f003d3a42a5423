import copy

import pytest

from router.errors import ApiError
from router.request_images import split_images

URL = "data:image/png;base64,AAAA"


def image(url=URL, **more):
    return {"type": "image_url", "image_url": {"url": url, **more}}


def text(words="hi"):
    return {"type": "text", "text": words}


def chat(*contents):
    return {"model": "m", "messages": [{"role": "user", "content": content} for content in contents]}


def test_images_are_taken_in_prompt_order_and_replaced_by_their_place():
    body = chat([image("a"), text(), image("b")], "plain", [text(), image("c")])
    before = copy.deepcopy(body)
    out, images = split_images("chat", body, 16)
    assert [(i.path, i.url) for i in images] == [
        ("messages[0].content[0]", "a"),
        ("messages[0].content[2]", "b"),
        ("messages[2].content[1]", "c"),
    ]
    assert out["messages"][0]["content"] == [
        {"type": "image_embeds", "image_embeds": 0},
        text(),
        {"type": "image_embeds", "image_embeds": 1},
    ]
    assert out["messages"][1]["content"] == "plain"
    assert out["messages"][2]["content"][1] == {"type": "image_embeds", "image_embeds": 2}
    assert body == before, "the client's body is left as it was"


def test_a_url_may_stand_without_its_object():
    _, [found] = split_images("chat", chat([{"type": "image_url", "image_url": URL}]), 1)
    assert found.url == URL


def test_low_detail_is_one_tile():
    _, images = split_images("chat", chat([image(detail="low"), image(detail="high"), image()]), 3)
    assert [i.one_tile for i in images] == [True, False, False]


def test_a_clients_uuid_goes_no_further():
    out, _ = split_images("chat", chat([image() | {"uuid": "mine"}]), 1)
    assert "uuid" not in out["messages"][0]["content"][0]


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"text": "x"}, "messages[0].content[1]"),
        ({"type": "hologram"}, "messages[0].content[1]"),
        ({"type": "text"}, "messages[0].content[1].text"),
        ({"type": "text", "text": 5}, "messages[0].content[1].text"),
        ({"type": "input_audio", "input_audio": {}}, "messages[0].content[1]"),
        ({"type": "video_url", "video_url": {"url": "x"}}, "messages[0].content[1]"),
        ({"type": "image_embeds", "image_embeds": "x"}, "messages[0].content[1]"),
        ({"type": ["image_url"]}, "messages[0].content[1]"),
        (17, "messages[0].content[1]"),
        ({"type": "image_url"}, "messages[0].content[1]"),
        ({"type": "image_url", "image_url": None}, "messages[0].content[1]"),
        ({"type": "image_url", "image_url": {"url": 5}}, "messages[0].content[1]"),
        (image(detail="medium"), "messages[0].content[1]"),
    ],
)
def test_a_bad_part_is_named(part, param):
    with pytest.raises(ApiError) as caught:
        split_images("chat", chat([text(), part]), 16)
    assert caught.value.status == 400
    assert caught.value.param == param


def test_too_many_images():
    with pytest.raises(ApiError, match="at most 2 images") as caught:
        split_images("chat", chat([image(), image()], [image()]), 2)
    assert caught.value.param == "messages[1].content[0]"


@pytest.mark.parametrize("messages", [None, "x", [None], ["x"], [{"role": "user"}], [{"content": None}]])
def test_other_faults_are_left_to_the_validation(messages):
    assert split_images("chat", {"messages": messages}, 1)[1] == []


def test_the_input_of_a_response():
    part = {"type": "input_image", "image_url": URL, "detail": "low"}
    body = {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "x"}, part]},
            {"type": "function_call_output", "call_id": "c", "output": [part]},
            {"type": "reasoning", "summary": []},
        ]
    }
    out, images = split_images("responses", body, 2)
    assert [i.path for i in images] == ["input[0].content[1]", "input[1].output[0]"]
    assert [i.one_tile for i in images] == [True, True]
    assert out["input"][0]["content"][1] == {"type": "input_image", "image_url": "0", "detail": "auto"}
    assert out["input"][1]["output"][0]["image_url"] == "1"
    assert out["input"][2] == body["input"][2]


@pytest.mark.parametrize(
    ("role", "part", "param"),
    [
        ("user", {"type": "input_image"}, "input[0].content[0]"),
        ("user", {"type": "input_image", "file_id": "f"}, "input[0].content[0].file_id"),
        ("user", {"type": "input_image", "image_url": {"url": URL}}, "input[0].content[0]"),
        ("user", {"type": "input_file", "file_id": "f"}, "input[0].content[0]"),
        ("assistant", {"type": "input_image", "image_url": URL}, "input[0].content[0]"),
    ],
)
def test_a_bad_part_of_an_input_is_named(role, part, param):
    with pytest.raises(ApiError) as caught:
        split_images("responses", {"input": [{"role": role, "content": [part]}]}, 16)
    assert (caught.value.status, caught.value.param) == (400, param)


def test_embeddings_are_taken_where_they_are_allowed():
    given = {"type": "image_embeds", "image_embeds": {"data": "AAAA", "aspect_ratio": [2, 3]}, "uuid": "mine"}
    out, [found] = split_images("chat", chat([given]), 1, embeddings=True)
    assert (found.data, found.aspect) == ("AAAA", (2, 3))
    assert out["messages"][0]["content"] == [{"type": "image_embeds", "image_embeds": 0}]
    for bad in (
        None,
        "AAAA",
        {},
        {"data": 5},
        {"data": "A", "aspect_ratio": 4},
        {"data": "A", "aspect_ratio": [1, "2"]},
    ):
        with pytest.raises(ApiError) as caught:
            split_images("chat", chat([given | {"image_embeds": bad}]), 1, embeddings=True)
        assert caught.value.param == "messages[0].content[0]"
