"""The queue of a shadow is short: what does not fit is dropped and counted, and nobody waits."""

from __future__ import annotations

import asyncio

from crossfade.serving import shadow
from crossfade.serving.shadow import Answered, Shadow, ShadowSettings
from crossfade.stores import Hit


def test_a_full_queue_drops_what_comes_and_goes_on_once_there_is_room():
    hits = [Hit(1, 0.9), Hit(2, 0.8)]

    async def story() -> Shadow:
        made = Shadow(ShadowSettings(1.0, "new"))
        gate = asyncio.Event()

        async def again(way):
            await gate.wait()
            return hits, 0.5

        made.start()
        offered = Answered("old", hits, 0.25, again)
        made.offer(offered)
        # The first is taken out of the queue and held at the gate.
        while made._queue.qsize():
            await asyncio.sleep(0)
        for _ in range(shadow._QUEUE + 7):
            made.offer(offered)
        assert (made.dropped, made.asked) == (7, 0)
        gate.set()
        while made.asked < shadow._QUEUE + 1:
            await asyncio.sleep(0)
        made.offer(offered)
        while made.asked < shadow._QUEUE + 2:
            await asyncio.sleep(0)
        await made.close()
        return made

    made = asyncio.run(asyncio.wait_for(story(), 30))
    assert (made.dropped, made.failed) == (7, 0)
    assert made.live()["agreement"] == 1.0
    assert made.live()["latency_ms"] == 250.0
    assert "crossfade_shadow_dropped_total 7" in "\n".join(made.lines())
