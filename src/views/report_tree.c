/* SPDX-License-Identifier: MIT */
/*
 * The report over a process and those that were followed from it: one trace after the other is opened, read and closed,
 * and what it has on a function goes to an entry for the file, address and name, since every process numbers its
 * functions itself. So memory is needed for the functions that were called, not for the tables of all processes.
 * Clock ticks are those of one machine: they become nanoseconds by the first trace's clock, which ran longest.
 */
#include "views/report.h"

#include "base/json.h"
#include "base/sized.h"
#include "views/process_tree.h"
#include "views/pattern.h"
#include "views/warnings.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct summed {
  char *path; /* of the module */
  char *module;
  char *name;
  char *file; /* NULL: not known */
  uint64_t address;
  uint32_t line;
  bool enter_only, was_out;
  struct ct_stats stats; /* of no function but the one that stands for all others */
};

struct process {
  json_int_t pid;
  char *directory; /* NULL: the first one's */
  size_t threads;
  uint64_t events, dropped;
  json_t *damage; /* what its readers have to know, lines; NULL: it cannot be read */
  char *why_not;  /* ... because of this; NULL: it was */
};

struct tree_report {
  const struct ct_report_options *options;
  void *tree; /* of tsearch */
  struct summed **entries;
  size_t count, capacity;
  struct process *processes;
  size_t process_count;
  struct ct_view_notes notes;
};

static int
compare_entries(const void *a, const void *b)
{
  const struct summed *x = a, *y = b;
  if (x->address != y->address) {
    return x->address < y->address ? -1 : 1;
  }
  int order = strcmp(x->name, y->name);
  return order != 0 ? order : strcmp(x->path, y->path);
}

static void
free_entry(struct summed *entry)
{
  free(entry->path);
  free(entry->module);
  free(entry->name);
  free(entry->file);
  ct_stats_destroy(&entry->stats);
  free(entry);
}

/* With a copy of each text of the key; NULL: out of memory. */
static struct summed *
new_entry(const struct summed *key)
{
  struct summed *entry = calloc(1, sizeof(*entry));
  if (entry == NULL) {
    return NULL;
  }
  *entry = *key;
  entry->path = strdup(key->path);
  entry->module = strdup(key->module);
  entry->name = strdup(key->name);
  entry->file = key->file != NULL ? strdup(key->file) : NULL;
  if (entry->path == NULL || entry->module == NULL || entry->name == NULL ||
      (key->file != NULL && entry->file == NULL) || ct_stats_init(&entry->stats, 0) != 0) {
    free_entry(entry);
    return NULL;
  }
  return entry;
}

/* The function's entry, made if there is none yet; NULL: out of memory. */
static struct summed *
entry_of(struct tree_report *report, const struct summed *key)
{
  struct summed *const *found = tfind(key, &report->tree, compare_entries);
  if (found != NULL) {
    return *found;
  }
  if (report->count == report->capacity) {
    size_t grown = report->capacity == 0 ? 1024 : report->capacity * 2;
    struct summed **entries = realloc(report->entries, grown * sizeof(struct summed *));
    if (entries == NULL) {
      return NULL;
    }
    report->entries = entries;
    report->capacity = grown;
  }
  struct summed *entry = new_entry(key);
  if (entry != NULL && tsearch(entry, &report->tree, compare_entries) == NULL) {
    free_entry(entry);
    return NULL;
  }
  if (entry != NULL) {
    report->entries[report->count++] = entry;
  }
  return entry;
}

static int
add_function(struct tree_report *report, struct ct_trace *trace, struct ct_view_pattern *pattern,
             const struct ct_stats *stats, uint32_t id, bool was_out)
{
  const struct ct_trace_function *fn = id < stats->fn_count ? ct_trace_function(trace, id) : NULL;
  uint32_t index = fn != NULL ? fn->module : UINT32_MAX;
  if (!ct_view_pattern_has_place(pattern, fn) || !ct_view_pattern_has_function(pattern, fn)) {
    return 0;
  }
  const struct ct_trace_module *module = ct_trace_module(trace, index);
  struct summed key = {
      .path = (char *)(module != NULL ? module->path : ""),
      .module = (char *)(fn != NULL ? ct_trace_module_name(trace, index) : "?"),
      .name = (char *)(fn != NULL ? fn->name : "?"),
      .address = fn != NULL ? fn->address : 0,
      .enter_only = fn != NULL && fn->enter_only != 0,
  };
  key.file = (char *)(fn != NULL ? ct_trace_function_source(trace, id, &key.line) : NULL);
  struct summed *entry = entry_of(report, &key);
  if (entry == NULL) {
    return CT_ENOMEM;
  }
  entry->was_out |= was_out;
  return ct_stats_merge_one(&entry->stats, 0, stats, id);
}

static int
add_trace(struct tree_report *report, struct ct_trace *trace, struct process *process, struct ct_diag *diag)
{
  struct ct_report_options options = *report->options;
  struct ct_stats stats = {0};
  struct ct_report_thread *threads = NULL;
  options.progress = (struct ct_view_progress){0};
  int code = ct_report_collect(trace, &options, &stats, &threads, &process->threads, diag);
  if (code != 0) {
    return code;
  }
  for (size_t i = 0; i < process->threads; i++) {
    const struct ct_trace_thread *info = ct_trace_thread(trace, threads[i].index);
    process->events += threads[i].events;
    if (threads[i].damaged && report->notes.damaged_threads++ == 0) {
      report->notes.first_damaged_tid = info->tid;
    }
  }
  uint64_t unused;
  ct_view_event_sums(trace, &unused, &process->dropped);
  process->damage = ct_view_damage(trace);
  struct ct_view_pattern pattern;
  code = ct_view_pattern_init(&pattern, trace, options.filter->function, options.filter->module, options.filter->file,
                              diag);
  uint8_t *were_out = ct_report_were_out(trace, stats.fn_count);
  for (uint32_t i = 0; i < stats.touched_count && code == 0; i++) {
    uint32_t id = stats.touched[i];
    bool was_out = were_out != NULL && were_out[id < stats.fn_count ? id : stats.fn_count] != 0;
    code = add_function(report, trace, &pattern, &stats, id, was_out);
  }
  free(were_out);
  ct_view_pattern_destroy(&pattern);
  ct_stats_destroy(&stats);
  free(threads);
  return code == 0 ? 0 : ct_fail(diag, code, "out of memory for the functions of all processes");
}

/* One that was followed. A trace that cannot be read is reported, and the others are shown. */
static int
add_child(struct tree_report *report, const struct ct_trace *first, const char *directory, struct process *process,
          struct ct_diag *diag)
{
  struct ct_trace *trace;
  struct ct_diag why = {""};
  process->directory = strdup(directory);
  if (process->directory == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the list of processes");
  }
  if (ct_process_tree_open(first, directory, &trace, &why) != 0) {
    process->why_not = strdup(why.text);
    return process->why_not != NULL ? 0 : ct_fail(diag, CT_ENOMEM, "out of memory for the list of processes");
  }
  int code = add_trace(report, trace, process, diag);
  ct_trace_close(trace);
  return code;
}

static bool
is_wanted(const struct tree_report *report, json_int_t pid)
{
  const struct ct_filter *filter = report->options->filter;
  bool wanted = filter->pid_count == 0;
  for (size_t i = 0; i < filter->pid_count; i++) {
    wanted |= filter->pids[i] == pid;
  }
  return wanted;
}

/* Each process that is asked for is in it. */
static int
check_processes(const struct tree_report *report, struct ct_diag *diag)
{
  const struct ct_filter *filter = report->options->filter;
  for (size_t i = 0; i < filter->pid_count; i++) {
    bool found = false;
    for (size_t n = 0; n < report->process_count; n++) {
      found |= report->processes[n].pid == filter->pids[i];
    }
    if (!found) {
      return ct_fail(diag, CT_ERANGE, "no trace of a process %u; `contrail info` lists those that were followed",
                     filter->pids[i]);
    }
  }
  return CT_OK;
}

static int
read_all(struct tree_report *report, struct ct_trace *first, struct ct_diag *diag)
{
  const struct ct_view_progress *progress = &report->options->progress;
  const json_t *manifest = ct_trace_manifest(first), *children = json_object_get(manifest, "children");
  size_t total = json_array_size(children) + 1;
  report->processes = calloc(total, sizeof(*report->processes));
  if (report->processes == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the list of processes");
  }
  int code = CT_OK;
  json_int_t pid = json_integer_value(json_object_get(manifest, "pid"));
  if (is_wanted(report, pid)) {
    report->process_count = 1;
    report->processes[0].pid = pid;
    code = add_trace(report, first, &report->processes[0], diag);
  }
  for (size_t i = 1; i < total && code == 0; i++) {
    const json_t *child = json_array_get(children, i - 1);
    const char *directory = ct_process_tree_directory(child);
    if (progress->update != NULL && progress->update(progress->arg, i, total) != 0) {
      code = ct_fail(diag, CT_ECANCELED, "cancelled");
      break;
    }
    pid = json_integer_value(json_object_get(child, "pid"));
    if (directory == NULL || !is_wanted(report, pid)) {
      continue; /* it was not recorded, which info shows; or it is not asked for */
    }
    struct process *process = &report->processes[report->process_count++];
    process->pid = pid;
    code = add_child(report, first, directory, process, diag);
  }
  if (progress->finish != NULL) {
    progress->finish(progress->arg);
  }
  return code != CT_OK ? code : check_processes(report, diag);
}

static int
compare_listed(const void *a, const void *b)
{
  return compare_entries(*(struct summed *const *)a, *(struct summed *const *)b);
}

/* To be freed; NULL: out of memory. Which function is met first differs from run to run: rows that are alike otherwise
 * go by what the functions are. */
static struct ct_report_row *
make_rows(const struct tree_report *report, const struct ct_trace *first)
{
  struct ct_report_row *rows = calloc(report->count + 1, sizeof(*rows));
  if (report->count != 0) {
    qsort(report->entries, report->count, sizeof(*report->entries), compare_listed);
  }
  for (size_t i = 0; rows != NULL && i < report->count; i++) {
    const struct summed *entry = report->entries[i];
    rows[i] = (struct ct_report_row){.name = entry->name,
                                     .module = entry->module,
                                     .file = entry->file,
                                     .line = entry->line,
                                     .fn = (uint32_t)i,
                                     .unwound = entry->stats.unwound[0],
                                     .was_out = entry->was_out,
                                     .counted = entry->stats.counted[0],
                                     .passed_over = entry->stats.passed_over[0]};
    ct_report_fill_row(first, &entry->stats, 0, entry->enter_only, report->options->sort, &rows[i]);
  }
  if (rows != NULL) {
    ct_report_sort_rows(rows, report->count, report->options->sort);
  }
  return rows;
}

static int
put_processes_json(FILE *out, const struct tree_report *report)
{
  for (size_t i = 0; i < report->process_count; i++) {
    const struct process *process = &report->processes[i];
    json_t *json = json_pack("{s:I, s:o, s:I, s:I, s:I}", "pid", process->pid, "directory",
                             process->directory != NULL ? ct_json_string(process->directory) : json_null(), "threads",
                             (json_int_t)process->threads, "events", (json_int_t)process->events, "dropped",
                             (json_int_t)process->dropped);
    if (process->damage != NULL) {
      json_object_set(json, "damage", process->damage);
    }
    if (process->why_not != NULL) {
      json_object_set_new(json, "not_read_because", ct_json_string(process->why_not));
    }
    fputs(i == 0 ? "\n" : ",\n", out);
    int code = ct_report_put_json(out, json);
    if (code != 0) {
      return code;
    }
  }
  return 0;
}

/* Of all processes: the first one's as they are, the others' with their ids. */
static json_t *
warnings_of(const struct tree_report *report)
{
  enum { SHOWN = 10, LINE_CHARS = 800 };
  json_t *list = json_array(), *item;
  uint64_t events = 0, dropped = 0;
  size_t n, others = 0;
  char text[LINE_CHARS];
  for (size_t i = 0; i < report->process_count; i++) {
    const struct process *process = &report->processes[i];
    events += process->events;
    dropped += process->dropped;
    bool bad = i != 0 && (process->why_not != NULL || json_array_size(process->damage) != 0);
    if (bad && others++ >= SHOWN) {
      continue;
    }
    if (process->why_not != NULL) {
      snprintf(text, sizeof(text), "process %lld is not in it: %s", (long long)process->pid, process->why_not);
      json_array_append_new(list, ct_json_string(text));
    }
    json_array_foreach(process->damage, n, item)
    {
      snprintf(text, sizeof(text), "process %lld: %s", (long long)process->pid, json_string_value(item));
      json_array_append_new(list, ct_json_string(process->directory == NULL ? json_string_value(item) : text));
    }
  }
  if (others > SHOWN) {
    snprintf(text, sizeof(text), "%zu more processes are INCOMPLETE or DAMAGED", others - SHOWN);
    json_array_append_new(list, json_string(text));
  }
  ct_view_add_lost(list, events, dropped);
  return list;
}

static int
put_head_json(FILE *out, const struct tree_report *report, json_t *warnings)
{
  fputs("{\"warnings\":", out);
  int code = ct_report_put_json(out, json_incref(warnings));
  fputs(",\"processes\":[", out);
  code = code != 0 ? code : put_processes_json(out, report);
  fputs("],\n", out);
  ct_report_put_counted(out, report->options);
  fputs("\"functions\":", out);
  return code;
}

static int
put_all(FILE *out, const struct tree_report *report, const struct ct_report_row *rows, struct ct_diag *diag)
{
  struct ct_report_totals totals = {0};
  int code = 0;
  for (size_t i = 0; i < report->process_count; i++) {
    totals.events += report->processes[i].events;
    totals.dropped += report->processes[i].dropped;
    totals.threads += report->processes[i].threads;
    totals.processes++;
  }
  json_t *warnings = warnings_of(report);
  if (report->options->json) {
    code = put_head_json(out, report, warnings);
  } else {
    ct_view_put_list(warnings, "", out);
    ct_report_put_counted(out, report->options);
  }
  if (code == 0) {
    code = ct_report_put_rows(out, rows, report->count, report->options);
  }
  ct_report_put_totals(out, &totals, rows, report->count, report->options);
  json_decref(warnings);
  if (code == 0 && (fflush(out) != 0 || ferror(out))) {
    code = CT_EIO;
  }
  return code != 0 ? ct_fail(diag, code, "cannot write the report: %s", strerror(errno)) : 0;
}

static void
keep_entry(void *entry)
{
  (void)entry; /* it is in the array too */
}

static void
free_tree_report(struct tree_report *report)
{
  tdestroy(report->tree, keep_entry);
  for (size_t i = 0; i < report->count; i++) {
    free_entry(report->entries[i]);
  }
  for (size_t i = 0; i < report->process_count; i++) {
    free(report->processes[i].directory);
    free(report->processes[i].why_not);
    json_decref(report->processes[i].damage);
  }
  free(report->entries);
  free(report->processes);
}

int
ct_report_write_tree(struct ct_trace *trace, const struct ct_report_options *options, FILE *out,
                     struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct tree_report report = {.options = options};
  int code = read_all(&report, trace, diag);
  if (code == 0) {
    struct ct_report_row *rows = make_rows(&report, trace);
    notes->shown = report.count;
    code = rows != NULL ? put_all(out, &report, rows, diag)
                        : ct_fail(diag, CT_ENOMEM, "out of memory for the rows of the report");
    free(rows);
  }
  notes->damaged_threads = report.notes.damaged_threads;
  notes->first_damaged_tid = report.notes.first_damaged_tid;
  free_tree_report(&report);
  return code;
}
