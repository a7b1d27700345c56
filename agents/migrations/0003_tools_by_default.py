"""Agents get the tools that reach what was compacted: every summary names them."""

from django.db import migrations, models

import agents.models

NAMES = ["search_history", "read_history"]


def give(apps, schema_editor):
    for agent in apps.get_model("agents", "Agent").objects.all():
        agent.tools = [*agent.tools, *(name for name in NAMES if name not in agent.tools)]
        agent.save(update_fields=["tools"])


def take(apps, schema_editor):
    for agent in apps.get_model("agents", "Agent").objects.all():
        agent.tools = [name for name in agent.tools if name not in NAMES]
        agent.save(update_fields=["tools"])


class Migration(migrations.Migration):
    dependencies = [("agents", "0002_addresses")]

    operations = [
        migrations.AlterField(
            model_name="agent",
            name="tools",
            field=models.JSONField(
                blank=True,
                default=agents.models.tools_by_default,
                help_text="Names of the tools it may use.",
                verbose_name="tools",
            ),
        ),
        migrations.RunPython(give, take),
    ]
