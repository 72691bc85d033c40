// SPDX-License-Identifier: MIT
// Exceptions, threads, fibers and collections; ends with status 5.
import std.stdio, std.conv, core.thread, core.memory;

extern (C) int counted_leaf(int x) { pragma(inline, false); return x + 1; }
class Kept
{
    int[] values;
    this(int n) { values = new int[n]; }
}

void thrower(int n)
{
    if (n == 0)
        throw new Exception("thrown");
    thrower(n - 1);
}

void work()
{
    foreach (i; 0 .. 20000)
    {
        auto kept = new Kept(counted_leaf(i % 100));
        if (i % 5000 == 0)
            GC.collect();
    }
}

int main()
{
    int caught, turns;
    foreach (i; 0 .. 500)
        try
            thrower(10);
        catch (Exception e)
            caught++;
    Thread[] threads;
    foreach (i; 0 .. 4)
    {
        threads ~= new Thread(&work);
        threads[$ - 1].start();
    }
    foreach (thread; threads)
        thread.join();
    auto fiber = new Fiber({ foreach (i; 0 .. 1000) Fiber.yield(); });
    for (; fiber.state != Fiber.State.TERM; turns++)
        fiber.call();
    writeln(caught, " ", turns, " ", to!string(3.5));
    return 5;
}
