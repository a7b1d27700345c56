from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('chat', '0006_message_indexes'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='message',
            index=models.Index(condition=models.Q(('compacted_into__isnull', True), ('position__isnull', False), ('retired_at__isnull', True)), fields=['conversation', 'position', 'is_summary', 'id'], name='live_messages_in_order'),
        ),
        migrations.RemoveIndex(
            model_name='message',
            name='live_messages',
        ),
    ]
