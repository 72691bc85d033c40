/* SPDX-License-Identifier: MIT */
/* See closing.h. */
#define _GNU_SOURCE 1 /* sigabbrev_np */
#include "cli/closing.h"

#include "cli/command.h"

#include <contrail/exclude.h>
#include <contrail/export.h>
#include <contrail/info.h>
#include <contrail/text.h>
#include <contrail/trace.h>

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_NOT_CONVERTED = 125 }; /* as for a recording that failed: what was asked for is not there */
enum { WAITED_NS_SHOWN = 100000 }; /* as info does */
#define COST_SHARE_SHOWN   0.01
#define BUDGET_MISSED      1.5 /* of the limit */
#define BUDGET_SHARE_SHOWN 0.2

/* A number of the environment, as sudo leaves it. */
static bool
number_of(const char *name, uint64_t *number)
{
  const char *text = getenv(name);
  return text != NULL && ct_parse_number(text, UINT32_MAX - 1, number);
}

void
ct_place_trace(struct ct_session_options *options)
{
  uint64_t uid, gid;
  if (options->directory == NULL) {
    options->directory = CT_DEFAULT_TRACE;
    options->replace = true;
  }
  if (geteuid() == 0 && number_of("SUDO_UID", &uid) && number_of("SUDO_GID", &gid) && uid != 0) {
    options->give = true;
    options->owner = (uid_t)uid;
    options->owner_group = (gid_t)gid;
  }
}

/* info --json of the trace, read back. */
static json_t *
info_of(struct ct_trace *trace)
{
  struct ct_info_options options = {.struct_size = sizeof(options), .json = true};
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (out == NULL) {
    return NULL;
  }
  int code = ct_info_write(trace, &options, out, NULL);
  fclose(out);
  json_t *info = code == 0 ? json_loadb(text, size, 0, NULL) : NULL;
  free(text);
  return info;
}

/* The first frame of the thread that crashed which is in a file with lines, else the first one. */
static const json_t *
crash_frame(const json_t *crash)
{
  json_t *frames = json_object_get(json_array_get(json_object_get(crash, "threads"), 0), "backtrace"), *frame;
  size_t i;
  json_array_foreach(frames, i, frame)
  {
    if (json_is_string(json_object_get(frame, "file"))) {
      return frame;
    }
  }
  return json_array_get(frames, 0);
}

static void
report_crash(const json_t *crash)
{
  const char *name = json_string_value(json_object_get(crash, "name"));
  const json_t *frame = crash_frame(crash);
  const char *function = json_string_value(json_object_get(frame, "function"));
  const char *file = json_string_value(json_object_get(frame, "file"));
  if (name == NULL) {
    return;
  }
  fputs("contrail: the program was ended by ", stderr);
  ct_put_printable(stderr, name, SIZE_MAX);
  if (function != NULL) {
    fputs(frame == json_array_get(json_object_get(json_array_get(json_object_get(crash, "threads"), 0), "backtrace"), 0)
              ? " in "
              : " below ",
          stderr);
    ct_put_printable(stderr, function, SIZE_MAX);
  }
  if (file != NULL) {
    const char *slash = strrchr(file, '/');
    fputs(" at ", stderr);
    ct_put_printable(stderr, slash != NULL ? slash + 1 : file, SIZE_MAX);
    fprintf(stderr, ":%lld", (long long)json_integer_value(json_object_get(frame, "line")));
  }
  putc('\n', stderr);
}

void
ct_report_trace(const char *directory)
{
  struct ct_trace *trace;
  char events[CT_COUNT_CHARS], threads[CT_COUNT_CHARS], size[CT_DURATION_CHARS];
  if (ct_trace_open(directory, &trace, NULL) != 0) {
    return;
  }
  json_t *info = info_of(trace);
  const json_t *crash = json_object_get(info, "crash");
  uint64_t seen = (uint64_t)json_integer_value(json_object_get(info, "events"));
  uint64_t lost = (uint64_t)json_integer_value(json_object_get(info, "dropped"));
  uint64_t waited = (uint64_t)json_integer_value(json_object_get(info, "waited_ns"));
  uint32_t count = ct_trace_thread_count(trace);
  bool standard = strcmp(directory, CT_DEFAULT_TRACE) == 0;
  if (json_is_object(crash)) {
    report_crash(crash);
  }
  if (json_is_true(json_object_get(info, "children_missed"))) {
    fputs("contrail: the program's children were not recorded; contrail record --follow records them too\n", stderr);
  }
  fprintf(stderr, "contrail: %s events of %s thread%s, %s, ", ct_format_count(events, seen),
          ct_format_count(threads, count), count == 1 ? "" : "s", ct_format_bytes(size, ct_trace_bytes(trace)));
  if (lost != 0) {
    fprintf(stderr, "%.3g %% of all events LOST", 100.0 * (double)lost / ((double)seen + (double)lost));
  } else {
    fputs("nothing lost", stderr);
  }
  if (waited >= WAITED_NS_SHOWN) {
    fprintf(stderr, ", the program waited %s for room", ct_format_duration(size, waited));
  }
  double share = json_real_value(json_object_get(json_object_get(info, "cost"), "share")); /* 0: not known */
  const json_t *budget = json_object_get(info, "budget");
  if (share >= COST_SHARE_SHOWN || json_is_object(budget)) {
    fprintf(stderr, ", hooks took about %.*f %% of its processor time", share < 0.01 ? 2 : 0, 100 * share);
  }
  double limit = json_real_value(json_object_get(budget, "limit"));
  double spent = json_real_value(json_object_get(budget, "spent"));
  if (spent > BUDGET_MISSED * limit) { /* what is out and keeps its patch is in it, and the recorder */
    fprintf(stderr, " (of late all in all %.0f %%: over the budget, see contrail info)", 100 * spent);
  }
  if (!json_is_object(budget) && share >= BUDGET_SHARE_SHOWN) {
    fputs(" (--budget 10% holds that)", stderr);
  }
  struct ct_trace_kept kept = {.struct_size = sizeof(kept)};
  if (ct_trace_get_kept(trace, &kept) == 0 && kept.not_kept != 0 && ct_trace_end_tsc(trace) > kept.begin_tsc) {
    uint64_t ns = ct_trace_ticks_ns(trace, ct_trace_end_tsc(trace) - kept.begin_tsc);
    fprintf(stderr, ", the last %s of the recording", ct_format_duration(size, ns));
  }
  bool printed = json_integer_value(json_object_get(json_object_get(info, "output"), "recorded_bytes")) > 0;
  const char *next = json_is_object(crash) ? "info" : seen != 0 ? "report" : printed ? "output" : "info";
  fprintf(stderr, "; next: contrail %s%s%s\n", next, standard ? "" : " ", standard ? "" : directory);
  json_decref(info);
  ct_trace_close(trace);
}

bool
ct_report_gaps(const struct ct_session_options *options, const struct ct_session_status *status)
{
  struct ct_select_info first = {.struct_size = sizeof(first)};
  bool everything = ct_selection_is_everything(options->selection) && ct_exclude_is_empty(options->exclude);
  if (status->events != 0 || status->dropped != 0 || status->child_events != 0 ||
      (!ct_selection_is_everything(options->selection) && ct_selection_info(options->selection, 0, &first) != 0)) {
    return true;
  }
  const char *why = status->note[0] != '\0'              ? "see the note above"
                    : !everything && status->hooked == 0 ? "none of the functions that were to be traced was hooked"
                    : !everything                        ? "none of the functions that were to be traced was called"
                    : status->hooked == 0 ? "no function of the program is known (stripped, and without call frame "
                                            "information?); contrail plan FILE lists those of a file"
                    : status->attached    ? "none of the hooked functions was called in that time"
                                          : "no hook was reached";
  fprintf(stderr, "contrail: nothing was recorded: %s\n", why);
  return false;
}

/* ---- another format ---- */

int
ct_apply_recording_format(const struct ct_applied *applied)
{
  if (strcmp(applied->value, "contrail") != 0 && strcmp(applied->value, "atf2") != 0) {
    return ct_usage_error(applied->command, "a recording has the format contrail or atf2, not '%.64s'", applied->value);
  }
  *(const char **)applied->member = applied->value[0] == 'a' ? applied->value : NULL;
  return CT_EXIT_OK;
}

int
ct_check_format(const struct ct_command *command, const struct ct_session_options *options, const char *format)
{
  return format == NULL || options->directory != NULL
             ? CT_EXIT_OK
             : ct_usage_error(command, "--format %s needs a directory: --output DIR", format);
}

int
ct_convert_trace(const struct ct_session_options *options, const char *format, bool quiet)
{
  struct ct_export_owner owner = {options->give, options->owner, options->owner_group};
  struct ct_export_summary summary = {.struct_size = sizeof(summary)};
  struct ct_diag diag = {""};
  if (format == NULL) {
    return CT_EXIT_OK;
  }
  int err = ct_export_replace(options->directory, format, &owner, &summary, &diag);
  if (err != 0) {
    fprintf(stderr, "contrail: the trace is in %s as contrail's own, not as %s: %s\n", options->directory, format,
            diag.text[0] != '\0' ? diag.text : ct_err_text(err));
    return EXIT_NOT_CONVERTED;
  }
  if (!quiet && summary.mapped[0] != '\0') {
    fprintf(stderr, "contrail: %s cannot hold all: %s\n", format, summary.mapped);
  }
  return CT_EXIT_OK;
}
