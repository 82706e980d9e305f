"""What a plant would write itself: counters over OPC UA, booked into PostgreSQL every 100 ms. It knows no failures."""

import asyncio
import sys

import psycopg
from asyncua import Client, ua

ENDPOINT, DATABASE, COUNTERS = sys.argv[1], sys.argv[2], int(sys.argv[3])
TABLES = """
CREATE TABLE IF NOT EXISTS peer_baselines (counter int PRIMARY KEY, value bigint NOT NULL, read_at timestamptz NOT NULL);
CREATE TABLE IF NOT EXISTS peer_bookings (counter int, value bigint, quantity bigint NOT NULL, read_at timestamptz NOT NULL,
    PRIMARY KEY (counter, value))"""
BOOK = "INSERT INTO peer_bookings SELECT * FROM UNNEST(%s::int[], %s::bigint[], %s::bigint[], %s::timestamptz[])"
MOVE = """INSERT INTO peer_baselines SELECT * FROM UNNEST(%s::int[], %s::bigint[], %s::timestamptz[])
    ON CONFLICT (counter) DO UPDATE SET value = excluded.value, read_at = excluded.read_at"""


class Changes:
    def __init__(self):
        self.waiting = []

    def datachange_notification(self, node, value, data):
        self.waiting.append((node.nodeid.Identifier, value, data.monitored_item.Value.SourceTimestamp))


async def main():
    database = await psycopg.AsyncConnection.connect(DATABASE)
    await database.execute(TABLES)
    await database.commit()
    changes, baselines = Changes(), {}
    async with Client(ENDPOINT, timeout=60) as client:
        index = await client.get_namespace_index("urn:plant:simulator")
        names = {f"LOAD{n:04}.Count": n for n in range(1, COUNTERS + 1)}
        subscription = await client.create_subscription(100, changes)
        nodes = [client.get_node(ua.NodeId(name, index)) for name in names]
        for start in range(0, COUNTERS, 500):
            await subscription.subscribe_data_change(nodes[start : start + 500], queuesize=10, sampling_interval=50)
        while True:
            await asyncio.sleep(0.1)
            batch, changes.waiting, rows = changes.waiting, [], []
            for name, value, at in batch:
                old = baselines.get(name)
                if old is None or value > old[0]:
                    baselines[name] = (value, at)
                    if old is not None:
                        rows.append((names[name], value, value - old[0], at))
            moved = {names[name]: baselines[name] for name, _, _ in batch}
            if moved:
                await database.execute(MOVE, (list(moved), *(list(column) for column in zip(*moved.values()))))
            if rows:
                await database.execute(BOOK, [list(column) for column in zip(*rows)])
            await database.commit()


asyncio.run(main())
