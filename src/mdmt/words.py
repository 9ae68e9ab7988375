"""Numbers and texts in the form that people read. Nothing here loads torch."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from datetime import datetime

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Unicode categories: control and format characters, surrogates, line and paragraph separators.
CONTROL = ("Cc", "Cf", "Cs", "Zl", "Zp")

# What a person may copy from a message: a command with its words, something quoted, or a word.
UNBROKEN = re.compile(
    r"(?:pip install|mdmt [a-z]+|make [a-z]+)(?: (?:'[^']*'|[^\s;,()]+))*[;,).:]*"
    r"|\(?'[^']*'\S*|\S+"
)


def count(noun: str, number: int, plural: str = "") -> str:
    """A number with its noun, singular or plural.

    >>> count("task", 1), count("step", 12000), count("study", 0, "studies")
    ('1 task', '12,000 steps', '0 studies')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def call_text(thing: object, arguments: dict[str, object]) -> str:
    """The call that makes an object.

    >>> call_text(0, {"per_class": 3})
    'int(per_class=3)'
    """
    inside = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"{type(thing).__name__}({inside})"


def bytes_text(number: int) -> str:
    """A number of bytes.

    >>> bytes_text(0), bytes_text(980_000), bytes_text(3_400_000)
    ('-', '980 kB', '3.4 MB')
    """
    if not number:
        return "-"
    return f"{number / 1e6:.1f} MB" if number >= 1e6 else f"{number / 1e3:.0f} kB"


def clock(seconds: float) -> str:
    """A duration in the format of a clock.

    >>> clock(65), clock(3725.4)
    ('1:05', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def shared_settings(labels: list[str]) -> tuple[list[str], list[str]]:
    """The settings that all labels share, and the labels without these settings.

    >>> shared_settings(["er[lr=1,size=2]", "van[lr=1]"])
    (['lr=1'], ['er[size=2]', 'van'])
    >>> shared_settings(["van[lr=1]"])
    ([], ['van[lr=1]'])
    """
    parts = [label.removesuffix("]").partition("[") for label in labels]
    settings = [rest.split(",") if rest else [] for _, _, rest in parts]
    shared: list[str] = []
    if len(labels) > 1:
        shared = [one for one in settings[0] if all(one in others for others in settings)]
    short = []
    for (name, _, _), own in zip(parts, settings, strict=True):
        rest = ",".join(one for one in own if one not in shared)
        short.append(f"{name}[{rest}]" if rest else name)
    if len(set(short)) < len(set(labels)):
        return [], labels
    return shared, short


def moment(time: datetime) -> str:
    """A date with the time of day.

    >>> moment(datetime(2026, 11, 6, 14, 2))
    '6 Nov 14:02'
    """
    return f"{time.day} {MONTHS[time.month - 1]} {time:%H:%M}"


def fold(label: str, width: int) -> list[str]:
    """A label in lines of at most `width`, if possible, broken after commas and the bracket.

    >>> fold("mdmt-r[heads=per-task,head=linear,competitors=own]", 28)
    ['mdmt-r[heads=per-task,', 'head=linear,competitors=own]']
    """
    lines = [""]
    for part in re.findall(r"[^,\[]+[,\[]?|[,\[]", label):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return lines


def wrap(text: str, width: int) -> str:
    """Text in lines of at most `width`, broken at spaces; a command, path or quote stays whole.

    >>> print(wrap("it needs the package ray: pip install ray", 26))
    it needs the package ray:
    pip install ray
    """
    lines = [""]
    for part in re.findall(UNBROKEN, text):
        if lines[-1] and len(lines[-1]) + 1 + len(part) > width:
            lines.append(part)
        else:
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return "\n".join(lines)


def printable(text: str) -> str:
    """Text with control characters replaced by their codes, so that a terminal shows them.

    >>> printable("a" + chr(27) + "[2J")
    'a\\\\x1b[2J'
    """
    return "".join(
        ascii(letter)[1:-1] if unicodedata.category(letter) in CONTROL else letter
        for letter in text
    )


def twins(names: Iterable[str]) -> str | None:
    """Two names that people take for one, and how they differ; None if there are none.

    They differ in case, in outer spaces or in the encoding of an accent, which file systems and
    programs change. Codes show the names that look the same.

    >>> twins(["owl", "kite", "Owl"])
    "'owl' and 'Owl' differ only in case"
    >>> twins(["owl", "kite", "owl"])
    """
    first_with: dict[str, str] = {}
    for name in names:
        composed = unicodedata.normalize("NFC", name)
        plain = unicodedata.normalize("NFC", composed.strip().casefold())
        first = first_with.setdefault(plain, name)
        if first == name:
            continue
        if unicodedata.normalize("NFC", first) == composed:
            return f"{first!a} and {name!a} differ only in the encoding of an accent"
        what = "outer spaces" if first.strip() == name.strip() else "case"
        return f"{first!r} and {name!r} differ only in {what}"
    return None
