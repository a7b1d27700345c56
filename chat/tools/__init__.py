"""Tools that need a conversation: its history, its files, pages of the web. Registered when the app is ready."""

from __future__ import annotations


def register_all() -> None:
    """Make the tools of this package known, wherever turns run."""
    from agents.tools import register
    from chat.tools import files, history, web

    for tool in (*history.TOOLS, *files.TOOLS, *web.TOOLS):
        register(tool)
