import asyncio
import json

import psycopg

from crawlproject.errors import StorageDown
from crawlproject.plugins import Plugin
from crawlproject.sinks.sink import BatchSink, Target

TABLE = "create table if not exists images (id text primary key, status text, at timestamptz, event json)"
UPSERT = """insert into images values (%s, %s, %s, %s) on conflict (id) do update
    set status = excluded.status, at = excluded.at, event = excluded.event where images.at <= excluded.at"""
STATUS = {"image_metadata_updates": "ok", "link_rot": "gone"}


class Rows(BatchSink):
    """A batch is a transaction. One that comes again, as after a crash, writes the same rows."""

    def __init__(self, shard, dsn, name, stopping):
        super().__init__(shard, name, "PostgreSQL", stopping, list(STATUS))
        self.dsn = dsn

    async def take(self, events):
        await asyncio.to_thread(self.write, [(STATUS[entry.name], event) for entry, event in events])
        return True

    def write(self, events):
        rows = [(e["identifier"], how, e.get("fetched_at") or e["time"], json.dumps(e)) for how, e in events]
        try:
            with psycopg.connect(self.dsn) as connection, connection.cursor() as cursor:
                cursor.execute(TABLE)
                cursor.executemany(UPSERT, rows)
        except psycopg.OperationalError as error:  # --follow says so, and tries again
            raise StorageDown(f"PostgreSQL: {error}") from None


class Postgres(Target):
    def sink(self, shard, stopping):
        return Rows(shard, self.where, self.opts.reader or "postgres", stopping)


PLUGIN = Plugin(readers={"postgres": "crawl_postgres.Postgres"})
