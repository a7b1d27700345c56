"""What keeps a summary from being deleted under its originals (chat/summary_guard.py), in place of a foreign key."""

import django.db.models.deletion
from django.db import migrations, models

from chat import summary_guard


class Migration(migrations.Migration):
    dependencies = [("chat", "0009_follows")]

    operations = [
        migrations.AlterField(
            "message",
            "compacted_into",
            models.ForeignKey(
                blank=True,
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.RESTRICT,
                related_name="originals",
                to="chat.message",
            ),
        ),
        migrations.RunPython(
            lambda apps, editor: summary_guard.make(editor.connection),
            lambda apps, editor: summary_guard.remove(editor.connection),
        ),
    ]
