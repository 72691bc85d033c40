# SPDX-License-Identifier: MIT
"""Stacks that are copied out and back: greenlets, and what is made of them."""
import asyncio
import sys

import greenlet


def greenlets():
    outside = greenlet.getcurrent()

    def down(depth, value):
        return outside.switch(value) if depth == 0 else down(depth - 1, value) + 1

    def body(depth):
        return sum(down(depth, value) for value in range(10))

    routines = [greenlet.greenlet(body) for _ in range(6)]
    waits = [routine.switch(5 * number) for number, routine in enumerate(routines)]
    turns = 0
    while any(routines):
        for number, routine in enumerate(routines):
            if routine:
                waits[number] = routine.switch(100 * number)
                turns += 1
    print("greenlets", turns, waits)


def throws():
    outside = greenlet.getcurrent()

    def body():
        try:
            outside.switch(1)
        except KeyError as error:
            raise ValueError("from within") from error

    routine = greenlet.greenlet(body)
    routine.switch()
    try:
        routine.throw(KeyError)
    except ValueError as error:
        print("throws", error)
    for _ in range(50):  # thrown away half-way
        greenlet.greenlet(lambda: outside.switch()).switch()


def green_server():
    import gevent
    import gevent.pool
    from gevent import socket
    from gevent.server import StreamServer

    def serve(connection, address):
        file = connection.makefile("rwb")
        for line in file:
            gevent.sleep(0)
            file.write(line.upper())
            file.flush()

    def ask(number):
        with socket.create_connection(("127.0.0.1", server.server_port)) as connection:
            file = connection.makefile("rwb")
            total = 0
            for turn in range(20):
                file.write(b"hello %d %d\n" % (number, turn))
                file.flush()
                total += len(file.readline())
        return total

    server = StreamServer(("127.0.0.1", 0), serve)
    server.start()
    print("gevent", sum(gevent.pool.Pool(10).map(ask, range(30))))
    server.stop()


def pool():
    import eventlet
    green = eventlet.GreenPool(10)

    def work(number):
        for _ in range(number % 7):
            eventlet.sleep(0)
        return number
    print("eventlet", sum(green.imap(work, range(100))))


def database():
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    async def one(engine, number):
        async with engine.connect() as connection:
            result = await connection.execute(text("select :a + 1"), {"a": number})
            await asyncio.sleep(0)
            return result.scalar()

    async def everything():
        engine = create_async_engine("sqlite+aiosqlite://")
        print("sqlalchemy", sum([sum(await asyncio.gather(*[one(engine, n) for n in range(10)])) for _ in range(3)]))
        await engine.dispose()
    asyncio.run(everything())


{"greenlet": lambda: (greenlets(), throws()), "gevent": green_server, "eventlet": pool,
 "sqlalchemy": database}[sys.argv[1]]()
