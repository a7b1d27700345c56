"""What the demo model says: never clever, the same for the same conversation, and always about what was asked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agents import demo_summary
from agents.demo_tools import wanted_calls
from agents.demo_words import best_match, clip, is_chinese, key_words
from agents.messages import JSON, Message, ToolCall
from agents.requests import IMAGES_OF_TOOLS

_COUNT = re.compile(r"\bcount (?:up )?to (\d{1,4})\b|数到\s*(\d{1,4})", re.IGNORECASE)
_LENGTH = re.compile(r"\b(\d{2,5}) words\b|(\d{2,5})\s*(?:个)?字", re.IGNORECASE)
# A hyphen or slash without spaces is part of a date, a range or a path.
_SUM = re.compile(r"(?<![\w.,/-])(\d{1,9})(?:\s*([+*×÷])\s*|\s+([-/x])\s+)(\d{1,9})(?![\w.,/-])")
_BARE_SUM = re.compile(r"(\d{1,9})([-+*×x/÷])()(\d{1,9})")
_ABOUT = re.compile(r"\b(?:about|on)\b(.+)|(?:关于|有关)(.+)", re.IGNORECASE | re.DOTALL)
_SELF = re.compile(r"\b(who|what) are you\b|\bwhat can you do\b|\bhelp\b|你是谁|你能做什么|帮助|怎么用", re.IGNORECASE)
_CODE = re.compile(r"\b(code|function|script|program|python|class|snippet)\b|代码|函数|脚本|程序|编程", re.IGNORECASE)
_TABLE = re.compile(r"\btable\b|表格|列表对比", re.IGNORECASE)
_STEPS = re.compile(
    r"\b(steps?|plan|list|how (do|can|should|to)|ideas?)\b|步骤|计划|列出|怎么|如何|清单", re.IGNORECASE
)
_QUESTION = re.compile(
    r"[?？]\s*$|\b(remember|recall)\b|^(what|who|when|where|which|how many|did|do)\b|记得|什么|哪|几", re.IGNORECASE
)
_THINK = re.compile(r"\bthink\b|思考|想一想", re.IGNORECASE)
_SHOWN_RESULT = 700  # characters of a tool's result that are quoted


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """What is streamed: thinking first, then text, then calls. A summary comes faster than a person reads."""

    text: str
    thinking: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    is_summary: bool = False


def answer(messages: Sequence[Message], tools: Sequence[JSON], max_tokens: int) -> DemoAnswer:
    """The demo model's answer to a conversation."""
    if form := demo_summary.form_of(messages, max_tokens):
        return DemoAnswer(demo_summary.summarise(messages, form), is_summary=True)
    if _shows_images_of_tools(messages):
        messages = messages[:-1]
    if messages[-1].role == "tool":
        return DemoAnswer(_about_results(messages))
    asked = _newest_request(messages)
    text = asked.content or " ".join(part.text for part in asked.parts if part.kind == "text")
    chinese = is_chinese(text)
    if calls := wanted_calls(text, tools, len(messages)):
        names = ", ".join(f"`{call.name}`" for call in calls)
        return DemoAnswer(f"我来调用 {names}。" if chinese else f"I'll call {names}.", tool_calls=calls)
    thinking = _thinking(text, chinese) if _THINK.search(text) else ""
    body = _body(text, messages, chinese)
    return DemoAnswer(_with_label(body, asked, messages, chinese), thinking)


def _shows_images_of_tools(messages: Sequence[Message]) -> bool:
    """Whether the newest message is no person's, but the images of the results before it."""
    return (
        len(messages) > 1
        and messages[-2].role == "tool"
        and any(part.text == IMAGES_OF_TOOLS for part in messages[-1].parts)
    )


def _newest_request(messages: Sequence[Message]) -> Message:
    return next((message for message in reversed(messages) if message.role == "user"), messages[-1])


def _body(text: str, messages: Sequence[Message], chinese: bool) -> str:
    if count := _COUNT.search(text):
        return " ".join(str(number) for number in range(1, int(count[1] or count[2]) + 1)) + "."
    if _SELF.search(text) and len(text) < 200:
        return _introduction(chinese)
    if length := _LENGTH.search(text):
        return _essay(text, int(length[1] or length[2]), chinese)
    if found := _SUM.search(text) or _BARE_SUM.fullmatch(text.strip(" =?？")):
        return _sum(found, chinese)
    if _QUESTION.search(text.strip()) and (recalled := _recall(text, messages, chinese)):
        return recalled
    samples = []
    if _TABLE.search(text):
        samples.append(_table(text, messages, chinese))
    if _CODE.search(text):
        samples.append(_code(text, chinese))
    with_steps = bool(_STEPS.search(text))
    if samples and not with_steps:
        return "\n\n".join(samples)
    return "\n\n".join([_reflection(text, chinese, with_steps=with_steps), *samples])


def _with_label(body: str, asked: Message, messages: Sequence[Message], chinese: bool) -> str:
    """Says who is speaking: at length in the first answer, in a line under every later one."""
    is_first = not any(message.role == "assistant" for message in messages)
    images = sum(part.kind == "image" for part in asked.parts)
    if images:
        seen = (
            f"（收到 {images} 张图片，但演示模型看不见图片。）"
            if chinese
            else f"(I got {images} image(s), but cannot see.)"
        )
        body = f"{body}\n\n{seen}"
    if chinese:
        first = "你好！我是 Palimpsest 内置的**演示模型**：离线运行，没有真正的智能，但流式输出、工具、压缩都是真实的。"
        return f"{first}\n\n{body}" if is_first else f"{body}\n\n*— 内置演示模型*"
    first = (
        "Hello! I am the built-in **demo model** of Palimpsest: offline and without real intelligence, "
        "but streaming, tools and compaction around me are real."
    )
    return f"{first}\n\n{body}" if is_first else f"{body}\n\n*— built-in demo model*"


def _introduction(chinese: bool) -> str:
    if chinese:
        return (
            "我能做这些：\n\n"
            "- **数到 50**：逐个流式输出\n- **写 300 字关于茶的文章**：很长的回答，用来填满上下文\n"
            "- **写一段代码**、**做一个表格**\n- **我的项目叫什么？**：在我还能看到的消息里查找\n"
            "- **搜索历史 预算**：调用工具\n\n"
            "请管理员在 *渠道* 中连接真正的模型。"
        )
    return (
        "Things to try with me:\n\n"
        "- **count to 50** streams number by number\n"
        "- **write 300 words about tea** fills the context, so that you can watch it being compacted\n"
        "- **write a code sample**, **make a table**\n"
        "- **what is my project called?** looks it up in the messages I can still see\n"
        "- **search the history for budget** calls a tool, if your agent has it\n\n"
        "An administrator can connect a real model under *Channels*."
    )


def _reflection(text: str, chinese: bool, *, with_steps: bool) -> str:
    """Gives the person's own words back, with what they seem to be about."""
    words = key_words(text)
    quoted = "\n".join(f"> {line}" for line in clip(text, 400).split("\n"))
    if with_steps:
        return f"{quoted}\n\n{_steps(words, chinese)}"
    about = ", ".join(f"**{word}**" for word in words)
    if chinese:
        told = f"这里似乎与{about.replace(', ', '、')}有关。" if about else "我收到了。"
        more = _choose(text, ("还有别的想补充吗？", "要不要我把它整理成步骤或表格？", "你可以问我之前说过的内容。"))
        return f"你写道：\n\n{quoted}\n\n{told}{more}"
    told = f"That seems to be about {about}." if about else "I have read it."
    more = _choose(
        text,
        (
            "Ask me for steps, a table or a code sample about it.",
            "Later you can ask me about it again: I answer from the messages I can still see.",
            "Is there more you would like to add?",
        ),
    )
    return f"You wrote:\n\n{quoted}\n\n{told} {more}"


def _steps(words: Sequence[str], chinese: bool) -> str:
    topics = list(words[:4]) or (["目标"] if chinese else ["the goal"])
    if chinese:
        lines = [f"{at}. 弄清 **{topic}** 的要求，并记下结果。" for at, topic in enumerate(topics, start=1)]
        return "可以这样做：\n\n" + "\n".join([*lines, f"{len(topics) + 1}. 检查，然后决定下一步。"])
    lines = [f"{at}. Settle what **{topic}** needs, and note the result." for at, topic in enumerate(topics, start=1)]
    return "One way to go about it:\n\n" + "\n".join(
        [*lines, f"{len(topics) + 1}. Check it, then decide what comes next."]
    )


def _code(text: str, chinese: bool) -> str:
    words = [re.sub(r"\W", "_", word).strip("_").lower() for word in key_words(text) if word.isascii()]
    name = next(
        (word for word in words if word.isidentifier() and word not in ("python", "code", "function")), "sample"
    )
    title = "一小段代码：" if chinese else "A small sample:"
    note = "演示模型只会这一种形状的代码。" if chinese else "The demo model knows code of this shape only."
    return (
        f"{title}\n\n```python\ndef {name}(values: list[str]) -> dict[str, int]:\n"
        f'    """How often each value occurs."""\n    counts: dict[str, int] = {{}}\n    for value in values:\n'
        f"        counts[value] = counts.get(value, 0) + 1\n    return counts\n\n\n"
        f'print({name}(["a", "b", "a"]))  # {{\'a\': 2, \'b\': 1}}\n```\n\n{note}'
    )


def _table(text: str, messages: Sequence[Message], chinese: bool) -> str:
    everything = "\n".join(message.content for message in messages if message.role == "user").lower()
    head = "| 词 | 在对话中出现的次数 |" if chinese else "| Word | Times you used it |"
    rows = [f"| {word} | {everything.count(word.lower())} |" for word in key_words(text)]
    return "\n".join([head, "| --- | ---: |", *rows])


def _sum(found: re.Match[str], chinese: bool) -> str:
    left, sign, right = int(found[1]), found[2] or found[3], int(found[4])
    if sign in "/÷":
        value = f"{left / right:g}" if right else ("没有定义" if chinese else "not defined")
    else:
        value = str(left + right if sign == "+" else left - right if sign == "-" else left * right)
    return f"{left} {sign} {right} = **{value}**"


def _essay(text: str, length: int, chinese: bool) -> str:
    """Filler of about the length asked for, in paragraphs."""
    about = _ABOUT.search(text)
    topic = (about[1] or about[2]) if about else _LENGTH.sub(" ", text)
    words = key_words(topic) or (["这个话题"] if chinese else ["this"])
    length = min(length, 20_000)
    paragraphs: list[str] = []
    written = 0
    at = 0
    while written < length:
        sentences = []
        for _ in range(4):
            at += 1
            topic = words[at % len(words)]
            template = _CHINESE_FILLER[at % len(_CHINESE_FILLER)] if chinese else _FILLER[at % len(_FILLER)]
            sentence = template.format(topic=topic, number=at)
            sentences.append(sentence)
            written += len(sentence) if chinese else len(sentence.split())
            if written >= length:
                break
        paragraphs.append(("" if chinese else " ").join(sentences))
    return "\n\n".join(paragraphs)


_FILLER = (
    "Point {number}: {topic} is easier to follow when it is taken one part at a time.",
    "Whoever looks at {topic} twice usually finds detail number {number} in it.",
    "There is more to {topic} than fits one sentence, so this is the sentence after it.",
    "Some would begin with {topic}, others would end with it; both have {number} reasons.",
    "Nothing here is true of {topic} in particular, for a demo model only fills the page.",
)
_CHINESE_FILLER = (
    "第{number}点：{topic}要一步一步来看。",
    "仔细看{topic}，总能发现第{number}个细节。",
    "关于{topic}，一句话说不完，所以这是下一句。",
    "有人从{topic}开始，也有人以它结束，各有{number}个理由。",
)


def _recall(text: str, messages: Sequence[Message], chinese: bool) -> str:
    """The sentence among what can still be seen that answers best, by shared words; nothing where none does."""
    earlier = [message.content for message in messages[:-1] if message.role in ("user", "tool")]
    found = best_match(text, earlier)
    if not found:
        return ""
    lead = "在我还能看到的内容里，最相关的是：" if chinese else "The closest thing I can still see in our conversation:"
    return f"{lead}\n\n> {clip(found, 500)}"


def _about_results(messages: Sequence[Message]) -> str:
    """Answers from the results of the calls just made."""
    results: list[Message] = []
    for message in reversed(messages):
        if message.role != "tool":
            break
        results.insert(0, message)
    before = messages[: len(messages) - len(results)]
    called = {call.id: call.name for call in before[-1].tool_calls} if before else {}
    chinese = is_chinese(_newest_request(messages).content)
    parts = []
    for result in results:
        name = called.get(result.tool_call_id) or result.name or "tool"
        shown = result.content[:_SHOWN_RESULT].rstrip()
        quoted = (
            "\n".join(f"> {line}" for line in shown.split("\n")) if shown else ("> （空）" if chinese else "> (empty)")
        )
        rest = len(result.content) - len(shown)
        more = (
            (f"\n>\n> …（还有 {rest} 个字符）" if chinese else f"\n>\n> … ({rest} more characters)") if rest > 0 else ""
        )
        parts.append(f"`{name}`{' 返回：' if chinese else ' gave:'}\n\n{quoted}{more}")
    label = "*— 内置演示模型*" if chinese else "*— built-in demo model*"
    return "\n\n".join([*parts, label])


def _thinking(text: str, chinese: bool) -> str:
    words = ", ".join(key_words(text)) or "…"
    if chinese:
        return f"对方提到了：{words}。演示模型不会真正思考，不过这就是思考内容显示的样子。"
    return f"The person mentions {words}. A demo model does not really think, but this is how thinking is shown."


def _choose(text: str, variants: Sequence[str]) -> str:
    """One of several, always the same for the same text."""
    return variants[hashlib.sha256(text.encode()).digest()[0] % len(variants)]
