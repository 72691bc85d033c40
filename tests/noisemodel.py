# SPDX-License-Identifier: MIT
"""What `contrail diff` says of chance, from the lines of `replay --json --raw` of both traces, for diff.py.

The rules are those of the manual (contrail diff) and of the comment in src/views/noise.h. A clock of one tick a nanosecond
(one_tick_a_ns) makes the times of the lines exact.
"""
import collections
import json
import math
import os

BATCHES, MANY, TYPICAL, WELL_KNOWN, GROUP, TAIL = 32, 8, 50, 8, 20, 20


def one_tick_a_ns(trace, costs_of=None):
    """costs_of: hooks cost what they did in this one."""
    path = os.path.join(trace, "manifest.json")
    with open(path, encoding="utf-8") as file:
        told = json.load(file)
    if costs_of is not None:
        with open(os.path.join(costs_of, "manifest.json"), encoding="utf-8") as file:
            told["hook_costs"] = json.load(file)["hook_costs"]
    clock = told["clock"]
    clock["ns1"] = clock["ns0"] + clock["tsc1"] - clock["tsc0"]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(told, file)


class Function:
    def __init__(self):
        self.calls = self.self = self.children = 0
        self.points = False  # in it, or it is one
        self.selves = collections.defaultdict(list)  # of calls with a known end, by thread, in the order of their ends

    def all_selves(self):
        return sorted(self_ns for own in self.selves.values() for self_ns in own)

    def batches(self):
        """(calls, ns) of calls number n << shift to (n + 1) << shift of each thread."""
        most, shift = max((len(own) for own in self.selves.values()), default=0), 0
        while most and (most - 1) >> shift >= BATCHES:
            shift += 1
        out = [[0, 0] for _ in range(((most - 1) >> shift) + 1 if most else 0)]
        for own in self.selves.values():
            for number, self_ns in enumerate(own):
                out[number >> shift][0] += 1
                out[number >> shift][1] += self_ns
        return out


def side(lines):
    """Functions by (name, module), and for how long threads were preempted."""
    functions, preempted, stacks = collections.defaultdict(Function), 0, collections.defaultdict(list)
    for line in lines:
        kind = line["kind"]
        if kind == "away":
            preempted += line["duration_ns"] * (line["reason"] == "preempted")
        if kind not in ("enter", "return", "left", "tail", "point"):
            continue
        key, stack = (line["name"], line["module"]), stacks[line["tid"], line["stack"]]
        if kind in ("return", "left") or (kind == "tail" and "ended" in line):
            own, inside = stack.pop()
            if kind == "tail":
                assert own == (line["ended"]["name"], line["ended"]["module"]), line
            self_ns = line["duration_ns"] - inside
            functions[own].self += self_ns
            if not line.get("uncertain") and line.get("reason") not in ("still open", "stack switched"):
                functions[own].selves[line["tid"]].append(self_ns)
            if stack:
                stack[-1][1] += line["duration_ns"]
        if kind in ("enter", "tail", "point"):
            functions[key].calls += 1
            if stack:
                functions[stack[-1][0]].children += 1
                functions[stack[-1][0]].points |= kind == "point"
            if kind == "point":
                functions[key].points = True
            else:
                stack.append([key, 0])
    return functions, preempted


def middle(value):
    """Of the histogram's bucket: 64 in each octave."""
    width = max(1 << value.bit_length() >> 7, 1)
    return value // width * width + (width - 1) // 2


def typical(selves):
    """Mean without the tenths at the ends, and its error by the winsorized variance, doubled."""
    values, count = [middle(value) for value in selves], len(selves)
    low, high = 0.1 * count, 0.9 * count
    kept = [(max(0, min(i + 1, high) - max(i, low)), value) for i, value in enumerate(values)]
    kept = [(share, value) for share, value in kept if share > 0]
    share = sum(share for share, _ in kept)
    weighed = kept + [(low, kept[0][1]), (low, kept[-1][1])]
    mean = sum(share * value for share, value in weighed) / count
    variance = sum(share * (value - mean) ** 2 for share, value in weighed) / count
    return sum(share * value for share, value in kept) / share, 2 * math.sqrt(variance) / (0.8 * math.sqrt(count))


def quantile(probability, freedom=0):
    low, high = 0.0, 40.0
    while high - low > 1e-12:
        at = (low + high) / 2
        low, high = (at, high) if math.erfc(at / math.sqrt(2)) > probability else (low, at)
    z, n = low, freedom
    if not freedom:
        return z
    return (z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2) +
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3))


def part(ordered, share):
    return ordered[int(share * (len(ordered) - 1) + 0.5)]


def robust(deviations):
    ordered = sorted(deviations)
    if not ordered:
        return 0
    return max(1.4826 * part(ordered, 0.5), part(ordered, 0.9) / 1.645 if len(ordered) >= TAIL else 0)


def own_variance(batches):
    calls, ticks = map(sum, zip(*batches))
    mean = ticks / calls
    return sum((ns - mean * n) ** 2 for n, ns in batches) * len(batches) / (len(batches) - 1)


def variance(before, after):
    if [n for n, _ in before] != [n for n, _ in after]:
        return own_variance(before) + own_variance(after)
    steps = [b[1] - a[1] for a, b in zip(before, after)]
    return max(0, sum(x * x for x in steps) - sum(steps)**2 / len(steps)) * len(steps) / (len(steps) - 1)


class Noise:
    """hooks: by how much a call's own time and its caller's may differ, as diff says."""

    def __init__(self, sides, hooks=(0, 0), cpu=False):
        (before, preempted), (after, preempted_after) = sides
        self.pairs = {key: (before[key], after[key]) for key in before.keys() & after.keys()}
        self.times = {key: pair for key, pair in self.pairs.items() if all(one.calls and one.selves for one in pair)}
        self.hooks, self.disturbance = hooks, max(preempted, preempted_after) / (100 if cpu else 1)
        self.batches = {key: tuple(one.batches() for one in pair) for key, pair in self.times.items()}
        self.typical = {key: tuple(typical(one.all_selves()) for one in pair) for key, pair in self.times.items()
                        if all(sum(map(len, one.selves.values())) >= TYPICAL for one in pair)}
        self.typical = {key: pair for key, pair in self.typical.items() if pair[0][0] > 0 and pair[1][0] > 0}
        self.of_all()
        self.level = 0.005 / max(1, len(self.pairs))
        self.z = quantile(self.level)

    def of_all(self):
        ratios = sorted(math.log(a[0] / b[0]) for b, a in self.typical.values() if b[0] > 50)
        self.common, self.spread = 1, 0.015
        if len(ratios) >= WELL_KNOWN:
            common = part(ratios, 0.5)
            self.common = math.exp(common) if abs(common) <= 0.1 else 1
            self.spread = max(robust(abs(ratio - common) for ratio in ratios), 0.01)
        short = [abs(a[0] - b[0]) for b, a in self.typical.values() if a[0] < 200 and b[0] < 200]
        self.call = max(robust(short) if len(short) >= WELL_KNOWN else 0, 2)
        steps = [abs(a.calls - b.calls) / math.sqrt(a.calls + b.calls) for b, a in self.pairs.values() if a.calls and b.calls]
        self.overdispersion = max((robust(steps) if len(steps) >= WELL_KNOWN else 0)**2, 1)

    def is_many(self, key):
        return all(len(batches) >= MANY for batches in self.batches[key])

    def octave(self, key):
        most = max(one.self for one in self.times[key])
        return int(math.log2(most)) if most > 1 else 0

    def spread_of_few(self, octave):
        around = 1
        while around <= 64:
            ratios = [abs(math.log(a.self / b.self)) for key, (b, a) in self.times.items()
                      if not self.is_many(key) and a.self > 0 and b.self > 0 and abs(self.octave(key) - octave) <= around]
            if len(ratios) >= GROUP:
                return robust(ratios)
            around *= 2
        return 0.25

    def of_hooks(self, key):
        own, child = self.hooks
        return sum(own * one.calls + child * one.children for one in self.pairs[key]) / 2

    def calls_noise(self, key):
        return self.z * math.sqrt(self.overdispersion * sum(one.calls for one in self.pairs[key]))

    def self_noise(self, key):
        before, after = self.times[key]
        if not self.is_many(key):
            bound = max(self.z * self.spread_of_few(min(self.octave(key), 63)), 0.25)
            return max(max(before.self, after.self) * (1 - math.exp(-bound)), self.disturbance, 50e3) + self.of_hooks(key)
        batches = self.batches[key]
        timed, ticks = map(sum, zip(*batches[0]))
        within = quantile(self.level, min(map(len, batches)) - 1) * math.sqrt(variance(*batches)) * max(1, before.calls / timed)
        between = self.z * self.spread * (before.self + after.self) / 2
        both = before.calls + after.calls
        calls = self.z * ticks / timed * math.sqrt(self.overdispersion * both) if before.calls != after.calls else 0
        return math.sqrt(within**2 + between**2 + calls**2) + self.call * both / 2 + self.of_hooks(key)

    def is_self_changed(self, key):
        """And by how much that is sure."""
        before, after = self.times[key]
        change = after.self / (self.common if self.is_many(key) else 1) - before.self
        return abs(change) > self.self_noise(key), abs(abs(change) / self.self_noise(key) - 1)

    def typical_noise(self, key):
        (before, error), (after, error_after) = self.typical[key]
        hooks = 2 * self.of_hooks(key) / sum(one.calls for one in self.pairs[key])
        return (self.z * math.sqrt(self.spread**2 + (error / before)**2 + (error_after / after)**2) +
                math.log(1 + (self.z * self.call + hooks) / min(before, after)))

    def is_typical_changed(self, key):
        (before, _), (after, _) = self.typical[key]
        change = abs(math.log(after / before) - math.log(self.common))
        return change > self.typical_noise(key), abs(change / self.typical_noise(key) - 1)
