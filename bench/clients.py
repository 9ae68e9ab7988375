"""Clients of a server, in a process of their own: each asks again as soon as it has its answer.

Each line of stdin names a file of requests with their right answers, and says how many clients ask
for how long. The line of stdout has the seconds of every request, how many failed, and how many
answers were not those of the version that they name.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE = 30.0  # seconds for one answer
NEAR = 1e-4  # probabilities depend on the other inputs of a batch in the last digits


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, dict[str, Any]]:
    """The status of an answer, and its body."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").lower().split("\r\n")
    length = next(int(line.partition(":")[2]) for line in lines if line.startswith("content-len"))
    return int(lines[0].split()[1]), json.loads(await reader.readexactly(length))


def is_right(answer: dict[str, Any], rights: dict[str, list[Any]]) -> bool:
    """Whether an answer is that of the version which it names."""
    label, probability = rights[str(answer["version"])]
    (found,) = answer["predictions"]
    return found["label"] == label and abs(found["probability"] - probability) < NEAR


async def client(number: int, question: dict[str, Any], items: list[Any], told: Any) -> None:
    until = time.perf_counter() + question["seconds"]
    reader, writer = await asyncio.open_connection("127.0.0.1", question["port"])
    while (begin := time.perf_counter()) < until:
        request, rights = items[number % len(items)]
        number += question["clients"] + 1
        try:
            async with asyncio.timeout(PATIENCE):
                status, answer = await ask(reader, writer, request)
        except (OSError, TimeoutError, EOFError):
            told["failed"] += 1
            break
        told["seconds"].append(time.perf_counter() - begin)
        told["failed"] += status != 200
        told["mixed"] += status == 200 and not is_right(answer, rights)
        told["versions"][str(answer.get("version"))] = True
    writer.close()


async def clients(question: dict[str, Any]) -> dict[str, Any]:
    raw = json.loads(Path(question["file"]).read_text())
    items = [(base64.b64decode(request), rights) for request, rights in raw]
    told: dict[str, Any] = {"seconds": [], "failed": 0, "mixed": 0, "versions": {}}
    begin = time.perf_counter()
    await asyncio.gather(*(client(n, question, items, told) for n in range(question["clients"])))
    return {**told, "elapsed": time.perf_counter() - begin}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(asyncio.run(clients(json.loads(line)))), flush=True)
