"""The index of what was said (chat/search_schema.py)."""

from django.db import migrations

from chat import search_schema


class Migration(migrations.Migration):
    dependencies = [("chat", "0004_permissions")]

    operations = [
        migrations.RunPython(
            lambda apps, editor: search_schema.make(editor.connection),
            lambda apps, editor: search_schema.remove(editor.connection),
        )
    ]
