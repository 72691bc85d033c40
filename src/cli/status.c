/* SPDX-License-Identifier: MIT */
/* contrail status: how a session goes. */
#include "cli/request.h"

#include <contrail/cost.h>
#include <contrail/text.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
                                    .hooks = json_real_value(json_object_get(json, "hooks")),
                                    .switches = json_real_value(json_object_get(json, "switches")),
                                    .recorder = json_real_value(json_object_get(json, "recorder")),
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
  ct_session_format_since(since, sizeof(since), status);
  ct_session_put_lost(status);
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
  print_time("stopped", ct_number_of(status, "pause_ns"));
  print_children(status);
  if (json_object_get(status, "note") != NULL) {
    printf("%-10s ", "note");
    ct_put_printable(stdout, ct_text_of(status, "note"), SIZE_MAX);
    putchar('\n');
  }
}

static int
run(int argc, char **argv)
{
  static const struct ct_session_request request = {&ct_command_status, "status", CT_PEEK_MS, print_status};
  return ct_session_request(&request, argc, argv);
}

static const struct ct_option options[] = {
    CT_OPTION_JSON(struct ct_session_wanted, json, "print one JSON object"),
    CT_OPTIONS_END,
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
    .run = run,
};
