/* SPDX-License-Identifier: MIT */
/* See output.h. */
#include <contrail/output.h>

#include "base/sized.h"
#include "base/json.h"
#include "trace/batch.h"
#include "trace/format.h"
#include "views/filter.h"
#include "views/text.h"
#include "views/warnings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void
name_thread(const struct ct_trace *trace, uint32_t tid, char *name, size_t size)
{
  const char *known = "";
  for (uint32_t i = 0; i < ct_trace_thread_count(trace); i++) {
    if (ct_trace_thread(trace, i)->tid == tid) {
      known = ct_trace_thread(trace, i)->name;
    }
  }
  snprintf(name, size, "%s%s%" PRIu32, known, known[0] != '\0' ? "/" : "", tid);
}

static bool
is_wanted(const struct ct_output_options *options, const struct ct_captured *item)
{
  bool wanted = options->filter->tid_count == 0;
  for (size_t i = 0; i < options->filter->tid_count; i++) {
    wanted |= options->filter->tids[i] == item->tid;
  }
  return wanted && (options->fd == 0 || options->fd == item->fd);
}

static uint64_t
time_of(const struct ct_trace *trace, const struct ct_captured *call)
{
  uint64_t ns = ct_trace_ns(trace, call->tsc), start = ct_trace_start_ns(trace);
  return ns > start ? ns - start : 0;
}

/* Zero bytes would end a text: they are shown like other control characters. */
static void
write_text(const struct ct_trace *trace, const struct ct_captured *call, FILE *out)
{
  char thread[96];
  uint64_t ns = time_of(trace, call);
  name_thread(trace, call->tid, thread, sizeof(thread));
  for (size_t at = 0; at < call->bytes || at == 0;) {
    const char *end = memchr(call->data + at, '\n', call->bytes - at);
    size_t length = end != NULL ? (size_t)(end - call->data) - at : call->bytes - at;
    fprintf(out, "%5" PRIu64 ".%09" PRIu64 "  ", ns / 1000000000u, ns % 1000000000u);
    ct_put_printable(out, thread, SIZE_MAX);
    fputs(call->fd == 1 ? "  out  " : "  err  ", out);
    for (size_t i = 0; i < length; i++) {
      unsigned char c = (unsigned char)call->data[at + i];
      putc_unlocked((c < 0x20 && c != '\t') || c == 0x7f ? '?' : c, out);
    }
    at += length + 1;
    fputs(call->given > call->bytes && at >= call->bytes ? "  -- not all of it\n" : "\n", out);
  }
}

static int
write_json(const struct ct_trace *trace, const struct ct_captured *call, FILE *out)
{
  char *text = malloc(call->bytes + 1);
  if (text == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < call->bytes; i++) { /* a JSON text of ours ends at a zero byte */
    text[i] = call->data[i] == '\0' ? '?' : call->data[i];
  }
  text[call->bytes] = '\0';
  json_t *json = json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "time_ns", (json_int_t)time_of(trace, call), "tid",
                           (json_int_t)call->tid, "fd", (json_int_t)call->fd, "bytes", (json_int_t)call->bytes, "given",
                           (json_int_t)(call->given & INT64_MAX), "text", ct_json_string(text));
  int code = json_dumpf(json, out, JSON_COMPACT) == 0 ? 0 : CT_EIO;
  json_decref(json);
  free(text);
  putc_unlocked('\n', out);
  return code;
}

/* As a call that wrote nothing, to no descriptor. */
static void
write_warnings_json(const struct ct_trace *trace, FILE *out)
{
  json_t *list = ct_view_warnings(trace), *text;
  size_t i;
  json_array_foreach(list, i, text)
  {
    json_t *json = json_pack("{s:i, s:i, s:i, s:i, s:i, s:s, s:O}", "time_ns", 0, "tid", 0, "fd", 0, "bytes", 0,
                             "given", 0, "text", "", "warning", text);
    json_dumpf(json, out, JSON_COMPACT);
    json_decref(json);
    putc('\n', out);
  }
  json_decref(list);
}

int
ct_output_write(struct ct_trace *trace, const struct ct_output_options *given, FILE *out, struct ct_diag *diag)
{
  struct ct_captures captures;
  struct ct_output_options options;
  struct ct_filter filter;
  int code = ct_sized_take(&options, sizeof(options), given, diag);
  code = code == 0 ? ct_filter_take(options.filter, &filter, diag) : code;
  if (code != 0) {
    return code;
  }
  options.filter = &filter;
  if (options.json) {
    write_warnings_json(trace, out);
  } else if (!options.raw) {
    ct_view_put_warnings(trace, "", out);
  }
  code = ct_trace_captures(trace, &captures);
  if (code == CT_ENOENT) {
    return 0;
  }
  if (code != 0) {
    return ct_fail(diag, code, "cannot read what the program wrote: %s", ct_err_text(code));
  }
  uint64_t left = filter.limit != 0 ? filter.limit : UINT64_MAX;
  for (size_t i = 0; i < captures.count && code == 0 && left != 0; i++) {
    const struct ct_captured *call = &captures.items[i];
    if (!is_wanted(&options, call)) {
      continue;
    }
    left--;
    if (options.raw) {
      fwrite(call->data, 1, call->bytes, out);
    } else if (options.json) {
      code = write_json(trace, call, out);
    } else {
      write_text(trace, call, out);
    }
  }
  ct_captures_free(&captures);
  if (code == CT_ENOMEM) {
    return ct_fail(diag, code, "out of memory");
  }
  if (code != 0 || fflush(out) != 0 || ferror(out)) {
    return ct_fail(diag, CT_EIO, "cannot write: %s", strerror(errno));
  }
  return 0;
}
