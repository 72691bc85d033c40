/* SPDX-License-Identifier: MIT */
/* What the JSON formats write alike: attributes of calls, and what is said of the whole export. */
#ifndef CT_EXPORT_JSON_H
#define CT_EXPORT_JSON_H

#include "export/out.h"
#include "export/walk.h"

/*
 * Members after a comma each, of what makes a call another thing than a whole one that returned: "end", "open",
 * "uncertain", "before", "calls" of a point, "stack".
 */
void ct_json_attributes(struct ct_sink *out, const struct ct_span *span);
static inline bool
ct_json_has_attributes(const struct ct_span *span)
{
  return (span->end | span->uncertain | span->context) != 0;
}
/* "name":"f","KEY":"its module" of a function; NULL: out of memory. A table has one key. */
const struct ct_walk_text *ct_json_function(struct ct_walk_texts *texts, uint32_t fn, const char *key);
/* The members of an object about the export: version, program, what was lost and what is said of the trace. */
void ct_json_about(struct ct_sink *out, const struct ct_export_job *job, uint64_t lost);
/* The last part of the path of the program of a trace; "?" where the manifest does not say. */
const char *ct_export_program(const struct ct_trace *trace);
/* A name of a thread: its own, or "thread". */
const char *ct_export_thread_name(const struct ct_walk_place *place);

#endif
