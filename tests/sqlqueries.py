# SPDX-License-Identifier: MIT
"""Queries for tests/sql.py: fixed ones, and such as are made at random of the rows of a trace."""

COLUMNS = ("id", "parent_id", "thread", "tid", "process", "function", "module", "start", "duration", "depth", "stack")
# Of these the index's statistics tell how many rows there are.
COUNTED = ("SELECT function, count(*) AS n FROM spans GROUP BY function ORDER BY function", "SELECT count(*) AS n FROM spans",
           "SELECT DISTINCT function FROM spans ORDER BY function LIMIT 50", "SELECT function, module, count(*) AS n FROM spans GROUP BY "
           "function, module ORDER BY 1, 2")
# What answers.c writes anew: sums by functions and threads, and extremes.
SUMS = ("count(*) AS n, count(duration) AS d, min(duration) AS least, max(duration) AS most, sum(duration) AS total, round(avg(duration), 3) AS "
        "mean")
ANSWERED = (f"SELECT {SUMS} FROM spans", f"SELECT function, {SUMS} FROM spans GROUP BY function ORDER BY n DESC, function",
            f"SELECT module, function, {SUMS} FROM spans GROUP BY 1, 2 HAVING n > 1 ORDER BY 1, 2",
            f"SELECT module AS m, {SUMS} FROM spans WHERE function LIKE '%a%' GROUP BY module ORDER BY m",
            f"SELECT thread, {SUMS}, min(depth) AS low, max(depth) AS high FROM spans GROUP BY thread ORDER BY thread",
            f"SELECT tid, {SUMS} FROM spans WHERE NOT thread = 0 GROUP BY tid ORDER BY tid",
            "SELECT DISTINCT module FROM spans ORDER BY module", "SELECT function, max(duration) AS duration FROM spans GROUP BY function "
            "ORDER BY duration DESC, function LIMIT 9", "SELECT max(depth) - min(depth) AS d FROM spans",
            "SELECT count(*) AS n, min(start) AS a, max(start) - min(start) AS b FROM spans", "SELECT max(start) FROM spans WHERE depth = 9999",
            "SELECT max(duration), min( start ) FROM spans", "SELECT function FROM spans GROUP BY function HAVING max(duration) > 10000 ORDER BY 1",
            "SELECT round(max(start) / 1000.0) AS us FROM spans WHERE duration >= 100", "SELECT count(*) AS n FROM spans WHERE start > 1000000",
            "SELECT count(*) - 1 AS n, min(start) AS a FROM spans WHERE start >= 1000000 AND start <= 2000000 AND thread = 0")


def starts(lots, rows):
    """When calls began, by times that the rows have."""
    times = sorted(lots.choice(rows)["start"] for _ in range(2))
    where = lots.choice([f"start BETWEEN {times[0]} AND {times[1]}", f"start >= {times[0]} AND start < {times[1]}", f"start > {times[0]}",
                         f"start <= {times[1]}", f"start > {times[1]} AND start < {times[0]}"])
    return where + lots.choice(["", f" AND thread = {lots.choice(rows)['thread']}"])


# Several bounds of one thing, and a LIMIT that the index has.
BOUNDED = tuple(f"SELECT start FROM spans WHERE {both} ORDER BY start LIMIT 40" for both in (
    *(f"depth = {n} AND depth <= {n + 1}" for n in range(5)), "depth >= 2 AND depth <= 4 AND depth > 1 AND depth < 9", "depth <= 3 AND depth = 5"))


def condition(lots, rows):
    row = lots.choice(rows)
    duration = row["duration"] or 0
    quoted, function_id = row["function"].replace("'", "''"), -1 if row["function_id"] is None else row["function_id"]
    return lots.choice([
        f"id = {row['id']}", f"parent_id = {row['parent_id'] or row['id']}", f"function = '{quoted}'", f"depth = {row['depth']}",
        f"start >= {row['start']} AND start <= {row['start'] + lots.choice([0, 1000, 10**6])}", f"start > {row['start']}",
        f"start < {row['start']}", f"start > {row['start']}.5", f"start < {row['start']}.5", f"duration >= {duration}", f"duration > {duration}", f"duration < {duration}",
        f"duration BETWEEN {duration // 2} AND {duration * 2}", f"depth >= {row['depth']}", f"depth <= {row['depth']}",
        f"thread = {row['thread']}", f"function_id = {function_id}", f"thread = {row['thread']} AND function_id = {function_id}",
        f"tid = {row['tid']}", f"module = '{row['module']}'", "parent_id IS NULL", "duration IS NOT NULL"])


def query(lots, rows):
    where = " AND ".join(condition(lots, rows) for _ in range(lots.choice([1, 1, 2, 2, 3])))
    shape = lots.choice(["rows", "rows", "longest", "first", "groups", "sums", "extremes", "functions", "starts"])
    if shape == "rows":
        return f"SELECT {', '.join(COLUMNS)} FROM spans WHERE {where} ORDER BY id LIMIT 200"
    if shape == "longest":
        return f"SELECT duration FROM spans WHERE {where} ORDER BY duration DESC LIMIT {lots.randint(1, 30)}"
    if shape == "first":
        order = lots.choice(["start", "start DESC"])
        return f"SELECT start FROM spans WHERE {where} ORDER BY {order} LIMIT {lots.randint(1, 30)}"
    if shape == "extremes":
        return f"SELECT min(start), max(start) AS b, max(duration) AS c FROM spans WHERE {where}"
    if shape == "starts":
        return f"SELECT count(*) AS n, count(start) AS s, max(start) AS last FROM spans WHERE {starts(lots, rows)}"
    if shape == "functions":
        name = lots.choice(rows)["function"].replace("'", "''")
        return f"SELECT {SUMS}, max(start) AS last FROM spans WHERE function = '{name}'"
    if shape == "groups":
        keys = lots.choice(["function", "module, function"])
        return f"SELECT {keys}, count(*) AS n, sum(duration) AS s FROM spans WHERE {where} GROUP BY {keys} ORDER BY {keys}"
    return f"SELECT count(*) AS n, min(start) AS a, max(duration) AS b FROM spans WHERE {where}"
