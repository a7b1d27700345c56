"""Opening and sending in long conversations, the first visit, start, memory and idle sockets."""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Any

import aiohttp

from bench.drive import Chat
from bench.figures import Figure, median
from bench.lines import Socket
from bench.streaming import Field

LONG, SHORT = 5_000, 100  # messages


async def measure(field: Field) -> None:
    await opening(field)
    await sending(field)
    await first_visit(field)


async def opening(field: Field) -> None:
    """The page and the snapshot of a conversation with 5,000 messages, and of one with 100."""
    rounds = 10 if field.is_quick else 40
    long, short = await _conversation(field, LONG), await _conversation(field, SHORT)
    took: dict[str, list[float]] = {long: [], short: []}
    size: dict[str, float] = {}
    for _ in range(rounds + 2):
        for conversation in (long, short):
            began = time.perf_counter()
            size[conversation] = await _open(field, conversation)
            took[conversation].append((time.perf_counter() - began) * 1000)
    slow, quick = median(took[long][2:]), median(took[short][2:])
    field.report.add(
        Figure(
            "opening 5,000 messages against 100: time", slow / quick, "×", 1.2, note=f"{slow:.1f} ms, {quick:.1f} ms"
        ),
        Figure(
            "opening 5,000 messages against 100: bytes",
            size[long] / size[short],
            "×",
            1.2,
            note=f"{size[long] / 1024:.0f} KiB, {size[short] / 1024:.0f} KiB",
        ),
    )


async def _open(field: Field, conversation: str) -> float:
    """The page, then the socket until its snapshot; the bytes of both."""
    chat = Chat(field.house.url, field.key, conversation)
    size = 0
    headers = {"Authorization": f"Bearer {field.key}", "Accept-Encoding": "identity"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{field.house.url}/c/{conversation}") as page,
    ):
        if page.status == 200:
            size += len(await page.read())
    await chat.open()
    size += chat.snapshot_bytes
    chat.close()
    return size


async def sending(field: Field) -> None:
    """A send with the same live context behind it: 4,900 messages compacted away, and 10."""
    rounds = 10 if field.is_quick else 40
    made = [await _compacted(field, covered) for covered in (LONG - SHORT, 10)]
    chats = [await Chat(field.house.url, field.key, conversation).open() for conversation in made]
    took: list[list[float]] = [[], []]
    told: list[list[float]] = [[], []]
    for number in range(rounds + 2):
        for which, chat in enumerate(chats):
            answer = await chat.ask(f"Question {number}")
            if number >= 2:
                took[which].append((answer.ended_at - answer.asked_at) * 1000)
                told[which].append(chat.told_bytes)
    for chat in chats:
        chat.close()
    slow, quick = median(took[0]), median(took[1])
    note = f"{slow:.1f} ms, {quick:.1f} ms with an instant model"
    field.report.add(
        Figure("a send in 5,000 messages against 100, same live context: time", slow / quick, "×", 1.2, note=note),
        Figure("the same: bytes", median(told[0]) / median(told[1]), "×", 1.2),
    )


async def first_visit(field: Field) -> None:
    """What Chromium fetches when a signed-in person first opens the chat page."""
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        field.report.remarks.append("first visit: not measured, Playwright is not installed")
        return
    session = await asyncio.to_thread(field.house.ask, "session", user="alice")
    fetched: list[dict[str, Any]] = []
    async with async_playwright() as playwright:
        try:
            browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        except Exception as error:
            field.report.remarks.append(f"first visit: not measured, {str(error).splitlines()[0]}")
            return
        context = await browser.new_context()
        await context.add_cookies([{"name": session["name"], "value": session["value"], "url": field.house.url}])
        page = await context.new_page()
        line = await context.new_cdp_session(page)
        await line.send("Network.enable")
        line.on("Network.loadingFinished", lambda one: fetched.append(one))
        conversation = await _conversation(field, SHORT)
        await page.goto(f"{field.house.url}/c/{conversation}", wait_until="load")
        await page.wait_for_timeout(2_000)
        shown = await page.title()
        await browser.close()
    size = sum(one["encodedDataLength"] for one in fetched) / 1000
    field.report.add(
        Figure("first visit of the chat page, over the wire", size, "KB", 400, note=shown),
        Figure("first visit of the chat page, requests", len(fetched), "", 25),
    )


IDLE_SECONDS = 60.0  # pings come every 20 s, signs of life every 25 s, and each socket is checked again within 60 s


async def idle_sockets(field: Field, count: int = 2_000) -> None:
    """Memory and processor time of sockets on which nothing happens, two tabs a conversation."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, max(count * 2, 4_096)), most))
    made = await asyncio.to_thread(field.house.ask, "conversations", owner="alice", agent="quick", count=count // 2)
    before = sum(part.memory()[1] for part in field.house.web_parts)
    sockets: list[Socket] = []
    began = time.monotonic()
    for start in range(0, count, 50):
        urls = field.house.urls
        opened = (
            Socket.open(
                urls[number % len(urls)],
                f"/ws/conversations/{made[number % len(made)]}/",
                field.key,
                lambda frame: None,
            )
            for number in range(start, min(count, start + 50))
        )
        sockets += await asyncio.gather(*opened)
    took = time.monotonic() - began
    await asyncio.sleep(5)  # what is left of the opening
    used, since = sum(part.cpu() for part in field.house.web_parts), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    used = (sum(part.cpu() for part in field.house.web_parts) - used) / (time.monotonic() - since)
    each = (sum(part.memory()[1] for part in field.house.web_parts) - before) / count * 1024
    for socket in sockets:
        socket.close()
    note = f"{count} opened in {took:.0f} s"
    field.report.add(
        Figure("memory of an idle socket", each, "KiB", note=note),
        Figure(f"processor while {count} sockets are idle", used * 100, "% of a core"),
    )


def start_and_memory(field: Field) -> None:
    """How soon the first page came, and what all processes hold while nothing happens (PSS: shared pages once)."""
    parts = [part for part in field.house.parts if part.is_running]
    rss, pss = (sum(part.memory()[which] for part in parts) for which in (0, 1))
    note = f"RSS added up {rss:.0f} MiB, {len(parts)} process{'es' if len(parts) > 1 else ''}"
    field.report.add(
        Figure("start to first page", field.house.started_again_in, "s", 4),
        Figure("the very first start, with migrations and static files", field.house.started_in, "s"),
        Figure("idle memory of all processes (PSS)", pss * 1.048576, "MB", 400, note=note),
    )


async def _conversation(field: Field, count: int) -> str:
    return str(
        await asyncio.to_thread(field.house.ask, "history", owner="alice", agent="quick", count=count, words=120)
    )


async def _compacted(field: Field, covered: int) -> str:
    ask = field.house.ask
    return str(
        await asyncio.to_thread(
            ask, "history", owner="alice", agent="quick", count=covered + SHORT, words=60, covered=covered
        )
    )
