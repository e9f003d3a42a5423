"""Pictures by `file://` URL, below the one folder that the operator opens for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit


class LocalPictures:
    """folder: whose files may be read; None where none may. max_bytes: of one picture."""

    def __init__(self, folder: str | None, max_bytes: int) -> None:
        self._folder = None if folder is None else Path(folder).resolve()
        self._max_bytes = max_bytes

    @property
    def enabled(self) -> bool:
        return self._folder is not None

    def read(self, url: str) -> bytes | None:
        """The file's first `max_bytes` + 1 bytes; blocks.

        None for a path outside of the folder, links followed, and for anything but a readable regular file.
        """
        parts = urlsplit(url)
        path = unquote(parts.path)
        if self._folder is None or parts.netloc not in ("", "localhost") or "\0" in path:
            return None
        try:
            target = Path(path).resolve(strict=True)
            if not target.is_relative_to(self._folder):
                return None
            # Not blocking, in case it is a pipe; and no link, in case it has become one.
            with open(os.open(target, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
                opened = Path(f"/proc/self/fd/{file.fileno()}").resolve()
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or not opened.is_relative_to(self._folder):
                    return None
                return file.read(self._max_bytes + 1)
        except (OSError, RuntimeError):
            return None
