"""The public face as a client sees it: the `openai` package against a running application."""

from __future__ import annotations

import asyncio

import httpx
import openai
import pytest
from aiohttp import web

from tests.conftest import WEB_HOST
from tests.pictures import encoded, part, picture, user


@pytest.fixture(scope="module")
def client(tessera):
    return openai.OpenAI(base_url=f"{tessera.url}/v1", api_key="none", max_retries=0)


def ask(client, tessera, *messages, **more):
    options = {"model": tessera.model, "max_tokens": 8, "temperature": 0, "logprobs": True} | more
    return client.chat.completions.create(messages=list(messages), **options)


def logprobs(completion) -> list[float]:
    return [token.logprob for token in completion.choices[0].logprobs.content]


def test_text(client, tessera):
    answer = ask(client, tessera, {"role": "user", "content": "Say something."})
    assert answer.usage.completion_tokens == 8
    assert answer.model == tessera.model


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_one_picture_takes_its_tokens_and_moves_the_answer(client, tessera, kind):
    text = ask(client, tessera, user("What?"))
    first, second = (ask(client, tessera, user(part(picture(seed), kind), "What?")) for seed in (1, 2))
    assert first.usage.prompt_tokens - text.usage.prompt_tokens == 147
    assert max(abs(a - b) for a, b in zip(logprobs(first), logprobs(second), strict=True)) > 1e-3


def test_three_pictures_in_order(client, tessera):
    sizes = [(336, 336), (700, 300), (300, 900)]
    images = [part(picture(i, size)) for i, size in enumerate(sizes)]
    text = ask(client, tessera, user("Compare."))
    answer = ask(client, tessera, user(*images, "Compare."))
    # 1 tile; [1, 3] = 4 tiles; [3, 1] = 4 tiles: tiles * 144 + high * wide + 3 tokens each, 147 for one tile.
    assert answer.usage.prompt_tokens - text.usage.prompt_tokens == 147 + 2 * (4 * 144 + 3 + 3)
    turned = ask(client, tessera, user(*reversed(images), "Compare."))
    assert logprobs(answer) != logprobs(turned)


def test_the_same_picture_twice(client, tessera):
    image = part(picture(5))
    answer = ask(client, tessera, user(image, "and", image))
    once = ask(client, tessera, user(image, "and"))
    assert answer.usage.prompt_tokens - once.usage.prompt_tokens == 147


def test_a_stream_ends_with_its_usage(client, tessera):
    whole = ask(client, tessera, user(part(picture(3)), "What?"))
    stream = ask(client, tessera, user(part(picture(3)), "What?"), stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["length"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens


def test_several_turns_and_the_prefix_cache(client, tessera):
    first = user(part(picture(7, (700, 700))), "What is this?")
    answer = ask(client, tessera, first)
    turns = [first, {"role": "assistant", "content": answer.choices[0].message.content}, user("And its colour?")]
    second = ask(client, tessera, *turns)
    assert second.usage.prompt_tokens > answer.usage.prompt_tokens
    # The picture's 5 tiles come from vLLM's prefix cache, to within a block.
    assert second.usage.prompt_tokens_details.cached_tokens >= 5 * 144


async def test_sixteen_clients_at_once_get_what_they_get_alone(client, tessera):
    prompts = [user(part(picture(i, (336 * (1 + i % 3), 336))), f"Question {i}?") for i in range(16)]
    alone = [ask(client, tessera, prompt) for prompt in prompts]
    async with openai.AsyncOpenAI(base_url=f"{tessera.url}/v1", api_key="none", max_retries=0) as many:
        together = await asyncio.gather(*(ask(many, tessera, prompt) for prompt in prompts))
    for one, other in zip(alone, together, strict=True):
        assert one.usage.prompt_tokens == other.usage.prompt_tokens
        # Batching changes the order of additions in bfloat16, and with it a near-tie of tokens at most.
        assert abs(logprobs(one)[0] - logprobs(other)[0]) < 0.1


def test_low_detail_is_one_tile(client, tessera):
    image = part(picture(4, (900, 900)))
    image["image_url"]["detail"] = "low"
    text = ask(client, tessera, user("What?"))
    assert ask(client, tessera, user(image, "What?")).usage.prompt_tokens - text.usage.prompt_tokens == 147


@pytest.fixture
async def web_host():
    """A picture on the one loopback address that the application under test may fetch from."""

    async def answer(request: web.Request) -> web.Response:
        if request.path != "/picture.png":
            raise web.HTTPNotFound
        return web.Response(body=encoded(picture(9)), content_type="image/png")

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, WEB_HOST, 0)
    await site.start()
    yield f"http://{WEB_HOST}:{site._server.sockets[0].getsockname()[1]}"
    await runner.cleanup()


async def test_a_picture_by_url_is_the_picture_by_value(tessera, web_host):
    async with openai.AsyncOpenAI(base_url=f"{tessera.url}/v1", api_key="none", max_retries=0) as client:
        by_url = {"type": "image_url", "image_url": {"url": f"{web_host}/picture.png"}}
        fetched = await ask(client, tessera, user(by_url, "What?"))
        sent = await ask(client, tessera, user(part(picture(9)), "What?"))
        assert fetched.choices[0].message.content == sent.choices[0].message.content
        gone = {"type": "image_url", "image_url": {"url": f"{web_host}/gone.png"}}
        with pytest.raises(openai.BadRequestError) as caught:
            await ask(client, tessera, user("Look:", gone))
    assert caught.value.body["code"] == "image_fetch_failed"
    assert caught.value.body["param"] == "messages[0].content[1]"
    assert "404" in caught.value.body["message"]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64"}}, 400),
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,bm8gcGljdHVyZQ=="}}, "image_invalid"),
        ({"type": "hologram", "hologram": {}}, 400),
        ({"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/a.png"}}, "image_fetch_failed"),
    ],
)
def test_a_bad_picture_is_named_and_disturbs_nobody(client, tessera, bad, code):
    before = ask(client, tessera, user(part(picture(11)), "What?"))
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, tessera, user("x", part(picture(11)), bad))
    assert caught.value.body["param"] == "messages[0].content[2]"
    assert caught.value.body["code"] == code
    after = ask(client, tessera, user(part(picture(11)), "What?"))
    assert before.choices[0].message.content == after.choices[0].message.content


def test_an_unknown_model(client, tessera):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="other", messages=[{"role": "user", "content": "x"}])
    assert caught.value.body["code"] == "model_not_found"


def test_a_prompt_that_is_too_long(client, tessera):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, tessera, user("word " * 30000), stream=True)
    assert caught.value.body["param"] == "messages"


def test_a_typed_control_token(client, tessera):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, tessera, user(part(picture(1)), "what <|image|> is"))
    assert caught.value.body["code"] == "special_token_in_text"
    assert caught.value.body["param"] == "messages[0].content[1].text"


def test_models(client, tessera):
    assert [model.id for model in client.models.list()] == [tessera.model]


def test_a_request_id_is_echoed_or_made(tessera):
    assert httpx.get(f"{tessera.url}/health", headers={"x-request-id": "mine"}).headers["x-request-id"] == "mine"
    assert httpx.get(f"{tessera.url}/health").headers["x-request-id"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/chat/completions", 405), ("GET", "/nowhere", 404)])
def test_wrong_paths_and_methods_have_the_error_shape(tessera, method, path, status):
    answer = httpx.request(method, tessera.url + path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_text_among_the_parts_of_a_message(client, tessera):
    """As in vLLM: beside parts it is one of them, alone it is refused."""
    both = ask(client, tessera, {"role": "user", "content": ["Say ", {"type": "text", "text": "something."}]})
    whole = ask(client, tessera, {"role": "user", "content": "Say something."})
    assert both.choices[0].message.content == whole.choices[0].message.content
    with pytest.raises(openai.BadRequestError):
        ask(client, tessera, {"role": "user", "content": ["Say something."]})
