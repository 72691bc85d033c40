/* SPDX-License-Identifier: MIT */
/* analyze: the views of the library, as lines of text in pages. */
#include "mcp/held.h"

#include <contrail/check.h>
#include <contrail/diff.h>
#include <contrail/graph.h>
#include <contrail/hot_functions.h>
#include <contrail/info.h>
#include <contrail/output.h>
#include <contrail/report.h>
#include <contrail/slowest.h>
#include <contrail/text.h>

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WIDTH = 220, SLOWEST = 3, LEVELS = 12, LINES_MAX = MCP_ROWS_MAX, HOT_PERCENT = 80 };
#define MIN_PERCENT 1.0

/* One view under way. */
struct shown {
  struct mcp_call *call;
  const json_t *arguments;
  struct mcp_held *held;
  struct mcp_view view;
  struct ct_view_notes notes;
  struct ct_view_progress progress;
  struct ct_diag diag;
  enum ct_view_time time;
  FILE *out;
};

typedef int write_view(struct shown *shown);

static int
on_progress(void *request, uint64_t done, uint64_t total)
{
  mcp_progress(request, (double)done, (double)total, "reading the trace");
  return mcp_is_cancelled(request);
}

/* The place of a word in a list that NULL ends; 0 for none. */
static int
place_of(const char *word, const char *const *words)
{
  for (int i = 0; word != NULL && words[i] != NULL; i++) {
    if (strcmp(word, words[i]) == 0) {
      return i;
    }
  }
  return 0;
}

/* ---- the views ---- */

static const char *const sort_words[] = {
    [CT_SORT_TOTAL] = "total", [CT_SORT_SELF] = "self", [CT_SORT_CALLS] = "calls", [CT_SORT_MIN] = "min",
    [CT_SORT_MAX] = "max",     [CT_SORT_AVG] = "avg",   [CT_SORT_P50] = "p50",     [CT_SORT_P95] = "p95",
    [CT_SORT_P99] = "p99",     [CT_SORT_NAME] = "name", [CT_SORT_OFF] = "off",     NULL};

static int
write_rows(struct shown *shown, enum ct_report_rows rows, enum ct_report_sort sort)
{
  struct ct_report_options options = {.struct_size = sizeof(options),
                                      .sort = sort,
                                      .filter = &shown->view.filter,
                                      .width = WIDTH,
                                      .workers = 1,
                                      .progress = shown->progress,
                                      .source = mcp_get_flag(shown->arguments, "source"),
                                      .family = mcp_get_flag(shown->arguments, "family"),
                                      .time = shown->time,
                                      .rows = rows};
  shown->view.filter.limit = LINES_MAX;
  return ct_report_write(shown->view.trace, &options, shown->out, &shown->notes, &shown->diag);
}

static int
write_report(struct shown *shown)
{
  static const char *const groups[] = {"function", "module", "file", "thread", "process", "class", NULL};
  static const enum ct_report_rows rows[] = {CT_ROWS_FUNCTIONS, CT_ROWS_MODULES,   CT_ROWS_FILES,
                                             CT_ROWS_THREADS,   CT_ROWS_PROCESSES, CT_ROWS_CLASSES};
  return write_rows(shown, rows[place_of(mcp_get_text(shown->arguments, "by"), groups)],
                    (enum ct_report_sort)place_of(mcp_get_text(shown->arguments, "sort"), sort_words));
}

static int
write_off(struct shown *shown)
{
  return write_rows(shown, CT_ROWS_FUNCTIONS, CT_SORT_OFF);
}

static int
write_callers(struct shown *shown)
{
  return write_rows(shown, CT_ROWS_CALLERS,
                    (enum ct_report_sort)place_of(mcp_get_text(shown->arguments, "sort"), sort_words));
}

static int
write_callees(struct shown *shown)
{
  return write_rows(shown, CT_ROWS_CALLEES,
                    (enum ct_report_sort)place_of(mcp_get_text(shown->arguments, "sort"), sort_words));
}

static int
write_graph(struct shown *shown)
{
  struct ct_graph_options options = {.struct_size = sizeof(options),
                                     .filter = &shown->view.filter,
                                     .width = WIDTH,
                                     .min_percent = mcp_get_number(shown->arguments, "min_percent", MIN_PERCENT),
                                     .depth = (uint32_t)mcp_get_count(shown->arguments, "levels", LEVELS),
                                     .family = mcp_get_flag(shown->arguments, "family"),
                                     .source = mcp_get_flag(shown->arguments, "source"),
                                     .progress = shown->progress,
                                     .time = shown->time,
                                     .workers = 1};
  return ct_graph_write(shown->view.trace, &options, shown->out, &shown->notes, &shown->diag);
}

static int
write_slowest(struct shown *shown)
{
  struct ct_slowest_options options = {.struct_size = sizeof(options),
                                       .filter = &shown->view.filter,
                                       .count = (uint32_t)mcp_get_count(shown->arguments, "count", SLOWEST),
                                       .by_off = mcp_get_text(shown->arguments, "sort") != NULL &&
                                                 strcmp(mcp_get_text(shown->arguments, "sort"), "off") == 0,
                                       .depth = (uint32_t)mcp_get_count(shown->arguments, "levels", LEVELS),
                                       .min_percent = mcp_get_number(shown->arguments, "min_percent", MIN_PERCENT),
                                       .progress = shown->progress,
                                       .time = shown->time,
                                       .workers = 1,
                                       .family = mcp_get_flag(shown->arguments, "family")};
  return ct_slowest_write(shown->view.trace, &options, shown->out, &shown->notes, &shown->diag);
}

static int
write_info(struct shown *shown)
{
  struct ct_info_options options = {.struct_size = sizeof(options), .time = shown->time, .filter = &shown->view.filter};
  shown->notes.shown = 1;
  return ct_info_write(shown->view.trace, &options, shown->out, &shown->diag);
}

/* Of the info what is about the crash: the signal, threads, backtraces, the last calls. */
static int
write_crash(struct shown *shown)
{
  json_t *facts = mcp_facts(shown->held);
  const json_t *crash = json_object_get(facts, "crash");
  int code = 0;
  if (facts == NULL || !json_is_object(crash)) {
    fputs("no signal has ended the program\n", shown->out);
  } else {
    code = write_info(shown);
  }
  json_decref(facts);
  shown->notes.shown = 1;
  return code;
}

static int
write_output(struct shown *shown)
{
  struct ct_output_options options = {.struct_size = sizeof(options), .filter = &shown->view.filter};
  if (!mcp_get_flag(shown->arguments, "to_file")) {
    shown->view.filter.limit = LINES_MAX + 1; /* each call of write is a line at least */
  }
  shown->notes.shown = 1;
  return ct_output_write(shown->view.trace, &options, shown->out, &shown->diag);
}

static int
write_hot(struct shown *shown)
{
  struct ct_hot_functions_options options = {.struct_size = sizeof(options),
                                             .percent = HOT_PERCENT,
                                             .workers = 1,
                                             .progress = shown->progress,
                                             .filter = &shown->view.filter};
  shown->notes.shown = 1;
  return ct_hot_functions_write(shown->view.trace, &options, shown->out, &shown->notes, &shown->diag);
}

static int
add_checks(struct shown *shown, struct ct_checks *checks)
{
  const json_t *lines = json_object_get(shown->arguments, "checks"), *line;
  size_t i;
  if (json_array_size(lines) == 0) {
    snprintf(shown->diag.text, sizeof(shown->diag.text), "view check: which checks? ['foo.p99 < 1ms', 'no crash']");
    return CT_EINVAL;
  }
  if (checks == NULL) {
    return CT_ENOMEM;
  }
  json_array_foreach((json_t *)lines, i, line)
  {
    int code = ct_checks_add(checks, json_string_value(line), &shown->diag);
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

static int
write_check(struct shown *shown)
{
  static const char *const results[] = {"holds", "fails", "cannot be answered"};
  struct ct_check_options options = {.struct_size = sizeof(options),
                                     .workers = 1,
                                     .time = shown->time,
                                     .progress = shown->progress,
                                     .family = mcp_get_flag(shown->arguments, "family")};
  enum ct_check_result result = CT_CHECK_UNANSWERED;
  struct ct_checks *checks = ct_checks_create();
  int code = add_checks(shown, checks);
  if (code == 0) {
    code = ct_checks_write(shown->view.trace, checks, &options, shown->out, &result, &shown->notes, &shown->diag);
  }
  if (code == 0) {
    mcp_put(shown->call, "result", json_string(results[result]));
  }
  shown->notes.shown = 1;
  ct_checks_free(checks);
  return code;
}

/* What is uncertain in the other trace of two, by its name: the same may be said of the one that is asked. */
static void
put_doubts_of(struct mcp_call *call, struct mcp_held *other)
{
  json_t *own = call->uncertain, *one;
  size_t i;
  call->uncertain = json_array();
  mcp_doubts(call, other);
  json_t *others = call->uncertain;
  call->uncertain = own;
  json_array_foreach(others, i, one)
  {
    mcp_doubt(call, "%s (before): %s", other->name, json_string_value(one));
  }
  json_decref(others);
}

static int
write_diff(struct shown *shown)
{
  static const char *const words[] = {
      [CT_DIFF_SELF] = "self", [CT_DIFF_TOTAL] = "total", [CT_DIFF_CALLS] = "calls", [CT_DIFF_P50] = "p50",
      [CT_DIFF_P95] = "p95",   [CT_DIFF_P99] = "p99",     [CT_DIFF_NAME] = "name",   NULL};
  struct ct_diff_options options = {.struct_size = sizeof(options),
                                    .sort = (enum ct_diff_sort)place_of(mcp_get_text(shown->arguments, "sort"), words),
                                    .function_glob = shown->view.filter.function,
                                    .module_glob = shown->view.filter.module,
                                    .calls = &shown->view.filter,
                                    .limit = LINES_MAX,
                                    .family = mcp_get_flag(shown->arguments, "family"),
                                    .time = shown->time,
                                    .progress = shown->progress};
  const char *name = mcp_get_text(shown->arguments, "other");
  struct mcp_held *other = name != NULL ? mcp_held_get(shown->call, name) : NULL;
  struct mcp_view before;
  if (name == NULL) {
    mcp_fail(shown->call, "view diff: give the trace before as `other`");
  }
  if (other == NULL) {
    return CT_EINVAL;
  }
  int code = CT_EINVAL;
  if (mcp_view_open(shown->call, other, NULL, &before)) {
    code = ct_diff_write(before.trace, shown->view.trace, &options, shown->out, &shown->notes, &shown->diag);
    mcp_view_close(&before);
    put_doubts_of(shown->call, other);
  }
  shown->notes.shown = 1;
  mcp_held_put(other);
  return code;
}

/* ---- what each thread is in, by SQL ---- */

/* ns from the begin of the recording until now, of the same clock as its times. */
static uint64_t
now_of(const struct ct_trace *trace)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - ct_trace_start_ns(trace);
}

/* System calls that threads wait in. */
static const struct {
  long number;
  const char *name;
} waits[] = {{SYS_futex, "futex"},
             {SYS_read, "read"},
             {SYS_write, "write"},
             {SYS_poll, "poll"},
             {SYS_ppoll, "ppoll"},
             {SYS_select, "select"},
             {SYS_pselect6, "pselect6"},
             {SYS_epoll_wait, "epoll_wait"},
             {SYS_epoll_pwait, "epoll_pwait"},
             {SYS_nanosleep, "nanosleep"},
             {SYS_clock_nanosleep, "clock_nanosleep"},
             {SYS_accept, "accept"},
             {SYS_accept4, "accept4"},
             {SYS_recvfrom, "recvfrom"},
             {SYS_recvmsg, "recvmsg"},
             {SYS_wait4, "wait4"},
             {SYS_waitid, "waitid"},
             {SYS_flock, "flock"},
             {SYS_fcntl, "fcntl"},
             {SYS_pause, "pause"},
             {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
             {SYS_msgrcv, "msgrcv"}};

/* One thread's, if it waits in one. */
static bool
put_wait(FILE *out, pid_t pid, const char *tid)
{
  char path[64], text[200];
  long number = -1;
  unsigned long long first = 0;
  snprintf(path, sizeof(path), "/proc/%d/task/%.20s/syscall", (int)pid, tid);
  FILE *file = fopen(path, "re");
  bool waits_in_one = file != NULL && fgets(text, sizeof(text), file) != NULL &&
                      sscanf(text, "%ld %llx", &number, &first) == 2 && number >= 0;
  if (file != NULL) {
    fclose(file);
  }
  size_t i = 0;
  while (i < sizeof(waits) / sizeof(waits[0]) && waits[i].number != number) {
    i++;
  }
  if (waits_in_one && i < sizeof(waits) / sizeof(waits[0])) {
    fprintf(out, "%5s  %s(0x%llx, ...)\n", tid, waits[i].name, first);
  } else if (waits_in_one) {
    fprintf(out, "%5s  system call %ld(0x%llx, ...)\n", tid, number, first);
  }
  return waits_in_one;
}

/* Calls of a process that waited already when it was attached to are not known: what the system has its threads in is.
 */
static void
write_waits(struct shown *shown)
{
  enum { SHOWN = 40 };
  pid_t pid = shown->held->session->pid;
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
  DIR *tasks = opendir(path);
  int count = 0;
  fputs("\nsystem calls that threads wait in now, also where that began before the attach:\n", shown->out);
  for (const struct dirent *one; tasks != NULL && (one = readdir(tasks)) != NULL && count < SHOWN;) {
    count += one->d_name[0] != '.' && put_wait(shown->out, pid, one->d_name);
  }
  if (tasks != NULL) {
    closedir(tasks);
  }
  mcp_doubt(shown->call,
            "calls that had begun before the attach are not known: a thread without calls is in such a one");
  mcp_suggest(shown->call,
              "gdb -p %d -batch -ex 'thread apply all bt' (in a shell, after session action=stop): the stacks of what "
              "began before the attach",
              (int)pid);
}

static void
interrupt(void *sql)
{
  ct_sql_interrupt(sql);
}

/* While it is recorded a call lasts until now, and not only to the last event. */
static int
write_threads(struct shown *shown)
{
  char query[600], lasts[60] = "o.duration", which[40] = "t.tid <> 0";
  struct ct_sql_options options = {.struct_size = sizeof(options), .limit = LINES_MAX, .progress = shown->progress};
  struct ct_sql *sql;
  if (mcp_held_is_live(shown->held)) {
    snprintf(lasts, sizeof(lasts), "max(0, %llu - o.start)", (unsigned long long)now_of(shown->view.trace));
  }
  if (shown->view.tid != 0) {
    snprintf(which, sizeof(which), "t.tid = %u", shown->view.tid);
  }
  snprintf(query, sizeof(query),
           "SELECT t.tid, t.name AS thread, o.depth, o.function, o.module, duration_text(%s) AS \"in it for\" FROM "
           "threads t "
           "LEFT JOIN open_frames o ON o.thread = t.id WHERE %s ORDER BY t.id, o.depth DESC",
           lasts, which);
  int code = ct_sql_open(&options, &sql, &shown->diag);
  if (code != 0) {
    return code;
  }
  code = ct_sql_add(sql, shown->held->place, &shown->diag);
  if (code == 0) {
    mcp_on_cancel(shown->call->request, interrupt, sql);
    code = ct_sql_run(sql, query, shown->out, NULL, &shown->diag);
    mcp_on_cancel(shown->call->request, NULL, NULL);
  }
  ct_sql_close(sql);
  if (code == 0 && mcp_held_is_live(shown->held) && shown->held->session->argv == NULL) {
    write_waits(shown);
  }
  shown->notes.shown = 1;
  return code;
}

/* ---- the course of a view ---- */

static const struct {
  const char *name;
  write_view *write;
  bool needs_function;
  const char *next;  /* with the trace's name */
  const char *looks; /* at these members of the filter alone; NULL: at all */
} views[] = {
    {"report", write_report, false, "analyze view=callers filter={function: NAME} trace=%s: who calls one of them"},
    {"callers", write_callers, true,
     "query trace=%s sql=\"SELECT caller, duration FROM spans WHERE function = 'NAME' "
     "ORDER BY duration DESC LIMIT 5\": its slowest calls"},
    {"callees", write_callees, true, "analyze view=slowest filter={function: NAME} trace=%s: one slow call as a tree"},
    {"graph", write_graph, false, "analyze view=slowest trace=%s: single calls in place of sums"},
    {"slowest", write_slowest, false,
     "itrace action=record function=NAME: one call of it as instructions (of %s's program)"},
    {"off", write_off, false, "analyze view=threads trace=%s: what each thread is in"},
    {"threads", write_threads, false, "query trace=%s sql=\"SELECT * FROM open_frames\": the same with times",
     "thread"},
    {"crash", write_crash, false, "query trace=%s sql=\"SELECT text FROM output\": what it wrote before",
     "thread process"},
    {"diff", write_diff, false, "analyze view=callers filter={function: NAME} trace=%s: who calls what has changed"},
    {"check", write_check, false, "analyze view=report trace=%s: the numbers behind it", "process from to window"},
    {"hot", write_hot, false, "trace action=exclude, or launch with exclude: [...], and these are not recorded (%s)"},
    {"output", write_output, false, "query trace=%s sql=\"SELECT time, text FROM output\": with times",
     "thread process from to window"},
    {"info", write_info, false, "analyze view=report trace=%s", "thread process from to window"},
};

static void
put_lines(struct shown *shown, const struct mcp_lines *found)
{
  bool has_more;
  json_t *lines = mcp_split_lines(found->text, found->size, LINES_MAX, &has_more);
  mcp_put_page(shown->call, "lines", NULL, lines, mcp_get_count(shown->arguments, "limit", 0),
               has_more || found->is_cut);
}

static bool
show(struct shown *shown, size_t which)
{
  struct mcp_call *call = shown->call;
  struct mcp_lines lines = {NULL};
  char path[PATH_MAX];
  bool to_file = mcp_get_flag(shown->arguments, "to_file");
  shown->out = to_file ? mcp_answer_file(call, ".txt", path) : mcp_lines_open(&lines);
  int code = shown->out != NULL ? views[which].write(shown) : CT_ENOMEM;
  if (shown->out != NULL && ferror(shown->out) && code == 0) {
    code = CT_EIO;
  }
  if (shown->out != NULL && fclose(shown->out) != 0 && code == 0) {
    code = CT_EIO;
  }
  if (code != 0) {
    if (to_file && shown->out != NULL) {
      unlink(path);
    }
    free(lines.text);
    return mcp_fail(call, "%s", shown->diag.text[0] != '\0' ? shown->diag.text : ct_err_text(code));
  }
  if (to_file) {
    mcp_put(call, "file", mcp_text(path));
  } else {
    put_lines(shown, &lines);
  }
  free(lines.text);
  if (shown->notes.damaged_threads != 0 && !mcp_held_is_live(shown->held)) { /* else the rest comes yet */
    mcp_doubt(call, "the file%s of %u thread%s damaged or cut (thread %u the first): what comes after that is missing",
              shown->notes.damaged_threads == 1 ? "" : "s", shown->notes.damaged_threads,
              shown->notes.damaged_threads == 1 ? " is" : "s are", shown->notes.first_damaged_tid);
  }
  if (shown->notes.shown == 0) {
    mcp_report_unmatched(call, &shown->view);
  }
  return true;
}

static void
suggest(struct mcp_call *call, const struct mcp_held *held, size_t which)
{
  char text[400];
  snprintf(text, sizeof(text), views[which].next, held->name);
  if (json_object_get(call->body, "cursor") != NULL) {
    mcp_suggest(call, "analyze view=%s cursor=%s: the next page", views[which].name,
                mcp_get_text(call->body, "cursor"));
  }
  if (mcp_suggest_dump(call, held)) {
    return;
  }
  const json_t *filter = json_object_get(call->arguments, "filter");
  if (views[which].write == write_slowest && mcp_get_text(filter, "function") == NULL &&
      mcp_get_text(filter, "reason") == NULL) {
    mcp_suggest(
        call,
        "analyze view=slowest trace=%s filter={reason: returned}, with time: cpu if these only wait for work: calls "
        "that have not returned (main, an idle thread) come before all others",
        held->name);
  }
  mcp_suggest(call, "%s", text);
}

/* What of the filter the view does not look at: it shows more than was asked for. */
static void
doubt_filter(struct mcp_call *call, size_t which)
{
  const char *member, *looks = views[which].looks;
  json_t *value;
  json_object_foreach(json_object_get(call->arguments, "filter"), member, value)
  {
    size_t length = strlen(member);
    const char *at = looks != NULL ? strstr(looks, member) : NULL;
    bool is_looked_at =
        looks == NULL || (at != NULL && (at == looks || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'));
    if (!is_looked_at) {
      mcp_doubt(call, "view %s does not look at filter.%s: it shows what that leaves out too", views[which].name,
                member);
    }
  }
}

static bool
analyze(struct mcp_call *call, struct mcp_held *held, size_t which)
{
  static const char *const times[] = {"wall", "cpu", "raw", NULL};
  struct shown shown = {.call = call,
                        .arguments = call->arguments,
                        .held = held,
                        .notes = {.struct_size = sizeof(shown.notes)},
                        .progress = {on_progress, NULL, call->request},
                        .time = (enum ct_view_time)place_of(mcp_get_text(call->arguments, "time"), times)};
  if (!mcp_view_open(call, held, json_object_get(call->arguments, "filter"), &shown.view)) {
    return false;
  }
  mcp_put(call, "trace", json_string(held->name));
  mcp_put(call, "view", json_string(views[which].name));
  bool good = !views[which].needs_function || shown.view.filter.function != NULL ||
              mcp_fail(call, "view %s: of which function? filter: {function: PATTERN}", views[which].name);
  good = good && show(&shown, which);
  doubt_filter(call, which);
  mcp_view_close(&shown.view);
  return good;
}

bool
mcp_tool_analyze(struct mcp_call *call)
{
  const char *view = mcp_get_text(call->arguments, "view"), *cursor = mcp_get_text(call->arguments, "cursor");
  size_t which = 0;
  if (cursor != NULL) {
    return mcp_put_next_page(call, cursor, mcp_get_count(call->arguments, "limit", 0));
  }
  while (strcmp(views[which].name, view) != 0) { /* the schema has no others */
    which++;
  }
  struct mcp_held *held = mcp_held_get(call, mcp_get_text(call->arguments, "trace"));
  bool good = held != NULL && analyze(call, held, which);
  if (good) {
    mcp_doubts(call, held);
    suggest(call, held, which);
    call->has_target_text = true;
  }
  if (held != NULL) {
    mcp_held_put(held);
  }
  return good;
}
