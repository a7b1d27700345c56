"""What a summary stands for is found by its place; a compaction has one index less to write for every message."""

import django.db.models.deletion
from django.db import migrations, models

from chat import summary_guard


def guard_by_place(apps, editor):
    summary_guard.remove(editor.connection)
    summary_guard.make(editor.connection)


class Migration(migrations.Migration):
    dependencies = [("chat", "0011_compression")]

    operations = [
        migrations.AlterField(
            "message",
            "compacted_into",
            models.ForeignKey(
                blank=True,
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="originals",
                to="chat.message",
            ),
        ),
        migrations.RunPython(guard_by_place, migrations.RunPython.noop),
        migrations.RemoveIndex(model_name="message", name="originals"),
    ]
