"""What a row says as a column takes it: texts, numbers, times and JSON, or None for what is not there or cannot be kept."""

import datetime
import hashlib
import json
import math

KEY_BYTES = 400        # of a text that is part of an index
INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1
STATUSES = ("pass", "fail", "error", "skip", "xfail", "xpass", "observed", "disturbed")  # of verdicts, as the store counts them


def _refuse(word):
    raise ValueError(f"{word} is not JSON")


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":"), sort_keys=True).encode
decode = json.JSONDecoder(parse_constant=_refuse).decode


def clean(words):
    """A text as both databases take it: without NUL and without lone surrogates, which are shown instead."""
    if "\0" in words:
        words = words.replace("\0", "\\u0000")
    try:
        words.encode()
    except UnicodeEncodeError:
        words = words.encode("utf-8", "backslashreplace").decode()
    return words


def key_text(words):
    """A text short enough for an index; of a longer one the beginning and a digest."""
    words = clean(words)
    if len(words) * 4 <= KEY_BYTES or len(raw := words.encode()) <= KEY_BYTES:
        return words
    return f"{raw[:KEY_BYTES - 60].decode(errors='ignore')}… {hashlib.blake2b(raw, digest_size=16).hexdigest()}"


def text_or_none(value):
    return clean(value) if isinstance(value, str) else None


def int_or_none(value, most=INT64):
    return value if isinstance(value, int) and not isinstance(value, bool) and -most <= value <= most else None


def real_or_none(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def bool_or_none(value):
    return value if isinstance(value, bool) else None


def json_or_none(value):
    """As JSON text; None for what is not there, or what JSON cannot say."""
    if value is None:
        return None
    try:
        return _encode(value)
    except (ValueError, RecursionError):
        return None


def time_or_none(value):
    """YYYY-MM-DD HH:MM:SS.ffffff, in UTC."""
    if not isinstance(value, str) or not value.endswith("Z"):
        return None
    try:
        moment = datetime.datetime.fromisoformat(value[:-1])
    except ValueError:
        return None
    return moment.isoformat(" ", "microseconds") if moment.tzinfo is None else None


def digest_of(words):
    return hashlib.blake2b(words.encode(), digest_size=16).hexdigest()


def seed_text(value):
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64 else None
