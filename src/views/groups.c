/* SPDX-License-Identifier: MIT */
/* See groups.h. */
#include "views/groups.h"

#include "base/branch.h"
#include "base/demangle.h"
#include "base/scopes.h"
#include "span/stacks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_GROUPS = 256 };

size_t
ct_group_class_length(const char *name, uint8_t *marks)
{
  size_t length = ct_demangled_name_length(name);
  ct_scopes_mark(name, strlen(name), marks);
  for (size_t i = length; i-- > 1;) {
    if (name[i] == ':' && name[i - 1] == ':' && (marks[i] & CT_SCOPE_BOUNDARY) != 0) {
      return i - 1;
    }
  }
  return 0;
}

/* ---- the table ---- */

static size_t
hash_of(const char *key)
{
  uint64_t hash = UINT64_C(0xCBF29CE484222325);
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
  const char *name = own != NULL ? own : shown;
  size_t size = strlen(name) + 1;
  char *key = strdup(name);
  uint8_t *marks = malloc(size);
  uint32_t group = CT_NO_NAME;
  if (key != NULL && marks != NULL) {
    size_t length = ct_group_class_length(name, marks);
    key[length] = '\0';
    group = group_of_key(groups, length != 0 ? key : "(no class)");
  }
  free(key);
  free(marks);
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

static int
widen(struct ct_groups *groups)
{
  size_t capacity = groups->names.capacity;
  uint32_t *of = reallocarray(groups->of, capacity, sizeof(*of));
  if (of == NULL) {
    return CT_ENOMEM;
  }
  memset(of + groups->of_capacity, 0, (capacity - groups->of_capacity) * sizeof(*of));
  groups->of = of;
  groups->of_capacity = capacity;
  return 0;
}

/* *group NULL: the function is not chosen. */
static int
group_of(struct ct_groups *groups, uint32_t fn, struct ct_group **group)
{
  uint32_t number = ct_view_reading_name(groups->reading, fn);
  if (number == CT_NO_NAME || (number >= groups->of_capacity && widen(groups) != 0)) {
    return CT_ENOMEM;
  }
  const struct ct_view_name *name = &groups->names.names[number];
  if (!name->is_chosen) {
    *group = NULL;
    return 0;
  }
  uint32_t *of = &groups->of[number];
  if (!is_by_function(groups)) {
    *group = &groups->groups[groups->current];
    (*group)->functions += *of != groups->current + 1;
    *of = groups->current + 1;
    return 0;
  }
  if (CT_UNLIKELY(*of == 0)) {
    uint32_t position = group_of_name(groups, fn, name);
    if (position == CT_NO_NAME) {
      return CT_ENOMEM;
    }
    *of = position + 1;
    groups->groups[position].functions++;
  }
  *group = &groups->groups[*of - 1];
  return 0;
}

/* ---- the pass ---- */

static int
begin_thread(void *arg, struct ct_trace *trace, uint32_t thread)
{
  struct ct_groups *groups = arg;
  const struct ct_trace_thread *info = ct_trace_thread(trace, thread);
  char key[64];
  for (size_t i = 0; i < groups->count; i++) {
    groups->groups[i].frames = 0;
  }
  if (is_by_function(groups)) {
    return 0;
  }
  bool is_thread = groups->rows == CT_ROWS_THREADS;
  snprintf(key, sizeof(key), "%zu/%u", groups->reading->processes, is_thread ? info->index : 0);
  size_t count = groups->count;
  groups->current = group_of_key(groups, key);
  if (groups->current == CT_NO_NAME) {
    return CT_ENOMEM;
  }
  struct ct_group *group = &groups->groups[groups->current];
  if (count != groups->count) {
    group->id = is_thread ? info->tid : info->pid;
    group->pid = info->pid;
    group->name = strdup(info->name);
  }
  return group->name != NULL ? 0 : CT_ENOMEM;
}

static int
entered(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack)
{
  struct ct_groups *groups = arg;
  struct ct_group *group;
  if (group_of(groups, stack->frames[stack->count - 1].fn, &group) != 0) {
    return CT_ENOMEM;
  }
  if (group != NULL && group->frames++ == 0) {
    group->since = ct_spans_now(spans);
    group->off_since = ct_spans_off_now(spans);
  }
  /* The group of the call is that of its enter, whatever its end says. */
  stack->notes[stack->count - 1].node = group != NULL ? (uint32_t)(group - groups->groups) + 1 : 0;
  return 0;
}

static int
ended(void *arg, const struct ct_spans *spans, struct ct_span_stack *stack, const struct ct_span_call *call)
{
  struct ct_groups *groups = arg;
  const struct ct_span *span = call->span;
  struct ct_group *group = NULL;
  (void)stack;
  if (call->note != NULL) {
    group = call->note->node != 0 ? &groups->groups[call->note->node - 1] : NULL;
  } else if (span->end != CT_SPAN_ORPHAN && group_of(groups, span->fn, &group) != 0) {
    return CT_ENOMEM;
  }
  if (group == NULL) {
    return 0;
  }
  group->calls += ct_view_calls_of(span);
  if (span->end == CT_SPAN_POINT || span->end == CT_SPAN_COUNTED) {
    return 0;
  }
  group->has_time = true;
  group->self_ticks += span->self_ticks;
  if (call->note == NULL) { /* began before the stream, of which nothing else is known */
    group->total_ticks += group->frames == 0 ? span->duration_ticks : 0;
    group->off_ticks += group->frames == 0 ? span->off_ticks : 0;
  } else if (--group->frames == 0) {
    group->total_ticks += ct_spans_now(spans) - group->since;
    group->off_ticks += ct_spans_off_now(spans) - group->off_since;
  }
  return 0;
}

int
ct_groups_collect(struct ct_groups *groups, struct ct_view_reading *reading, struct ct_diag *diag)
{
  const struct ct_span_observer observer = {.entered = entered, .ended = ended, .arg = groups};
  groups->reading = reading;
  reading->names = &groups->names;
  reading->arg = groups;
  reading->begin_thread = begin_thread;
  reading->observer = &observer;
  int rc = ct_view_read(reading, diag);
  reading->observer = NULL;
  return rc;
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
