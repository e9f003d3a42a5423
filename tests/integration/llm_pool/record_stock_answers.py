"""Asks a stock vLLM engine, as `vllm serve` would set it up, and writes down its answers.

    python -m tests.integration.llm_pool.record_stock_answers CHECKPOINT OUT

Run it again when the demo checkpoint or vLLM changes; the slow test compares its output with the recorded file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from pathlib import Path
from typing import Any

# Before vLLM is imported: nothing of ours may be near the baseline.
os.environ["VLLM_PLUGINS"] = ""

from starlette.datastructures import State
from vllm import ModelRegistry, __version__
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.cli_args import FrontendArgs
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionResponse
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from tests.integration.llm_pool import parity
from tests.pictures import part

STOCK = "Llama4ForConditionalGeneration"
MENDED = "tests.integration.llm_pool.stock_worker.StockWorkerExtension"


async def answers(checkpoint: Path, dtype: str) -> dict[str, Any]:
    """Case -> {"greedy": Answer, "forced": logprobs of its tokens}."""
    args = AsyncEngineArgs(model=str(checkpoint), dtype=dtype, worker_extension_cls=MENDED, **parity.ENGINE_KWARGS)
    config = args.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
    assert config.model_config.architecture == STOCK
    assert ModelRegistry.models[STOCK].module_name == "vllm.model_executor.models.mllama4"
    assert not any("Tessera" in name for name in ModelRegistry.models)
    engine = AsyncLLM.from_vllm_config(config)
    try:
        state = State()
        namespace = argparse.Namespace(**(vars(FrontendArgs()) | vars(args)))
        await init_app_state(engine, state, namespace, await engine.get_supported_tasks())

        async def ask(body: dict[str, Any]) -> dict[str, Any]:
            request = ChatCompletionRequest.model_validate(body)
            response = await state.openai_serving_chat.create_chat_completion(request)
            assert isinstance(response, ChatCompletionResponse), response
            return response.model_dump(mode="json")

        found = {}
        for case in parity.CASES:
            greedy = parity.greedy_answer(await ask(parity.greedy_request(case, part)))
            forced = await ask(parity.forced_request(case, part, greedy["text"]))
            found[case] = {"greedy": greedy, "forced": parity.forced_answer(forced, greedy)}
        return found
    finally:
        engine.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    record: dict[str, Any] = {"checkpoint": parity.digest(options.checkpoint), "vllm": __version__}
    for dtype in ("float32", "bfloat16"):
        record[dtype] = asyncio.run(answers(options.checkpoint, dtype))
    options.out.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
