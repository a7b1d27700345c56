# Palimpsest: `make run` starts it, `make test` tests it.

PYTHON_IN = .venv/bin/python

.PHONY: help run test lint format bench chaos lock messages clean

help:
	@echo "make run       start Palimpsest and print its address"
	@echo "make test      all tests; ARGS=... goes to pytest, as in ARGS='tests/platform -x'"
	@echo "make lint      formatting, types, layers, templates, migrations, translations"
	@echo "make format    put code into shape"
	@echo "make bench     measure the real stack against a fast provider; ARGS=... goes to it"
	@echo "make chaos     kill, cut and restart parts while people chat; ARGS=--short for half a minute"
	@echo "make messages  collect texts for translation, compile the catalogues"
	@echo "make lock      write the lock files anew from pyproject.toml (needs uv)"
	@echo "make clean     remove the environment and caches; what people wrote stays in var/"

run:
	@bin/environment run
	@exec $(PYTHON_IN) manage.py serve

test:
	@bin/environment dev
	@exec $(PYTHON_IN) -m pytest -n $(or $(WORKERS),2) --dist loadfile $(ARGS)

lint:
	@bin/environment dev
	@exec bin/lint

format:
	@bin/environment dev
	.venv/bin/ruff check --fix --select I .
	.venv/bin/ruff format .

bench:
	@bin/environment dev
	@exec $(PYTHON_IN) -m bench $(ARGS)

chaos:
	@bin/environment dev
	@exec $(PYTHON_IN) -m bench.chaos $(ARGS)

messages:
	@bin/environment dev
	@exec $(PYTHON_IN) bin/messages

lock:
	uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
		pyproject.toml -o requirements.lock
	uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
		--group dev -c requirements.lock pyproject.toml -o requirements-dev.lock

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
