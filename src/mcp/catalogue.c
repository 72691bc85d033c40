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
#define ID(name, about)                                                                                                \
  "\"" name "\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":2147483647,\"description\":\"" about "\"}"
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
/* Of launch and attach. */
#define PATTERNS                                                                                                       \
  LIST("patterns", "functions to record: " PATTERN_FORMS ". Left out: all. []: none, until trace adds some")
#define MODE                                                                                                           \
  CHOICE("mode", "\"auto\",\"full\",\"light\"",                                                                        \
         "full: calls and returns; light: calls only, no times; auto: light for '**' with over 10 matches")
#define EXCLUDE LIST("exclude", "functions not to record: globs, MODULE!GLOB")
#define DETAIL  LIST("detail", "functions to record with arguments, results, strings; 'all'")
#define LAST    TEXT("last", "keep the last stretch only, in memory: 30s, 64M, or both with a comma")
#define BUDGET                                                                                                         \
  "\"budget\":{\"type\":\"number\",\"minimum\":0.1,\"maximum\":1000,\"description\":\"per cent of the program's "      \
  "processor time that recording may take\"}"
#define TRIGGERS                                                                                                       \
  LIST("triggers", "rules that mark moments: 'F > 1ms', 'call F', 'F returns < 0', 'off-cpu F > 10ms', crash, "        \
                   "'every 10s'; with ': stop' or ': dump' after it")
#define FOLLOW   FLAG("follow", "record children too")
#define SOURCES  FLAG("sources", "write source files and lines into the trace")
#define LOSSLESS FLAG("lossless", "the program waits for room rather than lose events (launch: default true)")
#define DIRECTORY                                                                                                      \
  TEXT("directory", "where the trace goes and stays; must not exist. Left out: the server's own, which goes with it "  \
                    "unless it was started with --directory")
#define WAIT_S  SECONDS("wait_s", "3600", "wait so long for the end (default 0: answer at once)")
#define LIMIT_S SECONDS("limit_s", "86400", "stop after so long")
#define RECORDING                                                                                                      \
  PATTERNS "," MODE "," EXCLUDE "," DETAIL "," LAST "," BUDGET "," TRIGGERS "," FOLLOW "," SOURCES "," LOSSLESS        \
           "," DIRECTORY "," WAIT_S "," LIMIT_S

#define FILTER_NAMES                                                                                                   \
  TEXT("function", PATTERN_FORMS)                                                                                      \
  "," TEXT("module", "glob of the module's name") "," TEXT("file", "source file of the function")
#define FILTER_TIMES                                                                                                   \
  TEXT("min_duration", "1ms: calls that took at least that")                                                           \
  "," TEXT("max_duration", "at most that") "," TEXT(                                                                   \
      "from", "1.5 (seconds from the start), 1500ms, or 10:15:30") "," TEXT("to", "as from")
#define FILTER_WHERE                                                                                                   \
  COUNT("window", "number of a marked window, from 1")                                                                 \
  "," ID("thread", "its id") "," ID("process", "its id, of those that were followed") "," TEXT("depth",                \
                                                                                               "3 levels, or 2..5")
#define FILTER_KINDS                                                                                                   \
  TEXT("reason", "how calls ended: returned,exception,killed ...")                                                     \
  "," TEXT("type", "call,point,output,switch,lost,crash")
#define FILTER                                                                                                         \
  "\"filter\":{\"type\":\"object\",\"additionalProperties\":false,\"description\":\"which calls are meant\","          \
  "\"properties\":{" FILTER_NAMES "," FILTER_TIMES "," FILTER_WHERE "," FILTER_KINDS "}}"

#define PAGE                                                                                                           \
  "\"limit\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000,\"description\":\"rows or lines, default "           \
  "50\"}," TEXT("cursor", "the next page: the cursor of an answer; nothing else is needed then")

/* The arguments of single tools. */
#define LAUNCH_PROGRAM TEXT("program", "a path, or a name that is looked up in PATH") "," LIST("args", "its arguments")
#define LAUNCH_ENV                                                                                                     \
  "\"env\":{\"type\":\"object\",\"additionalProperties\":{\"type\":[\"string\",\"null\"],\"maxLength\":131072},"       \
  "\"description\":\"variables to set, or with null to leave out, of the server's environment\"}"
#define LAUNCH_STDIN "\"stdin\":{\"type\":\"string\",\"maxLength\":1048576,\"description\":\"its standard input\"}"
#define LAUNCH_CWD   TEXT("cwd", "its working directory")
#define LAUNCH_KEEP  FLAG("keep", "let it go on, unrecorded, when the client goes")
#define TRACE_ACTION                                                                                                   \
  CHOICE(                                                                                                              \
      "action",                                                                                                        \
      "\"add\",\"remove\",\"list\",\"try\",\"exclude\",\"include\",\"add_trigger\",\"remove_trigger\",\"triggers\","   \
      "\"mark\"",                                                                                                      \
      "include takes an exclusion back")
#define TRACE_PATTERNS                                                                                                 \
  LIST("patterns", PATTERN_FORMS) "," CHOICE("mode", "\"auto\",\"full\",\"light\"", "of added patterns, as of launch")
#define TRACE_OTHERS                                                                                                   \
  TEXT("rule", "of a trigger") "," TEXT("name", "of a mark") "," TEXT("program", "try: a file, in place of a session")
#define QUERY_SQL LONG_TEXT("sql", "one statement, reading only")
#define QUERY_FILE                                                                                                     \
  FLAG("to_file", "all rows into a file (JSON; lines as text), whose path is the answer")                              \
  "," FLAG("full_names", "long names are not shortened")
#define VIEWS                                                                                                          \
  "\"report\",\"callers\",\"callees\",\"graph\",\"slowest\",\"off\",\"threads\",\"crash\",\"diff\",\"check\",\"hot\"," \
  "\"output\",\"info\""
#define VIEW_SORT                                                                                                      \
  CHOICE("sort", "\"total\",\"self\",\"calls\",\"min\",\"max\",\"avg\",\"p50\",\"p95\",\"p99\",\"name\",\"off\"",      \
         "of report and diff")
#define VIEW_BY   CHOICE("by", "\"function\",\"module\",\"file\",\"thread\",\"process\",\"class\"", "rows of report")
#define VIEW_TIME CHOICE("time", "\"wall\",\"cpu\",\"raw\"", "cpu: without time off the processor")
#define VIEW_COUNT                                                                                                     \
  "\"count\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":100,\"description\":\"slowest: so many (default 3)\"}"
#define VIEW_LEVELS                                                                                                    \
  "\"levels\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":200,\"description\":\"graph, slowest: levels of the "    \
  "tree "                                                                                                              \
  "(default 12)\"}"
#define VIEW_PERCENT                                                                                                   \
  "\"min_percent\":{\"type\":\"number\",\"minimum\":0,\"maximum\":100,\"description\":\"graph, slowest: what takes "   \
  "less "                                                                                                              \
  "of the whole is counted only (default 1)\"}"
#define VIEW_FLAGS                                                                                                     \
  FLAG("source", "with files and lines, where the trace has them")                                                     \
  "," FLAG("family", "of all processes that were followed")
#define SESSION_ACTION                                                                                                 \
  CHOICE("action", "\"list\",\"status\",\"wait\",\"pause\",\"resume\",\"stop\",\"dump\",\"open\",\"forget\"",          \
         "what to do")
#define SESSION_NAMES TEXT("session", "s1, t1; left out: the newest") "," TEXT("directory", "open, dump: of the trace")
#define SESSION_FLAGS                                                                                                  \
  FLAG("remove", "forget: its files too") "," FLAG("end", "stop: end the program (launched ones: default true)")
#define SESSION_WAIT   SECONDS("wait_s", "3600", "wait, stop: at most so long (default 60; stop: 15)")
#define STEPS_ACTION   CHOICE("action", "\"record\",\"steps\",\"last_write\"", "what to do")
#define STEPS_WHERE    TEXT("recording", "steps, last_write: the directory that record answered; left out: the last")
#define STEPS_FUNCTION TEXT("function", "record: whose calls (glob); steps: only in functions that match")
#define STEPS_WHEN     TEXT("when", "record: only if it holds at the first instruction: arg1 > 5")
#define STEPS_CALLS                                                                                                    \
  "\"calls\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":1000,\"description\":\"record: so many (default 1)\"}"
#define STEPS_WHOSE                                                                                                    \
  TEXT("session", "record: of the process of this session, whose recording was stopped")                               \
  "," ID("pid", "record: of the process") "," ID("thread", "its id")
#define STEPS_ALL FLAG("all_threads", "record: all threads of the process, each with a file (steps: thread)")
#define STEPS_PROGRAM                                                                                                  \
  TEXT("program", "record: start this")                                                                                \
  "," LIST("args", "its arguments") "," SECONDS("limit_s", "600", "record: at most so long (default 10)")
#define STEPS_STEP                                                                                                     \
  COUNT("step", "steps: the first one; last_write: before this one")                                                   \
  "," TEXT("what", "last_write: rax, rflags, xmm3, or 0x7ffe1200:8")
#define STEPS_FLAGS                                                                                                    \
  FLAG("back", "steps: towards the beginning")                                                                         \
  "," FLAG("registers", "steps: the whole state") "," FLAG("source", "steps: source lines")

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
  OUT_TEXT("directory")                                                                                                \
  OUT_COUNT("pid")                                                                                                     \
  OUT_COUNT("events")                                                                                                  \
  OUT_COUNT("lost")                                                                                                    \
  OUT_COUNT("functions") OUT_COUNT("hooked") "\"stdout\":{\"type\":\"object\"},\"stderr\":{\"type\":\"object\"},"
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
     .input = INPUT_NEEDS("\"program\"",
                          LAUNCH_PROGRAM "," LAUNCH_ENV "," LAUNCH_CWD "," LAUNCH_STDIN "," LAUNCH_KEEP "," RECORDING),
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
     .input = INPUT_NEEDS("\"action\"", TRACE_ACTION "," SESSION "," TRACE_PATTERNS "," TRACE_OTHERS),
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
     .input =
         INPUT(QUERY_SQL "," TRACE "," FILTER "," PAGE "," QUERY_FILE "," SECONDS("timeout_s", "600", "default 60")),
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
         CHOICE("view", VIEWS, "which one") "," TRACE "," TEXT(
             "other", "diff: the trace before, named as trace") "," VIEW_SORT "," VIEW_BY "," VIEW_TIME
                                                                "," LIST("checks",
                                                                         "for check") "," VIEW_COUNT "," VIEW_LEVELS
                                                                                      "," VIEW_PERCENT "," VIEW_FLAGS
                                                                                      "," FILTER "," PAGE "," FLAG(
                                                                                          "to_file",
                                                                                          "all lines into a file, "
                                                                                          "whose path is the answer")),
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
     .input = INPUT_NEEDS("\"action\"", SESSION_ACTION "," SESSION_NAMES "," SESSION_FLAGS "," SESSION_WAIT),
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
     .input = INPUT_NEEDS("\"action\"",
                          STEPS_ACTION "," STEPS_WHERE "," STEPS_FUNCTION "," STEPS_WHEN "," STEPS_CALLS "," STEPS_WHOSE
                                       "," STEPS_ALL "," STEPS_PROGRAM "," STEPS_STEP "," STEPS_FLAGS "," PAGE),
     .output = OUTPUT(OUT_TEXT("recording") OUT_COUNT("instructions") OUT_COUNT("calls") OUT_COUNT("threads")
                          OUT_TEXT("end") OUT_PAGE),
     .hints = DESTROYS,
     .run = mcp_tool_itrace},
    {.name = "explain",
     .title = "What a word means",
     .description =
         "A term, an end reason, a refusal, a loss, a table or column, a limit, how to find something (a slow call, a "
         "memory leak): from contrail's documentation. Without "
         "term: what there is.",
     .input = INPUT(TEXT("term", "tail call, branch-into, light, spans, memory leak, lock contention, ...") "," PAGE),
     .output = OUTPUT(OUT_TEXT("term") OUT_PAGE),
     .hints = READS,
     .run = mcp_tool_explain},
    {NULL},
};
