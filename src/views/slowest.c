/* SPDX-License-Identifier: MIT */
/*
 * The slowest calls; see <contrail/slowest.h>. The first pass keeps the best so far in a heap whose root is the least
 * of them; the second one is a replay of their threads (call_tree.c).
 */
#include <contrail/slowest.h>

#include "base/json.h"
#include "base/sized.h"
#include "trace/batch.h"
#include "views/call_tree.h"
#include "views/filter.h"
#include "views/reading.h"
#include "views/report.h"
#include "views/slowest_index.h"
#include "views/warnings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The best so far, as a heap: of a thread, or of all. */
struct best {
  struct ct_slow_call *heap;
  size_t count, limit;
  uint64_t passed_over; /* calls of which it is not known how long they took */
  uint64_t enter_only;  /* those of which only the enter was recorded, or a count */
};

/* What is kept of a thread. */
struct part {
  const struct slowest *slowest;
  struct ct_trace *trace;
  struct best best;
};

/* One of those that were read. */
struct process {
  char *path;
  uint32_t pid;
  uint32_t place;         /* in the process tree, for ids: 0 the first, N the N-th of its children */
  struct ct_trace *trace; /* while its calls are shown; NULL: it has none of them */
  uint32_t *tids;
  size_t *ranks; /* of its roots: their places among all calls */
  struct ct_call_trees trees;
};

struct slowest {
  const struct ct_slowest_options *options;
  struct ct_trace *first, *trace; /* the process's that is at hand */
  uint64_t start_ns;              /* of the first one */
  FILE *out;
  struct ct_view_names names;
  struct ct_view_reading reading;
  struct best best;
  struct process *processes;
  size_t process_count;
  bool is_from_index;
};

/* ---- the first pass ---- */

/* a comes before b in the list. */
static bool
is_before(const struct ct_slow_call *a, const struct ct_slow_call *b)
{
  if (a->key != b->key) {
    return a->key > b->key;
  }
  if (a->process != b->process) {
    return a->process < b->process;
  }
  return a->thread != b->thread ? a->thread < b->thread : a->ordinal < b->ordinal;
}

static void
sift_down(struct best *best, size_t at)
{
  for (;;) {
    size_t last = at;
    for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < best->count; child++) {
      last = is_before(&best->heap[last], &best->heap[child]) ? child : last;
    }
    if (last == at) {
      return;
    }
    struct ct_slow_call kept = best->heap[at];
    best->heap[at] = best->heap[last];
    best->heap[last] = kept;
    at = last;
  }
}

static void
offer(struct best *best, const struct ct_slow_call *candidate)
{
  if (best->count == best->limit) {
    if (is_before(candidate, &best->heap[0])) {
      best->heap[0] = *candidate;
      sift_down(best, 0);
    }
    return;
  }
  best->heap[best->count++] = *candidate;
  if (best->count == best->limit) {
    for (size_t i = best->count / 2; i-- > 0;) {
      sift_down(best, i);
    }
  }
}

static int
begin_best(struct best *best, const struct ct_slowest_options *options)
{
  best->limit = options->count != 0 ? options->count : CT_SLOWEST_DEFAULT;
  best->limit = best->limit < CT_SLOWEST_MAX ? best->limit : CT_SLOWEST_MAX;
  best->heap = calloc(best->limit, sizeof(*best->heap));
  return best->heap != NULL ? 0 : CT_ENOMEM;
}

static bool
has_duration(const struct ct_span *span)
{
  return (span->uncertain & CT_SPAN_UNCERTAIN) == 0 && span->end != CT_SPAN_SWITCHED && span->end != CT_SPAN_LOST &&
         span->end != CT_SPAN_UNSEEN && span->ordinal != CT_NO_ORDINAL;
}

static int
begin_thread(void *arg, struct ct_trace *trace, uint32_t thread, void **out)
{
  const struct slowest *slowest = arg;
  struct part *part = *out = calloc(1, sizeof(*part));
  (void)thread;
  if (part == NULL) {
    return CT_ENOMEM;
  }
  part->slowest = slowest;
  part->trace = trace;
  return begin_best(&part->best, slowest->options);
}

static int
add_spans(void *arg, const struct ct_span *spans, size_t count)
{
  struct part *part = arg;
  const struct ct_view_reading *reading = &part->slowest->reading;
  for (const struct ct_span *span = spans; span != spans + count; span++) {
    if (span->end == CT_SPAN_ORPHAN || !ct_filter_has_function(reading->chooses, span->fn)) {
      continue;
    }
    if (span->end == CT_SPAN_POINT || span->end == CT_SPAN_COUNTED) {
      part->best.enter_only += span->end == CT_SPAN_POINT ? span->calls : span->duration_ticks;
      continue;
    }
    if (!has_duration(span)) {
      part->best.passed_over++;
      continue;
    }
    struct ct_slow_call candidate = {.key = part->slowest->options->by_off ? span->off_ticks : span->duration_ticks,
                                     .ordinal = span->ordinal,
                                     .enter_tsc = span->enter_tsc,
                                     .process = (uint32_t)reading->processes - 1,
                                     .thread = span->thread,
                                     .fn = span->fn};
    offer(&part->best, &candidate);
  }
  return 0;
}

static int
add_process(struct slowest *slowest, struct ct_trace *trace)
{
  size_t count = slowest->reading.processes;
  if (count == slowest->process_count) {
    return 0; /* by an earlier thread of it */
  }
  struct process *processes = reallocarray(slowest->processes, count, sizeof(*processes));
  if (processes == NULL) {
    return CT_ENOMEM;
  }
  slowest->processes = processes;
  while (slowest->process_count < count) { /* others have no threads */
    processes[slowest->process_count++] = (struct process){0};
  }
  struct process *process = &processes[count - 1];
  uint32_t number;
  ct_trace_place(trace, &number, &process->place);
  process->path = strdup(ct_trace_path(trace));
  process->pid = (uint32_t)json_integer_value(json_object_get(ct_trace_manifest(trace), "pid"));
  return process->path != NULL ? 0 : CT_ENOMEM;
}

static int
merge(void *arg, void *from)
{
  struct slowest *slowest = arg;
  const struct part *part = from;
  for (size_t i = 0; i < part->best.count; i++) {
    offer(&slowest->best, &part->best.heap[i]);
  }
  slowest->best.passed_over += part->best.passed_over;
  slowest->best.enter_only += part->best.enter_only;
  return add_process(slowest, part->trace);
}

static void
free_part(void *part)
{
  free(((struct part *)part)->best.heap);
  free(part);
}

static int
compare_candidates(const void *a, const void *b)
{
  return is_before(a, b) ? -1 : 1;
}

static int
find_calls(struct slowest *slowest, struct ct_diag *diag)
{
  const struct ct_slowest_options *options = slowest->options;
  if (begin_best(&slowest->best, options) != 0) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the slowest calls");
  }
  slowest->reading = (struct ct_view_reading){.trace = slowest->first,
                                              .filter = options->filter,
                                              .family = options->family,
                                              .time = options->time,
                                              .names = &slowest->names,
                                              .progress = &options->progress,
                                              .workers = options->workers,
                                              .arg = slowest,
                                              .begin_thread = begin_thread,
                                              .add = add_spans,
                                              .merge = merge,
                                              .free_part = free_part};
  struct best *best = &slowest->best;
  slowest->is_from_index =
      ct_slowest_from_index(slowest->first, options, best->limit, best->heap, &best->count, &best->enter_only);
  if (slowest->is_from_index) {
    slowest->reading.processes = 1;
    slowest->reading.warnings = ct_view_warnings(slowest->first);
    return slowest->reading.warnings != NULL && add_process(slowest, slowest->first) == 0
               ? 0
               : ct_fail(diag, CT_ENOMEM, "out of memory for the slowest calls");
  }
  int code = ct_view_read(&slowest->reading, diag);
  if (code == 0 && slowest->best.count != 0) {
    qsort(slowest->best.heap, slowest->best.count, sizeof(*slowest->best.heap), compare_candidates);
  }
  return code;
}

/* ---- the second ---- */

/* The roots of a process, in the order of the list. */
static int
take_roots(struct slowest *slowest, uint32_t number)
{
  struct process *process = &slowest->processes[number];
  struct ct_call_trees *trees = &process->trees;
  size_t most = slowest->best.count + 1;
  process->tids = calloc(most, sizeof(*process->tids));
  process->ranks = calloc(most, sizeof(*process->ranks));
  trees->roots = calloc(most, sizeof(*trees->roots));
  if (process->tids == NULL || process->ranks == NULL || trees->roots == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < slowest->best.count; i++) {
    struct ct_slow_call *found = &slowest->best.heap[i];
    if (found->process != number) {
      continue;
    }
    found->root = trees->root_count++;
    process->ranks[found->root] = i;
    process->tids[found->root] = ct_trace_thread(process->trace, found->thread)->tid;
    trees->roots[found->root] =
        (struct ct_tree_root){.thread = found->thread,
                              .ordinal = found->ordinal,
                              .id = ct_span_id_in(process->trace, found->thread, found->ordinal),
                              .clock = slowest->is_from_index ? &found->clock : NULL,
                              .inside_of = SIZE_MAX,
                              .min_ticks = (uint64_t)(slowest->options->min_percent / 100 * (double)found->key)};
  }
  return ct_lines_init(&trees->writer, process->trace, NULL, slowest->options->json);
}

static int
make_trees(struct slowest *slowest, uint32_t number, struct ct_view_notes *notes, struct ct_diag *diag)
{
  const struct ct_slowest_options *options = slowest->options;
  struct process *process = &slowest->processes[number];
  struct ct_call_trees *trees = &process->trees;
  bool is_first = strcmp(process->path, ct_trace_path(slowest->first)) == 0;
  int code = is_first ? 0 : ct_trace_open(process->path, &process->trace, diag);
  if (code != 0) {
    return code;
  }
  if (is_first) {
    process->trace = slowest->first;
  } else {
    ct_trace_set_place(process->trace, 0, process->place);
  }
  if (take_roots(slowest, number) != 0) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the slowest calls");
  }
  trees->trace = process->trace;
  trees->levels = options->depth;
  /* Shorter than that in nanoseconds: ticks that are fewer. */
  for (uint64_t bit = 1ull << 62; bit != 0 && options->min_ns != 0; bit >>= 1) {
    if (ct_trace_ticks_ns(process->trace, trees->min_ticks + bit - 1) < options->min_ns) {
      trees->min_ticks += bit;
    }
  }
  struct ct_filter filter = {.struct_size = sizeof(filter), .tids = process->tids, .tid_count = trees->root_count};
  struct ct_replay_options replay = {
      .struct_size = sizeof(replay), .filter = &filter, .json = true, .no_output = true, .time = options->time};
  struct replay_sink sink;
  if (ct_call_trees_sink(trees, &sink) != 0) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the slowest calls");
  }
  return slowest->is_from_index
             ? ct_slowest_replay_pieces(process->trace, slowest->best.heap, slowest->best.count, &replay, &sink, diag)
             : ct_replay_selected(process->trace, &replay, &sink, notes, diag);
}

/* For each process that has calls in the list. */
static int
make_all_trees(struct slowest *slowest, struct ct_view_notes *notes, struct ct_diag *diag)
{
  int code = 0;
  for (size_t i = 0; i < slowest->best.count && code == 0; i++) {
    uint32_t number = slowest->best.heap[i].process;
    code = slowest->processes[number].trace == NULL ? make_trees(slowest, number, notes, diag) : 0;
  }
  return code;
}

static void
free_process(const struct slowest *slowest, struct process *process)
{
  ct_call_trees_destroy(&process->trees);
  if (process->trace != slowest->first) {
    ct_trace_close(process->trace);
  }
  free(process->trees.roots);
  free(process->tids);
  free(process->ranks);
  free(process->path);
}

/* The root of a call in the list, whose process is at hand from now on. */
static const struct ct_tree_root *
root_at(struct slowest *slowest, size_t i)
{
  const struct ct_slow_call *found = &slowest->best.heap[i];
  slowest->trace = slowest->processes[found->process].trace;
  return &slowest->processes[found->process].trees.roots[found->root];
}

/* ---- both outputs ---- */

static const char *
name_of(const struct slowest *slowest, uint32_t fn)
{
  const struct ct_trace_function *function = ct_trace_function(slowest->trace, fn);
  return function != NULL ? function->name : "?";
}

static uint64_t
since_start_ns(const struct slowest *slowest, uint64_t tsc)
{
  uint64_t ns = ct_trace_ns(slowest->trace, tsc);
  return ns > slowest->start_ns ? ns - slowest->start_ns : 0;
}

static uint64_t
ns_of(const struct slowest *slowest, uint64_t ticks)
{
  return ct_trace_ticks_ns(slowest->trace, ticks);
}

static const char *
away_text(uint8_t reason)
{
  return reason == CT_AWAY_PREEMPTED ? "preempted"
         : reason == CT_AWAY_BLOCKED ? "blocked"
         : reason == CT_AWAY_ROOM    ? "room"
                                     : "held";
}

/* Of a text for people: what the entry is. */
static void
put_what(const struct slowest *slowest, const struct ct_entry *entry)
{
  FILE *out = slowest->out;
  switch (entry->kind) {
  case CT_ENTRY_AWAY:
    fprintf(out,
            entry->end == CT_AWAY_PREEMPTED || entry->end == CT_AWAY_BLOCKED ? "-- off: %s --"
                                                                             : "-- contrail's own: %s --",
            away_text(entry->end));
    return;
  case CT_ENTRY_STACK:
    fputs("-- on other stacks --", out);
    return;
  case CT_ENTRY_LOST:
    fputs("-- events lost --", out);
    return;
  default:
    break;
  }
  if (entry->text != NULL) {
    ct_put_printable(out, entry->text, SIZE_MAX);
    return;
  }
  const char *name = name_of(slowest, entry->fn);
  ct_text_put_name(out, name, slowest->options->short_names, 0);
  fputs(strchr(name, '(') == NULL ? "()" : "", out);
}

/* ---- text ---- */

enum { MAX_INDENT = 120 };

static void
put_columns(const struct slowest *slowest, const struct ct_entry *entry, const struct ct_entry *root, uint32_t level)
{
  char at[CT_DURATION_CHARS];
  uint64_t since = entry->tsc > root->tsc ? entry->tsc - root->tsc : 0;
  bool has_time = entry->kind != CT_ENTRY_POINT && entry->kind != CT_ENTRY_LOST;
  fprintf(slowest->out, "%10s  ", ct_format_duration(at, ns_of(slowest, since)));
  ct_report_put_time(slowest->out, has_time, ns_of(slowest, entry->ticks));
  bool has_off = entry->off_ticks != 0 && entry->kind == CT_ENTRY_CALL;
  if (has_off) {
    ct_report_put_time(slowest->out, true, ns_of(slowest, entry->off_ticks));
  } else {
    fprintf(slowest->out, "%11s", "");
  }
  fprintf(slowest->out, "%*s", (int)(1 + 2 * (level < MAX_INDENT / 2 ? level : MAX_INDENT / 2)), "");
}

static void
put_end(const struct slowest *slowest, const struct ct_entry *entry)
{
  FILE *out = slowest->out;
  if (entry->result != NULL) {
    ct_put_printable(out, entry->result, SIZE_MAX);
  }
  if (entry->end != CT_SPAN_RETURNED) {
    fprintf(out, "  -- %s", ct_span_end_text((enum ct_span_end)entry->end));
  }
  if (entry->before) {
    fputs("  -- entered before the trace begins", out);
  }
  if (entry->uncertain) {
    fputs("  -- uncertain: events were lost meanwhile", out);
  }
}

static void
put_hidden(const struct slowest *slowest, const struct ct_entry *entry, uint32_t level)
{
  char count[CT_COUNT_CHARS];
  if (entry->hidden_calls != 0) {
    fprintf(slowest->out, "%10s  ", "");
    ct_report_put_time(slowest->out, true, ns_of(slowest, entry->hidden_ticks));
    fprintf(slowest->out, "%11s%*s... %s call%s not shown\n", "",
            (int)(1 + 2 * (level < MAX_INDENT / 2 ? level : MAX_INDENT / 2)), "",
            ct_format_count(count, entry->hidden_calls), entry->hidden_calls == 1 ? "" : "s");
  }
}

/* At most CT_TREE_LEVELS_MAX deep, twice that with repetitions. */
static void
put_entry(const struct slowest *slowest, const struct ct_entry *entry, const struct ct_entry *root, uint32_t level,
          bool is_example)
{
  FILE *out = slowest->out;
  char text[CT_COUNT_CHARS];
  put_columns(slowest, entry, root, level);
  fputs(is_example ? "slowest: " : "", out);
  put_what(slowest, entry);
  if (entry->count > 1) {
    fprintf(out, " x %s", ct_format_count(text, entry->count));
    if (entry->max_ticks != 0) {
      fprintf(out, ", max %s", ct_format_duration(text, ns_of(slowest, entry->max_ticks)));
    }
    putc('\n', out);
    if (entry->slowest != NULL && (entry->slowest->inside != 0 || entry->slowest->entry_count != 0)) {
      put_entry(slowest, entry->slowest, root, level + 1, true);
    }
    return;
  }
  if (entry->kind == CT_ENTRY_CALL) {
    put_end(slowest, entry);
  }
  putc('\n', out);
  for (uint32_t i = 0; i < entry->entry_count; i++) {
    put_entry(slowest, entry->entries[i], root, level + 1, false);
  }
  put_hidden(slowest, entry, level + 1);
}

static void
put_heading(const struct slowest *slowest, size_t i)
{
  const struct ct_slow_call *found = &slowest->best.heap[i];
  const struct ct_trace_thread *thread = ct_trace_thread(slowest->trace, found->thread);
  uint64_t ns = since_start_ns(slowest, found->enter_tsc);
  char text[CT_DURATION_CHARS];
  fprintf(slowest->out, "%s%zu: ", i == 0 ? "" : "\n", i + 1);
  ct_text_put_name(slowest->out, name_of(slowest, found->fn), slowest->options->short_names, 0);
  fprintf(slowest->out, "  %s%s, at %llu.%09llu s, thread ", slowest->options->by_off ? "off the processor for " : "",
          ct_format_duration(text, ns_of(slowest, found->key)), (unsigned long long)(ns / 1000000000),
          (unsigned long long)(ns % 1000000000));
  ct_put_printable(slowest->out, thread->name, SIZE_MAX);
  fprintf(slowest->out, "%s%u", thread->name[0] != '\0' ? "/" : "", thread->tid);
  if (slowest->options->family) {
    fprintf(slowest->out, " of process %u", slowest->processes[found->process].pid);
  }
  putc('\n', slowest->out);
}

static void
put_text(struct slowest *slowest)
{
  FILE *out = slowest->out;
  char text[CT_COUNT_CHARS], counted[CT_FILTER_TEXT_CHARS];
  ct_view_put_list(slowest->reading.warnings, "", out);
  if (ct_filter_limits_calls(slowest->options->filter)) {
    ct_filter_describe_calls(slowest->options->filter, counted);
    fprintf(out, "looked at: %s\n\n", counted + strlen("counted: "));
  }
  for (size_t i = 0; i < slowest->best.count; i++) {
    const struct ct_tree_root *root = root_at(slowest, i);
    put_heading(slowest, i);
    if (root->call != NULL) {
      fprintf(out, "%10s  %10s %10s  calls\n", "after", "duration", "off");
      put_entry(slowest, root->call, root->call, 0, false);
    } else if (root->inside_of != SIZE_MAX) {
      fprintf(out, "a call inside of number %zu\n",
              slowest->processes[slowest->best.heap[i].process].ranks[root->inside_of] + 1);
    }
  }
  if (slowest->best.count == 0) {
    bool any = slowest->best.passed_over + slowest->best.enter_only != 0;
    fputs(any ? "no call of which it is known how long it took\n" : "no calls\n", out);
  }
  if (slowest->best.passed_over != 0) {
    fprintf(out, "\nnot among them: %s calls whose durations are not known (events were lost, stacks switched)\n",
            ct_format_count(text, slowest->best.passed_over));
  }
  if (slowest->best.enter_only != 0) {
    fprintf(out, "\nnot among them: %s calls of which only the enter was recorded, or a count\n",
            ct_format_count(text, slowest->best.enter_only));
  }
}

/* ---- JSON ---- */

static json_t *
id_json(uint64_t id)
{
  char text[32];
  if (id >> 53 == 0) {
    return id != 0 ? json_integer((json_int_t)id) : json_null();
  }
  snprintf(text, sizeof(text), "%llu", (unsigned long long)id);
  return json_string(text);
}

/* An object without its closing brace: more of its members follow. Takes the json. */
static int
put_open(FILE *out, json_t *json)
{
  char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
  json_decref(json);
  if (text == NULL) {
    return CT_ENOMEM;
  }
  fwrite(text, 1, strlen(text) - 1, out);
  free(text);
  return 0;
}

static json_t *
entry_json(const struct slowest *slowest, const struct ct_entry *entry)
{
  static const char *const kinds[] = {[CT_ENTRY_CALL] = "call",
                                      [CT_ENTRY_POINT] = "point",
                                      [CT_ENTRY_AWAY] = "away",
                                      [CT_ENTRY_STACK] = "other stacks",
                                      [CT_ENTRY_LOST] = "lost"};
  bool is_call = entry->kind == CT_ENTRY_CALL, is_repetition = is_call && entry->count > 1;
  json_t *json = json_object();
  json_object_set_new(json, "kind", json_string(is_repetition ? "repetition" : kinds[entry->kind]));
  if (is_call || entry->kind == CT_ENTRY_POINT) {
    const struct ct_trace_function *function = ct_trace_function(slowest->trace, entry->fn);
    json_object_set_new(json, "name", ct_json_string(name_of(slowest, entry->fn)));
    json_object_set_new(
        json, "module",
        ct_json_string(ct_trace_module_name(slowest->trace, function != NULL ? function->module : UINT32_MAX)));
  }
  ct_json_put(json, "ts_ns", since_start_ns(slowest, entry->tsc));
  if (entry->kind != CT_ENTRY_POINT && entry->kind != CT_ENTRY_LOST) {
    ct_json_put(json, is_call && !is_repetition ? "duration_ns" : "total_ns", ns_of(slowest, entry->ticks));
  }
  if (is_call) {
    ct_json_put(json, "off_ns", ns_of(slowest, entry->off_ticks));
    ct_json_put(json, "inside", entry->inside);
  }
  if (!is_call || is_repetition) {
    ct_json_put(json, "count", entry->count);
    ct_json_put(json, "max_ns", ns_of(slowest, entry->max_ticks));
  }
  if (entry->kind == CT_ENTRY_AWAY) {
    json_object_set_new(json, "reason", json_string(away_text(entry->end)));
  }
  if (is_call && !is_repetition) {
    json_object_set_new(json, "id", id_json(entry->id));
    json_object_set_new(json, "reason", json_string(ct_span_end_text((enum ct_span_end)entry->end)));
    if (entry->before) {
      json_object_set_new(json, "entered_before", json_true());
    }
  }
  return json;
}

static int put_json_entry(const struct slowest *slowest, const struct ct_entry *entry);

/* What only a call has. Its values are text already, as replay has them: ,"args":["0x1"] */
static int
put_json_inside(const struct slowest *slowest, const struct ct_entry *entry)
{
  FILE *out = slowest->out;
  int code = 0;
  fputs(entry->text != NULL ? entry->text : "", out);
  fputs(entry->result != NULL ? entry->result : "", out);
  fputs(",\"calls\":[", out);
  for (uint32_t i = 0; i < entry->entry_count && code == 0; i++) {
    fputs(i != 0 ? "," : "", out);
    code = put_json_entry(slowest, entry->entries[i]);
  }
  fprintf(out, "],\"hidden\":{\"calls\":%llu,\"total_ns\":%llu}", (unsigned long long)entry->hidden_calls,
          (unsigned long long)ns_of(slowest, entry->hidden_ticks));
  return code;
}

static int
put_json_entry(const struct slowest *slowest, const struct ct_entry *entry)
{
  int code = put_open(slowest->out, entry_json(slowest, entry));
  if (code == 0 && entry->kind == CT_ENTRY_CALL && entry->count > 1) {
    fputs(",\"slowest\":", slowest->out);
    code = put_json_entry(slowest, entry->slowest);
  } else if (code == 0 && entry->kind == CT_ENTRY_CALL) {
    code = put_json_inside(slowest, entry);
  }
  fputs("}", slowest->out);
  return code;
}

static int
put_json_root(const struct slowest *slowest, const struct ct_slow_call *found, const struct ct_tree_root *root)
{
  const struct process *process = &slowest->processes[found->process];
  const struct ct_trace_thread *thread = ct_trace_thread(slowest->trace, found->thread);
  json_t *json = json_pack("{s:o, s:o, s:I, s:I, s:o, s:I}", "id", id_json(root->id), "name",
                           ct_json_string(name_of(slowest, found->fn)), "pid", (json_int_t)process->pid, "tid",
                           (json_int_t)thread->tid, "thread", ct_json_string(thread->name), "ts_ns",
                           (json_int_t)since_start_ns(slowest, found->enter_tsc));
  ct_json_put(json, slowest->options->by_off ? "off_ns" : "duration_ns", ns_of(slowest, found->key));
  bool is_inside = root->call == NULL && root->inside_of != SIZE_MAX;
  json_object_set_new(json, "inside_of", is_inside ? id_json(process->trees.roots[root->inside_of].id) : json_null());
  int code = put_open(slowest->out, json);
  fputs(",\"tree\":", slowest->out);
  if (root->call == NULL) {
    fputs("null", slowest->out);
  } else if (code == 0) {
    code = put_json_entry(slowest, root->call);
  }
  fputs("}", slowest->out);
  return code;
}

static int
put_json(struct slowest *slowest)
{
  char counted[CT_FILTER_TEXT_CHARS];
  fputs("{\"warnings\":", slowest->out);
  int code = ct_report_put_json(slowest->out, json_incref(slowest->reading.warnings));
  if (code == 0 && ct_filter_limits_calls(slowest->options->filter)) {
    ct_filter_describe_calls(slowest->options->filter, counted);
    fputs(",\n\"filter\":", slowest->out);
    code = ct_report_put_json(slowest->out, json_string(counted + strlen("counted: ")));
  }
  fprintf(slowest->out, ",\n\"by\":\"%s\",\"unknown\":%llu,\"enter_only\":%llu,\n\"slowest\":[",
          slowest->options->by_off ? "off" : "duration", (unsigned long long)slowest->best.passed_over,
          (unsigned long long)slowest->best.enter_only);
  for (size_t i = 0; i < slowest->best.count && code == 0; i++) {
    const struct ct_tree_root *root = root_at(slowest, i);
    fputs(i == 0 ? "\n" : ",\n", slowest->out);
    code = put_json_root(slowest, &slowest->best.heap[i], root);
  }
  fputs("]}\n", slowest->out);
  return code;
}

static int
write_slowest(struct slowest *slowest, struct ct_view_notes *notes, struct ct_diag *diag)
{
  int code = find_calls(slowest, diag);
  if (code != 0) {
    return code;
  }
  code = make_all_trees(slowest, notes, diag);
  if (code != 0) {
    return code;
  }
  if (slowest->options->json) {
    code = put_json(slowest);
  } else {
    put_text(slowest);
  }
  if (code == 0 && (fflush(slowest->out) != 0 || ferror(slowest->out))) {
    code = CT_EIO;
  }
  notes->shown = slowest->best.count + slowest->best.passed_over + slowest->best.enter_only; /* shown, or said */
  notes->damaged_threads = slowest->reading.notes.damaged_threads;
  notes->first_damaged_tid = slowest->reading.notes.first_damaged_tid;
  return code == 0
             ? 0
             : ct_fail(diag, code, "cannot write the calls: %s", code == CT_EIO ? strerror(errno) : ct_err_text(code));
}

int
ct_slowest_write(struct ct_trace *trace, const struct ct_slowest_options *given, FILE *out, struct ct_view_notes *notes,
                 struct ct_diag *diag)
{
  struct ct_slowest_options options;
  struct ct_view_notes own = {0};
  struct ct_filter filter;
  int code = ct_filter_take_with(&options, sizeof(options), given, &options.filter, &filter, diag);
  if (code != 0) {
    return code;
  }
  struct slowest slowest = {
      .options = &options, .first = trace, .trace = trace, .start_ns = ct_trace_start_ns(trace), .out = out};
  code = write_slowest(&slowest, &own, diag);
  for (size_t i = 0; i < slowest.process_count; i++) {
    free_process(&slowest, &slowest.processes[i]);
  }
  free(slowest.processes);
  ct_view_reading_destroy(&slowest.reading);
  ct_view_names_destroy(&slowest.names);
  free(slowest.best.heap);
  return code == 0 && notes != NULL ? ct_sized_give(notes, &own, sizeof(own), diag) : code;
}
