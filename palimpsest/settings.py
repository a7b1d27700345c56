"""Settings, all from the environment. Without any, everything runs in one process on SQLite (see docs/deploy.md)."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _
from kombu import Exchange, Queue

from palimpsest import environment, keys, logs

BASE_DIR = Path(__file__).resolve().parent.parent

DEBUG: bool = environment.flag("DEBUG")
TESTING = "pytest" in sys.modules

# State: one folder, kept out of the repository.
# Tests read the settings before anything of theirs could say where: they get a folder of their own in each process.
_FOLDER = tempfile.mkdtemp(prefix="palimpsest-test-") if TESTING else str(BASE_DIR / "var")
PALIMPSEST_DATA = Path(environment.text("PALIMPSEST_DATA", _FOLDER)).expanduser().absolute()
REDIS_URL = environment.redis_url("REDIS_URL")
# Several installations may share a Redis; each run of the tests is one.
REDIS_PREFIX = environment.text("REDIS_PREFIX", f"test-{os.getpid()}" if TESTING else "palimpsest")
EMBEDDED = not REDIS_URL

# `serve` runs web and worker in one process even with Redis, so it may make secrets of its own.
ONE_PROCESS = EMBEDDED or TESTING or (sys.argv[1:2] == ["serve"] and "--web-only" not in sys.argv)
SECRET_KEY, PALIMPSEST_ENCRYPTION_KEYS = keys.load(PALIMPSEST_DATA, may_make=ONE_PROCESS)

HOST = environment.text("HOST", "127.0.0.1")
PORT = environment.number("PORT", 8000, least=0, most=65_535)
PUBLIC_URL = environment.public_url("PUBLIC_URL")
ALLOWED_HOSTS = environment.words("ALLOWED_HOSTS", environment.default_hosts(HOST, PUBLIC_URL))
if "*" in ALLOWED_HOSTS and not DEBUG:
    raise ImproperlyConfigured("ALLOWED_HOSTS may not be * : name the hosts that people use, such as chat.example.org.")
CSRF_TRUSTED_ORIGINS = environment.words("CSRF_TRUSTED_ORIGINS", [PUBLIC_URL] if PUBLIC_URL else [])
TRUSTED_PROXIES = environment.number("TRUSTED_PROXIES", 0)
SIGNUP = environment.one_of("SIGNUP", "closed", ("closed", "open"))
WORKER_PORT = environment.number("WORKER_PORT", 0, most=65_535)  # 0: `work` opens no port
METRICS_TOKEN = environment.text("METRICS_TOKEN")
SHUTDOWN_GRACE = environment.number("SHUTDOWN_GRACE", 10)  # seconds that running answers get to end

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "allauth",
    "allauth.account",
    "palimpsest",
    "palimpsest.accounts",
    "agents",
    "compaction",
    "chat",
]

MIDDLEWARE = [
    "palimpsest.health.Probes",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "palimpsest.accounts.middleware.BearerKeys",
    "palimpsest.accounts.middleware.SignInRequired",
    "palimpsest.accounts.middleware.AccessWatch",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
]

ROOT_URLCONF = "palimpsest.urls"
ASGI_APPLICATION = "palimpsest.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
if TESTING:
    PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_ADAPTER = "palimpsest.accounts.adapter.Accounts"
ACCOUNT_LOGOUT_REDIRECT_URL = "account_login"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"  # no mail server is needed to run this
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_RATE_LIMITS: dict[str, Any] | bool = {"login": "30/m/ip", "login_failed": "10/m/ip,5/300s/key"}
ALLAUTH_TRUSTED_PROXY_COUNT = TRUSTED_PROXIES

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": environment.database("DATABASE_URL", PALIMPSEST_DATA)}

# The layer and the broker only wake people up: the database holds the truth (DESIGN: one truth).
CHANNEL_LAYERS: dict[str, Any]
if EMBEDDED:
    CHANNEL_LAYERS = {
        "default": {"BACKEND": "palimpsest.layers.ThreadSafeInMemoryChannelLayer", "CONFIG": {"capacity": 10_000}}
    }
    CELERY_BROKER_URL = "memory://localhost/"
    CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {"polling_interval": 0.02}
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
else:
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "palimpsest.redis_layer.RedisChannelLayer",
            "CONFIG": {"url": REDIS_URL, "prefix": f"{REDIS_PREFIX}:layer"},
        }
    }
    CELERY_BROKER_URL = REDIS_URL
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "socket_connect_timeout": 2,
        "socket_timeout": 5,
        "max_retries": 1,
        "global_keyprefix": f"{REDIS_PREFIX}:tasks:",
    }
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": REDIS_URL,
            "KEY_PREFIX": f"{REDIS_PREFIX}:cache",
        }
    }

CELERY_TASK_IGNORE_RESULT = True
CELERY_RESULT_BACKEND_THREAD_SAFE = True  # there is none; else each thread looks through all packages for it, 40 ms
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_PUBLISH_RETRY = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_POOL = "threads"
CELERY_WORKER_CONCURRENCY = environment.number("WORKER_THREADS", 24, least=2)
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_TASK_QUEUES = [Queue(name, Exchange(name), routing_key=name) for name in ("turns", "compactions")]
CELERY_TASK_DEFAULT_QUEUE = "turns"
CELERY_TASK_ROUTES = {"chat.tasks.compact": {"queue": "compactions"}, "chat.tasks.run_turn": {"queue": "turns"}}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = "UTC"
USE_TZ = True

# In production collected once under names that carry their hash; in development and tests read where they are.
STATIC_URL = "/static/"
STATIC_ROOT = Path(environment.text("STATIC_ROOT", str(PALIMPSEST_DATA / "staticfiles")))
STATICFILES_DIRS = [BASE_DIR / "static"] if (BASE_DIR / "static").is_dir() else []
STATIC_FROM_SOURCE = DEBUG or TESTING
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = STATIC_FROM_SOURCE
WHITENOISE_ALLOW_ALL_ORIGINS = False
MEDIA_ROOT = PALIMPSEST_DATA / "files"
STORAGES = {
    "default": environment.storage("FILE_STORAGE", "django.core.files.storage.FileSystemStorage"),
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if STATIC_FROM_SOURCE
        else "palimpsest.static.HashedStorage"
    },
}

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:", "blob:"],
        "connect-src": ["'self'"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "form-action": ["'self'"],
    }
}
X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
if TRUSTED_PROXIES:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = PUBLIC_URL.startswith("https://")
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE
CSRF_COOKIE_SAMESITE = "Lax"
DATA_UPLOAD_MAX_MEMORY_SIZE = 5 * 1024 * 1024

LOGGING = logs.configuration(
    json=environment.one_of("LOG_FORMAT", "text", ("text", "json")) == "json",
    level=environment.one_of("LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR")),
)

# Limits of the product (tokens, seconds, counts); each is explained where it is used.
IMAGE_TOKENS: int = environment.number("IMAGE_TOKENS", 1_600)
DATABASE_THREADS: int = environment.number("DATABASE_THREADS", 8)
TURNS_PER_PROCESS: int = environment.number("TURNS_PER_PROCESS", 256)
COMPACTIONS_PER_PROCESS: int = environment.number("COMPACTIONS_PER_PROCESS", 8)
TOOL_ROUNDS: int = environment.number("TOOL_ROUNDS", 40)
MCP_STDIO: bool = environment.flag("MCP_STDIO")  # administrators may name programs of this machine as servers of tools
