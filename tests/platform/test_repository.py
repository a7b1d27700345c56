"""What is kept in the repository fits together."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.db.migrations import AddField, CreateModel, Migration
from django.db.migrations.loader import MigrationLoader

from palimpsest import static
from palimpsest.first_agents import channel_from_environment
from tests.platform.processes import ROOT, environment, manage


def test_compiled_catalogues_are_those_of_their_sources() -> None:
    checked = subprocess.run([sys.executable, "bin/messages", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_every_module_of_the_pages_finds_what_it_imports(tmp_path: Path) -> None:
    """Collecting follows the imports of ES modules, and rewrites them to hashed names."""
    collected = manage(tmp_path, "collect_static", timeout=90)
    assert collected.returncode == 0, collected.stderr
    again = manage(tmp_path, "collect_static")
    assert "have not changed" in again.stdout


def test_the_fingerprint_changes_with_a_file(tmp_path: Path, settings: pytest.FixtureRequest) -> None:
    from django.contrib.staticfiles import finders

    settings.STATICFILES_DIRS = [tmp_path]  # type: ignore[attr-defined]
    finders.get_finder.cache_clear()
    try:
        empty = static.fingerprint()
        (tmp_path / "a.css").write_text("a {}")
        first = static.fingerprint()
        (tmp_path / "a.css").write_text("b {}")
        assert len({empty, first, static.fingerprint()}) == 3
    finally:
        finders.get_finder.cache_clear()


def test_the_lock_files_have_hashes_and_no_addresses() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text
        assert "index-url" not in text


def test_the_development_lock_has_every_pin_of_the_other() -> None:
    """So one environment serves `make run` and `make test`."""

    def pins(name: str) -> set[str]:
        return set(re.findall(r"^[\w.-]+(?:\[[\w,-]+\])?==\S+", (ROOT / name).read_text(), re.MULTILINE))

    assert pins("requirements.lock") <= pins("requirements-dev.lock")


def test_every_setting_is_described() -> None:
    described = (ROOT / "docs" / "deploy.md").read_text()
    settings, _, _limits = (ROOT / "palimpsest" / "settings.py").read_text().partition("# Limits of the product")
    code = settings + (ROOT / "palimpsest" / "environment.py").read_text()
    for name in re.findall(r'(?:text|number|flag|words|one_of|public_url|redis_url)\(\s*"([A-Z_]+)"', code):
        assert f"`{name}`" in described, name


def test_scripts_of_the_shell_are_read_by_it() -> None:
    for name, shell in (("bin/environment", "sh"), ("bin/lint", "sh"), (".ci/run", "bash")):
        assert subprocess.run([shell, "-n", name], cwd=ROOT, check=False).returncode == 0, name


def test_an_environment_that_is_complete_is_left_alone(tmp_path: Path) -> None:
    """`make run` starts at once the second time: nothing is asked of anybody."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "environment").write_text((ROOT / "bin" / "environment").read_text())
    for name in ("requirements.lock", "requirements-dev.lock"):
        (tmp_path / name).write_text("")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    sums = subprocess.run(["cksum"], stdin=(tmp_path / "requirements.lock").open(), capture_output=True, text=True)
    (tmp_path / ".venv" / ".installed").write_text(f"run {sums.stdout}")
    made = subprocess.run(
        ["sh", "bin/environment", "run"], cwd=tmp_path, capture_output=True, text=True, env=environment(tmp_path)
    )
    assert (made.returncode, made.stderr) == (0, "")


def test_without_a_new_enough_python_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "environment").write_text((ROOT / "bin" / "environment").read_text())
    (tmp_path / "requirements.lock").write_text("")
    (tmp_path / "requirements-dev.lock").write_text("")
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "cksum", "dirname", "grep", "cat"):
        found = subprocess.run(["sh", "-c", f"command -v {tool}"], capture_output=True, text=True).stdout.strip()
        (tools / tool).symlink_to(found)
    made = subprocess.run(
        [str(tools / "sh"), "bin/environment", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PATH": str(tools)},
    )
    assert made.returncode == 1
    assert "needs Python 3.11 or newer" in made.stderr


@pytest.mark.django_db
def test_the_channel_of_the_environment_is_made_once() -> None:
    from agents.models import Agent, Channel

    first = channel_from_environment("sk-one", "https://models.example/v1", "gpt-4o")
    again = channel_from_environment("sk-two", "https://models.example/v1", "gpt-4o")
    assert first.pk == again.pk
    assert Channel.objects.get(pk=first.pk).api_key == "sk-two"
    agent = Agent.objects.get()
    assert (agent.model, agent.context_window) == ("gpt-4o", 128_000)


def test_columns_that_came_later_can_be_left_out_by_the_release_before() -> None:
    """It goes on inserting rows while the new one migrates, and knows nothing of them."""
    ours = [
        migration
        for (app, _), migration in MigrationLoader(None).disk_migrations.items()
        if app in ("agents", "chat", "compaction", "accounts") and not migration.initial
    ]
    needed = [
        f"{migration.app_label}.{operation.model_name}.{operation.name}"
        for migration in ours
        for operation in migration.operations
        if isinstance(operation, AddField)
        and not operation.field.null
        and not operation.field.has_db_default()
        and not _is_new(operation.model_name, migration)
    ]

    assert ours
    assert needed == []


def _is_new(model: str, migration: Migration) -> bool:
    """Whether the table itself came with this migration."""
    return any(isinstance(made, CreateModel) and made.name_lower == model.lower() for made in migration.operations)
