"""Long texts are compressed with LZ4 on PostgreSQL (palimpsest/compression.py)."""

from django.db import migrations

from palimpsest import compression


def use_lz4(apps, editor):
    compression.use_lz4(editor.connection, "chat_message", "content", "thinking")
    compression.use_lz4(editor.connection, "chat_attachment", "text")


def use_default(apps, editor):
    compression.use_default(editor.connection, "chat_message", "content", "thinking")
    compression.use_default(editor.connection, "chat_attachment", "text")


class Migration(migrations.Migration):
    dependencies = [("chat", "0010_summary_guard")]

    operations = [migrations.RunPython(use_lz4, use_default)]
