"""Changes to bytes: a few flips, cuts, copies and tokens, as a list that can be made shorter."""

import random

TOKENS = (
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"99999999999999999999",
    b"9" * 5000,
    b"[]",
    b"{}",
    b'""',
    b"[" * 3000,
    b'"\\ud800"',
    b'"\\u0000"',
    b"\x00",
    b"\xff\xfe",
    b"\xff\xff\xff\xff",
    b"\xff" * 8,
    b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"\n",
    b"\r\n",
    b",",
    b'"',
    b"../",
    b"a/" * 600,
    b"BF16",
    b"F8_E4M3",
    b"I64",
    b"BOOL",
)
KINDS = ("flip", "set", "cut", "copy", "token", "replace", "end")
Change = tuple[str, int, int]  # what, where and how, as numbers that any bytes can take


def apply(data: bytes, changes: list[Change]) -> bytes:
    """The bytes after these changes."""
    made = bytearray(data)
    for kind, where, how in changes:
        at = where % (len(made) + 1)
        length = how % 64
        if kind == "flip" and at < len(made):
            made[at] ^= 1 << how % 8
        elif kind == "set" and at < len(made):
            made[at] = how % 256
        elif kind == "cut":
            del made[at : at + length]
        elif kind == "copy":
            made[at:at] = made[how % (len(made) + 1) :][:length]
        elif kind == "token":
            made[at:at] = TOKENS[how % len(TOKENS)]
        elif kind == "replace":
            token = TOKENS[how % len(TOKENS)]
            made[at : at + _word(made, at)] = token
        elif kind == "end":
            del made[at:]
    return bytes(made)


def _word(data: bytearray, at: int) -> int:
    """The length of the number or text at a place, so that JSON stays JSON."""
    ends = b' ,:]}\n\t"'
    end = at
    while end < len(data) and data[end] not in ends:
        end += 1
    return max(1, end - at)


def draw(random_: random.Random) -> list[Change]:
    """A few random changes; often one."""
    return [
        (random_.choice(KINDS), random_.getrandbits(24), random_.getrandbits(16))
        for _ in range(random_.choice((1, 1, 1, 2, 3, 8)))
    ]
