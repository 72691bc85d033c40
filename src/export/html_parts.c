/* SPDX-License-Identifier: MIT */
/* See html_parts.h. */
#include "export/html_parts.h"

#include "base/json.h"
#include "views/call_values.h"

#include <stdlib.h>

enum { AWAY_MAX = 1000000, VALUES_MAX = 400000, PIECE_BYTES = 1 << 20 };

/* ---- stretches off the processor ---- */

/* head: thread; then of each the end (difference, zigzag), the length, the reason (enum ct_away). */
enum { AWAY_END, AWAY_LENGTH, AWAY_REASON, AWAY_PARTS };

static void
flush_away(struct ct_html_stream *stream, struct ct_html_bytes parts[AWAY_PARTS + 1], uint64_t *end)
{
  if (parts[1].bytes != 0) {
    ct_html_stream_piece(stream, CT_HTML_AWAY, parts, AWAY_PARTS + 1);
  }
  for (int i = 1; i <= AWAY_PARTS; i++) {
    parts[i].bytes = 0;
  }
  *end = 0;
}

int
ct_html_put_away(struct ct_html_stream *stream, const struct ct_walk_place *place, struct ct_html_counts *counts,
                 struct ct_diag *diag)
{
  struct ct_html_bytes parts[AWAY_PARTS + 1] = {0}, *of = parts + 1;
  struct ct_cursor *cursor;
  const struct ct_event *events;
  size_t n;
  uint64_t last = 0;
  int code = ct_cursor_open(place->trace, place->thread->index, 0, &cursor, diag);
  if (code != CT_OK) {
    return code;
  }
  ct_html_put(parts, place->number);
  while ((n = ct_cursor_next(cursor, &events)) != 0) {
    for (size_t i = 0; i < n; i++) {
      const struct ct_event *event = &events[i];
      if (event->kind != CT_EV_AWAY || event->reason == CT_AWAY_SOME) {
        continue;
      }
      if (counts->away == AWAY_MAX) {
        counts->away_left_out++;
        continue;
      }
      uint64_t begin = ct_walk_ns(place, event->enter_tsc);
      uint64_t end = ct_walk_ns(place, event->enter_tsc + event->value);
      ct_html_put(&of[AWAY_END], ct_html_zigzag(end - last));
      ct_html_put(&of[AWAY_LENGTH], end - begin);
      ct_html_put(&of[AWAY_REASON], event->reason);
      counts->away++;
      last = end;
      if (of[AWAY_END].bytes > PIECE_BYTES) {
        flush_away(stream, parts, &last);
      }
    }
  }
  ct_cursor_close(cursor);
  flush_away(stream, parts, &last);
  for (int i = 0; i <= AWAY_PARTS; i++) {
    stream->failed |= parts[i].failed;
    free(parts[i].data);
  }
  return stream->failed ? CT_ENOMEM : CT_OK;
}

/* ---- values ---- */

/* Whose values are made text. */
struct shown {
  struct ct_view_prototypes *prototypes;
  const struct ct_value_registers *registers;
};

static const char *
find_symbol(void *arg, uint64_t address, uint64_t *offset)
{
  const struct shown *shown = arg;
  return ct_view_prototypes_symbol(shown->prototypes, address, offset);
}

static size_t
read_memory(void *arg, uint64_t address, void *out, size_t bytes)
{
  const struct shown *shown = arg;
  return ct_registers_memory(shown->registers, address, out, bytes);
}

static void
make_text(struct ct_value_text *text, struct ct_view_prototypes *prototypes, const struct ct_call_values *call)
{
  const struct ct_prototype *prototype = ct_view_prototype(prototypes, call->fn);
  struct shown shown = {prototypes, &call->registers};
  struct ct_value_context context = {.arg = &shown, .symbol = find_symbol, .memory = read_memory};
  text->length = 0;
  if (prototype == NULL) {
    return;
  }
  if (call->is_return) {
    ct_values_put_result(text, prototype, &call->registers, &context);
  } else if (ct_registers_have_arguments(&call->registers)) {
    ct_values_put_arguments(text, prototype, &call->registers, &context);
  }
}

/* A piece: the thread, and of each the ordinal (difference, zigzag) with one bit below: is it the result; the size of
 * the text and the text. */
int
ct_html_put_values(struct ct_html_stream *stream, const struct ct_walk_place *place, struct ct_html_counts *counts,
                   struct ct_diag *diag)
{
  struct ct_call_values_reader *reader;
  struct ct_view_prototypes prototypes;
  struct ct_value_text text = {NULL, 0, 0};
  struct ct_html_bytes piece = {0};
  const struct ct_call_values *call;
  uint64_t ordinal = 0;
  int code = ct_call_values_open(place->trace, place->thread->index, &reader, diag);
  if (code != CT_OK) {
    return code;
  }
  ct_view_prototypes_init(&prototypes, place->trace);
  ct_html_put(&piece, place->number);
  size_t head = piece.bytes;
  while ((code = ct_call_values_next(reader, &call)) == CT_OK && call != NULL) {
    if (counts->values >= VALUES_MAX) {
      counts->values_left_out++;
      continue;
    }
    make_text(&text, &prototypes, call);
    if (text.length == 0 || call->ordinal == CT_NO_ORDINAL) {
      continue;
    }
    ct_html_put(&piece, ct_html_zigzag(call->ordinal - ordinal) << 1 | call->is_return);
    ct_html_put(&piece, text.length);
    ct_html_bytes_put(&piece, text.data, text.length);
    ordinal = call->ordinal;
    counts->values++;
    if (piece.bytes > PIECE_BYTES) {
      ct_html_stream_piece(stream, CT_HTML_VALUES, &piece, 1);
      piece.bytes = head;
      ordinal = 0;
    }
  }
  if (piece.bytes > head) {
    ct_html_stream_piece(stream, CT_HTML_VALUES, &piece, 1);
  }
  stream->failed |= piece.failed;
  free(piece.data);
  ct_value_text_free(&text);
  ct_view_prototypes_destroy(&prototypes);
  ct_call_values_close(reader);
  return stream->failed ? CT_ENOMEM : code;
}

/* ---- paths ---- */

enum { SPECIALS = 3 };

static uint32_t
name_of(const struct ct_paths *paths, uint32_t name)
{
  switch (name) {
  case CT_PATH_OTHER:
    return 0;
  case CT_PATH_STACKS:
    return 1;
  case CT_PATH_LOST:
    return 2;
  default:
    return name < paths->names.count ? name + SPECIALS : 0;
  }
}

int
ct_html_put_paths(struct ct_html_stream *stream, const struct ct_export_job *job, const struct ct_paths *paths,
                  json_t **names)
{
  static const uint32_t specials[SPECIALS] = {CT_PATH_OTHER, CT_PATH_STACKS, CT_PATH_LOST};
  struct ct_html_bytes piece = {0};
  uint32_t depth = 0;
  /* Each path before those below it: depth, name, time of its own, of that off the processor, calls. */
  for (uint32_t at = paths->paths[CT_PATH_TOP].first; at != CT_PATH_NONE && at != CT_PATH_TOP;) {
    const struct ct_path *path = &paths->paths[at];
    ct_html_put(&piece, depth);
    ct_html_put(&piece, name_of(paths, path->name));
    ct_html_put(&piece, ct_trace_ticks_ns(job->trace, path->self_ticks));
    ct_html_put(&piece, ct_trace_ticks_ns(job->trace, path->self_off_ticks));
    ct_html_put(&piece, path->calls);
    if (path->first != CT_PATH_NONE) {
      at = path->first;
      depth++;
      continue;
    }
    while (at != CT_PATH_TOP && paths->paths[at].next == CT_PATH_NONE) {
      at = paths->paths[at].parent;
      depth--;
    }
    at = at != CT_PATH_TOP ? paths->paths[at].next : CT_PATH_NONE;
  }
  ct_html_stream_piece(stream, CT_HTML_PATHS, &piece, 1);
  free(piece.data);
  json_t *list = json_array();
  int failed = list == NULL;
  for (uint32_t i = 0; i < SPECIALS + paths->names.count && failed == 0; i++) {
    const char *name = ct_paths_name(paths, i < SPECIALS ? specials[i] : i - SPECIALS);
    failed = json_array_append_new(list, ct_json_string(name));
  }
  *names = list;
  return failed == 0 && !stream->failed ? CT_OK : CT_ENOMEM;
}
