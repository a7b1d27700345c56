"""Branches: what stands before a message, also when it was replaced since.

What is live is one line. When the end of it is replaced, each message that is retired is told which one it follows
(`follows`, a position), because what stands before it may be another answer by tomorrow. From any message the way leads
back from one to the next until it comes to one that is live: before that, everything that is live belongs to it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import connection

from chat.models import Conversation, Message, Turn
from chat.prepared import key

# Of what was retired before this was noted it is found out: what was retired with it and stands before it (first looked
# for next to it, where it mostly is); else, of an answer, its question; else the last message that stood then, and of
# several answers to one question the one live now.
_NEXT_TO_IT = """SELECT p.position FROM chat_message p
  WHERE p.conversation_id = m.conversation_id AND NOT p.is_summary AND p.retired_at = m.retired_at
    AND p.position = (SELECT MAX(o.position) FROM chat_message o
      WHERE o.conversation_id = m.conversation_id AND o.position < m.position AND NOT o.is_summary)"""
_RETIRED_WITH_IT = """SELECT MAX(p.position) FROM chat_message p
  WHERE p.conversation_id = m.conversation_id AND NOT p.is_summary AND p.retired_at = m.retired_at
    AND p.position < m.position"""
_ITS_QUESTION = """SELECT q.position FROM chat_turn t JOIN chat_message q ON q.id = t.user_message_id
  WHERE t.id = m.turn_id AND m.role <> 'user' AND NOT t.continues"""
_STOOD_THEN = """SELECT p.position FROM chat_message p
  LEFT JOIN chat_turn t ON t.id = p.turn_id LEFT JOIN chat_message q ON q.id = t.user_message_id
  WHERE p.conversation_id = m.conversation_id AND p.position < m.position AND NOT p.is_summary
    AND (p.retired_at IS NULL OR p.retired_at > m.retired_at)
  ORDER BY COALESCE(q.position, p.position) DESC, p.role = 'user', p.retired_at IS NOT NULL, p.position DESC LIMIT 1"""

_BRANCH = f"""WITH RECURSIVE line(place) AS (
  SELECT CAST(%s AS integer)
  UNION ALL
  SELECT COALESCE(m.follows, ({_NEXT_TO_IT}), ({_RETIRED_WITH_IT}), ({_ITS_QUESTION}), ({_STOOD_THEN}), 0)
  FROM line JOIN chat_message m ON m.conversation_id = %s AND m.position = line.place AND NOT m.is_summary
  WHERE m.retired_at IS NOT NULL
)
SELECT r.id FROM chat_message r
WHERE r.conversation_id = %s AND NOT r.is_summary AND r.status <> 'streaming' AND r.position <= %s
  AND (r.position IN (SELECT place FROM line)
    OR (r.retired_at IS NULL AND r.position <= (SELECT MIN(place) FROM line)))"""  # noqa: S608

_RETIRE = """UPDATE chat_message SET retired_at = %s, retired_by_id = %s, follows = before.place FROM (
  SELECT r.id, COALESCE(
    LAG(r.position) OVER (ORDER BY r.position),
    (SELECT MAX(p.position) FROM chat_message p
      WHERE p.conversation_id = %s AND p.position < %s AND p.retired_at IS NULL AND NOT p.is_summary),
    0) AS place
  FROM chat_message r
  WHERE r.conversation_id = %s AND r.position >= %s AND r.retired_at IS NULL AND NOT r.is_summary
) AS before WHERE chat_message.id = before.id"""


def branch(conversation: Conversation, position: int, *, included: bool = True) -> tuple[str, list[Any]]:
    """The ids of the originals up to a position in the branch of what stands there, as a piece of SQL with its values.

    What is still being written is none yet. Without `included`, what stands there is left out.
    """
    of = key(Conversation, conversation.pk)
    return _BRANCH, [position, of, of, position if included else position - 1]


def retire(conversation: Conversation, position: int, now: datetime, by: Turn) -> None:
    """Retire what is live from a position on; call with the lock held."""
    of, moment = key(Conversation, conversation.pk), Message._meta.get_field("retired_at")
    values = [moment.get_db_prep_save(now, connection), by.pk, of, position, of, position]
    with connection.cursor() as cursor:
        cursor.execute(_RETIRE, values)
