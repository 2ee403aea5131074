"""Notifications of a real control plane: delay of a delivery, and a drill of 50 kills during 1,000 alerts."""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path

from benchmarks.support.output import report
from tests.support.real.notification_drill import DrillResult, NotificationDrill, webhook_server
from tests.support.servers.etcd import EtcdServer

KILLS, ALERTS = 50, 1000


async def _drill(folder: Path, etcd: EtcdServer, kills: int) -> DrillResult:
    async with webhook_server() as receiver:
        drill = NotificationDrill(folder, etcd, f"kills-{kills}", receiver)
        result = await drill.run(kills, ALERTS, random.Random(kills), seconds=0.0 if kills else 60.0)
    result.check()  # at once: the verifier of webhooks rejects old messages
    return result


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        etcd = EtcdServer(folder / "etcd").start()
        try:
            for each in ("undisturbed", "killed"):
                (folder / each).mkdir()
            undisturbed = asyncio.run(_drill(folder / "undisturbed", etcd, 0))
            delays = undisturbed.delays()
            report("alert to webhook, 1,000 in a minute, p50", delays[len(delays) // 2], "s", aim="")
            report("alert to webhook, 1,000 in a minute, p99", delays[int(len(delays) * 0.99)], "s", aim="2")
            killed = asyncio.run(_drill(folder / "killed", etcd, KILLS))
        finally:
            etcd.stop()
    report(f"lost in {KILLS} kills", len(killed.lost), f"of {len(killed.committed)}", aim="0")
    report(f"repeated in {KILLS} kills, with the same id", killed.repeated, "deliveries", aim="")
