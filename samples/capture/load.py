"""Two tenants, and clients that misbehave, against one vLLM server.

Every request leaves a row of what the client itself saw, and a client's span
that is the parent of the server's.
"""

import asyncio
import csv
import dataclasses
import json
import random
import time

import aiohttp
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

WORDS = (
    "arrival queue prefill decode token request server batch slot memory cache phase span trace wait "
    "time second step engine model tenant prompt output profile report table window replica service"
).split()


@dataclasses.dataclass
class Call:
    """One HTTP request to be sent, at seconds after the start."""

    at: float
    tenant: str
    words: int
    tokens: int
    chat: bool = False
    stream: bool = True
    leave: float | None = None  # the client hangs up after so many seconds
    more: dict = dataclasses.field(default_factory=dict)


def plan(seconds, rng, patient=False):
    """The calls of a run: the same for the same rng.

    patient clients do not hang up and ask for one sample each.
    """
    calls = []
    at = 0.5
    while at < seconds:
        calls.append(Call(at, "chat", rng.randint(10, 60), rng.randint(20, 90), chat=rng.random() < 0.5))
        at += rng.expovariate(1.5)
    # Every twenty seconds a burst of long prompts: memory is what runs out.
    for burst in range(8, int(seconds), 20):
        for i in range(6):
            calls.append(Call(burst + i * 0.01, "batch", rng.randint(600, 1400), rng.randint(60, 180)))
    # Between them, bursts of short ones: slots are what runs out.
    for burst in range(19, int(seconds), 20):
        for i in range(12):
            calls.append(Call(burst + i * 0.005, "chat", rng.randint(5, 20), rng.randint(30, 60)))
    calls.sort(key=lambda c: c.at)
    # The rest of what servers meet.
    for c in calls[7::10]:
        c.leave = rng.choice([0.05, 0.5, 1.2])
    for c in calls[12::40]:
        c.stream = False
    for c in calls[14::50]:
        c.more = {"temperature": 0}
    for c in calls[16::60]:
        c.more = {"n": 2}
    for c in calls[18::60]:
        c.more = {"stop": [" the", "e"]}
    for c in calls[20::60]:
        c.tokens = 1
    for c in calls[22::60]:
        c.words = 4000  # more than the model's context
    if patient:
        for c in calls:
            c.leave = None
            c.more.pop("n", None)
    return calls


class Load:
    """Sends calls to base and keeps a row of each."""

    columns = (
        "id tenant path trace_id sent_unix_nano first_chunk_unix_nano end_unix_nano outcome status chunks"
    ).split()

    def __init__(self, base, model, rng):
        self.base, self.model, self.rng = base, model, rng
        self.rows = []

    async def run(self, calls):
        start = time.monotonic()
        timeout = aiohttp.ClientTimeout(total=120)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:

            async def one(n, call):
                await asyncio.sleep(max(0, start + call.at - time.monotonic()))
                await self.send(http, f"{call.tenant}-{n:03d}", call)

            await asyncio.gather(*(one(n, c) for n, c in enumerate(calls)))

    async def send(self, http, name, call):
        text = " ".join(self.rng.choices(WORDS, k=call.words))
        body = {"model": self.model, "max_tokens": call.tokens, "stream": call.stream, "ignore_eos": True, **call.more}
        if call.chat:
            path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": text}]
        else:
            path, body["prompt"] = "/v1/completions", text
        headers = {"x-request-id": name}
        row = dict.fromkeys(self.columns, "")
        row |= {"id": name, "tenant": call.tenant, "path": path, "chunks": 0}
        sent = time.time_ns()
        span = trace.get_tracer("load").start_span(
            "POST " + path,
            kind=SpanKind.CLIENT,
            start_time=sent,
            attributes={"tenant": call.tenant, "http.request.method": "POST", "url.path": path},
        )
        propagate.inject(headers, trace.set_span_in_context(span))
        row["sent_unix_nano"] = sent
        row["trace_id"] = f"{span.get_span_context().trace_id:032x}"
        try:
            async with asyncio.timeout(call.leave):
                async with http.post(self.base + path, json=body, headers=headers) as response:
                    row["status"] = response.status
                    span.set_attribute("http.response.status_code", response.status)
                    async for line in response.content:
                        if response.status == 200 and call.stream and content(line):
                            row["chunks"] += 1
                            row["first_chunk_unix_nano"] = row["first_chunk_unix_nano"] or time.time_ns()
            row["outcome"] = "ok" if row["status"] == 200 else "rejected"
        except TimeoutError:
            row["outcome"] = "aborted"
            span.set_attribute("error.type", "cancelled")
            span.set_status(Status(StatusCode.ERROR, "cancelled by the client"))
        row["end_unix_nano"] = time.time_ns()
        if row["outcome"] == "rejected":
            span.set_status(Status(StatusCode.ERROR))
        if row["first_chunk_unix_nano"]:
            span.add_event("first chunk", timestamp=row["first_chunk_unix_nano"])
        span.end(row["end_unix_nano"])
        self.rows.append(row)

    def write(self, name):
        with open(name, "w", newline="", encoding="utf-8") as f:
            out = csv.DictWriter(f, self.columns, lineterminator="\n")
            out.writeheader()
            out.writerows(sorted(self.rows, key=lambda r: r["sent_unix_nano"]))


def content(line):
    """Whether an event of the stream carries tokens: a chat's first has a role only."""
    data = line.removeprefix(b"data: ").strip()
    if not data.startswith(b"{"):
        return False
    for choice in json.loads(data).get("choices", []):
        delta = choice.get("delta")
        if delta is None or "role" not in delta:
            return True
    return False
