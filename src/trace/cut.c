/* SPDX-License-Identifier: MIT */
/*
 * A piece of a trace as a trace of its own: events are read as cursors give them in the range and encoded anew. So the
 * frames that are open at its begin are entered there, each with a VALUE of reason CT_VALUE_BEFORE, as a view of the
 * range has them, and reports of the two are equal. Function ids, times and the begin of the recording stay as they
 * are; the ordinals of calls begin anew.
 */
#include "trace/cut.h"

#include "base/json.h"
#include "trace/detail.h"
#include "trace/reader_internal.h"
#include "trace/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER_BYTES = 32 << 20 };

struct cut {
  struct ct_trace *trace;
  const struct ct_cut_options *options;
  struct ct_trace_writer *writer;
  struct ct_cut_sums *sums;
  json_t *threads; /* of the manifest */
  uint64_t from, to;
  uint64_t lost, details;
  uint64_t given[2], recorded; /* bytes of output, of the calls and in the file */
};

/* ---- events ---- */

/* What the encoder has no frame for: the trace says less of it than a piece needs (after damage, in deep recursions).
 */
static void
encode_end(struct ct_encoder *encoder, const struct ct_event *event)
{
  struct ct_frame *top = ct_encoder_top(encoder);
  if (event->kind == CT_EV_UNWOUND) {
    ct_encode_unwound(encoder, event->tsc, event->reason);
  } else if (top != NULL && top->fn == event->fn) {
    ct_encode_return(encoder, event->tsc);
  } else if (event->fn <= CT_FUNCTION_ID_MAX) {
    ct_encode_orphan_return(encoder, event->tsc, event->fn);
  }
}

static void
encode_other(struct ct_encoder *encoder, const struct ct_event *event)
{
  switch (event->kind) {
  case CT_EV_LOST:
    ct_encode_lost(encoder, event->tsc, event->value);
    break;
  case CT_EV_SWITCH:
    ct_encode_switch(encoder, event->tsc, (uint32_t)event->value);
    break;
  case CT_EV_EXEC:
    ct_encode_exec(encoder, event->tsc);
    break;
  case CT_EV_VALUE:
    if (ct_encoder_top(encoder) != NULL) {
      ct_encode_value(encoder, event->reason, event->value);
    }
    break;
  case CT_EV_AWAY:
    ct_encode_away(encoder, event->enter_tsc, event->enter_tsc + event->value, event->reason);
    break;
  case CT_EV_INTERVAL:
    ct_encode_interval(encoder, event->tsc, (uint32_t)__builtin_ctzll(event->value | 1ull << CT_INTERVAL_LOG2_MAX));
    break;
  default:
    break;
  }
}

static void
encode(struct ct_encoder *encoder, const struct ct_event *event)
{
  bool has_function = event->fn <= CT_FUNCTION_ID_MAX;
  switch (event->kind) {
  case CT_EV_RETURN:
  case CT_EV_UNWOUND:
    encode_end(encoder, event);
    break;
  case CT_EV_ENTER:
    if (has_function) {
      ct_encode_enter(encoder, event->tsc, event->fn, 0);
    }
    break;
  case CT_EV_TAIL:
    if (has_function) {
      ct_encode_tail(encoder, event->tsc, event->fn);
    }
    break;
  case CT_EV_POINT:
    if (has_function && event->value > 1) {
      ct_encode_sampled(encoder, event->tsc, event->fn, (uint32_t)__builtin_ctzll(event->value));
    } else if (has_function) {
      ct_encode_point(encoder, event->tsc, event->fn);
    }
    break;
  case CT_EV_ORPHAN_RETURN:
    if (has_function) {
      ct_encode_orphan_return(encoder, event->tsc, event->fn);
    }
    break;
  case CT_EV_COUNTED:
    if (has_function) {
      ct_encode_counted(encoder, event->tsc, event->fn, event->value);
    }
    break;
  default:
    encode_other(encoder, event);
    break;
  }
}

/* ---- details ---- */

/* A call that was open before the piece is entered at its begin, and its return knows it by that time. */
static void
copy_detail(struct cut *cut, struct ct_encoder *encoder, struct ct_details *details, const struct ct_event *event)
{
  struct ct_detail_entry entry;
  const void *words;
  if (details == NULL || ct_details_of(details, event) == NULL || ct_details_record(details, &entry, &words) == 0) {
    return;
  }
  entry.enter_tsc = entry.enter_tsc > cut->from ? entry.enter_tsc : cut->from;
  ct_encode_detail(encoder, &entry, words);
  cut->details++;
}

/* ---- a thread ---- */

/* The frames that are entered at the begin. */
struct begin {
  struct ct_event *events;
  size_t count, capacity;
  bool is_uncertain; /* some were open when events were lost */
};

static bool
keep_begin(struct begin *begin, const struct ct_event *events, size_t count)
{
  if (begin->count + count > begin->capacity) {
    size_t capacity = (begin->count + count) * 2;
    struct ct_event *larger = reallocarray(begin->events, capacity, sizeof(*larger));
    if (larger == NULL) {
      return false;
    }
    begin->events = larger;
    begin->capacity = capacity;
  }
  for (size_t i = 0; i < count; i++) {
    begin->is_uncertain |= events[i].kind == CT_EV_ENTER && events[i].uncertain != 0;
    begin->events[begin->count++] = events[i];
  }
  return true;
}

/* Those that are uncertain, or the others. What is known of the last one (a VALUE) is given back, not encoded. */
static const struct ct_event *
encode_frames(struct ct_encoder *encoder, const struct begin *begin, bool uncertain)
{
  bool wanted = false;
  const struct ct_event *held = NULL;
  for (size_t i = 0; i < begin->count; i++) {
    const struct ct_event *event = &begin->events[i];
    wanted = event->kind == CT_EV_ENTER ? (event->uncertain != 0) == uncertain : wanted;
    if (event->kind != CT_EV_SWITCH && !wanted) {
      continue;
    }
    if (held != NULL) {
      encode(encoder, held);
      held = NULL;
    }
    if (event->kind == CT_EV_VALUE) {
      held = event;
    } else {
      encode(encoder, event);
    }
  }
  return held;
}

/*
 * What is open when the encoder is notified of a loss is uncertain. So the frames that are it are entered first, the
 * outer ones of each stack; then nothing is lost; then the others come. After a loss time is nobody's until something
 * is seen of the thread: the VALUE of the last one, or a switch where there are several stacks.
 */
static void
encode_begin(struct ct_encoder *encoder, struct begin *begin)
{
  const struct ct_event *held;
  if (begin->count == 0) {
    return;
  }
  if (begin->is_uncertain) {
    held = encode_frames(encoder, begin, true);
    ct_encode_lost(encoder, begin->events[0].tsc, 0);
    if (held != NULL) {
      encode(encoder, held);
    }
    ct_encode_switch(encoder, begin->events[0].tsc, 0);
  }
  held = encode_frames(encoder, begin, false);
  if (held != NULL) {
    encode(encoder, held);
  }
  begin->count = 0;
}

static int
cut_events(struct cut *cut, struct ct_cursor *cursor, struct ct_encoder *encoder, struct ct_details *details,
           uint64_t *lost)
{
  const struct ct_event *events;
  struct begin begin = {NULL};
  bool begins = true;
  uint64_t done = cut->sums->bytes;
  for (size_t count; (count = ct_cursor_next(cursor, &events)) != 0;) {
    begins = begins && ct_cursor_gives_frames(cursor);
    if (begins) {
      if (!keep_begin(&begin, events, count)) {
        free(begin.events);
        return CT_ENOMEM;
      }
      continue;
    }
    encode_begin(encoder, &begin);
    for (size_t i = 0; i < count; i++) {
      encode(encoder, &events[i]);
      copy_detail(cut, encoder, details, &events[i]);
      *lost += events[i].kind == CT_EV_LOST ? events[i].value : 0;
    }
    if (cut->options->update != NULL &&
        cut->options->update(cut->options->arg, done + ct_cursor_offset(cursor), ct_trace_bytes(cut->trace)) != 0) {
      free(begin.events);
      return CT_ECANCELED;
    }
  }
  encode_begin(encoder, &begin);
  free(begin.events);
  if (ct_cursor_state(cursor) == CT_CURSOR_DAMAGED && cut->sums->damaged_threads++ == 0) {
    cut->sums->first_damaged_tid = encoder->tid;
  }
  return CT_OK;
}

static int
cut_thread(struct cut *cut, uint32_t position, struct ct_diag *diag)
{
  const struct ct_trace_thread *thread = &cut->trace->threads[position];
  struct ct_cursor *cursor = NULL;
  struct ct_details *details = NULL;
  struct ct_encoder *encoder;
  uint64_t lost = 0;
  int err = ct_cursor_open(cut->trace, position, 0, &cursor, diag);
  if (err != CT_OK) {
    return err;
  }
  ct_details_open(cut->trace, position, &details, NULL); /* none: it is NULL */
  err = ct_trace_writer_thread(cut->writer, thread->index, thread->tid, thread->pid, &encoder);
  if (err == CT_OK) {
    err = cut_events(cut, cursor, encoder, details, &lost);
    int closed = ct_encoder_close(encoder);
    err = err == CT_OK ? closed : err;
  }
  ct_details_close(details);
  ct_cursor_close(cursor);
  if (err != CT_OK) {
    return err;
  }
  const json_t *known = json_object_get(cut->trace->manifest, "threads");
  json_t *json = json_object();
  for (size_t i = 0; i < json_array_size(known); i++) {
    if (ct_json_get(json_array_get(known, i), "index") == thread->index) {
      json_object_update(json, json_array_get(known, i));
    }
  }
  json_object_del(json, "not_kept");
  json_object_del(json, "cpu_ns");
  json_object_del(json, "delay_ns");
  ct_json_put(json, "index", thread->index);
  ct_json_put(json, "tid", thread->tid);
  ct_json_put(json, "events", ct_encoder_events(encoder));
  ct_json_put(json, "dropped", lost);
  ct_json_put(json, "end_tsc", thread->end_tsc);
  bool goes_on = ct_trace_is_cut(cut->trace, position);
  json_object_set_new(json, "goes_on", json_boolean(goes_on));
  if (goes_on) {
    json_object_set_new(json, "exited", json_false());
  }
  cut->lost += lost;
  cut->sums->threads++;
  cut->sums->events += ct_encoder_events(encoder);
  return json_array_append_new(cut->threads, json) == 0 ? CT_OK : CT_ENOMEM;
}

static bool
is_wanted(const struct cut *cut, uint32_t tid)
{
  bool wanted = cut->options->tid_count == 0;
  for (size_t i = 0; i < cut->options->tid_count; i++) {
    wanted |= cut->options->tids[i] == tid;
  }
  return wanted;
}

/* ---- what stands beside ---- */

static int
copy_functions(struct cut *cut)
{
  int err = CT_OK;
  for (uint32_t id = 0; id < cut->trace->function_count && err == CT_OK; id++) {
    const struct ct_trace_function *function = &cut->trace->functions[id];
    if (function->raw_name != NULL) {
      err = ct_trace_writer_function(cut->writer, id, function->module, function->address, function->size,
                                     function->enter_only ? "enter" : "full", function->raw_name);
    }
  }
  return err;
}

/* sources.tsv, prototypes.tsv, and what is of one moment, if that is in the piece. */
static void
copy_files(struct cut *cut)
{
  char *text;
  size_t size;
  const struct ct_trace *trace = cut->trace;
  if (ct_trace_read_file(trace, CT_TRACE_SOURCES, &text, &size) == CT_OK) {
    ct_trace_writer_sources(cut->writer, text, size);
    free(text);
  }
  if (ct_trace_read_file(trace, CT_TRACE_PROTOTYPES, &text, &size) == CT_OK) {
    const char *line = memchr(text, '\n', size);
    if (line != NULL) {
      ct_trace_writer_prototypes(cut->writer, line + 1, size - (size_t)(line + 1 - text));
    }
    free(text);
  }
  if (trace->crash != NULL && ct_trace_in_range(trace, ct_json_get(trace->crash, "tsc"))) {
    ct_trace_writer_crash(cut->writer, trace->crash);
  }
  if (trace->stacks != NULL && ct_trace_in_range(trace, ct_json_get(trace->stacks, "tsc"))) {
    ct_trace_writer_stacks(cut->writer, trace->stacks);
  }
}

static int
copy_output(struct cut *cut)
{
  struct ct_captures captures;
  int err = CT_OK;
  if (ct_trace_captures(cut->trace, &captures) != CT_OK) {
    return CT_OK;
  }
  for (size_t i = 0; i < captures.count && err == CT_OK; i++) {
    const struct ct_captured *item = &captures.items[i];
    struct ct_capture_record record = {.tsc = item->tsc, .tid = item->tid, .fd = item->fd, .given = item->given};
    if (ct_trace_in_range(cut->trace, item->tsc) && is_wanted(cut, item->tid)) {
      cut->given[item->fd == 2] += item->given;
      cut->recorded += item->bytes;
      err = ct_trace_writer_capture(cut->writer, &record, item->data, item->bytes);
    }
  }
  ct_captures_free(&captures);
  return err == CT_OK ? ct_trace_writer_flush_captures(cut->writer) : err;
}

/* ---- the manifest ---- */

static const char *const dropped_keys[] = {"files",  "function_count", "kept",     "cost",      "user_ns", "system_ns",
                                           "memory", "error",          "children", "waited_ns", NULL};

/* The times of the end, that much earlier. */
static void
move_end(json_t *manifest, const struct ct_trace *trace)
{
  static const char *const keys[] = {"end_ns", "end_wall_ns", "end_boot_ns", NULL};
  uint64_t end = ct_trace_ns(trace, trace->end_tsc), was = ct_json_get(manifest, "end_ns");
  for (const char *const *key = keys; *key != NULL && was > end; key++) {
    uint64_t at = ct_json_get(manifest, *key);
    if (at != 0) {
      ct_json_put(manifest, *key, at - (was - end));
    }
  }
  ct_json_put(manifest, "end_tsc", trace->end_tsc);
}

static json_t *
windows_in(const struct ct_trace *trace)
{
  json_t *list = json_array();
  for (size_t i = 0; i < ct_trace_window_count(trace); i++) {
    struct ct_trace_window window;
    if (ct_trace_window(trace, i, &window) && window.end_tsc >= trace->range_from &&
        (!trace->has_range || window.begin_tsc <= trace->range_to)) {
      json_array_append(list, json_array_get(json_object_get(trace->manifest, "windows"), i));
    }
  }
  return list;
}

/* What of it is in the piece; what was dropped is not known of a piece. */
static void
put_output(const struct cut *cut, json_t *output)
{
  if (json_is_object(output) && (cut->trace->has_range || cut->options->tid_count != 0)) {
    ct_json_put(output, "stdout_bytes", cut->given[0]);
    ct_json_put(output, "stderr_bytes", cut->given[1]);
    ct_json_put(output, "recorded_bytes", cut->recorded);
    json_object_del(output, "dropped_bytes");
  }
}

static json_t *
make_manifest(struct cut *cut, bool is_cut, json_t *children)
{
  const struct ct_trace *trace = cut->trace;
  json_t *manifest = json_deep_copy(trace->manifest);
  for (const char *const *key = dropped_keys; *key != NULL; key++) {
    json_object_del(manifest, *key);
  }
  json_object_set_new(manifest, "version", json_integer(CT_TRACE_VERSION));
  json_object_set_new(manifest, "state", json_string("complete"));
  json_object_set(manifest, "threads", cut->threads);
  if (json_object_get(manifest, "windows") != NULL) {
    json_object_set_new(manifest, "windows", windows_in(trace));
  }
  if (children != NULL) {
    json_object_set(manifest, "children", children);
  }
  if (is_cut) {
    json_object_set_new(manifest, "exit", json_null());
  }
  move_end(manifest, trace);
  ct_json_put(manifest, "dropped_total", cut->lost);
  json_object_del(manifest, "dropped_by_reason");
  put_output(cut, json_object_get(manifest, "output"));
  if (json_object_get(manifest, "detail") != NULL) {
    ct_json_put(json_object_get(manifest, "detail"), "records", cut->details);
  }
  json_t *piece = json_object();
  if (trace->has_range) {
    ct_json_put(piece, "from_tsc", trace->range_from);
    ct_json_put(piece, "to_tsc", trace->end_tsc);
  }
  json_object_set_new(piece, "of", ct_json_string(trace->path));
  json_object_set_new(manifest, "cut", piece);
  return manifest;
}

/* ---- the whole ---- */

static int
cut_all(struct cut *cut, json_t *children, struct ct_diag *diag)
{
  struct ct_trace *trace = cut->trace;
  bool is_cut = false;
  int err = copy_functions(cut);
  for (uint32_t i = 0; i < trace->thread_count && err == CT_OK; i++) {
    is_cut |= ct_trace_is_cut(trace, i);
    if (is_wanted(cut, trace->threads[i].tid)) {
      err = cut_thread(cut, i, diag);
      cut->sums->bytes += trace->threads[i].file_bytes; /* as progress counts, until the end */
    }
  }
  if (err == CT_OK) {
    copy_files(cut);
    err = copy_output(cut);
  }
  json_t *manifest = err == CT_OK ? make_manifest(cut, is_cut, children) : NULL;
  if (err == CT_OK) {
    err = manifest != NULL ? ct_trace_writer_manifest(cut->writer, manifest) : CT_ENOMEM;
  }
  json_decref(manifest);
  return err;
}

int
ct_trace_cut(struct ct_trace *trace, const char *dir, const struct ct_cut_options *options, json_t *children,
             struct ct_cut_sums *sums, struct ct_diag *diag)
{
  struct cut cut = {.trace = trace, .options = options, .sums = sums, .threads = json_array()};
  ct_trace_range(trace, &cut.from, &cut.to);
  *sums = (struct ct_cut_sums){0};
  if (cut.threads == NULL) {
    return ct_fail(diag, CT_ENOMEM, "out of memory to cut %s", trace->path);
  }
  int err = ct_trace_writer_create(dir, BUFFER_BYTES, &cut.writer, diag);
  if (err != CT_OK) {
    json_decref(cut.threads);
    return err;
  }
  err = cut_all(&cut, children, diag);
  sums->bytes = ct_trace_writer_bytes(cut.writer);
  struct ct_diag closing = {""};
  int closed = ct_trace_writer_close(cut.writer, &closing);
  json_decref(cut.threads);
  if (closed != CT_OK) {
    return ct_fail(diag, closed, "%s", closing.text);
  }
  return err == CT_OK ? err : ct_fail(diag, err, "cannot cut %s: %s", trace->path, ct_err_text(err));
}
