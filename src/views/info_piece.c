/* SPDX-License-Identifier: MIT */
/* See info_piece.h. */
#include "views/info_piece.h"

#include "base/json.h"
#include "index/index.h"
#include "trace/batch.h"
#include "views/select.h"

#include <inttypes.h>
#include <stdlib.h>

enum { TIDS_SHOWN = 8 };

/* A trace that was cut has the begin and the end of what it has. */
static void
find_duration(const struct ct_trace *trace, struct ct_info_piece *piece)
{
  const json_t *manifest = ct_trace_manifest(trace), *cut = json_object_get(manifest, "cut");
  uint64_t start = ct_json_get(manifest, "start_ns"), end = ct_json_get(manifest, "end_ns");
  uint64_t from = ct_json_get(cut, "from_tsc"), to = ct_json_get(cut, "to_tsc");
  if (to != 0) {
    uint64_t begin = from != 0 ? ct_trace_ns(trace, from) : start;
    end = ct_trace_ns(trace, to);
    start = begin > start ? begin : start;
  }
  if (piece->has_range) {
    piece->has_duration = true;
    piece->duration_ns = piece->to_ns - piece->from_ns;
    return;
  }
  piece->has_duration = start != 0 && end >= start;
  piece->duration_ns = piece->has_duration ? end - start : 0;
}

/* Of the range what is in the recording. */
static void
find_range(const struct ct_trace *trace, struct ct_info_piece *piece)
{
  uint64_t from, to, start = ct_trace_start_ns(trace);
  piece->has_range = ct_trace_range(trace, &from, &to);
  if (piece->has_range) {
    uint64_t begin = from != 0 ? ct_trace_ns(trace, from) : 0, end = ct_trace_ns(trace, ct_trace_end_tsc(trace));
    piece->from_ns = begin > start ? begin - start : 0;
    piece->to_ns = end > start ? end - start : 0;
    piece->to_ns = piece->to_ns > piece->from_ns ? piece->to_ns : piece->from_ns;
  }
}

static int
read_events(struct ct_trace *trace, struct ct_info_piece *piece, struct ct_diag *diag)
{
  uint32_t count = ct_trace_thread_count(trace);
  struct ct_index *index;
  piece->events = calloc((size_t)count + 1, sizeof(*piece->events));
  piece->dropped = calloc((size_t)count + 1, sizeof(*piece->dropped));
  if (piece->events == NULL || piece->dropped == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory for the threads of the trace");
  }
  if (!piece->has_range) {
    for (uint32_t i = 0; i < count; i++) {
      piece->events[i] = ct_trace_thread(trace, i)->events;
      piece->dropped[i] = ct_trace_thread(trace, i)->dropped;
    }
    return 0;
  }
  int code = ct_index_open_piece(trace, piece->threads, 1, NULL, &index, diag);
  for (uint32_t i = 0; i < count && code == 0; i++) {
    struct ct_index_thread_sums sums;
    ct_index_thread_sums(index, i, &sums);
    piece->events[i] = sums.events;
    piece->dropped[i] = sums.lost;
  }
  if (code == 0) {
    ct_index_close(index);
  }
  return code;
}

static int
choose_threads(struct ct_trace *trace, const struct ct_filter *filter, struct ct_info_piece *piece,
               struct ct_diag *diag)
{
  uint32_t *threads;
  size_t count = 0;
  int code = ct_choose_threads(trace, filter->tids, filter->tid_count, &threads, &count, diag);
  if (code != 0) {
    return code;
  }
  piece->threads = calloc((size_t)ct_trace_thread_count(trace) + 1, 1);
  for (size_t i = 0; i < count && piece->threads != NULL; i++) {
    piece->threads[threads[i]] = 1;
  }
  free(threads);
  return piece->threads != NULL ? 0 : ct_fail(diag, CT_ENOMEM, "out of memory for the threads of the trace");
}

int
ct_info_piece_read(struct ct_trace *trace, const struct ct_filter *filter, struct ct_info_piece *piece,
                   struct ct_diag *diag)
{
  *piece = (struct ct_info_piece){.filter = filter};
  size_t tids = filter != NULL ? filter->tid_count : 0;
  find_range(trace, piece);
  find_duration(trace, piece);
  piece->is_piece = piece->has_range || tids != 0;
  int code = tids != 0 ? choose_threads(trace, filter, piece, diag) : 0;
  if (code == 0 && piece->is_piece) {
    code = read_events(trace, piece, diag);
  }
  if (code != 0) {
    ct_info_piece_free(piece);
  }
  return code;
}

void
ct_info_piece_free(struct ct_info_piece *piece)
{
  free(piece->threads);
  free(piece->events);
  free(piece->dropped);
  *piece = (struct ct_info_piece){0};
}

bool
ct_info_piece_has(const struct ct_info_piece *piece, uint32_t thread)
{
  return piece->threads == NULL || piece->threads[thread] != 0;
}

uint64_t
ct_info_piece_events(const struct ct_info_piece *piece, const struct ct_trace_thread *thread, uint32_t n)
{
  return piece->events != NULL ? piece->events[n] : thread->events;
}

uint64_t
ct_info_piece_dropped(const struct ct_info_piece *piece, const struct ct_trace_thread *thread, uint32_t n)
{
  return piece->dropped != NULL ? piece->dropped[n] : thread->dropped;
}

void
ct_info_piece_output(const struct ct_info_piece *piece, const struct ct_trace *trace, uint64_t given[2],
                     uint64_t *recorded)
{
  struct ct_captures captures;
  given[0] = given[1] = *recorded = 0;
  if (ct_trace_captures(trace, &captures) != 0) {
    return;
  }
  for (size_t i = 0; i < captures.count; i++) {
    const struct ct_captured *item = &captures.items[i];
    bool is_in = piece->threads == NULL;
    for (size_t k = 0; !is_in && k < piece->filter->tid_count; k++) {
      is_in = piece->filter->tids[k] == item->tid;
    }
    if (is_in) {
      given[item->fd == 2] += item->given;
      *recorded += item->bytes;
    }
  }
  ct_captures_free(&captures);
}

json_t *
ct_info_piece_json(const struct ct_info_piece *piece)
{
  if (!piece->is_piece) {
    return json_null();
  }
  json_t *tids = json_array();
  for (size_t i = 0; piece->threads != NULL && i < piece->filter->tid_count; i++) {
    json_array_append_new(tids, json_integer(piece->filter->tids[i]));
  }
  json_t *from = piece->has_range ? json_integer((json_int_t)piece->from_ns) : json_null();
  json_t *to = piece->has_range ? json_integer((json_int_t)piece->to_ns) : json_null();
  return json_pack("{s:o, s:o, s:o}", "from_ns", from, "to_ns", to, "tids", tids);
}

static void
write_seconds(FILE *out, uint64_t ns)
{
  uint64_t us = (ns + 500) / 1000;
  fprintf(out, "%" PRIu64 ".%06" PRIu64 " s", us / 1000000, us % 1000000);
}

void
ct_info_piece_write(const struct ct_info_piece *piece, FILE *out)
{
  if (piece->has_range) {
    write_seconds(out, piece->from_ns);
    fputs(" to ", out);
    write_seconds(out, piece->to_ns);
    fputs(" of the recording", out);
  }
  if (piece->threads != NULL) {
    fputs(piece->has_range ? ", thread" : "thread", out);
    for (size_t i = 0; i < piece->filter->tid_count && i < TIDS_SHOWN; i++) {
      fprintf(out, " %" PRIu32, piece->filter->tids[i]);
    }
    fputs(piece->filter->tid_count > TIDS_SHOWN ? " ..." : "", out);
  }
  fputs(": events, duration, output and threads are its own; all else is of the whole\n", out);
}
