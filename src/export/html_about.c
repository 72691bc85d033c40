/* SPDX-License-Identifier: MIT */
/* See html_about.h. */
#include "export/html_about.h"

#include "base/json.h"
#include "trace/batch.h"
#include "views/crash.h"

#include <stdlib.h>

enum { OUTPUTS_MAX = 100000, OUTPUT_BYTES_MAX = 4 << 20 };

/* A text of any bytes, zero bytes too, as a string. */
static json_t *
text_of(const char *data, size_t bytes)
{
  char *text = malloc(bytes + 1);
  if (text == NULL) {
    return NULL;
  }
  for (size_t i = 0; i < bytes; i++) {
    text[i] = data[i] == '\0' ? '?' : data[i];
  }
  text[bytes] = '\0';
  json_t *json = ct_json_string(text);
  free(text);
  return json;
}

static uint64_t
time_of(const struct ct_export_job *job, const struct ct_trace *trace, uint64_t tsc)
{
  uint64_t ns = ct_trace_ns(trace, tsc), start = ct_trace_start_ns(job->trace);
  return ns > start ? ns - start : 0;
}

static bool
is_wanted(const struct ct_filter *filter, uint32_t tid)
{
  bool wanted = filter->tid_count == 0;
  for (size_t i = 0; i < filter->tid_count; i++) {
    wanted |= filter->tids[i] == tid;
  }
  return wanted;
}

int
ct_html_outputs(const struct ct_export_job *job, struct ct_trace *trace, uint32_t pid, json_t *about)
{
  struct ct_captures captures;
  json_t *list = json_object_get(about, "output");
  uint64_t left_out = ct_json_get(about, "output_left_out"), bytes = ct_json_get(about, "output_bytes");
  int code = ct_trace_captures(trace, &captures);
  if (code != CT_OK) {
    return code == CT_ENOMEM ? code : CT_OK; /* none, or none that can be read: info says so */
  }
  for (size_t i = 0; i < captures.count && code == CT_OK; i++) {
    const struct ct_captured *call = &captures.items[i];
    if (!is_wanted(job->options->filter, call->tid) || !ct_trace_in_range(trace, call->tsc)) {
      continue;
    }
    if (json_array_size(list) >= OUTPUTS_MAX || bytes + call->bytes > OUTPUT_BYTES_MAX) {
      left_out++;
      continue;
    }
    bytes += call->bytes;
    json_t *text = text_of(call->data, call->bytes);
    json_t *item = json_pack("[I,I,I,I,o,b]", (json_int_t)time_of(job, trace, call->tsc), (json_int_t)pid,
                             (json_int_t)call->tid, (json_int_t)call->fd, text, call->given > call->bytes);
    code = item != NULL && json_array_append_new(list, item) == 0 ? CT_OK : CT_ENOMEM;
  }
  ct_json_put(about, "output_left_out", left_out);
  ct_json_put(about, "output_bytes", bytes);
  ct_captures_free(&captures);
  return code;
}

int
ct_html_crash(const struct ct_export_job *job, struct ct_trace *trace, uint32_t pid, json_t *about)
{
  json_t *crash = ct_crash_json(trace, job->options->time);
  if (!json_is_object(crash)) {
    json_decref(crash);
    return CT_OK;
  }
  /* Times of the view are since the begin of the first process. */
  const json_t *tsc = json_object_get(crash, "tsc");
  uint64_t at = json_is_integer(tsc) ? (uint64_t)json_integer_value(tsc) : ct_trace_end_tsc(trace);
  json_t *item = json_pack("{s:I, s:I, s:b, s:o}", "ns", (json_int_t)time_of(job, trace, at), "pid", (json_int_t)pid,
                           "in_range", ct_trace_in_range(trace, at), "crash", crash);
  return item != NULL && json_array_append_new(json_object_get(about, "crashes"), item) == 0 ? CT_OK : CT_ENOMEM;
}

int
ct_html_put_json(struct ct_sink *out, const json_t *json)
{
  char *text = json_dumps(json, JSON_COMPACT);
  if (text == NULL) {
    return CT_ENOMEM;
  }
  for (const char *at = text; *at != '\0';) { /* a '<' is only in strings */
    size_t length = strcspn(at, "<");
    ct_out_put(out, at, length);
    at += length;
    if (*at == '<') {
      ct_out_literal(out, "\\u003c");
      at++;
    }
  }
  free(text);
  return CT_OK;
}
