"""File systems that fsspec knows, by their URLs: a disk, S3, GCS, Azure ..."""

from __future__ import annotations

from typing import Any

from hai_flow.settings import SettingsError


def open_file_system(url: str, named: str) -> tuple[Any, str]:
    """The file system of `url`, and the path in it, without a slash at its end. Its calls block.

    Raises SettingsError where fsspec is not installed, or the URL can't be used; `named` is what the text calls it.
    """
    try:
        import fsspec

        system, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        why = f"{error}; install hai-flow[files], and what fsspec needs for this protocol"
        raise SettingsError([f"{named}: {why}."]) from None
    except Exception as error:  # whatever an implementation finds wrong with a URL: ValueError, KeyError, ...
        raise SettingsError([f"{named}: it can't be used: {error}."]) from None
    return system, root.rstrip("/")
