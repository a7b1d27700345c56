"""Servers may keep a session for a whole answer; agents get the tools that read the files of their conversation."""

from django.db import migrations, models

BEFORE = ["read_history", "search_history"]
NOW = ["list_files", "read_file", "read_history", "search_files", "search_history"]


def give(apps, schema_editor):
    """To agents whose tools nobody changed."""
    for agent in apps.get_model("agents", "Agent").objects.all():
        if sorted(agent.tools) == BEFORE:
            agent.tools = NOW
            agent.save(update_fields=["tools"])


class Migration(migrations.Migration):
    dependencies = [("agents", "0005_mcp_servers")]

    operations = [
        migrations.AddField(
            "mcpserver",
            "keep_session",
            models.BooleanField(
                db_default=False,
                default=False,
                help_text="For servers that remember something between calls, such as a browser or a login. "
                "Their calls then run one after the other.",
                verbose_name="one session for a whole answer",
            ),
        ),
        migrations.RunPython(give, migrations.RunPython.noop),
    ]
