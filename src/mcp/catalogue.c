/* SPDX-License-Identifier: MIT */
/* The tools, as tools/list shows them: what they are for, and the schemas of their arguments and answers. */
#include "mcp/server.h"

/* JSON in C: '…' stands for "…" would be shorter, but nobody could search for it. Members that several tools have: */
#define TEXT(name, about)      "\"" name "\":{\"type\":\"string\",\"maxLength\":4096,\"description\":\"" about "\"}"
#define LONG_TEXT(name, about) "\"" name "\":{\"type\":\"string\",\"maxLength\":30000,\"description\":\"" about "\"}"
#define LIST(name, about)                                                                                              \
  "\"" name "\":{\"type\":\"array\",\"maxItems\":256,\"items\":{\"type\":\"string\",\"maxLength\":4096},"              \
  "\"description\":\"" about "\"}"
#define FLAG(name, about)  "\"" name "\":{\"type\":\"boolean\",\"description\":\"" about "\"}"
#define COUNT(name, about) "\"" name "\":{\"type\":\"integer\",\"minimum\":0,\"description\":\"" about "\"}"
#define CHOICE(name, values, about)                                                                                    \
  "\"" name "\":{\"type\":\"string\",\"enum\":[" values "],\"description\":\"" about "\"}"
#define SECONDS(name, most, about)                                                                                     \
  "\"" name "\":{\"type\":\"number\",\"minimum\":0,\"maximum\":" most ",\"description\":\"" about "\"}"
#define INPUT(members) "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{" members "}}"
#define INPUT_NEEDS(list, members)                                                                                     \
  "{\"type\":\"object\",\"additionalProperties\":false,\"required\":[" list "],\"properties\":{" members "}}"

#define TRACE         TEXT("trace", "a session (s1), a trace (t1), or a trace's directory; left out: the newest")
#define SESSION       TEXT("session", "the session (s1); left out: the newest that is recorded")
#define PATTERN_FORMS "foo::bar exact, foo* or foo::* one scope, foo::** deep, @file:FILE, @usercode, MODULE!PATTERN"
#define RECORDING                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                   \
  LIST("patterns", "functions to record: " PATTERN_FORMS ". Left out: all. []: none, until trace adds some")                                                                                                                                                                                                                                                                                                                                                                                                                        \
  "," CHOICE("mode", "\"auto\",\"full\",\"light\"", "full: calls and returns; light: calls only") "," LIST(                                                                                                                                                                                                                                                                                                                                                                                                                         \
      "exclude", "functions not to record: globs, MODULE!GLOB") "," LIST("detail",                                                                                                                                                                                                                                                                                                                                                                                                                                                  \
                                                                         "functions to record with arguments, "                                                                                                                                                                                                                                                                                                                                                                                                                     \
                                                                         "results, strings; "                                                                                                                                                                                                                                                                                                                                                                                                                                       \
                                                                         "'all'") "," TEXT("last", "keep the last "                                                                                                                                                                                                                                                                                                                                                                                                                 \
                                                                                                   "stretch only, "                                                                                                                                                                                                                                                                                                                                                                                                                 \
                                                                                                   "in memory: 30s, "                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                   "64M, or "                                                                                                                                                                                                                                                                                                                                                                                                                       \
                                                                                                   "both with a "                                                                                                                                                                                                                                                                                                                                                                                                                   \
                                                                                                   "comma") ","                                                                                                                                                                                                                                                                                                                                                                                                                     \
                                                                                                            "\"budge"                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                            "t\":{"                                                                                                                                                                                                                                                                                                                                                                                                                 \
                                                                                                            "\"type"                                                                                                                                                                                                                                                                                                                                                                                                                \
                                                                                                            "\":"                                                                                                                                                                                                                                                                                                                                                                                                                   \
                                                                                                            "\"numbe"                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                            "r\","                                                                                                                                                                                                                                                                                                                                                                                                                  \
                                                                                                            "\"minim"                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                            "um\":0."                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                            "1,"                                                                                                                                                                                                                                                                                                                                                                                                                    \
                                                                                                            "\"maxim"                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                            "um\":"                                                                                                                                                                                                                                                                                                                                                                                                                 \
                                                                                                            "1000,"                                                                                                                                                                                                                                                                                                                                                                                                                 \
                                                                                                            "\"descr"                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                            "iption"                                                                                                                                                                                                                                                                                                                                                                                                                \
                                                                                                            "\":"                                                                                                                                                                                                                                                                                                                                                                                                                   \
                                                                                                            "\"per "                                                                                                                                                                                                                                                                                                                                                                                                                \
                                                                                                            "cent "                                                                                                                                                                                                                                                                                                                                                                                                                 \
                                                                                                            "of the "                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                            "program"                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                            "'s "                                                                                                                                                                                                                                                                                                                                                                                                                   \
                                                                                                            "process"                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                            "or "                                                                                                                                                                                                                                                                                                                                                                                                                   \
                                                                                                            "time "                                                                                                                                                                                                                                                                                                                                                                                                                 \
                                                                                                            "that "                                                                                                                                                                                                                                                                                                                                                                                                                 \
                                                                                                            "recordi"                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                            "ng may "                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                            "take\"}"                                                                                                                                                                                                                                                                                                                                                                                                               \
                                                                                                            "," LIST("triggers",                                                                                                                                                                                                                                                                                                                                                                                                    \
                                                                                                                     "rules that mark moments: 'F > 1ms', 'call F', 'F returns < 0', 'off-cpu F > 10ms', crash, "                                                                                                                                                                                                                                                                                                                   \
                                                                                                                     "'every 10s'; with ': stop' or ': dump' after it") "," FLAG("follow",                                                                                                                                                                                                                                                                                                                                          \
                                                                                                                                                                                 "record children too") "," FLAG("sources", "write source files and lines into the trace") "," FLAG("lossless",                                                                                                                                                                                                                                     \
                                                                                                                                                                                                                                                                                    "the program waits for room rather than lose events (launch: default true)") "," TEXT("directory", "where the trace goes and stays; must not exist. Left out: the server's own, which goes with it "                                            \
                                                                                                                                                                                                                                                                                                                                                                                       "unless it was started with --directory") "," SECONDS("wait_s",                                                                              \
                                                                                                                                                                                                                                                                                                                                                                                                                                             "3600", "wait so long for the end (default 0: answer at once)") "," SECONDS("limit_s", \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                         "86400",   \
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                         "stop after so long")
#define FILTER                                                                                                                                                                                                                   \
  "\"filter\":{\"type\":\"object\",\"additionalProperties\":false,\"description\":\"which calls are meant\","                                                                                                                    \
  "\"properties\":{" TEXT("function", PATTERN_FORMS) "," TEXT("module", "glob of the module's name") "," TEXT("file", "source file of the function") "," TEXT("min_duration", "1ms: calls that took at least that") "," TEXT(    \
      "max_duration",                                                                                                                                                                                                            \
      "at most that") "," TEXT("from",                                                                                                                                                                                           \
                               "1.5 (seconds from the begin), 1500ms, "                                                                                                                                                          \
                               "or 10:15:30") "," TEXT("to",                                                                                                                                                                     \
                                                       "as from") "," COUNT("window",                                                                                                                                            \
                                                                            "number of a marked window, from "                                                                                                                   \
                                                                            "1") "," COUNT("thread",                                                                                                                             \
                                                                                           "its id") "," COUNT("proce"                                                                                                           \
                                                                                                               "ss",                                                                                                             \
                                                                                                               "its "                                                                                                            \
                                                                                                               "id, "                                                                                                            \
                                                                                                               "of "                                                                                                             \
                                                                                                               "those"                                                                                                           \
                                                                                                               " that"                                                                                                           \
                                                                                                               " were"                                                                                                           \
                                                                                                               " foll"                                                                                                           \
                                                                                                               "owed") "," TEXT("depth",                                                                                         \
                                                                                                                                "3 levels, or 2..5") "," TEXT("reason",                                                          \
                                                                                                                                                              "how calls ended: returned,exception,killed ...") "," TEXT("type", \
                                                                                                                                                                                                                         "call,point,output,switch,lost,crash") "}}"
#define PAGE                                                                                                           \
  "\"limit\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000,\"description\":\"rows or lines, default "           \
  "50\"}," TEXT("cursor", "the next page: the cursor of an answer; nothing else is needed then")

#define OUTPUT(members)                                                                                                \
  "{\"type\":\"object\",\"required\":[\"uncertain\",\"next\"],\"properties\":{" members                                \
  "\"uncertain\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"description\":\"what is lost, sampled or not "  \
  "known in this answer\"},\"next\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"description\":\"useful "     \
  "next "                                                                                                              \
  "calls\"},\"data_note\":{\"type\":\"string\"}}}"
#define OUT_TEXT(name)  "\"" name "\":{\"type\":\"string\"},"
#define OUT_COUNT(name) "\"" name "\":{\"type\":\"integer\"},"
#define OUT_STATUS                                                                                                     \
  OUT_TEXT("session")                                                                                                  \
  OUT_TEXT("trace")                                                                                                    \
  OUT_TEXT("state")                                                                                                    \
  OUT_TEXT("program")                                                                                                  \
  OUT_TEXT("end")                                                                                                      \
  OUT_TEXT("directory") OUT_COUNT("pid") OUT_COUNT("events") OUT_COUNT("lost") OUT_COUNT("functions")                  \
      OUT_COUNT("hooked") "\"stdout\":{\"type\":\"object\"},\"stderr\":{\"type\":\"object\"},"
#define OUT_PAGE                                                                                                       \
  OUT_COUNT("shown")                                                                                                   \
  OUT_TEXT("more")                                                                                                     \
  OUT_TEXT("cursor")                                                                                                   \
  OUT_TEXT("file")                                                                                                     \
  "\"columns\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},\"rows\":{\"type\":"                               \
  "\"array\",\"items\":"                                                                                               \
  "{\"type\":\"array\"}},\"lines\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"

#define READS    "{\"readOnlyHint\":true,\"destructiveHint\":false,\"idempotentHint\":true,\"openWorldHint\":false}"
#define CHANGES  "{\"readOnlyHint\":false,\"destructiveHint\":false,\"idempotentHint\":false,\"openWorldHint\":true}"
#define DESTROYS "{\"readOnlyHint\":false,\"destructiveHint\":true,\"idempotentHint\":false,\"openWorldHint\":true}"

const struct mcp_tool mcp_tools[] = {
    {.name = "launch",
     .title = "Run a program and record it",
     .description =
         "Starts a program and records its function calls from its first instruction on. Answers at once with a "
         "session, or with wait_s when it has ended. Its standard input is /dev/null or `stdin`; its output goes "
         "to files and into the trace. It is ended when the client goes, unless keep.",
     .input = INPUT_NEEDS(
         "\"program\"",
         TEXT("program", "a path, or a name that is looked up in PATH") "," LIST(
             "args",
             "its arguments") ","
                              "\"env\":{\"type\":\"object\",\"additionalProperties\":{\"type\":[\"string\","
                              "\"null\"],\"maxLength\":131072},"
                              "\"description\":\"variables to set, or with null to leave out, of the server's "
                              "environment\"}," TEXT(
                                  "cwd",
                                  "its working directory") ","
                                                           "\"stdin\":{\"type\":\"string\",\"maxLength\":1048576,"
                                                           "\"description\":\"its standard input\"}," FLAG(
                                                               "keep", "let it go on, unrecorded, when the client "
                                                                       "goes") "," RECORDING),
     .output = OUTPUT(OUT_STATUS),
     .hints = DESTROYS,
     .changes = true,
     .run = mcp_tool_launch},
    {.name = "attach",
     .title = "Record a process that runs",
     .description =
         "Puts hooks into a running process (stopped for some milliseconds) and records it until session stop, "
         "its end, or the client's; then it goes on as before.",
     .input =
         INPUT_NEEDS("\"process\"",
                     "\"process\":{\"type\":[\"integer\",\"string\"],\"maxLength\":4096,\"description\":\"its id, or "
                     "the name of one process only\"}," RECORDING),
     .output = OUTPUT(OUT_STATUS),
     .hints = CHANGES,
     .changes = true,
     .run = mcp_tool_attach},
    {.name = "trace",
     .title = "Choose what is recorded",
     .description =
         "Which functions a session hooks, changed while it runs: add or remove patterns, exclude, list; try says "
         "what patterns would match (of a session, or of a program file) and changes nothing. Also triggers "
         "(rules) and marks.",
     .input = INPUT_NEEDS(
         "\"action\"",
         CHOICE(
             "action",
             "\"add\",\"remove\",\"list\",\"try\",\"exclude\",\"include\",\"add_trigger\","
             "\"remove_trigger\",\"triggers\",\"mark\"",
             "include takes an exclusion back") "," SESSION
                                                "," LIST("patterns", PATTERN_FORMS) "," CHOICE(
                                                    "mode", "\"auto\",\"full\",\"light\"",
                                                    "of added patterns") "," TEXT("rule",
                                                                                  "of a trigger") "," TEXT("name",
                                                                                                           "of a "
                                                                                                           "mark") "," TEXT("program",
                                                                                                                            "try: a file, in "
                                                                                                                            "place of a "
                                                                                                                            "session")),
     .output = OUTPUT(OUT_TEXT("session") OUT_COUNT("hooked") OUT_COUNT("before") OUT_TEXT(
         "stopped_for") "\"patterns\":{\"type\":\"array\"},\"triggers\":{\"type\":\"array\"},\"unmatched\":{\"type\":"
                        "\"array\"},\"modules\":{\"type\":\"array\"},"),
     .hints = CHANGES,
     .changes = true,
     .run = mcp_tool_trace},
    {.name = "query",
     .title = "Ask a trace in SQL, or by filters",
     .description =
         "SQL (SQLite, reading only) over a session or trace, also while it is recorded; times in ns, "
         "duration_text(ns) as "
         "text (sort by the number: ORDER BY takes an alias of the same name first). Tables: "
         "spans(id, parent_id, tid, function, module, caller, start, end, duration, self, off, depth, reason, "
         "calls, flags), functions(name, module, file, line, calls, total, self, min, max, p50, p95, p99), "
         "edges(caller, callee, calls, total), threads, processes, modules, events, values, output(text), crash, "
         "windows, open_frames (what each thread is in now), lost, histogram. \\\"end\\\" and \\\"values\\\" need "
         "quotes. "
         "Without sql: the calls that pass `filter`, in order of time, as indented lines.",
     .input = INPUT(LONG_TEXT("sql", "one statement, reading only") "," TRACE "," FILTER "," PAGE "," FLAG(
         "to_file", "all rows into a file (CSV; lines as text), "
                    "whose path is the answer") "," FLAG("full_names",
                                                         "long names are not shortened") "," SECONDS("timeout_s", "600",
                                                                                                     "default 60")),
     .output = OUTPUT(OUT_TEXT("trace") OUT_PAGE OUT_TEXT("time")),
     .hints = READS,
     .run = mcp_tool_query},
    {.name = "analyze",
     .title = "Views of a trace",
     .description =
         "report: calls and times per function (sort, by); callers, callees of filter.function; graph: tree of call "
         "paths; slowest: the slowest calls with what they called; off: time off the processor; threads: what each "
         "thread is in now or was at the end; crash: the signal, backtrace and last calls; diff: what changed "
         "against the trace `other` (before); check: whether lines like 'foo.p99 < 1ms' or 'no crash' hold; hot: "
         "functions that are called all the time; output: what the program wrote; info.",
     .input = INPUT_NEEDS(
         "\"view\"",
         CHOICE(
             "view",
             "\"report\",\"callers\",\"callees\",\"graph\",\"slowest\",\"off\",\"threads\",\"crash\","
             "\"diff\",\"check\",\"hot\",\"output\",\"info\"",
             "which one") "," TRACE
                          "," TEXT("other", "diff: the trace before, named as trace") "," CHOICE(
                              "sort",
                              "\"total\",\"self\",\"calls\",\"min\",\"max\",\"avg\",\"p50\",\"p95\",\"p99\","
                              "\"name\",\"off\"",
                              "of report and diff") "," CHOICE("by",
                                                               "\"function\",\"module\",\"file\",\"thread\","
                                                               "\"process\",\"class\"",
                                                               "rows of report") "," CHOICE("time",
                                                                                            "\"wall\",\"cpu\",\"raw\"",
                                                                                            "cpu: without time off the "
                                                                                            "processor") "," LIST("chec"
                                                                                                                  "ks",
                                                                                                                  "for "
                                                                                                                  "chec"
                                                                                                                  "k") ","
                                                                                                                       "\"count\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":100,\"description\":\"slowest: so many "
                                                                                                                       "(default 3)\"},"
                                                                                                                       "\"levels\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":200,\"description\":\"graph, slowest: "
                                                                                                                       "levels of the tree (default 12)\"},"
                                                                                                                       "\"min_percent\":{\"type\":\"number\",\"minimum\":0,\"maximum\":100,\"description\":\"graph, slowest: what takes less of the whole is counted only (default 1)\"}," FLAG(
                                                                                                                           "source",
                                                                                                                           "with files and lines, where the trace has them") "," FLAG("family",
                                                                                                                                                                                      "of all processes that were followed") "," FILTER
                                                                                                                                                                                                                             "," PAGE
                                                                                                                                                                                                                             "," FLAG(
                                                                                                                                                                                                                                 "to_file",
                                                                                                                                                                                                                                 "all lines into a file, whose path is the answer")),
     .output = OUTPUT(OUT_TEXT("trace") OUT_TEXT("view") OUT_TEXT("result") OUT_PAGE),
     .hints = READS,
     .run = mcp_tool_analyze},
    {.name = "session",
     .title = "Sessions and traces",
     .description =
         "list: what is held, and other sessions of this user; status: state, events, losses, cost, output; wait: for "
         "its end; pause, resume; stop: ends the recording (end: true, the default of launched programs, ends the "
         "program too); dump: writes what a session with `last` holds now; open: a trace's directory; forget (remove: "
         "with "
         "its files).",
     .input = INPUT_NEEDS(
         "\"action\"",
         CHOICE("action", "\"list\",\"status\",\"wait\",\"pause\",\"resume\",\"stop\",\"dump\",\"open\",\"forget\"", "what to do") "," TEXT("session", "s1, t1; left out: the newest") "," TEXT(
             "directory",
             "open, dump: of the trace") "," FLAG("remove",
                                                  "forget: its files too") "," FLAG("end", "stop: end the program "
                                                                                           "(launched ones: default "
                                                                                           "true)") "," SECONDS("wait_"
                                                                                                                "s",
                                                                                                                "3600",
                                                                                                                "wait, "
                                                                                                                "stop: "
                                                                                                                "at "
                                                                                                                "most "
                                                                                                                "so "
                                                                                                                "long "
                                                                                                                "(defau"
                                                                                                                "lt "
                                                                                                                "60; "
                                                                                                                "stop: "
                                                                                                                "15)")),
     .output = OUTPUT(OUT_STATUS "\"sessions\":{\"type\":\"array\"},\"others\":{\"type\":\"array\"},\"dump\":{\"type\":"
                                 "\"object\"},"),
     .hints = DESTROYS,
     .run = mcp_tool_session},
    {.name = "itrace",
     .title = "Instructions of a call",
     .description =
         "record: every instruction of the next calls of a function, in a process that runs (session or pid; not one "
         "with hooks: stop its recording first) or in a program that is started for it. steps: the instructions, with "
         "registers and memory that changed. last_write: who last wrote a register or memory before a step.",
     .input =
         INPUT_NEEDS("\"action\"", CHOICE(
                                       "action", "\"record\",\"steps\",\"last_write\"",
                                       "what to do") "," TEXT("recording", "steps, last_write: the directory that "
                                                                           "record answered; left out: the last") "," TEXT("function",
                                                                                                                           "record: whose calls (glob); steps: only in functions that match") "," TEXT("when", "record: only if it holds at the first instruction: arg1 > 5") ","
                                                                                                                                                                                                                                                                              "\"calls\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000,\"description\":\"record: so many "
                                                                                                                                                                                                                                                                              "(default 1)\"}," COUNT("pid",
                                                                                                                                                                                                                                                                                                      "record: of the process") "," COUNT("thread", "its id") "," FLAG("all_threads", "record: all threads of the process, each with a file (steps: thread)") "," TEXT("program",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                       "record: start this") "," LIST("args",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                      "its arguments") "," SECONDS("limit_s", "600", "record: at most so long (default 10)") "," COUNT("step",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                       "steps: the first one; last_write: before this one") "," TEXT("what",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                     "last_write: rax, rflags, xmm3, or 0x7ffe1200:8") "," FLAG("back",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                "steps: towards the beginning") "," FLAG("registers", "steps: the whole state") "," FLAG("source",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                         "steps: source lines") "," PAGE),
     .output = OUTPUT(OUT_TEXT("recording") OUT_COUNT("instructions") OUT_COUNT("calls") OUT_COUNT("threads")
                          OUT_TEXT("end") OUT_PAGE),
     .hints = DESTROYS,
     .run = mcp_tool_itrace},
    {.name = "explain",
     .title = "What a word means",
     .description =
         "A term, an end reason, a refusal, a loss, a table or column, a limit: from contrail's documentation. Without "
         "term: what there is.",
     .input = INPUT(TEXT("term", "tail call, branch-into, light, uncertain, spans, ...") "," PAGE),
     .output = OUTPUT(OUT_TEXT("term") OUT_PAGE),
     .hints = READS,
     .run = mcp_tool_explain},
    {NULL},
};
