"""Long texts are compressed with LZ4 on PostgreSQL (palimpsest/compression.py)."""

from django.db import migrations

from palimpsest import compression


def use_lz4(apps, editor):
    compression.use_lz4(editor.connection, "compaction_compaction", "prefix", "covered_ids")


def use_default(apps, editor):
    compression.use_default(editor.connection, "compaction_compaction", "prefix", "covered_ids")


class Migration(migrations.Migration):
    dependencies = [("compaction", "0002_explained")]

    operations = [migrations.RunPython(use_lz4, use_default)]
