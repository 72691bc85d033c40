/* SPDX-License-Identifier: MIT */
/* See recording.h. */
#include "cli/recording.h"

#include "cli/quantity.h"

#include <contrail/exclude.h>
#include <contrail/rule.h>
#include <contrail/select.h>
#include <contrail/text.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUDGET_LEAST 0.1 /* per cent */
#define BUDGET_MOST  1000.0

#define MAX_SIZE_LEAST (1ull << 20)
#define MAX_SIZE_MOST  (1ull << 50)

enum {
  DETAIL_MIB_MAX = 256,
  DETAIL_STACK_MAX = 512,
  SAMPLE_MAX = 256,
  RING_MIB_MAX = 256,
  OUTPUT_MIB_MAX = 4096,
  MAX_DEPTH = 1000000,
  LAST_SECONDS_MAX = 100 * 86400,
  MAX_WINDOWS = 10000,
  ROLL_EVENTS_MAX = 1000000
};

static int
apply_values(const struct ct_applied *applied)
{
  struct ct_selection **selection = applied->member;
  if (*selection == NULL && (*selection = ct_selection_create()) == NULL) {
    return ct_command_failed(applied->command, "out of memory");
  }
  ct_selection_set_values(*selection, strcmp(applied->option->name, "args") == 0 ? CT_VALUES_ALL : CT_VALUES_NONE);
  return CT_EXIT_OK;
}

static int
apply_members(const struct ct_applied *applied)
{
  struct ct_selection **selection = applied->member;
  if (*selection == NULL && (*selection = ct_selection_create()) == NULL) {
    return ct_command_failed(applied->command, "out of memory");
  }
  ct_selection_set_members(*selection);
  return CT_EXIT_OK;
}

/* Without a pattern: all that is hooked in full. */
static int
apply_detail(const struct ct_applied *applied)
{
  struct ct_selection **selection = applied->member;
  struct ct_diag diag = {""};
  if (*selection == NULL && (*selection = ct_selection_create()) == NULL) {
    return ct_command_failed(applied->command, "out of memory");
  }
  const char *pattern = strcmp(applied->value, "all") == 0 ? NULL : applied->value;
  return ct_selection_add_detail(*selection, pattern, &diag) == 0
             ? CT_EXIT_OK
             : ct_usage_error(applied->command, "--detail '%.200s': %s", applied->value, diag.text);
}

static int
apply_stack(const struct ct_applied *applied)
{
  struct ct_session_options *session = applied->member;
  uint64_t number;
  if (!ct_parse_number(applied->value, DETAIL_STACK_MAX, &number) || number % 8 != 0) {
    return ct_usage_error(applied->command, "--stack takes a multiple of 8 bytes, 0 to %u, not '%s'", DETAIL_STACK_MAX,
                          applied->value);
  }
  session->detail_stack = (uint32_t)number;
  session->no_detail_stack = number == 0;
  return CT_EXIT_OK;
}

static int
apply_sample(const struct ct_applied *applied)
{
  uint64_t number;
  if (!ct_parse_number(applied->value, SAMPLE_MAX, &number) || number < 1 || (number & (number - 1)) != 0) {
    return ct_usage_error(applied->command, "--sample takes a power of two, 1 to %u, not '%s'", SAMPLE_MAX,
                          applied->value);
  }
  *(uint32_t *)applied->member = (uint32_t)number;
  return CT_EXIT_OK;
}

static int
apply_budget(const struct ct_applied *applied)
{
  char *end = NULL;
  double percent = strtod(applied->value, &end);
  bool is_number = ct_is_decimal(applied->value) && (strcmp(end, "%") == 0 || *end == '\0');
  if (!is_number || !(percent >= BUDGET_LEAST && percent <= BUDGET_MOST)) {
    return ct_usage_error(applied->command, "--budget takes a percentage, %g%% to %g%%, not '%s'", BUDGET_LEAST,
                          BUDGET_MOST, applied->value);
  }
  *(double *)applied->member = percent / 100;
  return CT_EXIT_OK;
}

/* Nothing is lost, nothing is estimated. */
static int
apply_lossless(const struct ct_applied *applied)
{
  struct ct_session_options *session = applied->member;
  session->lossless = session->no_sampling = true;
  return CT_EXIT_OK;
}

static int
apply_no_wait(const struct ct_applied *applied)
{
  *(bool *)applied->member = false;
  return CT_EXIT_OK;
}

/* A time, a size of memory, or both with a comma between them. */
static int
apply_last(const struct ct_applied *applied)
{
  struct ct_session_options *session = applied->member;
  char text[64], *rest = text;
  double seconds = 0;
  uint64_t bytes = 0;
  bool good = strlen(applied->value) < sizeof(text);
  snprintf(text, sizeof(text), "%s", applied->value);
  for (char *part; good && (part = strsep(&rest, ",")) != NULL;) {
    good = (bytes == 0 && ct_parse_size(part, &bytes)) || (seconds == 0 && ct_parse_duration(part, false, &seconds));
  }
  if (!good || seconds > LAST_SECONDS_MAX) {
    return ct_usage_error(applied->command,
                          "--last takes a time such as 30s or 5m, a size of memory such as 64M, or both "
                          "with a comma, not '%s'",
                          applied->value);
  }
  bytes = bytes != 0 ? bytes : CT_LAST_BYTES_DEFAULT;
  if (bytes < 1u << 20 || bytes > 1ull << 40) {
    return ct_usage_error(applied->command, "--last takes 1M to 1T of memory, not '%s'", applied->value);
  }
  session->last_bytes = bytes;
  session->last_ns = (uint64_t)(seconds * 1e9);
  session->lossless = false;
  return CT_EXIT_OK;
}

static int
apply_max_size(const struct ct_applied *applied)
{
  uint64_t bytes = 0;
  if (!ct_parse_size(applied->value, &bytes) || bytes < MAX_SIZE_LEAST || bytes > MAX_SIZE_MOST) {
    return ct_usage_error(applied->command, "--%s takes a size from 1M to 1024T, such as 500M or 2G, not '%s'",
                          applied->option->name, applied->value);
  }
  *(uint64_t *)applied->member = bytes;
  return CT_EXIT_OK;
}

static int
apply_on(const struct ct_applied *applied)
{
  struct ct_session_options *session = applied->member;
  struct ct_diag diag = {""};
  if (ct_rule_check(applied->value, &diag) != 0) {
    return ct_usage_error(applied->command, "--on '%.200s': %s", applied->value, diag.text);
  }
  if (session->rule_count == CT_RULES_MAX) {
    return ct_usage_error(applied->command, "--on: at most %d rules", CT_RULES_MAX);
  }
  const char **rules = reallocarray((void *)session->rules, session->rule_count + 1, sizeof(*rules));
  if (rules == NULL) {
    return ct_command_failed(applied->command, "out of memory");
  }
  rules[session->rule_count++] = applied->value;
  session->rules = rules;
  return CT_EXIT_OK;
}

/* The last condition and number belong to all functions that are named. */
static int
apply_itrace(const struct ct_applied *applied)
{
  struct ct_session_options *session = applied->member;
  struct ct_selection *selection = ct_selection_create();
  struct ct_diag diag = {""};
  int code = selection != NULL ? ct_selection_add(selection, applied->value, CT_SELECT_FULL, &diag) : CT_ENOMEM;
  ct_selection_free(selection);
  if (code != 0) {
    return ct_usage_error(applied->command, "--itrace '%.200s': %s", applied->value,
                          code == CT_ENOMEM ? "out of memory" : diag.text);
  }
  if (session->itrace_count == CT_ITRACE_FUNCTIONS_MAX) {
    return ct_usage_error(applied->command, "--itrace: at most %d patterns", CT_ITRACE_FUNCTIONS_MAX);
  }
  struct ct_session_itrace *all = reallocarray((void *)session->itrace, session->itrace_count + 1, sizeof(*all));
  if (all == NULL) {
    return ct_command_failed(applied->command, "out of memory");
  }
  all[session->itrace_count++] = (struct ct_session_itrace){.function = applied->value};
  session->itrace = all;
  return CT_EXIT_OK;
}

/* Of the function that was named last. */
static int
apply_itrace_of(const struct ct_applied *applied)
{
  struct ct_session_options *session = applied->member;
  uint64_t calls = 0;
  if (session->itrace_count == 0) {
    return ct_usage_error(applied->command, "--%s follows the --itrace that it is for", applied->option->name);
  }
  struct ct_session_itrace *last = (struct ct_session_itrace *)&session->itrace[session->itrace_count - 1];
  if (strcmp(applied->option->name, "itrace-when") == 0) {
    last->condition = applied->value;
    return CT_EXIT_OK;
  }
  if (!ct_parse_number(applied->value, CT_ITRACE_CALLS_MAX, &calls) || calls == 0) {
    return ct_usage_error(applied->command, "--itrace-calls takes a number from 1 to %d, not '%s'", CT_ITRACE_CALLS_MAX,
                          applied->value);
  }
  last->calls = (uint32_t)calls;
  return CT_EXIT_OK;
}

/* "5000ev"; false: it is no number of events. */
static bool
parse_events(const char *text, uint64_t *events)
{
  char number[32];
  size_t length = strlen(text);
  if (length < 3 || length - 2 >= sizeof(number) || strcmp(text + length - 2, "ev") != 0) {
    return false;
  }
  memcpy(number, text, length - 2);
  number[length - 2] = '\0';
  return ct_parse_number(number, ROLL_EVENTS_MAX, events) && *events != 0;
}

static int
apply_roll(const struct ct_applied *applied)
{
  struct ct_session_options *session = applied->member;
  bool is_pre = strcmp(applied->option->name, "pre") == 0;
  double seconds = 0;
  uint64_t events = 0;
  if (parse_events(applied->value, &events)) {
    *(is_pre ? &session->pre_events : &session->post_events) = events;
    *(is_pre ? &session->pre_ns : &session->post_ns) = 0;
    return CT_EXIT_OK;
  }
  bool is_none = strcmp(applied->value, "0") == 0 || strcmp(applied->value, "0s") == 0;
  if (!is_none && (!ct_parse_duration(applied->value, false, &seconds) || seconds > LAST_SECONDS_MAX)) {
    return ct_usage_error(applied->command,
                          "--%s takes a time such as 500ms or 2s, a number of events such as 5000ev (up to %dev), or "
                          "0, not '%s'",
                          applied->option->name, ROLL_EVENTS_MAX, applied->value);
  }
  uint64_t ns = (uint64_t)(seconds * 1e9);
  *(is_pre ? &session->pre_ns : &session->post_ns) = ns > 1 ? ns : 1;
  *(is_pre ? &session->pre_events : &session->post_events) = 0;
  return CT_EXIT_OK;
}

#define MEMBER(member) .offset = offsetof(struct ct_session_options, member)

const struct ct_option ct_recording_options[] = {
    {.name = "ring-size",
     .argument = "M",
     .help = "shared memory for events on their way to the trace, 1 to 256 MiB (default 80)",
     .values = "16 64 128 256",
     .least = 1,
     .most = RING_MIB_MAX,
     .unit = " (MiB)",
     .apply = ct_apply_count32,
     MEMBER(ring_mib)},
    {.name = "lossless",
     .help = "let a thread wait, for a limited time, when there is no room for its events. This is the "
             "default of record, not of attach",
     .against = "no-wait",
     .apply = apply_lossless},
    {.name = "no-wait",
     .help = "let a thread go on when there is no room for its events, and drop the oldest events. This is "
             "the default of attach",
     .apply = apply_no_wait,
     MEMBER(lossless)},
    {.name = "itrace",
     .argument = "PATTERN",
     .help = "also record the next calls of matching functions as instructions, from entry to return. "
             "contrail steps shows them. May be given several times",
     .values = CT_COMPLETE_PATTERN,
     .adds_up = true,
     .apply = apply_itrace},
    {.name = "itrace-calls",
     .argument = "N",
     .help = "record N calls of the --itrace before it, 1 to 1000000 (default 8)",
     .adds_up = true,
     .apply = apply_itrace_of},
    {.name = "itrace-when",
     .argument = "CONDITION",
     .help = "record only calls for which CONDITION holds at their first instruction: 'arg1 > 5', 'rdi == "
             "0x10'. It is for the --itrace before it",
     .adds_up = true,
     .apply = apply_itrace_of},
    {.name = "itrace-plain",
     .help = "let functions run without hooks in the calls of --itrace. Their calls are then in the "
             "instructions only, and no hook's instructions are",
     .apply = ct_apply_flag,
     MEMBER(itrace_plain)},
    {.name = "budget",
     .argument = "P%",
     .help = "spend at most P per cent of the program's processor time on recording. Functions that are "
             "called most are then only counted, or not seen, as far as need be. contrail report says which",
     .values = "2% 5% 10%",
     .apply = apply_budget,
     MEMBER(budget)},
    {.name = "last",
     .argument = "TIME|SIZE",
     .help = "keep only the last stretch, in memory: as much as SIZE holds (64M; a third of a byte an event), "
             "or as TIME lasts (30s, 5m) and 256M hold; 5m,1G: both. It is written when the recording ends, "
             "and by contrail dump. The process never waits, as with --no-wait",
     .values = "30s 5m 64M 1G",
     .against = "lossless max-output",
     .apply = apply_last},
    {.name = "max-size",
     .argument = "SIZE",
     .help = "let the trace's files grow to SIZE (500M, 2G) and no further. The oldest events are removed, so "
             "a recording may go on for days",
     .values = "100M 500M 2G 10G",
     .against = "last max-output",
     .apply = apply_max_size,
     MEMBER(max_bytes)},
    {.name = "on",
     .argument = "RULE",
     .help = "mark the moments when a condition is true: 'call F', 'F > 1ms', 'F returns < 0', 'off-cpu F > "
             "10ms', 'rate F > 1000/s', signal, crash, 'every 10s'. ': dump' or ': stop' after it does that "
             "then; ': detail G' records calls of G with detail until the window is over. May be given "
             "several times",
     .adds_up = true,
     .apply = apply_on},
    {.name = "pre",
     .argument = "TIME|N",
     .help = "how long a window begins before its first mark (default 1s). 5000ev: so many events of the "
             "mark's thread",
     .values = "0 100ms 1s 10s 1000ev 100000ev",
     .apply = apply_roll},
    {.name = "post",
     .argument = "TIME|N",
     .help = "how long a window goes on after its last mark (default 1s). 5000ev: so many events of the mark's "
             "thread",
     .values = "0 100ms 1s 10s 1000ev 100000ev",
     .apply = apply_roll},
    {.name = "max-windows",
     .argument = "N",
     .help = "open at most N windows a minute (default 60)",
     .least = 1,
     .most = MAX_WINDOWS,
     .apply = ct_apply_count32,
     MEMBER(max_windows)},
    {.name = "max-windows-size",
     .argument = "SIZE",
     .help = "let dumps of rules, and detail around marks, take SIZE on disk together (default 4G). After "
             "that none is made",
     .values = "100M 1G 10G",
     .apply = apply_max_size,
     MEMBER(max_windows_bytes)},
    {.name = "child-ring-size",
     .argument = "M",
     .help = "as --ring-size, in MiB, for each child (default 16)",
     .values = "16 64 128 256",
     .least = 1,
     .most = RING_MIB_MAX,
     .unit = " (MiB)",
     .apply = ct_apply_count32,
     MEMBER(child_ring_mib)},
    {.name = "no-cache",
     .help = "analyse all files anew, and keep nothing in the analysis cache (see contrail help cache)",
     .apply = ct_apply_flag,
     MEMBER(no_cache)},
    {.name = "debuginfod",
     .help = "fetch missing debug information from the servers that DEBUGINFOD_URLS names. The process may "
             "wait for it, 20 seconds at most for each of its files",
     .apply = ct_apply_flag,
     MEMBER(debuginfod)},
    CT_OPTION_GROUP(ct_select_options, struct ct_session_options, selection),
    {.name = "source",
     .help = "write source files and lines of functions into the trace, for report --source, where debug "
             "information has them",
     .apply = ct_apply_flag,
     MEMBER(sources)},
    CT_OPTION_GROUP(ct_exclude_options, struct ct_session_options, exclude),
    {.name = "no-output",
     .help = "do not record what the process writes to its standard output and error",
     .against = "max-output",
     .apply = ct_apply_flag,
     MEMBER(no_output)},
    {.name = "max-output",
     .argument = "M",
     .help = "record at most M MiB of what the process writes to its standard output and error (default 64)",
     .least = 1,
     .most = OUTPUT_MIB_MAX,
     .unit = " (MiB)",
     .apply = ct_apply_count32,
     MEMBER(output_mib)},
    {.name = "max-depth",
     .argument = "N",
     .help = "leave calls deeper than N out of the trace (outermost: 1)",
     .least = 1,
     .most = MAX_DEPTH,
     .apply = ct_apply_count32,
     MEMBER(max_depth)},
    {.name = "args",
     .help = "record arguments and results of all functions that are hooked in full, without what pointers "
             "point to. Default: only of those that --trace selected exactly or by one scope",
     .against = "no-args",
     .apply = apply_values,
     MEMBER(selection)},
    {.name = "no-args", .help = "record no arguments and no results", .apply = apply_values, MEMBER(selection)},
    {.name = "detail",
     .argument = "[PATTERN]",
     .help = "record matching calls with all argument registers, results, a piece of the stack, and texts "
             "that arguments point to (of the C library's calls, and of functions with debug information that "
             "the pattern names). all, or nothing before the next option: all functions that are hooked in "
             "full. May be given several times",
     .otherwise = "all",
     .values = CT_COMPLETE_PATTERN,
     .adds_up = true,
     .apply = apply_detail,
     MEMBER(selection)},
    {.name = "stack",
     .argument = "BYTES",
     .help = "bytes of the stack in each record of --detail, 0 to 512 (default 128)",
     .values = "0 64 128 256 512",
     .apply = apply_stack},
    {.name = "vectors",
     .help = "with --detail: also xmm0 to xmm7, of each the low half, which hold floating point arguments",
     .apply = ct_apply_flag,
     MEMBER(detail_vectors)},
    {.name = "members",
     .help = "with --detail: also what structures hold that arguments point to, of functions with debug "
             "information that a pattern names",
     .apply = apply_members,
     MEMBER(selection)},
    {.name = "detail-always",
     .help = "with --detail and --on: write all detail. Without this option only what is in windows is written",
     .apply = ct_apply_flag,
     MEMBER(detail_always)},
    {.name = "detail-size",
     .argument = "M",
     .help = "shared memory for detail, 1 to 256 MiB (default 64)",
     .values = "16 64 128 256",
     .least = 1,
     .most = DETAIL_MIB_MAX,
     .unit = " (MiB)",
     .apply = ct_apply_count32,
     MEMBER(detail_mib)},
    {.name = "sample",
     .argument = "N",
     .help = "record one of N calls of light hooks, N = 1, 2, 4 to 256. Default: all, and fewer while the "
             "recorder cannot keep up",
     .values = "1 2 4 8 16 32 64 128 256",
     .against = "no-sampling",
     .apply = apply_sample,
     MEMBER(sample)},
    {.name = "no-sampling",
     .help = "record all calls of light hooks, also when the recorder cannot keep up",
     .apply = ct_apply_flag,
     MEMBER(no_sampling)},
    CT_OPTIONS_END,
};

/* A line for each reason: what helps against one does not help against another. */
static void
warn_drops(const struct ct_session_options *options, const char *what, const uint64_t *dropped_by, uint64_t events,
           const char *ring_option)
{
  char a[CT_COUNT_CHARS], b[CT_COUNT_CHARS];
  for (int reason = 0; reason < CT_DROP_COUNT; reason++) {
    bool room = reason == CT_DROP_OVERWRITTEN || reason == CT_DROP_NO_SEGMENT || reason == CT_DROP_LATE;
    if (dropped_by[reason] != 0) {
      fprintf(stderr, "contrail: %s %s were dropped (%s recorded): %s", ct_format_count(a, dropped_by[reason]), what,
              ct_format_count(b, events), ct_drop_text(reason));
      if (room) {
        fprintf(stderr, "; %sa larger %s keeps them", options->lossless ? "" : "--lossless or ", ring_option);
      }
      if (reason == CT_DROP_DISK_SLOW) {
        fprintf(stderr, "; a faster disk, --last, or fewer functions (--trace) keep them");
      }
      fputc('\n', stderr);
    }
  }
}

/* Calls are all there, but not with what. */
static void
warn_detail(const struct ct_session_options *options, const struct ct_session_status *status)
{
  char a[CT_COUNT_CHARS], b[CT_COUNT_CHARS];
  if (status->detail_lost != 0) {
    fprintf(stderr,
            "contrail: %s records of detail were lost (%s read)%s: their calls are shown without values; %sa larger "
            "--detail-size, or fewer functions (--detail PATTERN) keep them\n",
            ct_format_count(a, status->detail_lost), ct_format_count(b, status->detail_records),
            status->windows != 0 ? ", perhaps in windows too" : "", options->lossless ? "" : "--lossless, ");
  }
}

static void
report_windows(const struct ct_session_options *options, const struct ct_session_status *status)
{
  char count[CT_COUNT_CHARS], bytes[CT_DURATION_CHARS];
  if (status->windows != 0) {
    fprintf(stderr, "contrail: %s window%s (contrail info %s lists %s)\n", ct_format_count(count, status->windows),
            status->windows == 1 ? "" : "s", options->directory, status->windows == 1 ? "it" : "them");
  } else if (options->rule_count != 0) {
    fprintf(stderr, "contrail: no windows: no rule became true\n");
  }
  uint64_t too_often = status->windows_refused - status->windows_refused_size;
  if (too_often != 0) {
    fprintf(stderr, "contrail: %s mark%s refused: over %u windows a minute (--max-windows)\n",
            ct_format_count(count, too_often), too_often == 1 ? " was" : "s were",
            options->max_windows != 0 ? options->max_windows : CT_WINDOWS_DEFAULT);
  }
  if (status->windows_limit_bytes != 0 && status->windows_bytes >= status->windows_limit_bytes) {
    fprintf(stderr,
            "contrail: windows have had %s on disk, all that they may (--max-windows-size); %s later mark%s refused\n",
            ct_format_bytes(bytes, status->windows_bytes), ct_format_count(count, status->windows_refused_size),
            status->windows_refused_size == 1 ? " was" : "s were");
  }
}

void
ct_recording_warn(const struct ct_session_options *options, const struct ct_session_status *status)
{
  ct_exclude_warn(options->exclude);
  ct_select_warn(options->selection);
  if (status->note[0] != '\0') {
    fputs("contrail: note: ", stderr);
    ct_put_printable(stderr, status->note, sizeof(status->note));
    fputc('\n', stderr);
  }
  if (status->children_lost != 0) {
    char count[CT_COUNT_CHARS];
    fprintf(stderr, "contrail: %s %s not recorded; contrail info %s reports why\n",
            ct_format_count(count, status->children_lost), status->children_lost == 1 ? "child was" : "children were",
            options->directory);
  }
  warn_drops(options, "events of children", status->child_dropped_by, status->child_events, "--child-ring-size");
  warn_drops(options, "events", status->dropped_by, status->events, "--ring-size");
  warn_detail(options, status);
  report_windows(options, status);
}

void
ct_recording_options_free(struct ct_session_options *options)
{
  ct_exclude_free(options->exclude);
  ct_selection_free(options->selection);
  free((void *)options->rules);
}
