#!/usr/bin/env python3
"""Palimpsest's command line: `manage.py serve` starts everything on one machine."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "palimpsest.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        # Wrong settings are the reader's to mend: a sentence helps more than a traceback.
        sys.exit(f"palimpsest: {error}")


if __name__ == "__main__":
    main()
