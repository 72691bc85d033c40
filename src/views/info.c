/* SPDX-License-Identifier: MIT */
/*
 * Info; see info.h. The manifest comes from a file, so every member of it may be
 * missing or of another type; such a one is shown as unknown (null).
 */
#define _GNU_SOURCE 1 /* sigabbrev_np, sigdescr_np */
#include <contrail/info.h>

#include "base/sized.h"
#include "base/json.h"
#include "trace/batch.h"
#include "views/crash.h"
#include "views/info_costs.h"
#include "views/info_itrace.h"
#include "views/info_piece.h"
#include "views/process_tree.h"
#include "views/text.h"
#include "views/warnings.h"
#include "views/windows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  MODULES_SHOWN = 10,
  THREADS_SHOWN = 20,
  REASONS_SHOWN = 4,
  PATTERNS_SHOWN = 6,
  LABEL_COLUMNS = 10,
  WAITED_NS_SHOWN = 100000
};

struct sums {
  uint64_t events;
  uint64_t dropped;
  uint64_t bytes;
};

static struct sums
sum_up(const struct ct_trace *trace, const struct ct_info_piece *piece)
{
  struct sums sums = {.bytes = ct_trace_bytes(trace)};
  if (!piece->is_piece) {
    ct_view_event_sums(trace, &sums.events, &sums.dropped);
    return sums;
  }
  for (uint32_t i = 0; i < ct_trace_thread_count(trace); i++) {
    const struct ct_trace_thread *thread = ct_trace_thread(trace, i);
    sums.events += ct_info_piece_has(piece, i) ? ct_info_piece_events(piece, thread, i) : 0;
    sums.dropped += ct_info_piece_has(piece, i) ? ct_info_piece_dropped(piece, thread, i) : 0;
  }
  return sums;
}

static uint64_t
number(const json_t *object, const char *key)
{
  json_int_t value = json_integer_value(json_object_get(object, key));
  return value > 0 ? (uint64_t)value : 0;
}

/* ---- JSON ---- */

static json_t *
copy_or_null(const json_t *object, const char *key)
{
  json_t *value = json_object_get(object, key);
  return value != NULL ? json_incref(value) : json_null();
}

static json_t *
threads_json(const struct ct_trace *trace, const struct ct_info_piece *piece)
{
  json_t *list = json_array();
  for (uint32_t i = 0; i < ct_trace_thread_count(trace); i++) {
    const struct ct_trace_thread *t = ct_trace_thread(trace, i);
    if (ct_info_piece_has(piece, i)) {
      json_array_append_new(list, json_pack("{s:I, s:I, s:o, s:I, s:I}", "index", (json_int_t)t->index, "tid",
                                            (json_int_t)t->tid, "name", ct_json_string(t->name), "events",
                                            (json_int_t)ct_info_piece_events(piece, t, i), "dropped",
                                            (json_int_t)ct_info_piece_dropped(piece, t, i)));
    }
  }
  return list;
}

/* Functions that the user did not want; they are among the refused ones. */
static uint64_t
excluded_of(const json_t *module)
{
  return number(json_object_get(module, "refused"), "excluded");
}

/* Those that no pattern selects. */
static uint64_t
unselected_of(const json_t *module)
{
  return number(json_object_get(module, "refused"), "unchosen");
}

static json_t *
modules_json(const json_t *manifest)
{
  json_t *list = json_array();
  size_t i;
  json_t *module;
  json_array_foreach(json_object_get(manifest, "modules"), i, module)
  {
    json_t *item = json_pack("{s:o, s:o, s:o, s:o, s:I, s:o}", "path", copy_or_null(module, "path"), "build_id",
                             copy_or_null(module, "build_id"), "functions", copy_or_null(module, "functions"), "hooked",
                             copy_or_null(module, "hooked"), "excluded", (json_int_t)excluded_of(module), "refused",
                             copy_or_null(module, "refused"));
    json_object_set_new(item, "code_bytes", copy_or_null(module, "code_bytes"));
    json_object_set_new(item, "known_bytes", copy_or_null(module, "known_bytes"));
    json_t *why = json_object_get(module, "not_hooked_because");
    if (why != NULL) {
      json_object_set(item, "not_hooked_because", why);
    }
    why = json_object_get(module, "enter_only_because");
    if (why != NULL) {
      json_object_set(item, "enter_only_because", why);
    }
    json_array_append_new(list, item);
  }
  return list;
}

static json_t *
output_json(const struct ct_trace *trace, const struct ct_info_piece *piece, const json_t *manifest)
{
  const json_t *output = json_object_get(manifest, "output");
  uint64_t given[2], recorded;
  if (!piece->is_piece || !json_is_object(output)) {
    return copy_or_null(manifest, "output");
  }
  ct_info_piece_output(piece, trace, given, &recorded);
  return json_pack("{s:I, s:I, s:I}", "stdout_bytes", (json_int_t)given[0], "stderr_bytes", (json_int_t)given[1],
                   "recorded_bytes", (json_int_t)recorded);
}

static json_t *
memory_info(const json_t *manifest)
{
  json_t *memory = json_deep_copy(json_object_get(manifest, "memory"));
  if (!json_is_object(memory)) {
    json_decref(memory);
    return json_null();
  }
  json_object_set_new(memory, "trampoline_bytes",
                      json_integer((json_int_t)ct_info_sum_of_modules(manifest, "trampoline_bytes")));
  json_object_set_new(memory, "text_bytes", json_integer((json_int_t)ct_info_sum_of_modules(manifest, "text_bytes")));
  return memory;
}

static int
write_json(struct ct_trace *trace, const struct ct_info_piece *piece, enum ct_view_time time, FILE *out)
{
  const json_t *manifest = ct_trace_manifest(trace);
  struct sums sums = sum_up(trace, piece);
  json_t *info = json_pack(
      "{s:I, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "events",
      (json_int_t)sums.events, "dropped", (json_int_t)sums.dropped, "waited_ns", copy_or_null(manifest, "waited_ns"),
      "bytes", (json_int_t)sums.bytes, "duration_ns",
      piece->has_duration ? json_integer((json_int_t)piece->duration_ns) : json_null(), "user_ns",
      copy_or_null(manifest, "user_ns"), "system_ns", copy_or_null(manifest, "system_ns"), "exit",
      copy_or_null(manifest, "exit"), "complete", (int)ct_trace_is_complete(trace), "pid",
      copy_or_null(manifest, "pid"), "threads", threads_json(trace, piece), "modules", modules_json(manifest),
      "exclude", copy_or_null(manifest, "exclude"), "install_ns", copy_or_null(manifest, "install_ns"), "command",
      copy_or_null(manifest, "command"), "bytes_per_event",
      sums.events != 0 && !piece->is_piece ? json_real((double)sums.bytes / (double)sums.events) : json_null(),
      "analysis", copy_or_null(manifest, "analysis"), "memory", memory_info(manifest));
  if (info == NULL) {
    return CT_ENOMEM;
  }
  if (json_object_get(manifest, "patterns") != NULL) {
    json_object_set(info, "patterns", json_object_get(manifest, "patterns"));
  }
  if (json_object_get(manifest, "notes") != NULL) {
    json_object_set(info, "notes", json_object_get(manifest, "notes"));
  }
  json_object_set_new(info, "warnings", ct_view_warnings(trace));
  json_object_set_new(info, "dropped_by_reason", copy_or_null(manifest, "dropped_by_reason"));
  json_object_set_new(info, "start_wall_ns", copy_or_null(manifest, "start_wall_ns"));
  json_object_set_new(info, "children_missed",
                      json_boolean(json_is_true(json_object_get(manifest, "children_missed"))));
  json_object_set_new(info, "max_depth", copy_or_null(manifest, "max_depth"));
  json_object_set_new(info, "sampling", copy_or_null(manifest, "sampling"));
  json_object_set_new(info, "crash", ct_crash_json(trace, time));
  if (ct_trace_stacks(trace) != NULL) {
    json_object_set_new(info, "stacks", json_deep_copy(ct_trace_stacks(trace)));
  }
  json_object_set_new(info, "output", output_json(trace, piece, manifest));
  json_object_set_new(info, "piece", ct_info_piece_json(piece));
  json_object_set_new(info, "kept", copy_or_null(manifest, "kept"));
  if (ct_trace_window_count(trace) != 0) {
    json_object_set_new(info, "windows", ct_windows_json(trace));
    json_object_set_new(info, "windows_refused", copy_or_null(manifest, "windows_refused"));
    json_object_set_new(info, "windows_size", copy_or_null(manifest, "windows_size"));
  }
  if (json_object_get(manifest, "detail") != NULL) {
    json_object_set(info, "detail", json_object_get(manifest, "detail"));
  }
  json_object_set_new(info, "itrace", copy_or_null(manifest, "itrace"));
  json_object_set_new(info, "hook_costs", copy_or_null(manifest, "hook_costs"));
  json_object_set_new(info, "cost", copy_or_null(manifest, "cost"));
  json_object_set_new(info, "budget", copy_or_null(manifest, "budget"));
  json_object_set_new(info, "switches", copy_or_null(manifest, "switches"));
  json_object_set_new(info, "lanes", copy_or_null(manifest, "lanes"));
  json_t *children = ct_process_tree_info(trace);
  if (children != NULL) {
    json_object_set_new(info, "children", children);
    json_object_set_new(info, "children_lost", copy_or_null(manifest, "children_lost"));
  }
  int code = json_dumpf(info, out, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) == 0 ? 0 : CT_EIO;
  json_decref(info);
  putc('\n', out);
  return code;
}

/* ---- Text ---- */

static void
label(FILE *out, const char *text)
{
  fprintf(out, "%-*s ", LABEL_COLUMNS, text);
}

/* As one would type it to a shell. */
static void
write_word(FILE *out, const json_t *word)
{
  const char *text = json_is_string(word) ? json_string_value(word) : "?";
  bool quote = text[0] == '\0' || strpbrk(text, " \t\n'\"\\$`;&|<>()*?[]#~!{}") != NULL;
  fputs(quote ? "'" : "", out);
  ct_put_printable(out, text, SIZE_MAX);
  fputs(quote ? "'" : "", out);
}

static void
write_exclude(FILE *out, const json_t *manifest)
{
  const json_t *exclude = json_object_get(manifest, "exclude");
  const json_t *patterns = json_object_get(exclude, "patterns");
  size_t count = json_array_size(patterns);
  bool hot = json_is_true(json_object_get(exclude, "hot"));
  if (count == 0 && !hot) {
    return;
  }
  label(out, "excluded");
  fputs(hot ? "known hot functions" : "", out);
  for (size_t i = 0; i < count && i < PATTERNS_SHOWN; i++) {
    fputs(hot || i != 0 ? ", " : "", out);
    write_word(out, json_array_get(patterns, i));
  }
  if (count > PATTERNS_SHOWN) {
    fprintf(out, " and %zu more", count - PATTERNS_SHOWN);
  }
  putc('\n', out);
}

static void
write_patterns(FILE *out, const json_t *manifest)
{
  const json_t *patterns = json_object_get(manifest, "patterns");
  size_t count = json_array_size(patterns);
  char a[CT_COUNT_CHARS], b[CT_COUNT_CHARS];
  for (size_t i = 0; i < count && i < PATTERNS_SHOWN; i++) {
    const json_t *pattern = json_array_get(patterns, i);
    const char *mode = json_string_value(json_object_get(pattern, "mode"));
    const char *note = json_string_value(json_object_get(pattern, "note"));
    label(out, i == 0 ? "traced" : "");
    write_word(out, json_object_get(pattern, "pattern"));
    fprintf(out, ": %s matched, %s hooked, ", ct_format_count(a, number(pattern, "matched")),
            ct_format_count(b, number(pattern, "hooked")));
    ct_put_printable(out, mode != NULL ? mode : "?", SIZE_MAX);
    if (note != NULL) {
      fputs("; ", out);
      ct_put_printable(out, note, SIZE_MAX);
    }
    putc('\n', out);
  }
  if (count > PATTERNS_SHOWN) {
    label(out, "");
    fprintf(out, "... and %zu more patterns; --json has all\n", count - PATTERNS_SHOWN);
  }
}

static void
write_depth(FILE *out, const json_t *manifest)
{
  char a[CT_COUNT_CHARS];
  if (number(manifest, "max_depth") == 0) {
    return;
  }
  label(out, "depth");
  fprintf(out, "calls deeper than %s are left out\n", ct_format_count(a, number(manifest, "max_depth")));
}

static void
write_kept(FILE *out, const struct ct_trace *trace)
{
  struct ct_trace_kept kept = {.struct_size = sizeof(kept)};
  char size[CT_DURATION_CHARS], time[CT_DURATION_CHARS];
  if (ct_trace_get_kept(trace, &kept) != 0 || !kept.is_kept) {
    return;
  }
  label(out, "kept");
  fprintf(out, "the last %s", ct_format_bytes(size, kept.limit_bytes));
  if (kept.limit_ns != 0) {
    fprintf(out, ", %s at most", ct_format_duration(time, kept.limit_ns));
  }
  putc('\n', out);
}

/* Only where it was used. */
static void
write_sampling(FILE *out, const json_t *manifest)
{
  const json_t *sampling = json_object_get(manifest, "sampling");
  char a[CT_COUNT_CHARS];
  if (number(sampling, "interval") <= 1 && number(sampling, "changes") == 0) {
    return;
  }
  label(out, "sampling");
  if (json_is_true(json_object_get(sampling, "adapts"))) {
    fprintf(out, "of light hooks' calls 1 of %u at the end, %s changes\n", (unsigned)number(sampling, "interval"),
            ct_format_count(a, number(sampling, "changes")));
  } else {
    fprintf(out, "of light hooks' calls 1 of %u\n", (unsigned)number(sampling, "interval"));
  }
}

static void
write_notes(FILE *out, const json_t *manifest)
{
  size_t i;
  json_t *note;
  json_array_foreach(json_object_get(manifest, "notes"), i, note)
  {
    label(out, i == 0 ? "note" : "");
    ct_put_printable(out, json_is_string(note) ? json_string_value(note) : "?", SIZE_MAX);
    putc('\n', out);
  }
}

static void
write_command(FILE *out, const json_t *manifest)
{
  label(out, "command");
  size_t i;
  json_t *word;
  json_array_foreach(json_object_get(manifest, "command"), i, word)
  {
    fputs(i == 0 ? "" : " ", out);
    write_word(out, word);
  }
  fprintf(out, "  (pid %llu)\n", (unsigned long long)number(manifest, "pid"));
}

static void
write_exit(FILE *out, const json_t *manifest)
{
  const json_t *end = json_object_get(manifest, "exit");
  const json_t *signal = json_object_get(end, "signal"), *status = json_object_get(end, "status");
  label(out, "exit");
  if (json_is_integer(signal)) {
    int n = (int)json_integer_value(signal);
    const char *name = sigabbrev_np(n), *text = sigdescr_np(n);
    fprintf(out, "killed by signal %d (SIG%s, %s)\n", n, name != NULL ? name : "?", text != NULL ? text : "unknown");
  } else if (json_is_integer(status)) {
    fprintf(out, "status %lld\n", (long long)json_integer_value(status));
  } else if (json_is_true(json_object_get(manifest, "detached"))) {
    fputs("none: contrail detached, and the program ran on\n", out);
  } else {
    fputs("unknown: the program was not seen to end\n", out);
  }
}

/* When it began, by the wall clock. */
static void
write_start(FILE *out, const json_t *manifest)
{
  char text[64];
  time_t seconds = (time_t)(number(manifest, "start_wall_ns") / 1000000000u);
  struct tm local;
  if (seconds == 0 || localtime_r(&seconds, &local) == NULL ||
      strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %z", &local) == 0) {
    return;
  }
  label(out, "started");
  fprintf(out, "%s\n", text);
}

static void
write_missed(FILE *out, const json_t *manifest)
{
  if (!json_is_true(json_object_get(manifest, "children_missed"))) {
    return;
  }
  label(out, "children");
  bool attached = json_is_true(json_object_get(manifest, "attached"));
  fprintf(out, "not recorded; contrail %s --follow records them too\n", attached ? "attach" : "record");
}

static void
write_sums(FILE *out, const struct ct_trace *trace, const struct ct_info_piece *piece, const json_t *manifest)
{
  struct sums sums = sum_up(trace, piece);
  char a[CT_COUNT_CHARS], b[CT_DURATION_CHARS];
  label(out, "events");
  fprintf(out, "%s, ", ct_format_count(a, sums.events));
  fprintf(out, "%s dropped", ct_format_count(a, sums.dropped));
  if (sums.dropped != 0 && sums.events + sums.dropped != 0) {
    struct ct_trace_kept kept = {.struct_size = sizeof(kept)};
    uint64_t before = ct_trace_get_kept(trace, &kept) == 0 ? kept.not_kept : 0; /* of which some were dropped, too */
    fprintf(out, " (%.2f %%%s)",
            100.0 * (double)sums.dropped / ((double)sums.events + (double)before + (double)sums.dropped),
            before != 0 ? " of the whole recording" : "");
  }
  putc('\n', out);
  for (int reason = 0; reason < CT_DROP_COUNT && !piece->is_piece; reason++) {
    uint64_t count = number(json_object_get(manifest, "dropped_by_reason"), ct_drop_name(reason));
    if (count != 0) {
      label(out, "");
      fprintf(out, "%s dropped: %s\n", ct_format_count(a, count), ct_drop_text(reason));
    }
  }
  if (number(manifest, "waited_ns") >= WAITED_NS_SHOWN) {
    label(out, "waited");
    fprintf(out, "%s for room for events, all threads together\n",
            ct_format_duration(b, number(manifest, "waited_ns")));
  }
  label(out, "size");
  fputs(ct_format_bytes(b, sums.bytes), out);
  if (piece->is_piece) {
    fputs(", of the whole", out);
  } else if (sums.events != 0) {
    fprintf(out, ", %.2f bytes per event", (double)sums.bytes / (double)sums.events);
  }
  putc('\n', out);
  label(out, "duration");
  fputs(piece->has_duration ? ct_format_duration(b, piece->duration_ns) : "unknown", out);
  if (!piece->has_range && json_is_integer(json_object_get(manifest, "user_ns"))) {
    fprintf(out, ", %s of processor time",
            ct_format_duration(b, number(manifest, "user_ns") + number(manifest, "system_ns")));
  }
  if (!piece->has_range && json_is_integer(json_object_get(manifest, "install_ns"))) {
    fprintf(out, ", hooks installed in %s", ct_format_duration(b, number(manifest, "install_ns")));
  }
  putc('\n', out);
}

/* What the program wrote to its standard output and error. */
static void
write_output(FILE *out, const struct ct_trace *trace, const struct ct_info_piece *piece, const json_t *manifest)
{
  json_t *output = output_json(trace, piece, manifest);
  uint64_t first = number(output, "stdout_bytes"), second = number(output, "stderr_bytes");
  uint64_t recorded = number(output, "recorded_bytes");
  char a[CT_COUNT_CHARS];
  json_decref(output);
  if (first + second == 0) {
    return;
  }
  label(out, "output");
  fprintf(out, "%s bytes to stdout", ct_format_count(a, first));
  fprintf(out, ", %s to stderr", ct_format_count(a, second));
  if (recorded < first + second) {
    fprintf(out, "; %s of them recorded", ct_format_count(a, recorded));
  }
  putc('\n', out);
}

/* Registers and stack bytes of calls, and what of them is not in the trace. */
static void
write_detail(FILE *out, const json_t *manifest)
{
  const json_t *detail = json_object_get(manifest, "detail");
  static const char *const keys[] = {"overwritten", "no_room", "refused", "outside_windows", "no_memory", "over_size"};
  static const char *const texts[] = {"were written over before they were read (--detail-size)",
                                      "found no room",
                                      "made no sense",
                                      "were in no window (--detail-always writes them)",
                                      ("did not fit into memory before it was known whether they are in a window "
                                       "(--detail-size)"),
                                      "were in windows that had all their room on disk (--max-windows-size)"};
  char a[CT_COUNT_CHARS];
  if (!json_is_object(detail)) {
    return;
  }
  label(out, "detail");
  fprintf(out, "%s records", ct_format_count(a, number(detail, "records")));
  for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
    if (number(detail, keys[i]) != 0) {
      fprintf(out, ", %s more %s", ct_format_count(a, number(detail, keys[i])), texts[i]);
    }
  }
  putc('\n', out);
}

/* Where it is known from when threads were off the processor; why it is not. */
static void
write_switches(FILE *out, const json_t *manifest)
{
  const json_t *switches = json_object_get(manifest, "switches");
  const char *source = json_string_value(json_object_get(switches, "source"));
  const char *because = json_string_value(json_object_get(switches, "because"));
  uint64_t cpu = 0, delay = 0;
  char a[CT_COUNT_CHARS], b[CT_DURATION_CHARS];
  if (source == NULL || (strcmp(source, "totals") != 0 && number(switches, "lost") == 0)) {
    return;
  }
  label(out, "off");
  if (strcmp(source, "totals") != 0) {
    fprintf(out, "%s context switches of the threads are not in the trace: too many at a time\n",
            ct_format_count(a, number(switches, "lost")));
    return;
  }
  size_t i;
  json_t *thread;
  json_array_foreach(json_object_get(manifest, "threads"), i, thread)
  {
    cpu += number(thread, "cpu_ns");
    delay += number(thread, "delay_ns");
  }
  if (json_is_true(json_object_get(switches, "given_up"))) {
    fputs("time off the processor is known for each call only at first: reporting it cost more than the budget allows",
          out);
  } else {
    fputs("time off the processor is not known for each call: perf_event_open: ", out);
    ct_put_printable(out, because != NULL ? because : "?", SIZE_MAX);
  }
  fprintf(out, "; all threads: %s on the processor, %s waiting for one, as last seen\n", ct_format_duration(a, cpu),
          ct_format_duration(b, delay));
}

struct reason {
  const char *text;
  uint64_t count;
};

static int
compare_reasons(const void *a, const void *b)
{
  const struct reason *x = a, *y = b;
  if (x->count != y->count) {
    return x->count < y->count ? 1 : -1;
  }
  return strcmp(x->text, y->text);
}

static uint64_t
refused_total(const json_t *module)
{
  uint64_t total = 0;
  const char *key;
  json_t *value;
  json_object_foreach(json_object_get(module, "refused"), key, value) total +=
      json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
  return total;
}

/* Modules of which nothing could be hooked, or for enter only, each with its reason. */
static void
write_limited(FILE *out, const json_t *modules, const char *what, const char *reason)
{
  size_t i;
  json_t *module;
  json_array_foreach(modules, i, module)
  {
    const char *why = json_string_value(json_object_get(module, reason));
    const char *path = json_string_value(json_object_get(module, "path"));
    if (why != NULL) {
      label(out, what);
      ct_put_printable(out, path != NULL ? path : "?", SIZE_MAX);
      fputs(": ", out);
      ct_put_printable(out, why, SIZE_MAX);
      putc('\n', out);
    }
  }
}

/* The most frequent reasons for which functions were left out, over all modules. */
static void
write_reasons(FILE *out, const json_t *modules)
{
  json_t *all = json_object();
  size_t i;
  json_t *module, *value;
  const char *key;
  json_array_foreach(modules, i, module)
  {
    json_object_foreach(json_object_get(module, "refused"), key, value)
    {
      if (strcmp(key, "excluded") != 0 && strcmp(key, "unchosen") != 0) { /* they have a column */
        json_object_set_new(all, key,
                            json_integer(json_integer_value(json_object_get(all, key)) + json_integer_value(value)));
      }
    }
  }
  size_t count = 0;
  struct reason *reasons = calloc(json_object_size(all) + 1, sizeof(*reasons));
  if (reasons != NULL) {
    json_object_foreach(all, key, value) reasons[count++] =
        (struct reason){key, json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0};
    qsort(reasons, count, sizeof(*reasons), compare_reasons);
  }
  for (size_t r = 0; r < count && r < REASONS_SHOWN; r++) {
    char text[CT_COUNT_CHARS];
    label(out, r == 0 ? "left out" : "");
    fprintf(out, "%12s  ", ct_format_count(text, reasons[r].count));
    ct_put_printable(out, reasons[r].text, SIZE_MAX);
    putc('\n', out);
  }
  if (count > REASONS_SHOWN) {
    label(out, "");
    fprintf(out, "... and %zu more reason%s; --json has all\n", count - REASONS_SHOWN,
            count == REASONS_SHOWN + 1 ? "" : "s");
  }
  free(reasons);
  json_decref(all);
}

static int
compare_modules(const void *a, const void *b)
{
  const json_t *x = *(json_t *const *)a, *y = *(json_t *const *)b;
  uint64_t fx = number(x, "functions"), fy = number(y, "functions");
  if (fx != fy) {
    return fx < fy ? 1 : -1;
  }
  return number(x, "index") < number(y, "index") ? -1 : 1;
}

/* How much of its text belongs to known functions. */
static void
write_known(FILE *out, const json_t *module)
{
  uint64_t code = number(module, "code_bytes"), known = number(module, "known_bytes");
  double share = code != 0 ? 100.0 * (double)known / (double)code : 0;
  if (code != 0) {
    fprintf(out, "%8.*f %%  ", share < 1 ? 2 : 0, share);
  } else {
    fprintf(out, "%10s  ", "-");
  }
}

static void
write_modules(FILE *out, const json_t *modules)
{
  size_t count = json_array_size(modules), i;
  uint64_t functions = 0, hooked = 0, excluded = 0, unselected = 0;
  json_t **sorted = calloc(count + 1, sizeof(*sorted));
  json_t *module;
  if (sorted == NULL) {
    return;
  }
  json_array_foreach(modules, i, module)
  {
    functions += number(module, "functions");
    hooked += number(module, "hooked");
    excluded += excluded_of(module);
    unselected += unselected_of(module);
    sorted[i] = module;
  }
  qsort(sorted, count, sizeof(*sorted), compare_modules);
  char a[CT_COUNT_CHARS];
  label(out, "modules");
  fprintf(out, "%zu with %s functions", count, ct_format_count(a, functions));
  fprintf(out, ", %s hooked", ct_format_count(a, hooked));
  if (functions != 0) {
    fprintf(out, " (%.1f %%)", 100.0 * (double)hooked / (double)functions);
  }
  if (excluded != 0) {
    fprintf(out, ", %s excluded", ct_format_count(a, excluded));
  }
  if (unselected != 0) {
    fprintf(out, ", %s not selected", ct_format_count(a, unselected));
  }
  putc('\n', out);
  if (count != 0) {
    fprintf(out, "%*s %12s %12s %s%s%12s %10s  %s\n", LABEL_COLUMNS, "", "functions", "hooked",
            excluded != 0 ? "    excluded " : "", unselected != 0 ? "not selected " : "", "left out", "text known",
            "module");
  }
  for (i = 0; i < count && i < MODULES_SHOWN; i++) {
    const char *path = json_string_value(json_object_get(sorted[i], "path"));
    label(out, "");
    fprintf(out, "%12s ", ct_format_count(a, number(sorted[i], "functions")));
    fprintf(out, "%12s ", ct_format_count(a, number(sorted[i], "hooked")));
    if (excluded != 0) {
      fprintf(out, "%12s ", ct_format_count(a, excluded_of(sorted[i])));
    }
    if (unselected != 0) {
      fprintf(out, "%12s ", ct_format_count(a, unselected_of(sorted[i])));
    }
    fprintf(out, "%12s ",
            ct_format_count(a, refused_total(sorted[i]) - excluded_of(sorted[i]) - unselected_of(sorted[i])));
    write_known(out, sorted[i]);
    ct_put_printable(out, path != NULL ? path : "?", SIZE_MAX);
    putc('\n', out);
  }
  if (count > MODULES_SHOWN) {
    fprintf(out, "%*s ... and %zu more\n", LABEL_COLUMNS, "", count - MODULES_SHOWN);
  }
  free(sorted);
}

static void
write_threads(FILE *out, const struct ct_trace *trace, const struct ct_info_piece *piece)
{
  uint32_t all = ct_trace_thread_count(trace), count = 0, shown = 0;
  char a[CT_COUNT_CHARS];
  for (uint32_t i = 0; i < all; i++) {
    count += ct_info_piece_has(piece, i);
  }
  label(out, "threads");
  fprintf(out, "%u\n", count);
  if (count != 0) {
    fprintf(out, "%*s %12s %15s %12s  %s\n", LABEL_COLUMNS, "", "tid", "events", "dropped", "name");
  }
  for (uint32_t i = 0; i < all && shown < THREADS_SHOWN; i++) {
    const struct ct_trace_thread *t = ct_trace_thread(trace, i);
    if (!ct_info_piece_has(piece, i)) {
      continue;
    }
    shown++;
    fprintf(out, "%*s %12u ", LABEL_COLUMNS, "", t->tid);
    fprintf(out, "%15s ", ct_format_count(a, ct_info_piece_events(piece, t, i)));
    fprintf(out, "%12s  ", ct_format_count(a, ct_info_piece_dropped(piece, t, i)));
    ct_put_printable(out, t->name, SIZE_MAX);
    putc('\n', out);
  }
  if (count > THREADS_SHOWN) {
    fprintf(out, "%*s ... and %u more\n", LABEL_COLUMNS, "", count - THREADS_SHOWN);
  }
}

int
ct_info_write(struct ct_trace *trace, const struct ct_info_options *given, FILE *out, struct ct_diag *diag)
{
  const json_t *manifest = ct_trace_manifest(trace);
  struct ct_info_options options;
  struct ct_info_piece piece;
  int code = ct_sized_take(&options, sizeof(options), given, diag);
  if (code == 0) {
    code = ct_info_piece_read(trace, options.filter, &piece, diag);
  }
  if (code != 0) {
    return code;
  }
  if (options.json) {
    code = write_json(trace, &piece, options.time, out);
  } else {
    ct_view_put_warnings(trace, "", out);
    if (piece.is_piece) {
      label(out, "piece");
      ct_info_piece_write(&piece, out);
    }
    code = ct_crash_write(trace, options.time, out);
    write_exit(out, manifest);
    write_notes(out, manifest);
    write_command(out, manifest);
    write_start(out, manifest);
    write_patterns(out, manifest);
    write_exclude(out, manifest);
    write_depth(out, manifest);
    write_kept(out, trace);
    ct_windows_write(trace, "windows", LABEL_COLUMNS, out);
    write_sampling(out, manifest);
    write_sums(out, trace, &piece, manifest);
    write_output(out, trace, &piece, manifest);
    write_detail(out, manifest);
    ct_info_put_itrace(manifest, out);
    write_missed(out, manifest);
    ct_info_put_costs(trace, out);
    write_switches(out, manifest);
    write_modules(out, json_object_get(manifest, "modules"));
    write_reasons(out, json_object_get(manifest, "modules"));
    write_limited(out, json_object_get(manifest, "modules"), "not hooked", "not_hooked_because");
    write_limited(out, json_object_get(manifest, "modules"), "enter only", "enter_only_because");
    write_threads(out, trace, &piece);
    ct_stacks_write(trace, out);
    ct_process_tree_write(trace, out);
  }
  ct_info_piece_free(&piece);
  if (code == CT_ENOMEM) {
    return ct_fail(diag, code, "out of memory for the summary");
  }
  if (code != 0 || fflush(out) != 0 || ferror(out)) {
    return ct_fail(diag, CT_EIO, "cannot write the summary: %s", strerror(errno));
  }
  return 0;
}
