/* SPDX-License-Identifier: MIT */
/* See groups.h. */
#include "views/groups.h"

#include "base/branch.h"
#include "base/hash_key.h"
#include "base/demangle.h"
#include "span/stacks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_GROUPS = 256 };

/* ---- the table ---- */

static size_t
hash_of(const char *key)
{
  uint64_t hash = ct_hash_key();
  for (const char *p = key; *p != '\0'; p++) {
    hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001B3);
  }
  return (size_t)(hash >> 20);
}

static uint32_t *
find(const struct ct_groups *groups, const char *key)
{
  size_t at = hash_of(key) & (groups->bucket_count - 1);
  while (groups->buckets[at] != 0 && strcmp(groups->groups[groups->buckets[at] - 1].key, key) != 0) {
    at = (at + 1) & (groups->bucket_count - 1);
  }
  return &groups->buckets[at];
}

static int
grow(struct ct_groups *groups)
{
  size_t capacity = groups->capacity == 0 ? FIRST_GROUPS : groups->capacity * 2;
  struct ct_group *grown = reallocarray(groups->groups, capacity, sizeof(*grown));
  if (grown == NULL) {
    return CT_ENOMEM;
  }
  groups->groups = grown;
  uint32_t *buckets = calloc(capacity * 2, sizeof(*buckets));
  if (buckets == NULL) {
    return CT_ENOMEM;
  }
  free(groups->buckets);
  groups->buckets = buckets;
  groups->bucket_count = capacity * 2;
  groups->capacity = capacity;
  for (size_t i = 0; i < groups->count; i++) {
    *find(groups, groups->groups[i].key) = (uint32_t)i + 1;
  }
  return 0;
}

/* The position of the group with this key, made when there is none; CT_NO_NAME: out of memory. */
static uint32_t
group_of_key(struct ct_groups *groups, const char *key)
{
  if (groups->count == groups->capacity && grow(groups) != 0) {
    return CT_NO_NAME;
  }
  uint32_t *bucket = find(groups, key);
  if (*bucket == 0) {
    char *copy = strdup(key);
    if (copy == NULL) {
      return CT_NO_NAME;
    }
    groups->groups[groups->count++] = (struct ct_group){.key = copy};
    *bucket = (uint32_t)groups->count;
  }
  return *bucket - 1;
}

/* The class of a function of the trace at hand. Names of function templates have a return type, which is not wanted. */
static uint32_t
group_of_class(struct ct_groups *groups, uint32_t fn, const char *shown)
{
  const struct ct_trace_function *function =
      fn < groups->names.fn_count ? ct_trace_function(groups->names.trace, fn) : NULL;
  char *own = function != NULL ? ct_demangle_name(function->raw_name) : NULL;
  char *key = ct_demangled_class(own != NULL ? own : shown);
  uint32_t group = key != NULL ? group_of_key(groups, key[0] != '\0' ? key : "(no class)") : CT_NO_NAME;
  free(key);
  free(own);
  return group;
}

static uint32_t
group_of_name(struct ct_groups *groups, uint32_t fn, const struct ct_view_name *name)
{
  switch (groups->rows) {
  case CT_ROWS_MODULES:
    return group_of_key(groups, name->path[0] != '\0' ? name->path : "?");
  case CT_ROWS_FILES:
    return group_of_key(groups, name->file != NULL ? name->file : "(not known)");
  default:
    return group_of_class(groups, fn, name->name);
  }
}

static bool
is_by_function(const struct ct_groups *groups)
{
  return groups->rows != CT_ROWS_THREADS && groups->rows != CT_ROWS_PROCESSES;
}

/* Of a group, of the thread that the part is of. */
struct sums {
  uint64_t calls, total_ticks, self_ticks, off_ticks;
  uint64_t frames, since, off_since;
  bool has_time;
};

/* What is kept of a thread. */
struct part {
  struct ct_groups *all;
  const struct ct_view_name *known;
  uint32_t *of; /* as names: position + 1 of the function's group, 0: it was not met */
  uint32_t number_end;
  struct sums *sums; /* by position */
  size_t sum_count;
  uint32_t current; /* position of that of the thread or process */
};

/* As names; what was there stays. */
static int
widen(uint32_t **of, size_t *of_capacity, size_t capacity)
{
  uint32_t *wide = *of_capacity < capacity ? calloc(capacity, sizeof(*wide)) : *of;
  if (wide == NULL) {
    return CT_ENOMEM;
  }
  if (wide != *of) {
    memcpy(wide, *of_capacity != 0 ? *of : wide, *of_capacity * sizeof(*wide));
    free(*of);
    *of = wide;
    *of_capacity = capacity;
  }
  return 0;
}

/* The position of the function's group; CT_NO_NAME: out of memory. */
static uint32_t
position_of(struct ct_groups *groups, uint32_t fn, uint32_t number, const struct ct_view_name *name)
{
  pthread_mutex_lock(&groups->lock);
  int code = widen(&groups->of, &groups->of_capacity, groups->names.capacity);
  uint32_t position = code == 0 && groups->of[number] != 0 ? groups->of[number] - 1 : CT_NO_NAME;
  if (code == 0 && position == CT_NO_NAME) {
    position = group_of_name(groups, fn, name);
    if (position != CT_NO_NAME) {
      groups->of[number] = position + 1;
      groups->groups[position].functions++;
    }
  }
  pthread_mutex_unlock(&groups->lock);
  return position;
}

static int
reserve_sums(struct part *part, uint32_t position)
{
  if (position < part->sum_count) {
    return 0;
  }
  size_t count = 2 * (size_t)position + 16;
  struct sums *sums = reallocarray(part->sums, count, sizeof(*sums));
  if (sums == NULL) {
    return CT_ENOMEM;
  }
  memset(sums + part->sum_count, 0, (count - part->sum_count) * sizeof(*sums));
  part->sums = sums;
  part->sum_count = count;
  return 0;
}

/* *group 0: the function is not selected; else its position + 1. */
static int
group_of(struct part *part, uint32_t fn, uint32_t *group)
{
  uint32_t number = ct_view_reading_name(part->all->reading, fn);
  if (number == CT_NO_NAME) {
    return CT_ENOMEM;
  }
  *group = part->of[number];
  if (CT_UNLIKELY(*group == 0) && part->known[number].is_selected) {
    bool is_by = is_by_function(part->all);
    uint32_t position = is_by ? position_of(part->all, fn, number, &part->known[number]) : part->current;
    if (position == CT_NO_NAME || reserve_sums(part, position) != 0) {
      return CT_ENOMEM;
    }
    *group = part->of[number] = position + 1;
    part->number_end = number < part->number_end ? part->number_end : number + 1;
  }
  return 0;
}

/* ---- the pass ---- */

/* The group of a thread, or of its process. */
static uint32_t
group_of_thread(struct ct_groups *groups, struct ct_trace *trace, uint32_t thread)
{
  char key[64];
  bool is_thread = groups->rows == CT_ROWS_THREADS;
  const struct ct_trace_thread *info = ct_trace_thread(trace, is_thread ? thread : 0); /* its first has its name */
  snprintf(key, sizeof(key), "%zu/%u", groups->reading->processes, is_thread ? info->index : 0);
  pthread_mutex_lock(&groups->lock);
  size_t count = groups->count;
  uint32_t position = group_of_key(groups, key);
  if (position != CT_NO_NAME && count != groups->count) {
    struct ct_group *group = &groups->groups[position];
    group->id = is_thread ? info->tid : info->pid;
    group->pid = info->pid;
    group->name = strdup(info->name);
  }
  bool is_whole = position != CT_NO_NAME && groups->groups[position].name != NULL;
  pthread_mutex_unlock(&groups->lock);
  return is_whole ? position : CT_NO_NAME;
}

static int
begin_thread(void *arg, struct ct_trace *trace, uint32_t thread, void **out)
{
  struct ct_groups *groups = arg;
  struct part *part = *out = calloc(1, sizeof(*part));
  if (part == NULL) {
    return CT_ENOMEM;
  }
  part->all = groups;
  part->known = groups->names.names;
  part->of = calloc(groups->names.capacity, sizeof(*part->of));
  part->current = is_by_function(groups) ? 0 : group_of_thread(groups, trace, thread);
  return part->of != NULL && part->current != CT_NO_NAME ? 0 : CT_ENOMEM;
}

static void
free_part(void *arg)
{
  struct part *part = arg;
  free(part->of);
  free(part->sums);
  free(part);
}

/* Functions that were called in a thread or process; others were counted when they were first met. */
static int
count_functions(struct ct_groups *groups, const struct part *part)
{
  if (widen(&groups->of, &groups->of_capacity, groups->names.capacity) != 0) {
    return CT_ENOMEM;
  }
  for (uint32_t i = 0; i < part->number_end; i++) {
    if (part->of[i] != 0 && groups->of[i] != part->of[i]) {
      groups->of[i] = part->of[i];
      groups->groups[part->current].functions++;
    }
  }
  return 0;
}

static int
merge(void *arg, void *from)
{
  struct ct_groups *groups = arg;
  const struct part *part = from;
  pthread_mutex_lock(&groups->lock);
  for (size_t i = 0; i < part->sum_count && i < groups->count; i++) {
    struct ct_group *group = &groups->groups[i];
    group->calls += part->sums[i].calls;
    group->total_ticks += part->sums[i].total_ticks;
    group->self_ticks += part->sums[i].self_ticks;
    group->off_ticks += part->sums[i].off_ticks;
    group->has_time |= part->sums[i].has_time;
  }
  int code = is_by_function(groups) ? 0 : count_functions(groups, part);
  pthread_mutex_unlock(&groups->lock);
  return code;
}

static int
entered(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack)
{
  struct part *part = arg;
  uint32_t group;
  if (group_of(part, stack->frames[stack->count - 1].fn, &group) != 0) {
    return CT_ENOMEM;
  }
  struct sums *sums = group != 0 ? &part->sums[group - 1] : NULL;
  if (sums != NULL && sums->frames++ == 0) {
    sums->since = ct_spans_now(spans);
    sums->off_since = ct_spans_off_now(spans);
  }
  /* The group of the call is that of its enter, whatever its end says. */
  stack->notes[stack->count - 1].node = group;
  return 0;
}

static int
ended(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack, const struct ct_span_call *call)
{
  struct part *part = arg;
  const struct ct_span *span = call->span;
  uint32_t group = call->note != NULL ? call->note->node : 0;
  (void)stack;
  if (call->note == NULL && span->end != CT_SPAN_ORPHAN && group_of(part, span->fn, &group) != 0) {
    return CT_ENOMEM;
  }
  if (group == 0) {
    return 0;
  }
  struct sums *sums = &part->sums[group - 1];
  sums->calls += ct_view_calls_of(span);
  if (span->end == CT_SPAN_POINT || span->end == CT_SPAN_COUNTED) {
    return 0;
  }
  sums->has_time = true;
  sums->self_ticks += span->self_ticks;
  if (call->note == NULL) { /* began before the stream, of which nothing else is known */
    sums->total_ticks += sums->frames == 0 ? span->duration_ticks : 0;
    sums->off_ticks += sums->frames == 0 ? span->off_ticks : 0;
  } else if (--sums->frames == 0) {
    sums->total_ticks += ct_spans_now(spans) - sums->since;
    sums->off_ticks += ct_spans_off_now(spans) - sums->off_since;
  }
  return 0;
}

/* On one stack, the outermost frames of a group have all of its time. On several, frames of others may lie in it. */
static int
take_tree(void *arg, const struct ct_span_tree *tree)
{
  struct part *part = arg;
  for (uint32_t i = CT_TREE_FIRST; i < tree->count; i++) {
    if (tree->nodes[i].parent == CT_TREE_OTHERS) {
      return CT_ENOENT;
    }
  }
  struct ct_tree_outer *outers = NULL;
  uint32_t *groups = calloc(tree->count, sizeof(*groups));
  int code = groups != NULL ? 0 : CT_ENOMEM;
  for (uint32_t i = CT_TREE_FIRST; code == 0 && i < tree->count; i++) {
    code = group_of(part, tree->nodes[i].fn, &groups[i]);
  }
  if (code != 0) {
    goto free_groups;
  }
  outers = ct_span_tree_outers(tree, groups, (uint32_t)part->sum_count + 1);
  if (outers == NULL) {
    code = CT_ENOMEM;
    goto free_groups;
  }
  for (uint32_t i = CT_TREE_FIRST; i < tree->count; i++) {
    const struct ct_tree_node *node = &tree->nodes[i];
    if (groups[i] == 0) {
      continue;
    }
    struct sums *sums = &part->sums[groups[i] - 1];
    bool is_outermost = outers[i].outer == CT_TREE_NONE;
    sums->calls += ct_tree_calls(node);
    sums->has_time |= node->frames != 0;
    sums->self_ticks += node->self;
    sums->total_ticks += is_outermost ? node->total : 0;
    sums->off_ticks += is_outermost ? node->off : 0;
  }
free_groups:
  free(groups);
  free(outers);
  return code;
}

/* How the groups are called where sums have them. */
static enum ct_tree_grouping
grouping_of(const struct ct_groups *groups)
{
  switch (groups->rows) {
  case CT_ROWS_MODULES:
    return CT_TREE_MODULES;
  case CT_ROWS_FILES:
    return CT_TREE_FILES;
  case CT_ROWS_CLASSES:
    return CT_TREE_CLASSES;
  default:
    return CT_TREE_ALL;
  }
}

/* They have sums for groups of all functions, as they were grouped then: where files are known of more, not any more.
 */
static int
has_groups(const struct part *part, const struct ct_tree_sums *tree)
{
  const struct ct_filter *filter = part->all->reading->filter;
  struct ct_trace *trace = part->all->names.trace;
  struct ct_tree_groupings groupings;
  if (!tree->has_groups || filter->function != NULL || filter->module != NULL || filter->file != NULL) {
    return CT_ENOENT;
  }
  enum ct_tree_grouping grouping = grouping_of(part->all);
  if (grouping != CT_TREE_FILES) {
    return grouping == CT_TREE_ALL || tree->crc[grouping] != 0 ? 0 : CT_ENOENT;
  }
  if (tree->fn_count > ct_trace_function_count(trace)) {
    return CT_ENOENT;
  }
  int code = ct_tree_groupings_init(&groupings, trace, tree->fn_count, 1u << CT_TREE_FILES);
  if (code == 0) {
    bool is_alike = tree->crc[CT_TREE_FILES] != 0 && groupings.crc[CT_TREE_FILES] == tree->crc[CT_TREE_FILES];
    code = is_alike ? 0 : CT_ENOENT;
    ct_tree_groupings_destroy(&groupings);
  }
  return code;
}

static int
take_sums(void *arg, const struct ct_tree_sums *tree)
{
  struct part *part = arg;
  enum ct_tree_grouping grouping = grouping_of(part->all);
  uint32_t group;
  int code = has_groups(part, tree);
  if (code != 0) {
    return code;
  }
  for (uint32_t i = 0; i < tree->edge_count; i++) {
    const struct ct_tree_edge *edge = &tree->edges[i];
    code = group_of(part, edge->fn, &group);
    if (code != 0) {
      return code;
    }
    if (group != 0) {
      struct sums *sums = &part->sums[group - 1];
      sums->calls += ct_tree_edge_calls(edge);
      sums->has_time |= edge->frames != 0;
      sums->self_ticks += edge->self;
    }
  }
  for (uint32_t i = 0; i < tree->group_count[grouping]; i++) {
    code = group_of(part, tree->groups[grouping][i].fn, &group);
    if (code != 0) {
      return code;
    }
    if (group != 0) {
      part->sums[group - 1].total_ticks += tree->groups[grouping][i].total;
      part->sums[group - 1].off_ticks += tree->groups[grouping][i].off;
    }
  }
  return 0;
}

int
ct_groups_collect(struct ct_groups *groups, struct ct_view_reading *reading, struct ct_diag *diag)
{
  const struct ct_span_observer observer = {.entered = entered, .ended = ended};
  groups->reading = reading;
  reading->names = &groups->names;
  reading->arg = groups;
  reading->begin_thread = begin_thread;
  reading->merge = merge;
  reading->free_part = free_part;
  reading->observer = &observer;
  reading->take_tree = take_tree;
  reading->take_sums = take_sums;
  pthread_mutex_init(&groups->lock, NULL);
  int code = ct_view_read(reading, diag);
  pthread_mutex_destroy(&groups->lock);
  reading->observer = NULL;
  return code;
}

void
ct_groups_destroy(struct ct_groups *groups)
{
  ct_view_names_destroy(&groups->names);
  for (size_t i = 0; i < groups->count; i++) {
    free(groups->groups[i].key);
    free(groups->groups[i].name);
  }
  free(groups->groups);
  free(groups->buckets);
  free(groups->of);
}
