/* SPDX-License-Identifier: MIT */
/* See json.h. */
#include "export/json.h"

#include "base/json.h"

#include <contrail/version.h>

#include <stdlib.h>
#include <string.h>

const struct ct_walk_text *
ct_json_function(struct ct_walk_texts *texts, uint32_t fn, const char *key)
{
  struct ct_walk_text *text = ct_walk_text_of(texts, fn);
  if (CT_LIKELY(text->text != NULL)) {
    return text;
  }
  char *name = ct_json_quoted(ct_walk_name(texts->trace, fn)),
       *module = ct_json_quoted(ct_walk_module(texts->trace, fn));
  char *both = NULL;
  int bytes = name != NULL && module != NULL ? asprintf(&both, "\"name\":%s,\"%s\":%s", name, key, module) : -1;
  free(name);
  free(module);
  if (bytes < 0) {
    return NULL;
  }
  *text = (struct ct_walk_text){both, (uint32_t)bytes};
  return text;
}

void
ct_json_attributes(struct ct_sink *out, const struct ct_span *span)
{
  if (span->end != CT_SPAN_RETURNED) {
    ct_out_literal(out, ",\"end\":\"");
    ct_out_text(out, ct_span_end_text((enum ct_span_end)span->end));
    ct_out_byte(out, '"');
  }
  if (ct_span_is_unfinished(span->end)) {
    ct_out_literal(out, ",\"open\":true");
  }
  if ((span->uncertain & CT_SPAN_UNCERTAIN) != 0) {
    ct_out_literal(out, ",\"uncertain\":true");
  }
  if ((span->uncertain & CT_SPAN_BEFORE) != 0) {
    ct_out_literal(out, ",\"before\":true");
  }
  if (span->end == CT_SPAN_POINT || span->end == CT_SPAN_COUNTED) {
    ct_out_literal(out, ",\"calls\":");
    ct_out_decimal(out, span->end == CT_SPAN_POINT ? span->calls : span->duration_ticks);
  }
  if (span->context != 0) {
    ct_out_literal(out, ",\"stack\":");
    ct_out_decimal(out, span->context);
  }
}

const char *
ct_export_program(const struct ct_trace *trace)
{
  const char *path = json_string_value(json_array_get(json_object_get(ct_trace_manifest(trace), "command"), 0));
  const char *slash = path != NULL ? strrchr(path, '/') : NULL;
  return path == NULL ? "?" : slash != NULL ? slash + 1 : path;
}

const char *
ct_export_thread_name(const struct ct_walk_place *place)
{
  return place->thread->name[0] != '\0' ? place->thread->name : "thread";
}

void
ct_json_about(struct ct_sink *out, const struct ct_export_job *job, uint64_t lost)
{
  const json_t *manifest = ct_trace_manifest(job->trace);
  json_t *warnings = ct_export_warnings(job->trace), *line;
  size_t i;
  ct_out_literal(out, "\"writer\":\"contrail " CT_VERSION "\",\"program\":");
  ct_out_json(out, ct_export_program(job->trace));
  ct_out_literal(out, ",\"start_wall_ns\":");
  ct_out_decimal(out, (uint64_t)json_integer_value(json_object_get(manifest, "start_wall_ns")));
  ct_out_literal(out, ",\"lost_events\":");
  ct_out_decimal(out, lost);
  ct_out_literal(out, ",\"warnings\":[");
  json_array_foreach(warnings, i, line)
  {
    ct_out_put(out, ",", i != 0);
    ct_out_json(out, json_string_value(line));
  }
  ct_out_byte(out, ']');
  json_decref(warnings);
}
