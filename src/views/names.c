/* SPDX-License-Identifier: MIT */
/* See names.h. An open hash table, at most half full. */
#include "views/names.h"

#include "views/filter.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BUCKETS = 1024 };

static uint32_t
hash_of(const struct ct_view_name *key)
{
  uint64_t hash = key->address * UINT64_C(0x9E3779B97F4A7C15);
  for (const char *p = key->name; *p != '\0'; p++) {
    hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001B3);
  }
  return (uint32_t)(hash >> 20);
}

static bool
is_same(const struct ct_view_name *a, const struct ct_view_name *b)
{
  return a->address == b->address && strcmp(a->name, b->name) == 0 && strcmp(a->path, b->path) == 0;
}

/* Where the key is, or is to be put. */
static uint32_t *
find(const struct ct_view_names *names, const struct ct_view_name *key)
{
  uint32_t at = hash_of(key) & (names->bucket_count - 1);
  while (names->buckets[at] != 0 && !is_same(&names->names[names->buckets[at] - 1], key)) {
    at = (at + 1) & (names->bucket_count - 1);
  }
  return &names->buckets[at];
}

/* Room for so many more. */
static int
reserve(struct ct_view_names *names, uint32_t more)
{
  uint32_t capacity = names->capacity == 0 ? FIRST_BUCKETS / 2 : names->capacity;
  while (capacity - names->count < more) {
    capacity *= 2;
  }
  if (capacity == names->capacity) {
    return 0;
  }
  struct ct_view_name *grown = reallocarray(names->names, capacity, sizeof(*grown));
  if (grown == NULL) {
    return CT_ENOMEM;
  }
  names->names = grown;
  uint32_t *buckets = calloc((size_t)capacity * 2, sizeof(*buckets));
  if (buckets == NULL) {
    return CT_ENOMEM;
  }
  free(names->buckets);
  names->buckets = buckets;
  names->bucket_count = capacity * 2;
  names->capacity = capacity;
  for (uint32_t i = 0; i < names->count; i++) {
    *find(names, &names->names[i]) = i + 1;
  }
  return 0;
}

static void
free_name(struct ct_view_name *name)
{
  free(name->name);
  free(name->module);
  free(name->path);
  free(name->file);
}

/* With a copy of each of its texts. */
static int
copy(struct ct_view_name *name, const struct ct_view_name *key)
{
  *name = *key;
  name->name = strdup(key->name);
  name->module = strdup(key->module);
  name->path = strdup(key->path);
  name->file = key->file != NULL ? strdup(key->file) : NULL;
  if (name->name == NULL || name->module == NULL || name->path == NULL || (key->file != NULL && name->file == NULL)) {
    free_name(name);
    return CT_ENOMEM;
  }
  return 0;
}

int
ct_view_names_begin(struct ct_view_names *names, struct ct_trace *trace)
{
  uint32_t count = ct_trace_function_count(trace);
  _Atomic uint32_t *of = reserve(names, count + 1) == 0 ? calloc((size_t)count + 1, sizeof(*of)) : NULL;
  if (of == NULL) {
    return CT_ENOMEM;
  }
  if (names->trace == NULL) {
    pthread_mutex_init(&names->lock, NULL);
  }
  free(names->of);
  names->of = of;
  names->fn_count = count;
  names->trace = trace;
  return 0;
}

uint32_t
ct_view_names_add(struct ct_view_names *names, uint32_t fn, struct ct_filter_compiled *chooses)
{
  struct ct_trace *trace = names->trace;
  const struct ct_trace_function *function = fn < names->fn_count ? ct_trace_function(trace, fn) : NULL;
  const struct ct_trace_module *module = function != NULL ? ct_trace_module(trace, function->module) : NULL;
  struct ct_view_name key = {
      .name = (char *)(function != NULL ? function->name : "?"),
      .module = (char *)(function != NULL ? ct_trace_module_name(trace, function->module) : "?"),
      .path = (char *)(module != NULL ? module->path : ""),
      .address = function != NULL ? function->address : 0,
      .is_selected = chooses == NULL || ct_filter_has_function(chooses, fn),
  };
  key.file = (char *)(function != NULL ? ct_trace_function_source(trace, fn, &key.line) : NULL);
  pthread_mutex_lock(&names->lock);
  uint32_t *bucket = find(names, &key);
  if (*bucket == 0 && copy(&names->names[names->count], &key) == 0) {
    *bucket = ++names->count;
  }
  uint32_t number = *bucket;
  atomic_store_explicit(&names->of[fn < names->fn_count ? fn : names->fn_count], number, memory_order_release);
  pthread_mutex_unlock(&names->lock);
  return number != 0 ? number - 1 : CT_NO_NAME;
}

int
ct_view_names_compare(const struct ct_view_names *names, uint32_t a, uint32_t b)
{
  const struct ct_view_name *x = &names->names[a], *y = &names->names[b];
  int order = strcmp(x->name, y->name);
  order = order != 0 ? order : strcmp(x->path, y->path);
  return order != 0 ? order : (x->address > y->address) - (x->address < y->address);
}

void
ct_view_names_destroy(struct ct_view_names *names)
{
  for (uint32_t i = 0; i < names->count; i++) {
    free_name(&names->names[i]);
  }
  free(names->names);
  free(names->buckets);
  free(names->of);
  if (names->trace != NULL) {
    pthread_mutex_destroy(&names->lock);
  }
  *names = (struct ct_view_names){0};
}
