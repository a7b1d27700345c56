"""What a message carries of its files: of a long text the beginning, of what a tool wrote nothing."""

from django.db import migrations, models
from django.db.models import F, Q

INLINE_TOKENS = 20_000
BEGINNING_TOKENS = 2_000  # about what the beginning of a long text costs


def fill(apps, schema_editor):
    rows = apps.get_model("chat", "Attachment").objects.exclude(Q(owner=None) & ~Q(kind="image"))
    rows.filter(Q(kind="image") | Q(token_cost__lte=INLINE_TOKENS)).update(sent_tokens=F("token_cost"))
    rows.exclude(kind="image").filter(token_cost__gt=INLINE_TOKENS).update(sent_tokens=BEGINNING_TOKENS)


class Migration(migrations.Migration):
    dependencies = [("chat", "0007_live_messages_in_order")]

    operations = [
        migrations.AddField("attachment", "sent_tokens", models.PositiveIntegerField(db_default=0, default=0)),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
