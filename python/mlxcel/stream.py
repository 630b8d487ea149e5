"""Answers as they come."""
import asyncio
import contextlib
import ctypes as c
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Iterator, List, Optional, Tuple

from ._native import Error, RawEvent, call, lib, made

KINDS = ["none", "progress", "tokens", "text", "reasoning", "call", "arguments", "call_end", "end"]
SLICE_MS = 200  # a wait without a limit comes back to Python so often, for Ctrl-C
FINISHES = [None, "stop", "length", "cancelled", "deadline", "error"]


@dataclass
class Event:
    """One thing that a job tells. kind: a word of KINDS."""
    kind: str
    text: str = ""
    call: int = 0
    id: str = ""
    tokens: List[int] = field(default_factory=list)
    logprobs: Optional[List[float]] = None
    tops: List[List[Tuple[int, float]]] = field(default_factory=list)
    n_read: int = 0
    n_prompt: int = 0


@dataclass
class Call:
    """A call of a tool; arguments is JSON."""
    name: str
    id: str
    arguments: str = ""


@dataclass
class Usage:
    n_prompt: int
    n_cached: int
    n_new: int
    n_reasoning: int
    prompt_seconds: float
    new_seconds: float


def _tops(e: RawEvent) -> List[List[Tuple[int, float]]]:
    out, at = [], 0
    for i in range(e.n_tokens):
        out.append([(e.top_tokens[at + k], e.top_logprobs[at + k]) for k in range(e.n_tops[i])])
        at += e.n_tops[i]
    return out


class Stream:
    """An answer on its way: iterate over it for the pieces of its text, with `for` or `async for`. Dropping it, or leaving its `with`, cancels what still runs.

    At the end, `finish` is "stop", "length", "cancelled" or "deadline", `usage` has numbers, `reasoning` and `calls` what is no text. An error is raised.
    One thread at a time reads a stream; any may cancel it.
    """

    def __init__(self, model: Any, job: c.c_void_p) -> None:
        self._model = model  # it must not go before its job
        self._job: Optional[c.c_void_p] = job
        self._raw = made(RawEvent, lib.event_init)
        self.finish: Optional[str] = None
        self.stopped_by: Optional[int] = None
        self.usage: Optional[Usage] = None
        self.reasoning = ""
        self.calls: List[Call] = []

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Cancels it where it still runs, and frees it."""
        job, self._job = getattr(self, "_job", None), None
        if job:
            lib.job_free(job)

    def cancel(self) -> None:
        """It ends soon; what was written until then can still be read."""
        if self._job:
            lib.cancel(self._job)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()

    def next_event(self, timeout: Optional[float] = None) -> Optional[Event]:
        """The next event, for which it waits so many seconds; None: the time has passed, or nothing comes any more."""
        if not self._job or self.finish:
            return None
        e = self._raw
        while True:
            call(lib.next, self._job, SLICE_MS if timeout is None else int(timeout * 1000), c.byref(e))
            if e.kind:
                break
            if timeout is not None:
                return None
        event = Event(KINDS[e.kind], c.string_at(e.text, e.text_bytes).decode("utf-8", "replace"), e.call, (e.id or b"").decode(),
                      n_read=e.n_read, n_prompt=e.n_prompt)
        if event.kind == "tokens":
            event.tokens = e.tokens[:e.n_tokens]
            event.logprobs = e.logprobs[:e.n_tokens] if e.logprobs else None
            event.tops = _tops(e)
        self._keep(event, e)
        return event

    def _keep(self, event: Event, e: RawEvent) -> None:
        if event.kind == "reasoning":
            self.reasoning += event.text
        elif event.kind == "call":
            self.calls.append(Call(event.text, event.id))
        elif event.kind == "arguments":
            self.calls[-1].arguments += event.text
        elif event.kind == "end":
            self.finish = FINISHES[e.finish]
            self.stopped_by = e.stopped_by if e.stopped_by >= 0 else None
            self.usage = Usage(e.n_prompt, e.n_cached, e.n_new, e.n_reasoning, e.prompt_seconds, e.new_seconds)
            self.close()
            if self.finish == "error":
                raise Error(e.code, event.text)

    def events(self) -> Iterator[Event]:
        """All events, not the text alone."""
        while not self.finish:
            event = self.next_event()
            if event is None:
                return
            yield event

    def __iter__(self) -> Iterator[str]:
        for event in self.events():
            if event.kind == "text":
                yield event.text

    async def __aiter__(self) -> AsyncIterator[str]:
        """Waits in another thread, so that the loop goes on. Cancelling the task cancels the answer and waits for its end."""
        while not self.finish:
            try:
                event = await asyncio.shield(waiting := asyncio.ensure_future(asyncio.to_thread(self.next_event)))
            except asyncio.CancelledError:
                self.cancel()
                await asyncio.wait([waiting])
                await asyncio.to_thread(self._drain)
                raise
            if event is None:
                return
            if event.kind == "text":
                yield event.text

    def _drain(self) -> None:
        """What is left of a cancelled answer; how it ended is known then."""
        with contextlib.suppress(Error):
            for _ in self.events():
                pass

    def text(self) -> str:
        """The rest of the answer, whole."""
        return "".join(self)
