"""Notifications of a real control plane: delay of a delivery, and 50 kills during 1,000 alerts, on each store."""

from __future__ import annotations

import asyncio
import random
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.support.output import report
from tests.support.real.notification_drill import DrillResult, NotificationDrill, webhook_server
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.mongod import MongoServer

KILLS, ALERTS = 50, 1000


async def _drill(folder: Path, etcd: EtcdServer, kills: int, mongodb_url: str = "") -> DrillResult:
    async with webhook_server() as receiver:
        drill = NotificationDrill(folder, etcd, folder.name, receiver, mongodb_url)
        result = await drill.run(kills, ALERTS, random.Random(kills), seconds=0.0 if kills else 60.0)
    result.check()  # at once: the verifier of webhooks rejects old messages
    return result


def main() -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as ended:
        folder = Path(name)
        for each in ("undisturbed", "sqlite", "mongodb"):
            (folder / each).mkdir()
        etcd = EtcdServer(folder / "etcd").start()
        ended.callback(etcd.stop)
        mongod = MongoServer(folder / "mongod").start()
        ended.callback(mongod.kill)
        undisturbed = asyncio.run(_drill(folder / "undisturbed", etcd, 0))
        delays = undisturbed.delays()
        report("alert to webhook, 1,000 in a minute, p50", delays[len(delays) // 2], "s", aim="")
        report("alert to webhook, 1,000 in a minute, p99", delays[int(len(delays) * 0.99)], "s", aim="2")
        for store, url in (("sqlite", ""), ("mongodb", mongod.uri)):
            killed = asyncio.run(_drill(folder / store, etcd, KILLS, url))
            report(f"{store}: lost in {KILLS} kills", len(killed.lost), f"of {len(killed.committed)}", aim="0")
            report(f"{store}: repeated in {KILLS} kills, with the same id", killed.repeated, "deliveries", aim="")
            report(f"{store}: longest pause of writes in {KILLS} kills", killed.longest_pause, "s", aim="10")
