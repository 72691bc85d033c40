/* SPDX-License-Identifier: MIT */
/* The commands about sessions that others of this user's processes hold: sessions, status, pause, resume, stop. */
#include "cli/ask.h"

#include <contrail/control.h>
#include <contrail/cost.h>
#include <contrail/text.h>

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- showing ---- */

static void
format_since(char *buf, size_t size, const json_t *status)
{
  time_t seconds = (time_t)(ct_number_of(status, "since_wall_ns") / 1000000000);
  struct tm local;
  if (localtime_r(&seconds, &local) == NULL || strftime(buf, size, "%Y-%m-%d %H:%M:%S", &local) == 0) {
    snprintf(buf, size, "?");
  }
}

static const char *
last_part(const char *path)
{
  const char *slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

/* As the views of its trace begin. */
static void
capture_lost(const json_t *status)
{
  uint64_t events = ct_number_of(status, "events") + ct_number_of(status, "child_events");
  uint64_t dropped = ct_number_of(status, "dropped") + ct_number_of(status, "child_dropped");
  double share = 100.0 * (double)dropped / ((double)events + (double)dropped);
  if (dropped != 0) {
    printf("%s: %.*f %% of events LOST, counts are too low\n", ct_text_of(status, "id"), share < 1 ? 3 : 1, share);
  }
}

static void
print_line(const json_t *status)
{
  char since[32], events[CT_COUNT_CHARS], dropped[CT_COUNT_CHARS], program[64];
  format_since(since, sizeof(since), status);
  snprintf(program, sizeof(program), "%s", last_part(ct_text_of(status, "program")));
  ct_make_printable(program);
  capture_lost(status);
  printf("%-24s %8" PRIu64 "  %-16.16s %-10s %19s %15s %12s %8" PRIu64 "\n", ct_text_of(status, "id"),
         ct_number_of(status, "pid"), program, ct_text_of(status, "state"), since,
         ct_format_count(events, ct_number_of(status, "events")),
         ct_format_count(dropped, ct_number_of(status, "dropped")), ct_number_of(status, "interval"));
}

static void
print_time(const char *label, uint64_t ns)
{
  char buf[CT_DURATION_CHARS];
  if (ns != 0) {
    printf("%-10s %s\n", label, ct_format_duration(buf, ns));
  }
}

static void
print_children(const json_t *status)
{
  const json_t *live = json_object_get(status, "children_live"), *child;
  char a[CT_COUNT_CHARS], b[CT_COUNT_CHARS], c[CT_COUNT_CHARS];
  size_t i;
  if (ct_number_of(status, "children") == 0) {
    return;
  }
  printf("%-10s %s followed, %zu of them now; those that have ended: %s events, %s dropped\n", "children",
         ct_format_count(a, ct_number_of(status, "children")), json_array_size(live),
         ct_format_count(b, ct_number_of(status, "child_events")),
         ct_format_count(c, ct_number_of(status, "child_dropped")));
  if (json_array_size(live) != 0) {
    printf("           %8s  %8s  %15s %12s %9s  %-12s %s\n", "pid", "parent", "events", "dropped", "hooked", "state",
           "program");
  }
  json_array_foreach(live, i, child)
  {
    printf("           %8" PRIu64 "  %8" PRIu64 "  %15s %12s %9s  %-12s ", ct_number_of(child, "pid"),
           ct_number_of(child, "parent"), ct_format_count(a, ct_number_of(child, "events")),
           ct_format_count(b, ct_number_of(child, "dropped")), ct_format_count(c, ct_number_of(child, "hooked")),
           ct_text_of(child, "state"));
    ct_put_printable(stdout, ct_text_of(child, "program"), SIZE_MAX);
    putchar('\n');
  }
}

static void
print_cost(const json_t *json)
{
  struct ct_cost cost = {.is_known = json_is_integer(json_object_get(json, "hooks_ns")),
                         .hooks_ns = ct_number_of(json, "hooks_ns"),
                         .program_cpu_ns = ct_number_of(json, "program_cpu_ns"),
                         .recorder_cpu_ns = ct_number_of(json, "recorder_cpu_ns")};
  const json_t *left_out = json_object_get(json, "left_out");
  for (size_t i = 0; i < json_array_size(left_out); i++) {
    const char *name = json_string_value(json_array_get(left_out, i));
    for (int part = 0; name != NULL && part < CT_COST_PART_COUNT; part++) {
      cost.left_out |= strcmp(name, ct_cost_part_name(part)) == 0 ? 1u << part : 0;
    }
  }
  if (json_is_object(json)) { /* an older session has none */
    printf("%-10s ", "cost");
    ct_cost_put(stdout, &cost);
    putchar('\n');
  }
}

static void
print_budget(const json_t *json)
{
  struct ct_budget_status budget = {.limit = json_real_value(json_object_get(json, "limit")),
                                    .spent = json_real_value(json_object_get(json, "spent")),
                                    .full = ct_number_of(json, "full"),
                                    .sampled = ct_number_of(json, "sampled"),
                                    .counted = ct_number_of(json, "counted"),
                                    .out = ct_number_of(json, "out"),
                                    .steps = ct_number_of(json, "steps")};
  if (json_is_object(json)) {
    printf("%-10s ", "budget");
    ct_budget_put(stdout, &budget);
    putchar('\n');
  }
}

/* What windows have on disk, where they have anything there. */
static void
print_windows_size(const json_t *size)
{
  char bytes[CT_DURATION_CHARS], limit[CT_DURATION_CHARS];
  if (ct_number_of(size, "bytes") != 0) {
    bool is_full = ct_number_of(size, "bytes") >= ct_number_of(size, "limit_bytes");
    printf("%-10s %s of %s on disk%s\n", "windows", ct_format_bytes(bytes, ct_number_of(size, "bytes")),
           ct_format_bytes(limit, ct_number_of(size, "limit_bytes")), is_full ? ": no more are opened" : "");
  }
}

/* How full a lane is, and how long its blocks took to their files. */
static void
print_lane(const char *label, const json_t *lane, const char *most, const json_t *files)
{
  char p99[CT_DURATION_CHARS];
  if (ct_number_of(lane, "segments") == 0) {
    return;
  }
  printf("%-10s %" PRIu64 " of %" PRIu64 " segments in use, at most %" PRIu64 " %s", label,
         ct_number_of(lane, "in_use"), ct_number_of(lane, "segments"), ct_number_of(lane, most),
         strcmp(most, "full_most") == 0 ? "waited for the drain" : "were");
  if (ct_number_of(lane, "high_times") != 0) {
    printf(", over three quarters %" PRIu64 " times", ct_number_of(lane, "high_times"));
  }
  if (ct_number_of(files, "blocks") != 0) {
    printf("; to the file in %s (p99)", ct_format_duration(p99, ct_number_of(files, "p99_ns")));
  }
  putchar('\n');
}

/* What the metrics say that a person wants to see. */
static void
print_metrics(const json_t *status)
{
  const json_t *lanes = json_object_get(status, "lanes"), *analysis = json_object_get(status, "analysis"), *thread;
  char a[CT_COUNT_CHARS];
  uint64_t skipped = 0;
  size_t i;
  print_lane("ring", json_object_get(lanes, "events"), "full_most", json_object_get(lanes, "files"));
  print_lane("detail", json_object_get(lanes, "detail"), "used_most", json_object_get(lanes, "detail_files"));
  json_array_foreach(json_object_get(status, "thread_metrics"), i, thread)
  {
    skipped += ct_number_of(thread, "skipped");
  }
  if (skipped != 0) {
    printf("%-10s %s hooks of signal handlers that interrupted contrail\n", "skipped", ct_format_count(a, skipped));
  }
  if (json_is_string(json_object_get(analysis, "cache"))) {
    printf("%-10s cache: %" PRIu64 " hits, %" PRIu64 " misses, %" PRIu64 " evictions\n", "analysis",
           ct_number_of(analysis, "hits"), ct_number_of(analysis, "misses"), ct_number_of(analysis, "evictions"));
  }
}

static void
print_status(const json_t *status)
{
  char since[32], a[CT_COUNT_CHARS], b[CT_COUNT_CHARS];
  format_since(since, sizeof(since), status);
  capture_lost(status);
  printf("%-10s %s\n", "session", ct_text_of(status, "id"));
  printf("%-10s ", "program");
  ct_put_printable(stdout, ct_text_of(status, "program"), SIZE_MAX);
  printf(", process %" PRIu64 ", by contrail %" PRIu64 "\n", ct_number_of(status, "pid"),
         ct_number_of(status, "controller"));
  printf("%-10s ", "trace");
  ct_put_printable(stdout, ct_text_of(status, "trace"), SIZE_MAX);
  printf("\n%-10s %s, since %s\n", "state", ct_text_of(status, "state"), since);
  printf("%-10s %s of %s functions hooked\n", "hooks", ct_format_count(a, ct_number_of(status, "hooked")),
         ct_format_count(b, ct_number_of(status, "functions")));
  printf("%-10s %s, %s dropped\n", "events", ct_format_count(a, ct_number_of(status, "events")),
         ct_format_count(b, ct_number_of(status, "dropped")));
  const json_t *kept = json_object_get(status, "kept");
  if (kept != NULL) {
    char c[CT_DURATION_CHARS], d[CT_DURATION_CHARS], e[CT_DURATION_CHARS];
    printf("%-10s the last %s: %s events in %s of %s\n", "kept", ct_format_duration(c, ct_number_of(kept, "ns")),
           ct_format_count(a, ct_number_of(kept, "events")), ct_format_bytes(d, ct_number_of(kept, "bytes")),
           ct_format_bytes(e, ct_number_of(kept, "limit_bytes")));
  }
  if (ct_number_of(status, "marks") + ct_number_of(status, "windows_refused") != 0) {
    char c[CT_COUNT_CHARS];
    printf("%-10s %s in %s windows, %s refused\n", "marks", ct_format_count(a, ct_number_of(status, "marks")),
           ct_format_count(b, ct_number_of(status, "windows")),
           ct_format_count(c, ct_number_of(status, "windows_refused")));
    print_windows_size(json_object_get(status, "windows_size"));
  }
  print_metrics(status);
  print_cost(json_object_get(status, "cost"));
  print_budget(json_object_get(status, "budget"));
  if (ct_number_of(status, "interval") > 1) {
    printf("%-10s one of %" PRIu64 " calls of light hooks\n", "sampling", ct_number_of(status, "interval"));
  }
  print_time("held", ct_number_of(status, "pause_ns"));
  print_children(status);
  if (json_object_get(status, "note") != NULL) {
    printf("%-10s ", "note");
    ct_put_printable(stdout, ct_text_of(status, "note"), SIZE_MAX);
    putchar('\n');
  }
}

/* ---- contrail sessions ---- */

static void
add_session(void *context, const char *id)
{
  struct ct_diag diag = {""};
  int code;
  json_t *status = ct_ask(id, "status", NULL, CT_PEEK_MS, &code, &diag);
  if (code == CT_ENOENT) {
    return; /* it has just ended */
  }
  if (status == NULL) {
    status = json_pack("{s:s, s:s}", "id", id, "error", diag.text);
  }
  json_array_append_new(context, status);
}

/* What the options of these commands choose. */
struct wanted {
  bool json, end;
};

static const struct ct_option options[] = {
    CT_OPTION_JSON(struct wanted, json, "as one JSON object"),
    CT_OPTIONS_END,
};

static int
run_sessions(int argc, char **argv)
{
  struct wanted wanted = {false};
  int code = ct_parse(&ct_command_sessions, argc, argv, &wanted);
  if (code != -1 || (code = ct_no_operands(&ct_command_sessions, argc, argv)) != CT_EXIT_OK) {
    return code;
  }
  json_t *sessions = json_array();
  struct ct_diag diag = {""};
  code = ct_control_list(add_session, sessions, &diag);
  if (code != CT_OK) {
    json_decref(sessions);
    return ct_command_failed(&ct_command_sessions, "%s", diag.text);
  }
  json_t *all = json_pack("{s:o}", "sessions", sessions), *status;
  size_t i;
  if (wanted.json) {
    code = ct_print_json(all);
  } else {
    if (json_array_size(sessions) != 0) {
      printf("%-24s %8s  %-16s %-10s %19s %15s %12s %8s\n", "session", "pid", "program", "state", "since", "events",
             "dropped", "interval");
    }
    json_array_foreach(sessions, i, status)
    {
      if (json_object_get(status, "error") == NULL) {
        print_line(status);
      } else {
        printf("%-24s %s\n", ct_text_of(status, "id"), ct_text_of(status, "error")); /* a ct_diag, made printable */
      }
    }
    code = fflush(stdout) != 0 ? CT_EXIT_FAILED : CT_EXIT_OK;
  }
  json_decref(all);
  return code;
}

/* ---- the others: one session, one call ---- */

struct request {
  const struct ct_command *command;
  const char *method;
  int timeout_ms;
  void (*show)(const json_t *status);
};

static int
do_request(const struct request *request, int argc, char **argv)
{
  struct wanted wanted = {false};
  json_t *answer = NULL;
  int code = ct_parse(request->command, argc, argv, &wanted);
  if (code != -1) {
    return code;
  }
  if (argc - optind > 1) {
    return ct_usage_error(request->command, "one session at a time, '%s' is too much", argv[optind + 1]);
  }
  code = ct_ask_named(request->command, argc > optind ? argv[optind] : NULL, request->method,
                      wanted.end ? "{\"end\": true}" : NULL, request->timeout_ms, &answer);
  if (answer != NULL && wanted.json) {
    code = ct_print_json(answer);
  } else if (answer != NULL) {
    request->show(answer);
  }
  json_decref(answer);
  return code == CT_EXIT_OK && fflush(stdout) != 0 ? CT_EXIT_FAILED : code;
}

static int
run_status(int argc, char **argv)
{
  static const struct request request = {&ct_command_status, "status", CT_PEEK_MS, print_status};
  return do_request(&request, argc, argv);
}

static void
show_state(const json_t *status)
{
  printf("%s is %s\n", ct_text_of(status, "id"),
         strcmp(ct_text_of(status, "state"), "attached") == 0 ? "paused" : ct_text_of(status, "state"));
}

static int
run_pause(int argc, char **argv)
{
  static const struct request request = {&ct_command_pause, "pause", CT_CHANGE_MS, show_state};
  return do_request(&request, argc, argv);
}

static int
run_resume(int argc, char **argv)
{
  static const struct request request = {&ct_command_resume, "resume", CT_CHANGE_MS, show_state};
  return do_request(&request, argc, argv);
}

static void
show_stopped(const json_t *status)
{
  char events[CT_COUNT_CHARS];
  ct_format_count(events, ct_number_of(status, "events"));
  capture_lost(status);
  if (json_is_true(json_object_get(status, "ended"))) {
    printf("%s is over, its process has ended: %s events in ", ct_text_of(status, "id"), events);
  } else if (json_is_true(json_object_get(status, "detached"))) {
    printf("%s is stopped, its process runs on: %s events in ", ct_text_of(status, "id"), events);
  } else {
    printf("%s: its process was told to end", ct_text_of(status, "id"));
  }
  if (json_is_true(json_object_get(status, "ended")) || json_is_true(json_object_get(status, "detached"))) {
    ct_put_printable(stdout, ct_text_of(status, "trace"), SIZE_MAX);
  }
  putchar('\n');
}

static int
run_stop(int argc, char **argv)
{
  static const struct request request = {&ct_command_stop, "stop", CT_CHANGE_MS, show_stopped};
  return do_request(&request, argc, argv);
}

static const struct ct_option change_options[] = {
    CT_OPTION_JSON(struct wanted, json, "the session's status, as one JSON object"),
    CT_OPTIONS_END,
};

static const struct ct_option stop_options[] = {
    {.name = "end",
     .help = "ask the process to end (SIGTERM) instead; it is recorded up to there",
     .apply = ct_apply_flag,
     .offset = offsetof(struct wanted, end)},
    CT_OPTION_JSON(struct wanted, json, "the session's status, as one JSON object"),
    CT_OPTIONS_END,
};

const struct ct_command ct_command_sessions = {
    .name = "sessions",
    .summary = "show the recordings that are under way",
    .synopsis = "[--json]",
    .about = "Shows all live sessions of this user: each contrail record and contrail attach is one.\n",
    .options = options,
    .closing = "interval: of so many calls of light hooks one is recorded.\n",
    .run = run_sessions,
};

const struct ct_command ct_command_status = {
    .name = "status",
    .summary = "show how a recording that is under way goes",
    .synopsis = "[--json] [SESSION]",
    .about = "Also each process that is followed and has not ended.\n"
             "\n" CT_WHICH_SESSION,
    .options = options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION,
    .run = run_status,
};

const struct ct_command ct_command_pause = {
    .name = "pause",
    .summary = "pause the process of a recording",
    .synopsis = "[--json] [SESSION]",
    .about = "Stops all threads of the process until contrail resume.\n"
             "\n" CT_WHICH_SESSION,
    .options = change_options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION,
    .run = run_pause,
};

const struct ct_command ct_command_resume = {
    .name = "resume",
    .summary = "resume the process of a recording",
    .synopsis = "[--json] [SESSION]",
    .about = "Resumes a process that contrail pause has stopped.\n"
             "\n" CT_WHICH_SESSION,
    .options = change_options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION,
    .run = run_resume,
};

const struct ct_command ct_command_stop = {
    .name = "stop",
    .summary = "end a recording, and leave its process running",
    .synopsis = "[--end] [--json] [SESSION]",
    .about = "Takes the hooks out of the process, which runs on; the trace is complete then.\n"
             "\n" CT_WHICH_SESSION,
    .options = stop_options,
    .closing = CT_SESSION_EXIT_CODES,
    .operands = CT_COMPLETE_SESSION,
    .run = run_stop,
};
