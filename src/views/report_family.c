/* SPDX-License-Identifier: MIT */
/*
 * The report over a process and those that were followed from it: one trace after the other is opened, read and closed,
 * and what it tells of a function goes to an entry for the file, address and name, since every process numbers its
 * functions itself. So memory is needed for the functions that were called, not for the tables of all processes.
 * Clock ticks are those of one machine: they become nanoseconds by the first trace's clock, which ran longest.
 */
#include "views/report.h"

#include "base/sized.h"
#include "views/family.h"
#include "views/select.h"

#include <errno.h>
#include <limits.h>
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
  bool enter_only;
  struct ct_stats stats; /* of no function but the one that stands for all others */
};

struct process {
  json_int_t pid;
  char *directory; /* NULL: the first one's */
  size_t threads;
  uint64_t events, dropped;
  char *why_not; /* its trace cannot be read; NULL: it was */
};

struct family {
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
  if (x->address != y->address)
    return x->address < y->address ? -1 : 1;
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
  if (entry == NULL)
    return NULL;
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
entry_of(struct family *family, const struct summed *key)
{
  struct summed *const *found = tfind(key, &family->tree, compare_entries);
  if (found != NULL)
    return *found;
  if (family->count == family->capacity) {
    size_t grown = family->capacity == 0 ? 1024 : family->capacity * 2;
    struct summed **entries = realloc(family->entries, grown * sizeof(struct summed *));
    if (entries == NULL)
      return NULL;
    family->entries = entries;
    family->capacity = grown;
  }
  struct summed *entry = new_entry(key);
  if (entry != NULL && tsearch(entry, &family->tree, compare_entries) == NULL) {
    free_entry(entry);
    return NULL;
  }
  if (entry != NULL)
    family->entries[family->count++] = entry;
  return entry;
}

static int
add_function(struct family *family, struct ct_trace *trace, const struct ct_stats *stats, uint32_t id)
{
  const struct ct_report_options *options = family->options;
  const struct ct_trace_function *fn = id < stats->fn_count ? ct_trace_function(trace, id) : NULL;
  uint32_t index = fn != NULL ? fn->module : UINT32_MAX;
  if (!ct_function_matches(fn, options->function_glob) || !ct_module_matches(trace, index, options->module_glob))
    return 0;
  const struct ct_trace_module *module = ct_trace_module(trace, index);
  struct summed key = {
      .path = (char *)(module != NULL ? module->path : ""),
      .module = (char *)(fn != NULL ? ct_trace_module_name(trace, index) : "?"),
      .name = (char *)(fn != NULL ? fn->name : "?"),
      .address = fn != NULL ? fn->address : 0,
      .enter_only = fn != NULL && fn->enter_only != 0,
  };
  key.file = (char *)(fn != NULL ? ct_trace_function_source(trace, id, &key.line) : NULL);
  struct summed *entry = entry_of(family, &key);
  return entry != NULL ? ct_stats_merge_one(&entry->stats, 0, stats, id) : CT_ENOMEM;
}

static int
add_trace(struct family *family, struct ct_trace *trace, struct process *process, struct ct_diag *diag)
{
  struct ct_report_options options = *family->options;
  struct ct_stats stats = {0};
  struct ct_report_thread *threads = NULL;
  options.progress = (struct ct_view_progress){0};
  int rc = ct_report_collect(trace, &options, &stats, &threads, &process->threads, diag);
  if (rc != 0)
    return rc;
  for (size_t i = 0; i < process->threads; i++) {
    const struct ct_trace_thread *info = ct_trace_thread(trace, threads[i].index);
    process->events += threads[i].events;
    process->dropped += info->dropped;
    if (threads[i].damaged && family->notes.damaged_threads++ == 0)
      family->notes.first_damaged_tid = info->tid;
  }
  for (uint32_t i = 0; i < stats.touched_count && rc == 0; i++)
    rc = add_function(family, trace, &stats, stats.touched[i]);
  ct_stats_destroy(&stats);
  free(threads);
  return rc == 0 ? 0 : ct_fail(diag, rc, "out of memory for the functions of all processes");
}

/* One that was followed. A trace that cannot be read is told, and the others are shown. */
static int
add_child(struct family *family, const struct ct_trace *first, const char *directory, struct process *process,
          struct ct_diag *diag)
{
  struct ct_trace *trace;
  struct ct_diag why = {""};
  char path[PATH_MAX];
  process->directory = strdup(directory);
  if (process->directory == NULL)
    return ct_fail(diag, CT_ENOMEM, "out of memory for the list of processes");
  int length = snprintf(path, sizeof(path), "%s/%s", ct_trace_path(first), directory);
  if (length >= (int)sizeof(path) || ct_trace_open(path, &trace, &why) != 0) {
    process->why_not = strdup(length >= (int)sizeof(path) ? "its path is too long" : why.text);
    return process->why_not != NULL ? 0 : ct_fail(diag, CT_ENOMEM, "out of memory for the list of processes");
  }
  int rc = add_trace(family, trace, process, diag);
  ct_trace_close(trace);
  return rc;
}

static int
read_all(struct family *family, struct ct_trace *first, struct ct_diag *diag)
{
  const struct ct_view_progress *progress = &family->options->progress;
  const json_t *manifest = ct_trace_manifest(first), *children = json_object_get(manifest, "children");
  size_t total = json_array_size(children) + 1;
  family->processes = calloc(total, sizeof(*family->processes));
  if (family->processes == NULL)
    return ct_fail(diag, CT_ENOMEM, "out of memory for the list of processes");
  family->process_count = 1;
  family->processes[0].pid = json_integer_value(json_object_get(manifest, "pid"));
  int rc = add_trace(family, first, &family->processes[0], diag);
  for (size_t i = 1; i < total && rc == 0; i++) {
    const json_t *child = json_array_get(children, i - 1);
    const char *directory = ct_family_directory(child);
    if (progress->update != NULL)
      progress->update(progress->arg, i, total);
    if (directory == NULL)
      continue; /* it was not recorded, which info tells */
    struct process *process = &family->processes[family->process_count++];
    process->pid = json_integer_value(json_object_get(child, "pid"));
    rc = add_child(family, first, directory, process, diag);
  }
  if (progress->finish != NULL)
    progress->finish(progress->arg);
  return rc;
}

/* To be freed; NULL: out of memory. */
static struct ct_report_row *
make_rows(const struct family *family, const struct ct_trace *first)
{
  struct ct_report_row *rows = calloc(family->count + 1, sizeof(*rows));
  for (size_t i = 0; rows != NULL && i < family->count; i++) {
    const struct summed *entry = family->entries[i];
    rows[i] = (struct ct_report_row){.name = entry->name,
                                     .module = entry->module,
                                     .file = entry->file,
                                     .line = entry->line,
                                     .fn = (uint32_t)i,
                                     .left = entry->stats.left[0],
                                     .passed_over = entry->stats.passed_over[0]};
    ct_report_fill_row(first, &entry->stats.fns[0], entry->enter_only, family->options->sort, &rows[i]);
  }
  if (rows != NULL)
    ct_report_sort_rows(rows, family->count, family->options->sort);
  return rows;
}

static int
put_processes_json(FILE *out, const struct family *family)
{
  for (size_t i = 0; i < family->process_count; i++) {
    const struct process *process = &family->processes[i];
    json_t *json = json_pack("{s:I, s:o, s:I, s:I, s:I}", "pid", process->pid, "directory",
                             process->directory != NULL ? ct_json_string(process->directory) : json_null(), "threads",
                             (json_int_t)process->threads, "events", (json_int_t)process->events, "dropped",
                             (json_int_t)process->dropped);
    if (process->why_not != NULL)
      json_object_set_new(json, "not_read_because", ct_json_string(process->why_not));
    fputs(i == 0 ? "\n" : ",\n", out);
    int rc = ct_report_put_json(out, json);
    if (rc != 0)
      return rc;
  }
  return 0;
}

static int
put_all(FILE *out, const struct family *family, const struct ct_report_row *rows, struct ct_diag *diag)
{
  struct ct_report_totals totals = {0};
  int rc = 0;
  for (size_t i = 0; i < family->process_count; i++) {
    totals.events += family->processes[i].events;
    totals.dropped += family->processes[i].dropped;
    totals.threads += family->processes[i].threads;
    totals.processes++;
  }
  if (family->options->json) {
    fputs("{\"processes\":[", out);
    rc = put_processes_json(out, family);
    fputs("],\n\"functions\":", out);
  }
  rc = rc == 0 ? ct_report_put_rows(out, rows, family->count, family->options) : rc;
  ct_report_put_totals(out, &totals, rows, family->count, family->options);
  for (size_t i = 0; i < family->process_count && !family->options->json; i++) {
    if (family->processes[i].why_not != NULL) {
      fprintf(out, "process %lld is not in it: ", (long long)family->processes[i].pid);
      ct_put_printable(out, family->processes[i].why_not, SIZE_MAX);
      putc('\n', out);
    }
  }
  if (rc == 0 && (fflush(out) != 0 || ferror(out)))
    rc = CT_EIO;
  return rc == 0 ? 0 : ct_fail(diag, rc, "cannot write the report: %s", strerror(errno));
}

static void
keep_entry(void *entry)
{
  (void)entry; /* it is in the array too */
}

static void
free_family(struct family *family)
{
  tdestroy(family->tree, keep_entry);
  for (size_t i = 0; i < family->count; i++)
    free_entry(family->entries[i]);
  for (size_t i = 0; i < family->process_count; i++) {
    free(family->processes[i].directory);
    free(family->processes[i].why_not);
  }
  free(family->entries);
  free(family->processes);
}

int
ct_report_write_family(struct ct_trace *trace, const struct ct_report_options *options, FILE *out,
                       struct ct_view_notes *notes, struct ct_diag *diag)
{
  struct family family = {.options = options};
  int rc = read_all(&family, trace, diag);
  if (rc == 0) {
    struct ct_report_row *rows = make_rows(&family, trace);
    rc = rows != NULL ? put_all(out, &family, rows, diag)
                      : ct_fail(diag, CT_ENOMEM, "out of memory for the rows of the report");
    free(rows);
  }
  notes->damaged_threads = family.notes.damaged_threads;
  notes->first_damaged_tid = family.notes.first_damaged_tid;
  free_family(&family);
  return rc;
}
