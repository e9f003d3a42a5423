import logging
from logging.config import dictConfig
from logging.handlers import MemoryHandler

from llm_pool.logs import keep_targets


def test_a_buffered_file_is_written_to_after_logging_was_configured_anew(tmp_path):
    file = logging.FileHandler(tmp_path / "log")
    logger = logging.getLogger("test.buffered")
    logger.addHandler(MemoryHandler(1, target=file))
    with keep_targets(logger):
        dictConfig({"version": 1, "disable_existing_loggers": False})
    logger.warning("still here")
    assert (tmp_path / "log").read_text() == "still here\n"
    logger.handlers.clear()
    file.close()
