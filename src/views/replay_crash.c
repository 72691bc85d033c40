/* SPDX-License-Identifier: MIT */
/* The line of replay about the signal that ended the program: what crash.json says of it, and on whose lane it is. */
#include "views/replay_internal.h"

#include "base/json.h"
#include "trace/batch.h"

#include <contrail/text.h>

#include <stdlib.h>
#include <string.h>

/* Where the thread was: the innermost frame of its backtrace. NULL: not known. */
static const json_t *
frame_of(const json_t *crash)
{
  const json_t *thread;
  size_t i;
  json_array_foreach(json_object_get(crash, "threads"), i, thread)
  {
    if (ct_json_get(thread, "tid") == ct_json_get(crash, "tid")) {
      return json_array_get(json_object_get(thread, "backtrace"), 0);
    }
  }
  return NULL;
}

static const char *
text_of(const json_t *object, const char *key)
{
  return json_string_value(json_object_get(object, key));
}

/* "SIGSEGV: address not mapped, 0x10, in store_wild+0x13" */
static void
put_text(FILE *out, const json_t *crash, const json_t *frame)
{
  const char *name = text_of(crash, "name"), *meaning = text_of(crash, "meaning"), *at = text_of(crash, "address");
  const char *function = text_of(frame, "function"), *pc = text_of(frame, "pc");
  ct_put_printable(out, name != NULL ? name : "a signal", SIZE_MAX);
  fputs(meaning != NULL ? ": " : "", out);
  ct_put_printable(out, meaning != NULL ? meaning : "", SIZE_MAX);
  fputs(at != NULL ? ", " : "", out);
  ct_put_printable(out, at != NULL ? at : "", SIZE_MAX);
  fputs(function != NULL || pc != NULL ? ", in " : "", out);
  ct_put_printable(out, function != NULL ? function : pc != NULL ? pc : "", SIZE_MAX);
  if (function != NULL && json_is_integer(json_object_get(frame, "function_offset"))) {
    fprintf(out, "+0x%llx", (unsigned long long)ct_json_get(frame, "function_offset"));
  }
}

static void
put_member(FILE *out, const char *key, const json_t *value)
{
  fprintf(out, ",\"%s\":", key);
  if (value == NULL || json_dumpf(value, out, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII) != 0) {
    fputs("null", out);
  }
}

static void
put_json(FILE *out, const json_t *crash, const json_t *frame)
{
  put_member(out, "signal", json_object_get(crash, "signal"));
  put_member(out, "signal_name", json_object_get(crash, "name"));
  put_member(out, "meaning", json_object_get(crash, "meaning"));
  put_member(out, "address", json_object_get(crash, "address"));
  put_member(out, "function", json_object_get(frame, "function"));
  put_member(out, "function_offset", json_object_get(frame, "function_offset"));
}

int
replay_load_crash(struct replay *r)
{
  const json_t *crash = ct_trace_crash(r->trace);
  uint64_t tsc = ct_json_get(crash, "tsc");
  size_t bytes;
  if (crash == NULL || tsc == 0 || r->sink != NULL || !ct_trace_in_range(r->trace, tsc)) {
    return 0;
  }
  FILE *out = open_memstream(&r->crash_text, &bytes);
  if (out == NULL) {
    return CT_ENOMEM;
  }
  (r->options->json ? put_json : put_text)(out, crash, frame_of(crash));
  if (fclose(out) != 0) {
    return CT_ENOMEM;
  }
  r->crash_tsc = tsc;
  r->crash_tid = (uint32_t)ct_json_get(crash, "tid");
  return 0;
}

uint64_t
replay_crash_of(const struct replay *r, uint32_t tid)
{
  return r->crash_tsc != 0 && r->crash_tid == tid ? r->crash_tsc : 0;
}
