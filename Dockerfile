# One image for web, worker and migrate; docker-compose.yml says which command each runs.
FROM python:3.12-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app

COPY requirements.lock ./
RUN python -m venv /venv && /venv/bin/pip install --require-hashes -r requirements.lock

COPY . ./
ENV STATIC_ROOT=/app/staticfiles PALIMPSEST_DATA=/tmp/build
RUN /venv/bin/python manage.py collect_static && /venv/bin/python -m compileall -q agents chat compaction palimpsest /venv

FROM python:3.12-slim

RUN useradd --uid 10001 --create-home palimpsest && install -d -o palimpsest -g palimpsest -m 0700 /data
COPY --from=build /venv /venv
COPY --from=build /app /app

ENV PATH=/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PALIMPSEST_DATA=/data \
    STATIC_ROOT=/app/staticfiles \
    HOST=0.0.0.0 \
    PORT=8000
WORKDIR /app
USER palimpsest
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]

CMD ["python", "manage.py", "serve"]
