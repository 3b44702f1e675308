"""Values written as TOML, so that tomllib reads them back."""

import json
import re
from collections.abc import Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_value(value: Any) -> str:
    """Write a value on one line: a string, a number, a boolean, a list, or a table; tables omit None.

    >>> toml_value({"dtype": "f16", "cta": (128, 128, 64), "align": None})
    '{ dtype = "f16", cta = [128, 128, 64] }'
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            pairs = [f"{toml_key(name)} = {toml_value(each)}" for name, each in value.items() if each is not None]
            return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
        case _:
            return f"[{', '.join(map(toml_value, value))}]"


def toml_key(name: str) -> str:
    """Write a key, in quotes if necessary.

    >>> toml_key("cta"), toml_key("a b")
    ('cta', '"a b"')
    """
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)
