"""What is replaced says which message it follows. Of what was replaced before it is found out when it is asked for."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chat", "0008_sent_tokens")]

    operations = [migrations.AddField("message", "follows", models.IntegerField(blank=True, null=True))]
