"""Hands each new connection to the next of several addresses in turn, as a Kubernetes service does.

python -m tests.cluster.splitter PORT HOST:PORT…
"""

import asyncio
import itertools
import sys


async def copy_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while block := await reader.read(65_536):
            writer.write(block)
            await writer.drain()
    finally:
        writer.close()


async def serve(port: int, addresses: list[str]) -> None:
    turn = itertools.cycle(addresses)

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, number = next(turn).partition(":")
        other_reader, other_writer = await asyncio.open_connection(host, int(number))
        await asyncio.gather(
            copy_bytes(reader, other_writer),
            copy_bytes(other_reader, writer),
            return_exceptions=True,
        )

    async with await asyncio.start_server(join, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2:]))
