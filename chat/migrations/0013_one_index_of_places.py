"""One index keeps messages apart and in order, where two did; made before the others go, so that reading goes on."""

from django.db import migrations, models
from django.db.models import Case, F, When


class Migration(migrations.Migration):
    dependencies = [("chat", "0012_no_index_of_originals")]

    operations = [
        migrations.AddConstraint(
            "message",
            models.UniqueConstraint(
                F("conversation"),
                F("position"),
                F("is_summary"),
                Case(When(is_summary=True, then=F("id")), default=F("position"), output_field=models.BigIntegerField()),
                name="one_message_per_place",
            ),
        ),
        migrations.RemoveConstraint("message", "one_message_per_position"),
        migrations.RemoveIndex("message", "messages_in_order"),
    ]
