/* SPDX-License-Identifier: MIT */
/*
 * Whether the files of a trace are as they were when its manifest was made complete: "files" there has the size of
 * each. A file of the right size is not read here; what is wrong inside it is met when it is read. Without that member
 * (format version 1, a recording that did not end in order) there is only what the numbers of blocks tell.
 */
#include "trace/atf_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 256

__attribute__((format(printf, 2, 3))) static int
add(struct ct_trace *trace, const char *format, ...)
{
  uint32_t n = trace->damage_count;
  if ((n & (n - 1)) == 0) {
    char **damage = realloc(trace->damage, (n == 0 ? 1 : n * 2) * sizeof(*damage));
    if (damage == NULL) {
      return CT_ENOMEM;
    }
    trace->damage = damage;
  }
  char *text = malloc(TEXT_BYTES);
  if (text == NULL) {
    return CT_ENOMEM;
  }
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, TEXT_BYTES, format, arguments);
  va_end(arguments);
  trace->damage[trace->damage_count++] = text;
  return CT_OK;
}

/* "is missing", or how its size differs. */
static const char *
difference(uint64_t bytes, uint64_t wanted, char *text, size_t size)
{
  if (bytes == 0) {
    return "is missing";
  }
  snprintf(text, size, "is %" PRIu64 " bytes %s than it was", bytes < wanted ? wanted - bytes : bytes - wanted,
           bytes < wanted ? "shorter" : "longer");
  return text;
}

/* A file of ATF V2 says itself whether it is whole. */
static int
check_atf(struct ct_trace *trace, const struct ct_trace_thread *thread)
{
  struct ct_atf_index index;
  ct_atf_index_open(trace, thread->index, &index);
  bool is_there = index.fd >= 0, is_damaged = index.is_damaged;
  ct_atf_index_close(&index);
  if (!is_damaged || !trace->complete) {
    return CT_OK;
  }
  return add(trace, "%s%" PRIu32 "/%s (thread %" PRIu32 ") %s", CT_TRACE_THREAD_DIR, thread->index, CT_ATF_INDEX,
             thread->tid, is_there ? "has no footer that fits: it was cut, or is damaged" : "is missing");
}

/* The file is as `contrail recover` left it: what contrail had counted and not written is gone. */
static int
check_recovered(struct ct_trace *trace, struct ct_trace_thread *thread, const char *name)
{
  if (thread->missing > thread->events) {
    thread->missing = thread->events;
  }
  trace->missing_events += thread->missing;
  return thread->missing == 0 ? CT_OK
                              : add(trace, "%s (thread %" PRIu32 "): %" PRIu64 " of %" PRIu64 " events are gone", name,
                                    thread->tid, thread->missing, thread->events);
}

static int
check_thread(struct ct_trace *trace, struct ct_trace_thread *thread, const json_t *files)
{
  char name[64], text[64], block[64] = "";
  struct ct_block_sums sums;
  if (trace->atf != NULL) {
    return check_atf(trace, thread);
  }
  snprintf(name, sizeof(name), "%s%" PRIu32 "/%s", CT_TRACE_THREAD_DIR, thread->index, CT_TRACE_INDEX);
  const json_t *size = json_object_get(files, name);
  if (json_is_integer(size) && (uint64_t)json_integer_value(size) == thread->file_bytes) {
    return check_recovered(trace, thread, name);
  }
  if (trace->complete && size == NULL) {
    return CT_OK; /* version 1 */
  }
  ct_trace_sum_blocks(trace, thread->index, &sums);
  if (sums.missing_block != UINT64_MAX) {
    snprintf(block, sizeof(block), ", block %" PRIu64 " is not there", sums.missing_block);
  }
  if (size == NULL) {
    thread->missing = sums.missing_events;
    trace->missing_events += thread->missing;
    return block[0] == '\0' ? CT_OK : add(trace, "%s%s, and %" PRIu64 " events with it", name, block, thread->missing);
  }
  thread->missing = thread->events > sums.events ? thread->events - sums.events : 0;
  trace->missing_events += thread->missing;
  return add(trace, "%s (thread %" PRIu32 ") %s%s: %" PRIu64 " of %" PRIu64 " events are gone", name, thread->tid,
             difference(thread->file_bytes, (uint64_t)json_integer_value(size), text, sizeof(text)), block,
             thread->missing, thread->events);
}

static int
compare_index(const void *a, const void *b)
{
  uint32_t x = *(const uint32_t *)a, y = ((const struct ct_trace_thread *)b)->index;
  return (x > y) - (x < y);
}

/* A thread's detail, a piece of one of its files, or of what the program wrote. */
static int
check_other(struct ct_trace *trace, const char *name, uint64_t wanted)
{
  char text[64];
  struct ct_block_sums sums;
  uint64_t bytes = ct_trace_file_bytes(trace, name);
  const char *what = difference(bytes, wanted, text, sizeof(text));
  if (bytes == wanted) {
    return CT_OK;
  }
  if (strchr(name, '/') == NULL) {
    return add(trace, "%.64s %s; output is not all there", name, what);
  }
  if (strstr(name, "/detail") != NULL) {
    return add(trace, "%.64s %s; not all values of its calls are there", name, what);
  }
  uint32_t index = (uint32_t)strtoul(name + strlen(CT_TRACE_THREAD_DIR), NULL, 10);
  struct ct_trace_thread *thread = trace->thread_count == 0 ? NULL
                                                            : bsearch(&index, trace->threads, trace->thread_count,
                                                                      sizeof(*trace->threads), compare_index);
  if (thread == NULL || thread->missing != 0) {
    return add(trace, "%.64s %s", name, what);
  }
  ct_trace_sum_blocks(trace, index, &sums);
  thread->missing = thread->events > sums.events ? thread->events - sums.events : 0;
  trace->missing_events += thread->missing;
  return add(trace, "%.64s (thread %" PRIu32 ") %s: %" PRIu64 " of %" PRIu64 " events are gone", name, thread->tid,
             what, thread->missing, thread->events);
}

int
ct_trace_check(struct ct_trace *trace)
{
  const json_t *files = json_object_get(trace->manifest, "files");
  static const char *const names[] = {CT_TRACE_FUNCTIONS, CT_TRACE_CAPTURES, CT_TRACE_SOURCES, CT_TRACE_PROTOTYPES};
  static const char *const effects[] = {"; functions have no names", "; output is not all there",
                                        "; functions have no source lines", "; values have no types"};
  int code = CT_OK;
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && code == CT_OK; i++) {
    const json_t *size = json_object_get(files, names[i]);
    uint64_t bytes = ct_trace_file_bytes(trace, names[i]);
    char text[64];
    if (json_is_integer(size) && (uint64_t)json_integer_value(size) != bytes) {
      code = add(trace, "%s %s%s", names[i], difference(bytes, (uint64_t)json_integer_value(size), text, sizeof(text)),
                 effects[i]);
    }
  }
  for (uint32_t i = 0; i < trace->thread_count && code == CT_OK; i++) {
    code = check_thread(trace, &trace->threads[i], files);
  }
  const char *name;
  const json_t *size;
  json_object_foreach((json_t *)files, name, size)
  {
    const char *slash = strchr(name, '/');
    bool is_of_thread = slash != NULL && strncmp(name, CT_TRACE_THREAD_DIR, strlen(CT_TRACE_THREAD_DIR)) == 0;
    if (code == CT_OK && json_is_integer(size) &&
        (is_of_thread ? strcmp(slash + 1, CT_TRACE_INDEX) != 0 : strncmp(name, "output-", 7) == 0)) {
      code = check_other(trace, name, (uint64_t)json_integer_value(size));
    }
  }
  return code;
}

uint32_t
ct_trace_damage_count(const struct ct_trace *trace)
{
  return trace->damage_count;
}

const char *
ct_trace_damage(const struct ct_trace *trace, uint32_t n)
{
  return n < trace->damage_count ? trace->damage[n] : NULL;
}

uint64_t
ct_trace_missing_events(const struct ct_trace *trace)
{
  return trace->missing_events;
}

const char *
ct_trace_failure(const struct ct_trace *trace)
{
  return trace->complete ? NULL : json_string_value(json_object_get(trace->manifest, "error"));
}
