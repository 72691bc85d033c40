/* SPDX-License-Identifier: MIT */
/* contrail top: the functions of a recording that goes on, as they are called. */
#include "cli/quantity.h"
#include "cli/top.h"

#include "cli/screen.h"
#include "cli/view.h"

#include <contrail/text.h>

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_ROWS = 20, GONE_LOOKS = 5 };
#define BUDGET 0.8 /* of the interval: so long the trace is read */

static volatile sig_atomic_t interrupted;

static void
interrupt(int number)
{
  (void)number;
  interrupted = 1;
}

uint64_t
ct_top_now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- a look ---- */

static void
take_status(struct ct_top *top, json_t *status)
{
  const json_t *cost = json_object_get(status, "cost");
  uint64_t now = ct_top_now_ns(), events = ct_number_of(status, "events"), dropped = ct_number_of(status, "dropped");
  uint64_t hooks = ct_number_of(cost, "hooks_ns"), cpu_ns = ct_number_of(cost, "program_cpu_ns");
  /* Counts come in blocks. So a moment after another answer they say nothing, as at the first look (run). */
  bool is_later = top->asked_ns != 0 && (double)(now - top->asked_ns) >= top->interval_s * 1e9 / 2;
  top->last_ns = is_later ? now - top->asked_ns : 0;
  top->events_last = events > top->events ? events - top->events : 0;
  top->dropped_last = dropped > top->dropped ? dropped - top->dropped : 0;
  bool is_known = is_later && cpu_ns > top->cpu_ns && hooks >= top->hooks;
  top->overhead_last = is_known ? (double)(hooks - top->hooks) / (double)(cpu_ns - top->cpu_ns) : -1;
  top->asked_ns = now;
  top->events = events;
  top->dropped = dropped;
  top->hooks = hooks;
  top->cpu_ns = cpu_ns;
  json_decref(top->status);
  top->status = status;
}

double
ct_top_overhead(const struct ct_top *top)
{
  return top->cpu_ns != 0 && top->hooks != 0 ? (double)top->hooks / (double)top->cpu_ns : -1;
}

uint64_t
ct_top_events(const struct ct_top *top)
{
  return top->is_gone && top->state.events > top->events ? top->state.events : top->events;
}

int
ct_top_look(struct ct_top *top, uint64_t budget_ns, struct ct_diag *diag)
{
  int code = CT_OK;
  struct ct_diag asked = {""};
  json_t *status = top->is_gone ? NULL : ct_ask(top->id, "status", NULL, CT_PEEK_MS, &code, &asked);
  if (status != NULL) {
    take_status(top, status);
  } else {
    top->last_ns = 0;
    top->overhead_last = -1;
    top->is_gone = top->is_gone || code == CT_ENOENT;
  }
  top->state = (struct ct_live_state){.struct_size = sizeof(top->state)};
  int error = ct_live_poll(top->live, budget_ns, &top->state, diag);
  return error == CT_OK ? ct_live_rows(top->live, top->sort, top->pattern, &top->row_count, diag) : error;
}

bool
ct_top_is_over(const struct ct_top *top)
{
  return top->state.ended;
}

/* ---- as JSON ---- */

static json_t *
known(bool is_known, json_t *value)
{
  if (is_known) {
    return value;
  }
  json_decref(value);
  return json_null();
}

static json_t *
function_json(const struct ct_top *top, const struct ct_live_row *row)
{
  json_t *last = json_null();
  if (top->state.last_is_known) {
    last = json_pack("{s:I, s:I, s:o}", "calls", (json_int_t)row->last_calls, "self_ns", (json_int_t)row->last_self_ns,
                     "p99_ns", known(row->has_last_p99, json_integer((json_int_t)row->last_p99_ns)));
  }
  return json_pack("{s:o, s:o, s:I, s:I, s:o, s:I, s:b, s:o}", "name", ct_json_text(row->name), "module",
                   ct_json_text(row->module), "calls", (json_int_t)row->calls, "self_ns", (json_int_t)row->self_ns,
                   "p99_ns", known(row->has_p99, json_integer((json_int_t)row->p99_ns)), "open", (json_int_t)row->open,
                   "sampled", row->is_sampled, "last", last);
}

static json_t *
threads_json(const struct ct_top *top)
{
  struct ct_live_thread thread;
  json_t *threads = json_array();
  for (size_t i = 0; ct_live_thread(top->live, i, &thread); i++) {
    json_array_append_new(threads,
                          json_pack("{s:I, s:o, s:I, s:I, s:I}", "tid", (json_int_t)thread.tid, "name",
                                    ct_json_text(thread.name), "events", (json_int_t)thread.events, "last_events",
                                    (json_int_t)thread.last_events, "open", (json_int_t)thread.open));
  }
  return threads;
}

/* What was read of the trace, which may be less than the session has recorded. */
static json_t *
read_json(const struct ct_live_state *state)
{
  return json_pack("{s:I, s:I, s:I, s:I, s:I, s:b}", "events", (json_int_t)state->events, "lost",
                   (json_int_t)state->lost, "bytes_left", (json_int_t)state->bytes_left, "threads_left",
                   (json_int_t)state->threads_left, "threads_damaged", (json_int_t)state->damaged, "ended",
                   state->ended);
}

static json_t *
top_json(const struct ct_top *top)
{
  const struct ct_live_state *state = &top->state;
  json_t *functions = json_array();
  for (size_t i = 0; i < top->row_count && (top->limit == 0 || i < top->limit); i++) {
    json_array_append_new(functions, function_json(top, ct_live_row(top->live, i)));
  }
  /* The session may have been asked just before its end, which was then read. */
  const char *word = top->is_gone || state->ended ? "ended"
                     : top->status != NULL        ? ct_text_of(top->status, "state")
                                                  : "?";
  double share = ct_top_overhead(top);
  json_t *json = json_pack(
      "{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "session", top->id, "state", word, "events",
      known(top->asked_ns != 0, json_integer((json_int_t)top->events)), "dropped",
      known(top->asked_ns != 0, json_integer((json_int_t)top->dropped)), "events_per_second",
      known(top->last_ns != 0,
            json_real(top->last_ns != 0 ? (double)top->events_last * 1e9 / (double)top->last_ns : 0)),
      "dropped_last", known(top->last_ns != 0, json_integer((json_int_t)top->dropped_last)), "overhead",
      known(share >= 0, json_real(share)), "overhead_last",
      known(top->overhead_last >= 0, json_real(top->overhead_last)), "hooked",
      (json_int_t)ct_number_of(top->status, "hooked"), "children", (json_int_t)ct_number_of(top->status, "children"));
  json_object_set_new(json, "last_ns", known(state->last_is_known, json_integer((json_int_t)state->last_ns)));
  json_object_set_new(json, "read", read_json(state));
  json_object_set_new(json, "function_count", json_integer((json_int_t)top->row_count));
  json_object_set_new(json, "functions", functions);
  json_object_set_new(json, "threads", threads_json(top));
  return json;
}

/* ---- as a table ---- */

static void
put_heading(const struct ct_top *top)
{
  char a[CT_COUNT_CHARS], b[CT_COUNT_CHARS], c[CT_DURATION_CHARS];
  const struct ct_live_state *state = &top->state;
  printf("%s %s: %s events, %s dropped", top->id,
         top->is_gone          ? "ended"
         : top->status != NULL ? ct_text_of(top->status, "state")
                               : "does not answer",
         ct_format_count(a, ct_top_events(top)), ct_format_count(b, top->dropped));
  if (top->last_ns != 0) {
    printf("; %s events/s", ct_format_count(a, (uint64_t)((double)top->events_last * 1e9 / (double)top->last_ns)));
  }
  if (top->overhead_last >= 0) {
    printf("; hooks %.0f %% of its processor time", top->overhead_last * 100);
  }
  printf("; %" PRIu64 " threads\n", state->threads);
  if (state->bytes_left != 0) {
    printf("  behind: %s of the trace are not read yet\n", ct_format_bytes(c, state->bytes_left));
  }
  if (state->threads_left != 0) {
    printf("  %" PRIu64 " threads are not in the table\n", state->threads_left);
  }
  if (state->damaged != 0) {
    printf("  the files of %" PRIu64 " threads are damaged, what comes after that place is not in the table\n",
           state->damaged);
  }
  if (state->lost != 0) {
    printf("  %s events are missing in the trace: calls open then are uncertain\n", ct_format_count(a, state->lost));
  }
  if (ct_number_of(top->status, "children") != 0) {
    printf("  %" PRIu64 " further processes are recorded, they are not in the table\n",
           ct_number_of(top->status, "children"));
  }
}

/* Its name and module, and the end of the line; at most so many characters. */
static void
put_function(const char *name, const char *module, size_t columns)
{
  char text[2 * CT_SCREEN_TEXT_BYTES];
  size_t bytes = 0;
  snprintf(text, sizeof(text), "%s [%s]", name, module);
  for (; text[bytes] != '\0'; bytes++) {
    if (((unsigned char)text[bytes] & 0xC0) != 0x80 && columns-- == 0) {
      break;
    }
  }
  ct_put_printable(stdout, text, bytes);
  putchar('\n');
}

static void
put_table(const struct ct_top *top)
{
  put_heading(top);
  unsigned width = ct_terminal_columns(), selected = ct_top_columns(top->sort, width);
  char line[CT_TOP_COLUMNS_BYTES];
  ct_top_heading(selected, line);
  printf("%sfunction\n", line);
  for (size_t i = 0; i < top->row_count && (top->limit == 0 || i < top->limit); i++) {
    const struct ct_live_row *row = ct_live_row(top->live, i);
    ct_top_row(selected, row, top->state.last_is_known, line);
    fputs(line, stdout);
    char name[CT_SCREEN_TEXT_BYTES];
    put_function(ct_screen_name(name, row->name, ct_shown_short_names(&top->look)), row->module,
                 width > strlen(line) ? width - strlen(line) : SIZE_MAX);
  }
  if (top->limit != 0 && top->row_count > top->limit) {
    printf("%zu more function%s\n", top->row_count - top->limit, top->row_count == top->limit + 1 ? "" : "s");
  }
  putchar('\n');
}

static int
show(const struct ct_top *top)
{
  if (!top->json) {
    put_table(top);
    return fflush(stdout) == 0 ? CT_EXIT_OK : CT_EXIT_FAILED;
  }
  json_t *json = top_json(top);
  int failed = json == NULL || json_dumpf(json, stdout, JSON_COMPACT) != 0;
  putchar('\n');
  json_decref(json);
  return failed || fflush(stdout) != 0 ? CT_EXIT_FAILED : CT_EXIT_OK;
}

/* ---- the loop ---- */

static void
wait_until(uint64_t ns)
{
  struct timespec until = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
  while (!interrupted && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
  }
}

static int
failed(const struct ct_top *top, int code, const struct ct_diag *diag)
{
  ct_command_failed(top->command, "%s", diag->text);
  return code == CT_EINVAL ? CT_EXIT_USAGE : CT_EXIT_FAILED;
}

/* One table or line a look, until the session ends. */
static int
run_plain(struct ct_top *top)
{
  struct ct_diag diag = {""};
  struct sigaction action = {.sa_handler = interrupt};
  uint64_t interval = (uint64_t)(top->interval_s * 1e9), next = ct_top_now_ns(), shown = 0, gone = 0;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  signal(SIGPIPE, SIG_IGN);
  if (top->leaves) {
    signal(SIGTTOU, SIG_IGN); /* it may not be the terminal's process group */
  }
  for (uint64_t look = 0; !interrupted; look++) {
    int code = ct_top_look(top, top->once ? 0 : (uint64_t)((double)interval * BUDGET), &diag);
    if (code != CT_OK) {
      return failed(top, code, &diag);
    }
    bool is_over = ct_top_is_over(top);
    gone = top->is_gone && top->state.bytes_left == 0 ? gone + 1 : 0;
    if (!top->once || look == 1 || is_over) {
      if (show(top) != CT_EXIT_OK) {
        return CT_EXIT_FAILED;
      }
      shown++;
    }
    if (is_over || (top->once && shown != 0) || (top->count != 0 && shown >= top->count)) {
      break;
    }
    if (gone >= GONE_LOOKS) {
      return ct_command_failed(top->command, "the session has ended, and its trace was not completed: contrail was "
                                             "killed; contrail recover completes it");
    }
    next += interval;
    wait_until(next);
  }
  if (interrupted && top->leaves && !ct_top_is_over(top)) { /* the trace is complete now */
    int code = ct_top_look(top, 0, &diag);
    return code == CT_OK ? show(top) : failed(top, code, &diag);
  }
  return CT_EXIT_OK;
}

/* ---- the command ---- */

static int
apply_sort(const struct ct_applied *applied)
{
  for (int sort = 0; sort < CT_LIVE_SORTS; sort++) {
    if (strcmp(applied->value, ct_live_sort_name(sort)) == 0) {
      *(enum ct_live_sort *)applied->member = sort;
      return CT_EXIT_OK;
    }
  }
  return ct_usage_error(applied->command,
                        "--sort takes last-self, last-calls, last-p99, self, calls, p99 or name, not '%s'",
                        applied->value);
}

static int
apply_interval(const struct ct_applied *applied)
{
  char *end;
  double value = strtod(applied->value, &end);
  if (!ct_is_decimal(applied->value) || *end != '\0' || !(value >= 0.1 && value <= 3600)) {
    return ct_usage_error(applied->command, "--interval takes seconds, 0.1 to 3600, not '%s'", applied->value);
  }
  *(double *)applied->member = value;
  return CT_EXIT_OK;
}

static const struct ct_option options[] = {
    {.name = "sort",
     .letter = 's',
     .argument = "KEY",
     .help = "sort by last-self (default), last-calls, last-p99 (of the last second), self, calls, p99 (since "
             "the start) or name",
     .values = "last-self last-calls last-p99 self calls p99 name",
     .apply = apply_sort,
     .offset = offsetof(struct ct_top, sort)},
    {.name = "function",
     .letter = 'F',
     .argument = "PATTERN",
     .help = "only functions that match: foo*, foo::**, @file:FILE, MODULE!PATTERN, as in record --trace",
     .values = CT_COMPLETE_PATTERN,
     .apply = ct_apply_text,
     .offset = offsetof(struct ct_top, pattern)},
    {.name = "limit",
     .letter = 'n',
     .argument = "N",
     .help = "show at most N functions (default 20), 0 for all. The screen shows as many as it has lines",
     .most = UINT32_MAX,
     .unit = " of functions",
     .apply = ct_apply_count32,
     .offset = offsetof(struct ct_top, limit)},
    {.name = "interval",
     .argument = "SECONDS",
     .help = "look each so many seconds (default 1). The columns of the last second are then of that time",
     .apply = apply_interval,
     .offset = offsetof(struct ct_top, interval_s)},
    {.name = "count",
     .argument = "N",
     .help = "end after N tables, or lines of JSON. Not with the screen",
     .least = 1,
     .most = UINT32_MAX,
     .unit = " of looks",
     .apply = ct_apply_count64,
     .offset = offsetof(struct ct_top, count)},
    {.name = "once",
     .help = "print one table (or line, with --json), after a second",
     .apply = ct_apply_flag,
     .offset = offsetof(struct ct_top, once)},
    {.name = "leave", .apply = ct_apply_flag, .offset = offsetof(struct ct_top, leaves)}, /* record --live */
    CT_OPTION_GROUP(ct_names_options, struct ct_top, look),
    CT_OPTION_JSON(struct ct_top, json, "print one JSON object a line each second, instead of the screen"),
    CT_OPTIONS_END,
};

static int
run(int argc, char **argv)
{
  struct ct_top top = {.command = &ct_command_top,
                       .limit = DEFAULT_ROWS,
                       .interval_s = 1,
                       .overhead_last = -1,
                       .sort = CT_LIVE_LAST_SELF};
  json_t *status = NULL;
  struct ct_diag diag = {""};
  int code = ct_parse(&ct_command_top, argc, argv, &top);
  if (code != -1) {
    return code;
  }
  if (argc - optind > 1) {
    return ct_usage_error(&ct_command_top, "one session at a time, '%s' is too much", argv[optind + 1]);
  }
  code = ct_ask_named(&ct_command_top, argc > optind ? argv[optind] : NULL, "status", NULL, CT_PEEK_MS, &status);
  if (code != CT_EXIT_OK) {
    return code;
  }
  snprintf(top.id, sizeof(top.id), "%s", ct_text_of(status, "id"));
  int error = ct_live_open(ct_text_of(status, "trace"), &top.live, &diag);
  take_status(&top, status);
  if (error != CT_OK) {
    code = failed(&top, CT_EIO, &diag);
  } else {
    bool is_terminal = ct_screen_is_possible();
    code = is_terminal && !top.json && !top.once && top.count == 0 ? ct_top_screen(&top) : -1;
    code = code == -1 ? run_plain(&top) : code;
  }
  ct_live_close(top.live);
  json_decref(top.status);
  return code;
}

const struct ct_command ct_command_top = {
    .name = "top",
    .summary = "the functions of a recording, as they are called",
    .synopsis = "[OPTION]... [SESSION]",
    .about = "Shows the functions of a recording that is under way: calls, self time and the 99th percentile of\n"
             "their durations, over the last second and since the start. On a terminal it is a screen with keys\n"
             "(? shows them); else a table each second.\n"
             "\n" CT_WHICH_SESSION,
    .options = options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION,
    .run = run,
};
