"""Static files: collected once under names that carry their hash, so that browsers keep them for ever."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.management import call_command
from whitenoise.storage import CompressedManifestStaticFilesStorage

from palimpsest.preflight import CannotStart


class HashedStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Rewrites the imports between ES modules to hashed names too, so no import map and no inline script is needed."""

    support_js_module_import_aggregation = True


def collect_if_changed() -> bool:
    """Run collectstatic when a file or the code that hashes it has changed since the last time; True if it ran."""
    if settings.STATIC_FROM_SOURCE:
        return False
    stamp = Path(settings.STATIC_ROOT) / ".fingerprint"
    current = fingerprint()
    if stamp.exists() and stamp.read_text() == current:
        return False
    try:
        call_command("collectstatic", interactive=False, verbosity=0, stdout=io.StringIO())
    except (OSError, ValueError) as error:
        # A module that imports what is not there, or a folder that cannot be written.
        reason = " ".join(str(error).split())
        raise CannotStart(f"The static files could not be collected: {reason}") from error
    stamp.write_text(current)
    return True


def fingerprint() -> str:
    """Changes with every source file and with this code. By contents, since an image keeps no exact times."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for finder in finders.get_finders():
        for name, storage in finder.list([]):
            digest.update(f"{name}\n".encode())
            digest.update(hashlib.sha256(Path(storage.path(name)).read_bytes()).digest())
    return digest.hexdigest()
