/* SPDX-License-Identifier: MIT */
/*
 * sources.tsv: where functions are written. A line is the path of a file, or, beginning with a tab, a function in the
 * file named last: its id and its line. Read when somebody asks; what is not whole is passed over.
 */
#include "trace/reader_internal.h"

#include <stdlib.h>
#include <string.h>

/* Digits up to the character `end`; NULL when there are none or the number is too large. */
static const char *
parse_number(const char *p, char end, uint32_t *out)
{
  uint64_t value = 0;
  const char *begin = p;
  for (; *p >= '0' && *p <= '9' && value <= UINT32_MAX; p++) {
    value = value * 10 + (uint64_t)(*p - '0');
  }
  if (p == begin || *p != end || value > UINT32_MAX) {
    return NULL;
  }
  *out = (uint32_t)value;
  return p + 1;
}

static void
load(struct ct_trace *trace)
{
  size_t size;
  struct ct_trace_source *sources = calloc((size_t)trace->function_count + 1, sizeof(*sources));
  if (sources == NULL || ct_trace_read_file(trace, CT_TRACE_SOURCES, &trace->sources_text, &size) != CT_OK) {
    free(sources);
    return;
  }
  const char *file = NULL;
  char *end;
  for (char *line = trace->sources_text; (end = strchr(line, '\n')) != NULL; line = end + 1) {
    uint32_t id, number;
    *end = '\0';
    if (line[0] != '\t') {
      file = line;
      continue;
    }
    const char *p = parse_number(line + 1, '\t', &id);
    if (p != NULL && parse_number(p, '\0', &number) != NULL && file != NULL && id < trace->function_count) {
      sources[id] = (struct ct_trace_source){file, number};
    }
  }
  trace->sources = sources;
}

void
ct_trace_sources_free(struct ct_trace *trace)
{
  free(trace->sources);
  free(trace->sources_text);
}

static void
load_once(struct ct_trace *trace)
{
  pthread_mutex_lock(&trace->lock);
  if (!trace->sources_read) {
    load(trace);
  }
  trace->sources_read = true;
  pthread_mutex_unlock(&trace->lock);
}

const char *
ct_trace_function_source(struct ct_trace *trace, uint32_t id, uint32_t *line)
{
  load_once(trace);
  if (trace->sources == NULL || id >= trace->function_count || trace->sources[id].file == NULL) {
    return NULL;
  }
  *line = trace->sources[id].line;
  return trace->sources[id].file;
}

bool
ct_trace_has_sources(struct ct_trace *trace)
{
  load_once(trace);
  return trace->sources != NULL;
}
