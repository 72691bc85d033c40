#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The lanes of a recording: what status and the manifest say of them while it runs, and a recorder that stands still.

    tests/lanes.py [--filter PATTERN] [--build DIR]
"""
import json
import os
import random
import shutil
import signal
import time

import triggers
from harness import case, expect, main, wait_for
from processes import all_stopped

EVENTS = 4096  # of a segment


class Scene(triggers.Scene):
    pass


def threads_of(status):
    return {thread["tid"]: thread for thread in status["thread_metrics"]}


@case
def metrics(scene):
    """Of each thread, of both lanes, and of the cache: they are those of now, and the manifest has them at the end."""
    scene.environment["CONTRAIL_CACHE"] = scene.path("cache")
    scene.start("--trace", "step", "--detail", "step")
    before = threads_of(scene.ask("status"))
    scene.do("step", 100000)

    def all_there():
        return sum(thread["events"] for thread in scene.ask("status")["thread_metrics"]) >= 200000
    wait_for("all events", all_there)
    status = scene.ask("status")
    thread, = threads_of(status).values()
    expect(thread["events"] == 200000 and thread["dropped"] == thread["skipped"] == 0, f"{thread}, before: {before}")
    entries = 2 * 200000  # of each event one more, which says where its record is
    expect(entries // EVENTS <= thread["swaps"] <= entries // EVENTS + 20, f"{thread}")
    expect(thread["detail_swaps"] > 100, f"{thread}")
    lanes = status["lanes"]
    expect(1 <= lanes["events"]["in_use"] <= lanes["events"]["segments"] and lanes["events"]["handed_over"] > 50, f"{lanes}")
    detail = lanes["detail"]
    expect(1 <= detail["used_most"] <= detail["segments"] and detail["in_use"] <= detail["segments"], f"{detail}")
    expect(detail["records"] == 200000 and detail["overwritten"] == detail["no_room"] == 0, f"{detail}")
    expect(100 < detail["handed_over"] <= thread["detail_swaps"], f"{detail}, {thread}")
    files = lanes["detail_files"]
    expect(files["blocks"] > 10 and 0 < files["p50_ns"] <= files["p99_ns"] <= files["most_ns"], f"{files}")
    text = scene.run(scene.contrail, "status")
    expect("\nring " in text and "\ndetail " in text and "segments in use" in text and "evictions" in text, text)
    scene.finish()
    manifest = scene.manifest()
    last, = manifest["threads"]
    expect(last["swaps"] >= thread["swaps"] and last["detail_swaps"] >= thread["detail_swaps"], f"{last}, {thread}")
    expect(manifest["lanes"]["detail"]["records"] == 200000 and manifest["lanes"]["detail"]["in_use"] == 0, f"{manifest['lanes']}")
    expect(manifest["analysis"]["stored"] > 0 and manifest["analysis"]["evictions"] == 0, f"{manifest['analysis']}")


@case
def full_cache(scene):
    """What is removed from a cache that is full is counted."""
    scene.environment["CONTRAIL_CACHE"] = scene.path("cache")
    scene.environment["CONTRAIL_CACHE_MIB"] = "1"
    scene.start()
    scene.finish()
    for name in os.listdir(scene.path("cache")):
        os.unlink(scene.path("cache", name))
        digit = "0" if name[0] != "0" else "1"
        with open(scene.path("cache", digit + name[1:]), "wb") as file:
            file.truncate(300 << 20)
        os.utime(file.name, (0, 0))
    shutil.rmtree(scene.trace)
    scene.start()
    scene.finish()
    analysis = scene.manifest()["analysis"]
    expect(analysis["evictions"] > 0 and analysis["misses"] >= analysis["stored"] > 0, f"{analysis}")
    expect(f"{analysis['evictions']} old ones removed" in scene.run(scene.contrail, "info", scene.trace), "info does not say it")


@case
def detail_without_room(scene):
    """Records that were written over before the recorder came to them are counted; no call has another one's."""
    scene.start("--trace", "step", "--detail", "step", "--detail-size", "1", "--no-wait")
    scene.process.send_signal(signal.SIGSTOP)
    wait_for("the recorder to stand still", lambda: all_stopped(scene.process.pid))
    scene.do("step", 200000)
    scene.process.send_signal(signal.SIGCONT)
    scene.finish()
    lines = [json.loads(line) for line in scene.run(scene.contrail, "replay", "--json", scene.trace).splitlines()]
    shown = [line.get("detail") for line in lines if line["kind"] == "enter"]
    with_detail = [(number, int(detail["registers"][0], 16)) for number, detail in enumerate(shown) if detail is not None]
    expect(len(shown) == 200000 and len(with_detail) > 100, f"{len(shown)} calls, {len(with_detail)} with detail")
    wrong = [pair for pair in with_detail if pair[0] != pair[1]]
    expect(not wrong, f"{len(wrong)} of {len(with_detail)} calls have the detail of others: {wrong[:3]}")
    detail = scene.manifest()["lanes"]["detail"]
    expect(detail["overwritten"] > 100000 and detail["records"] + detail["overwritten"] <= 400000, f"{detail}")
    expect(detail["used_most"] >= detail["segments"] - 1 and detail["high_times"] >= 1, f"{detail}")


@case(alone=True)
def stopped_for_ten_seconds(scene):
    """The recorder stands still: the program does all that it does, events are lost for the ring's reasons alone, and then all is well."""
    told = []
    for options in random.sample((("--no-wait",), ()), scene.rounds(1, 2)):
        scene.start("--trace", "step", "--ring-size", "4", "--pre", "0", "--post", "1m", *options)
        scene.do("step", 1000)
        scene.process.send_signal(signal.SIGSTOP)
        wait_for("the recorder to stand still", lambda: all_stopped(scene.process.pid))
        begin = time.monotonic()
        count = scene.do("step", 3000000)
        took = time.monotonic() - begin
        time.sleep(max(0, 10 - took))  # it is the duration that is asked for
        scene.process.send_signal(signal.SIGCONT)
        expect(count == 3000000, f"{count} calls")
        wait_for("the recorder", lambda: scene.execute(scene.contrail, "status").returncode == 0)
        def accounted():
            status = scene.ask("status")
            return status["dropped"] > 0 and status["events"] + status["dropped"] >= 2 * 3001000
        wait_for("all that was recorded or lost", accounted)
        scene.run(scene.contrail, "mark", "well")
        after = scene.do("step", 43210)  # fits into what the ring has for one thread: the recorder may come late
        scene.finish()
        manifest = scene.manifest()
        lost = manifest["dropped_by_reason"]
        expect(lost["drain_late"] == manifest["dropped_total"] > 0, f"{options}, the calls took {took} s: {lost}")
        rows = {row["name"]: row for row in json.loads(scene.run(scene.contrail, "report", "--json", "--window", "1", scene.trace))["functions"]}
        expect(rows["step"]["calls"] == after, f"{rows['step']['calls']} calls of {after} after that")
        calls = scene.rows()["step"]["calls"]
        expect(1000 + after <= calls < 3001000 + after, f"{calls} calls")
        shutil.rmtree(scene.trace)
        told.append(f"{' '.join(options) or 'waiting'}: {took:.1f} s")
    return ", ".join(told)


if __name__ == "__main__":
    main(__doc__, Scene)
