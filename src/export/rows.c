/* SPDX-License-Identifier: MIT */
/* See rows.h. What is the same for all calls of a thread, function or end is made once. */
#include "export/rows.h"

#include "export/json.h"

#include <stdio.h>
#include <stdlib.h>

const char *const ct_row_names[CT_ROW_COLUMNS] = {
    [CT_ROW_PID] = "pid",
    [CT_ROW_TID] = "tid",
    [CT_ROW_THREAD] = "thread",
    [CT_ROW_ID] = "id",
    [CT_ROW_PARENT] = "parent",
    [CT_ROW_NAME] = "name",
    [CT_ROW_MODULE] = "module",
    [CT_ROW_START] = "start_ns",
    [CT_ROW_END] = "end_ns",
    [CT_ROW_DURATION] = "duration_ns",
    [CT_ROW_SELF] = "self_ns",
    [CT_ROW_OFF] = "off_ns",
    [CT_ROW_DEPTH] = "depth",
    [CT_ROW_CALLS] = "calls",
    [CT_ROW_HOW] = "end",
    [CT_ROW_OPEN] = "open",
    [CT_ROW_UNCERTAIN] = "uncertain",
    [CT_ROW_BEFORE] = "before",
    [CT_ROW_STACK] = "stack",
    [CT_ROW_LOST] = "lost",
};

enum { FIXED_BYTES = 16, LINE_MAX_BYTES = 2048, TEXT_MAX_BYTES = CT_OUT_PIECE_MAX - LINE_MAX_BYTES };

struct text {
  char *text;
  size_t bytes;
};

struct rows {
  struct ct_sink *out;
  const struct ct_row_format *format;
  struct fixed { /* texts that are copied as a whole, whatever their length: that is faster */
    char text[FIXED_BYTES];
    size_t bytes;
  } before[CT_ROW_COLUMNS], none, flags[2];
  struct ct_walk_texts functions; /* name and module, with what goes before each */
  struct text thread;             /* the columns up to the id's begin */
  struct text ends[CT_SPAN_ENDS];
  struct text lost;           /* as of functions */
  bool has_bounds;            /* of its time off the processor only bounds are known */
  uint64_t first_id, id_step; /* of the thread's ordinals, 0: the general way */
};

/* ---- texts ---- */

static int
make_text(struct text *text, const char *a, char *b, const char *c, char *d)
{
  char *made = NULL;
  int bytes = b != NULL && d != NULL ? asprintf(&made, "%s%s%s%s", a, b, c, d) : -1;
  free(b);
  free(d);
  if (bytes < 0) {
    return CT_ENOMEM;
  }
  free(text->text);
  *text = (struct text){made, (size_t)bytes < TEXT_MAX_BYTES ? (size_t)bytes : 0};
  return CT_OK;
}

static int
make_function(struct rows *rows, const char *name, const char *module, struct text *text)
{
  const struct ct_row_format *format = rows->format;
  int code = make_text(text, format->before[CT_ROW_NAME], format->quote(name), format->before[CT_ROW_MODULE],
                       format->quote(module));
  return code != CT_OK || text->bytes != 0
             ? code
             : make_text(text, format->before[CT_ROW_NAME], format->quote("(a name that is too long)"),
                         format->before[CT_ROW_MODULE], format->quote("?"));
}

static const struct ct_walk_text *
function_of(struct rows *rows, uint32_t fn)
{
  struct ct_walk_text *text = ct_walk_text_of(&rows->functions, fn);
  struct text made = {0};
  if (CT_LIKELY(text->text != NULL)) {
    return text;
  }
  struct ct_trace *trace = rows->functions.trace;
  if (make_function(rows, ct_walk_name(trace, fn), ct_walk_module(trace, fn), &made) != CT_OK) {
    return NULL;
  }
  *text = (struct ct_walk_text){made.text, (uint32_t)made.bytes};
  return text;
}

static int
begin_process(void *arg, const struct ct_walk_place *place)
{
  return ct_walk_texts_begin(&((struct rows *)arg)->functions, place->trace);
}

static int
begin_thread(void *arg, const struct ct_walk_place *place)
{
  struct rows *rows = arg;
  const struct ct_row_format *format = rows->format;
  uint32_t index = place->thread->index;
  char *ids = NULL;
  if (asprintf(&ids, "%s%u%s%u%s", format->before[CT_ROW_PID], place->pid, format->before[CT_ROW_TID],
               place->thread->tid, format->before[CT_ROW_THREAD]) < 0) {
    return CT_ENOMEM;
  }
  int code =
      make_text(&rows->thread, ids, format->quote(ct_export_thread_name(place)), format->before[CT_ROW_ID], strdup(""));
  free(ids);
  rows->has_bounds = ct_trace_has_bounds(place->trace);
  rows->first_id = ct_span_id_in(place->trace, index, 0);
  rows->id_step = ct_span_id_in(place->trace, index, 1) - rows->first_id;
  return code;
}

/* ---- a row: in one piece of the chunk, with room for all of it ---- */

static inline uint8_t *
text_at(uint8_t *at, const char *text, size_t bytes)
{
  memcpy(at, text, bytes);
  return at + bytes;
}

static inline uint8_t *
number_at(uint8_t *at, uint64_t value)
{
  unsigned count = value < 10 ? 1 : ct_lines_digit_count(value);
  ct_lines_digits(value, (char *)at + count);
  return at + count;
}

static inline uint8_t *
fixed_at(uint8_t *at, const struct fixed *fixed)
{
  memcpy(at, fixed->text, FIXED_BYTES);
  return at + fixed->bytes;
}

/* A column of a number, with what goes before it. */
static inline uint8_t *
column_at(uint8_t *at, const struct rows *rows, enum ct_row_column column, uint64_t value)
{
  return number_at(fixed_at(at, &rows->before[column]), value);
}

static inline uint8_t *
flag_at(uint8_t *at, const struct rows *rows, enum ct_row_column column, bool value)
{
  return fixed_at(fixed_at(at, &rows->before[column]), &rows->flags[value]);
}

/* The id of a call of the thread; 0: it has none. Ordinals count up in an id, but for those above this bit. */
static inline uint64_t
id_of(const struct rows *rows, const struct ct_walk_place *place, uint64_t ordinal)
{
  if (CT_LIKELY(ordinal < (uint64_t)1 << 40 && rows->first_id != 0)) {
    return rows->first_id + ordinal * rows->id_step;
  }
  return ordinal == CT_NO_ORDINAL ? 0 : ct_span_id_in(place->trace, place->thread->index, ordinal);
}

static inline uint8_t *
id_at(uint8_t *at, const struct rows *rows, uint64_t id)
{
  if (CT_UNLIKELY(id >> 53 != 0 && rows->format->quotes_large)) {
    *at++ = '"';
    at = number_at(at, id);
    *at++ = '"';
    return at;
  }
  return id != 0 ? number_at(at, id) : fixed_at(at, &rows->none);
}

static uint8_t *
begin_row(struct rows *rows, const struct ct_walk_text *function)
{
  ct_out_room(rows->out, LINE_MAX_BYTES + rows->thread.bytes + function->bytes);
  return text_at(rows->out->at, rows->thread.text, rows->thread.bytes);
}

static void
end_row(struct rows *rows, uint8_t *at)
{
  rows->out->at = text_at(at, rows->format->after, strlen(rows->format->after));
}

static int
put_row(struct rows *rows, const struct ct_walk_place *place, const struct ct_span *span)
{
  const struct ct_walk_text *function = function_of(rows, span->fn);
  const struct text *end = &rows->ends[span->end < CT_SPAN_ENDS ? span->end : CT_SPAN_UNWOUND];
  bool has_time = span->end < CT_SPAN_ORPHAN;
  if (function == NULL) {
    return CT_ENOMEM;
  }
  uint8_t *at = begin_row(rows, function);
  at = id_at(at, rows, id_of(rows, place, span->ordinal));
  at = fixed_at(at, &rows->before[CT_ROW_PARENT]);
  at = id_at(at, rows, id_of(rows, place, span->parent_ordinal));
  at = text_at(at, function->text, function->bytes);
  at = column_at(at, rows, CT_ROW_START, ct_walk_ns(place, span->enter_tsc));
  at = column_at(at, rows, CT_ROW_END, ct_walk_ns(place, span->end_tsc));
  at = column_at(at, rows, CT_ROW_DURATION, has_time ? ct_trace_ticks_ns(place->trace, span->duration_ticks) : 0);
  at = column_at(at, rows, CT_ROW_SELF, has_time ? ct_trace_ticks_ns(place->trace, span->self_ticks) : 0);
  if (CT_LIKELY(!rows->has_bounds)) {
    at = column_at(at, rows, CT_ROW_OFF, span->off_ticks != 0 ? ct_trace_ticks_ns(place->trace, span->off_ticks) : 0);
  } else { /* not of single calls */
    at = fixed_at(fixed_at(at, &rows->before[CT_ROW_OFF]), &rows->none);
  }
  at = column_at(at, rows, CT_ROW_DEPTH, span->depth);
  at = column_at(at, rows, CT_ROW_CALLS, ct_walk_calls(span));
  at = text_at(at, end->text, end->bytes);
  at = flag_at(at, rows, CT_ROW_OPEN, ct_span_is_unfinished(span->end));
  at = flag_at(at, rows, CT_ROW_UNCERTAIN, (span->uncertain & CT_SPAN_UNCERTAIN) != 0);
  at = flag_at(at, rows, CT_ROW_BEFORE, (span->uncertain & CT_SPAN_BEFORE) != 0);
  at = column_at(at, rows, CT_ROW_STACK, span->context);
  at = column_at(at, rows, CT_ROW_LOST, 0);
  end_row(rows, at);
  return 0;
}

static int
put_rows(void *arg, const struct ct_walk_place *place, const struct ct_span *spans, size_t count)
{
  struct rows *rows = arg;
  int code = 0;
  for (size_t i = 0; i < count && code == 0; i++) {
    code = put_row(rows, place, &spans[i]);
  }
  return code != 0 ? code : ct_out_failed(rows->out) ? CT_EIO : 0;
}

/* A row of its own for events that were lost: no call, as long as they were, up to about when. */
static int
put_lost(void *arg, const struct ct_walk_place *place, uint64_t events, uint64_t tsc)
{
  struct rows *rows = arg;
  const struct ct_walk_text function = {rows->lost.text, (uint32_t)rows->lost.bytes};
  const struct text *end = &rows->ends[CT_SPAN_LOST];
  uint64_t ns = ct_walk_ns(place, tsc), gap = ct_trace_ticks_ns(place->trace, place->gap_ticks);
  const uint64_t numbers[CT_ROW_CALLS + 1] = {[CT_ROW_START] = ct_walk_ns(place, tsc - place->gap_ticks),
                                              [CT_ROW_END] = ns,
                                              [CT_ROW_DURATION] = gap,
                                              [CT_ROW_SELF] = gap};
  uint8_t *at = begin_row(rows, &function);
  at = id_at(at, rows, 0);
  at = fixed_at(at, &rows->before[CT_ROW_PARENT]);
  at = id_at(at, rows, 0);
  at = text_at(at, function.text, function.bytes);
  for (enum ct_row_column column = CT_ROW_START; column <= CT_ROW_CALLS; column++) {
    at = column_at(at, rows, column, numbers[column]);
  }
  at = text_at(at, end->text, end->bytes);
  for (enum ct_row_column column = CT_ROW_OPEN; column <= CT_ROW_BEFORE; column++) {
    at = flag_at(at, rows, column, false);
  }
  at = column_at(at, rows, CT_ROW_STACK, 0);
  at = column_at(at, rows, CT_ROW_LOST, events);
  end_row(rows, at);
  return 0;
}

/* ---- all ---- */

/* Of at most FIXED_BYTES: the formats' own texts are. */
static void
fix(struct fixed *fixed, const char *text)
{
  fixed->bytes = strnlen(text, FIXED_BYTES);
  memcpy(fixed->text, text, fixed->bytes);
}

static int
prepare(struct rows *rows)
{
  const struct ct_row_format *format = rows->format;
  int code = make_function(rows, "(events lost)", "", &rows->lost);
  for (int i = 0; i < CT_ROW_COLUMNS; i++) {
    fix(&rows->before[i], format->before[i]);
  }
  fix(&rows->none, format->none);
  fix(&rows->flags[0], format->no);
  fix(&rows->flags[1], format->yes);
  for (int i = 0; i < CT_SPAN_ENDS && code == CT_OK; i++) {
    code = make_text(&rows->ends[i], format->before[CT_ROW_HOW], format->quote(ct_span_end_text((enum ct_span_end)i)),
                     "", strdup(""));
  }
  return code;
}

int
ct_rows_write(const struct ct_export_job *job, struct ct_sink *out, const struct ct_row_format *format,
              struct ct_diag *diag)
{
  const struct ct_walk_handler handler = {
      .begin_process = begin_process, .begin_thread = begin_thread, .spans = put_rows, .lost = put_lost};
  struct rows rows = {.out = out, .format = format};
  struct ct_walk_sums sums = {0};
  int err = prepare(&rows) == CT_OK ? CT_OK : ct_fail(diag, CT_ENOMEM, "out of memory for an export");
  err = err == CT_OK ? ct_walk(job, &handler, &rows, &sums, diag) : err;
  for (int i = 0; i < CT_SPAN_ENDS; i++) {
    free(rows.ends[i].text);
  }
  free(rows.lost.text);
  free(rows.thread.text);
  ct_walk_texts_destroy(&rows.functions);
  return err;
}
