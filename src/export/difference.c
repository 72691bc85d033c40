/* SPDX-License-Identifier: MIT */
/*
 * See difference.h. Names first: those of both traces are sorted, and what is the same gets one number, which is its
 * position in the names of the tree of both. Then each of the two trees is walked, and its numbers are added there.
 */
#include "export/difference.h"

#include "views/profile.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct entry {
  const struct ct_view_name *name;
  const char *key; /* of the module: so many bytes of it */
  size_t key_bytes;
  uint32_t side, position; /* in the names of that side */
  uint32_t number;         /* of what it is in both */
};

struct both {
  struct ct_export_sums sums[2];
  struct entry *entries;
  uint32_t count;
  uint32_t *numbers[2]; /* of the names of a side */
};

/* ---- names ---- */

static int
compare_bytes(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
  int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
  return order != 0 ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int
compare_keys(const struct entry *a, const struct entry *b)
{
  return compare_bytes(a->key, a->key_bytes, b->key, b->key_bytes);
}

static int
compare_entries(const void *a, const void *b)
{
  const struct entry *x = a, *y = b;
  int order = compare_keys(x, y);
  return order != 0 ? order : strcmp(x->name->name, y->name->name);
}

static int
compare_stems(const void *a, const void *b)
{
  const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;
  int order = compare_keys(x, y);
  return order != 0 ? order
                    : compare_bytes(x->name->name, ct_profile_stem_length(x->name->name), y->name->name,
                                    ct_profile_stem_length(y->name->name));
}

static void
add_entries(struct both *both, uint32_t side, const struct ct_trace *trace)
{
  const struct ct_view_names *names = &both->sums[side].paths.names;
  const struct ct_trace_module *program = ct_trace_module(trace, 0);
  for (uint32_t i = 0; i < names->count; i++) {
    const struct ct_view_name *name = &names->names[i];
    bool is_program = program != NULL && program->path != NULL && strcmp(program->path, name->path) == 0;
    both->entries[both->count++] = (struct entry){.name = name,
                                                  .key = name->module,
                                                  .key_bytes = is_program ? 0 : ct_profile_module_length(name->module),
                                                  .side = side,
                                                  .position = i};
  }
}

/* Those that one side alone has, one for each number, by stem: what is the only one of its stem on both sides is one.
 */
static int
match_stems(const struct both *both, uint32_t numbers, uint32_t *same_as)
{
  uint8_t *sides = calloc((size_t)numbers + 1, 1);
  struct entry **alone = malloc(((size_t)numbers + 1) * sizeof(struct entry *));
  uint32_t count = 0;
  int err = sides != NULL && alone != NULL ? CT_OK : CT_ENOMEM;
  for (uint32_t i = 0; err == CT_OK && i < both->count; i++) {
    sides[both->entries[i].number] |= (uint8_t)(1 << both->entries[i].side);
  }
  for (uint32_t i = 0; err == CT_OK && i < both->count; i++) {
    bool is_first = i == 0 || both->entries[i].number != both->entries[i - 1].number;
    if (is_first && sides[both->entries[i].number] != 3) {
      alone[count++] = &both->entries[i];
    }
  }
  if (count != 0) {
    qsort(alone, count, sizeof(struct entry *), compare_stems);
  }
  for (uint32_t i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count && compare_stems(&alone[i], &alone[end]) == 0;) {
      end++;
    }
    if (end == i + 2 && alone[i]->side != alone[i + 1]->side) {
      const struct entry *before = alone[i]->side == 0 ? alone[i] : alone[i + 1];
      same_as[before->number] = alone[i]->side == 0 ? alone[i + 1]->number : alone[i]->number;
    }
  }
  free(sides);
  free(alone);
  return err;
}

static char *
copy_of(const char *text)
{
  return text != NULL ? strdup(text) : NULL;
}

/* The names of the tree of both: copies, so that it lives by itself. */
static int
copy_names(const struct both *both, uint32_t numbers, struct ct_view_names *names)
{
  names->names = calloc((size_t)numbers + 1, sizeof(*names->names));
  if (names->names == NULL) {
    return CT_ENOMEM;
  }
  names->count = names->capacity = numbers;
  for (uint32_t i = 0; i < both->count; i++) {
    const struct ct_view_name *from = both->entries[i].name;
    struct ct_view_name *to = &names->names[both->entries[i].number];
    if (to->name != NULL && both->entries[i].side == 0) {
      continue;
    }
    free(to->name);
    free(to->module);
    free(to->path);
    *to = (struct ct_view_name){copy_of(from->name), copy_of(from->module), copy_of(from->path),
                                .address = from->address};
    if (to->name == NULL || to->module == NULL || to->path == NULL) {
      return CT_ENOMEM;
    }
  }
  return CT_OK;
}

static int
match_names(struct both *both, const struct ct_trace *before, const struct ct_trace *after, struct ct_view_names *names)
{
  size_t most = 0;
  for (int side = 0; side < 2; side++) {
    most += both->sums[side].paths.names.count;
    both->numbers[side] = calloc((size_t)both->sums[side].paths.names.count + 1, sizeof(uint32_t));
  }
  both->entries = malloc((most + 1) * sizeof(*both->entries));
  uint32_t *same_as = malloc((most + 1) * sizeof(*same_as)), numbers = 0;
  int err = both->numbers[0] != NULL && both->numbers[1] != NULL && both->entries != NULL && same_as != NULL &&
                    most < CT_PATH_THREAD
                ? CT_OK
                : CT_ENOMEM;
  if (err == CT_OK) {
    add_entries(both, 0, before);
    add_entries(both, 1, after);
    qsort(both->entries, both->count, sizeof(*both->entries), compare_entries);
    for (uint32_t i = 0; i < both->count; i++) {
      numbers += i != 0 && compare_entries(&both->entries[i - 1], &both->entries[i]) != 0;
      both->entries[i].number = numbers;
      same_as[numbers] = numbers;
    }
    numbers += both->count != 0;
    err = match_stems(both, numbers, same_as);
  }
  for (uint32_t i = 0; err == CT_OK && i < both->count; i++) {
    struct entry *entry = &both->entries[i];
    entry->number = same_as[entry->number];
    both->numbers[entry->side][entry->position] = entry->number;
  }
  err = err == CT_OK ? copy_names(both, numbers, names) : err;
  free(same_as);
  return err;
}

/* ---- the tree ---- */

/* Adds a side's paths to those of both. into: for each of the side's, which it is there; to be freed. */
static int
add_side(const struct both *both, uint32_t side, struct ct_difference *difference, uint32_t **into)
{
  const struct ct_paths *from = &both->sums[side].paths;
  struct ct_paths *paths = &difference->paths;
  *into = calloc((size_t)from->count + 1, sizeof(**into));
  if (*into == NULL) {
    return CT_ENOMEM;
  }
  (*into)[CT_PATH_TOP] = CT_PATH_TOP;
  for (uint32_t at = CT_PATH_TOP; (at = ct_paths_next(from, at, true)) != CT_PATH_NONE;) {
    uint32_t name = from->paths[at].name;
    name = name < CT_PATH_THREAD ? both->numbers[side][name] : name;
    (*into)[at] = ct_paths_step(paths, (*into)[from->paths[at].parent], name);
    if ((*into)[at] == CT_PATH_NONE) {
      return CT_ENOMEM;
    }
  }
  return CT_OK;
}

static void
add_numbers(const struct both *both, uint32_t side, const struct ct_export_job *job, const uint32_t *into,
            struct ct_change *changes)
{
  const struct ct_paths *from = &both->sums[side].paths;
  for (uint32_t at = CT_PATH_TOP; at != CT_PATH_NONE; at = ct_paths_next(from, at, true)) {
    struct ct_change *change = &changes[into[at]];
    change->self[side] += ct_export_weight(job, &from->paths[at]);
    change->calls[side] += from->paths[at].calls;
  }
}

/* Totals of both sides: each path comes after what it hangs below. */
static int
sum_up(struct ct_difference *difference)
{
  struct ct_paths *paths = &difference->paths;
  uint32_t *order = malloc(((size_t)paths->live + 2) * sizeof(*order)), count = 0;
  if (order == NULL) {
    return CT_ENOMEM;
  }
  for (uint32_t at = CT_PATH_TOP; at != CT_PATH_NONE; at = ct_paths_next(paths, at, true)) {
    struct ct_change *change = &difference->changes[at];
    paths->paths[at].self_ticks = change->self[change->self[1] > change->self[0]];
    change->total[0] = change->self[0];
    change->total[1] = change->self[1];
    order[count++] = at;
  }
  while (count-- > 1) {
    const struct ct_change *change = &difference->changes[order[count]];
    struct ct_change *above = &difference->changes[paths->paths[order[count]].parent];
    above->total[0] += change->total[0];
    above->total[1] += change->total[1];
  }
  free(order);
  return ct_paths_finish(paths);
}

static int
merge(struct both *both, const struct ct_export_job jobs[2], struct ct_difference *difference)
{
  uint32_t *into[2] = {NULL, NULL};
  difference->paths.limit = both->sums[0].paths.live + both->sums[1].paths.live + 16; /* none is folded once more */
  int err = match_names(both, jobs[0].trace, jobs[1].trace, &difference->paths.names);
  err = err == CT_OK ? ct_paths_init(&difference->paths) : err;
  for (uint32_t side = 0; side < 2 && err == CT_OK; side++) {
    err = add_side(both, side, difference, &into[side]);
  }
  difference->changes = calloc((size_t)difference->paths.count + 1, sizeof(*difference->changes));
  err = err == CT_OK && difference->changes == NULL ? CT_ENOMEM : err;
  for (uint32_t side = 0; side < 2 && err == CT_OK; side++) {
    add_numbers(both, side, &jobs[side], into[side], difference->changes);
  }
  err = err == CT_OK ? sum_up(difference) : err;
  free(into[0]);
  free(into[1]);
  return err;
}

/* ---- both traces ---- */

/* Adds what is to be known of the first trace to the summary and the notes, which are the second one's. */
static void
add_summary(const struct ct_export_job *before, const struct ct_export_job *job)
{
  struct ct_export_summary *summary = job->summary;
  size_t length = strlen(summary->mapped);
  if (before->summary->mapped[0] != '\0') {
    snprintf(summary->mapped + length, sizeof(summary->mapped) - length, "%sbefore: %s", length != 0 ? "; " : "",
             before->summary->mapped);
  }
  summary->events += before->summary->events;
  summary->threads += before->summary->threads;
  summary->processes += before->summary->processes;
  summary->lost += before->summary->lost;
  if (before->notes->damaged_threads != 0) {
    job->notes->first_damaged_tid = before->notes->first_damaged_tid;
  }
  job->notes->damaged_threads += before->notes->damaged_threads;
  job->notes->shown += before->notes->shown;
}

int
ct_difference_collect(const struct ct_export_job *job, struct ct_difference *difference, struct ct_diag *diag)
{
  struct ct_export_options options = *job->options;
  struct ct_export_summary summary = {.struct_size = sizeof(summary)};
  struct ct_view_notes notes = {.struct_size = sizeof(notes)};
  struct both both = {0};
  options.filter = job->options->before_filter;
  const struct ct_export_job jobs[2] = {{job->options->before, &options, &summary, &notes}, *job};
  *difference = (struct ct_difference){0};
  int err = ct_export_sums_collect(&jobs[0], &both.sums[0], diag);
  int err_after = err == CT_OK ? ct_export_sums_collect(&jobs[1], &both.sums[1], diag) : err;
  if (err_after == CT_OK) {
    difference->events[0] = summary.events;
    difference->events[1] = job->summary->events;
    add_summary(&jobs[0], job);
    err_after = merge(&both, jobs, difference);
    err_after = err_after == CT_ENOMEM ? ct_fail(diag, CT_ENOMEM, "out of memory for the paths of calls") : err_after;
  }
  for (int side = 0; side < 2; side++) {
    ct_export_sums_destroy(&both.sums[side]);
    free(both.numbers[side]);
  }
  free(both.entries);
  return err_after;
}

void
ct_difference_destroy(struct ct_difference *difference)
{
  ct_paths_destroy(&difference->paths);
  free(difference->changes);
  *difference = (struct ct_difference){0};
}

int
ct_difference_put(const struct ct_export_job *job, ct_put_paths put, void *arg, struct ct_diag *diag)
{
  struct ct_export_sums sums = {0};
  struct ct_difference difference = {0};
  bool is_difference = job->options->before != NULL;
  int err = is_difference ? ct_difference_collect(job, &difference, diag) : ct_export_sums_collect(job, &sums, diag);
  if (err == CT_OK) {
    err = put(arg, is_difference ? &difference.paths : &sums.paths, difference.changes);
    err = err == CT_ENOMEM ? ct_fail(diag, err, "out of memory for the paths of calls") : err;
  }
  ct_difference_destroy(&difference);
  ct_export_sums_destroy(&sums);
  return err;
}
