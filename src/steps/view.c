/* SPDX-License-Identifier: MIT */
/*
 * See view.h. Steps are shown forward from a place, with the events between them; or backwards, a block at a time:
 * which of its steps are wanted, then these once more, each into a text of its own, and the texts from the last to the
 * first.
 */
#include "steps/view_internal.h"

#include "steps/folder.h"
#include "steps/memory.h"

#include "base/sized.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TAIL_DEFAULT = 20, NEAR_STEPS = 100000 };

/* ---- which ---- */

bool
ct_steps_view_wants(struct ct_steps_view *view, size_t block)
{
  if (!view->selected.has_ranges) {
    return true;
  }
  if (view->index == NULL && ct_steps_index_is_worth(view->lines.reader) && view->code == 0) {
    view->code = ct_steps_index_open(view->lines.reader, &view->index);
  }
  return view->index == NULL ? view->code == 0 : ct_steps_selected_in_block(&view->selected, view->index, block);
}

int
ct_steps_view_choose(struct ct_steps_view *view, struct ct_diag *diag)
{
  const struct ct_steps_options *options = view->lines.options;
  struct ct_steps_selected *selected = &view->selected;
  if (options->function != NULL) {
    int code = ct_steps_names_find(view->lines.names, options->function, 0, &selected->ranges, &selected->count, diag);
    if (code != 0) {
      return code;
    }
    if (selected->count == 0) {
      return ct_fail(diag, CT_ERANGE, "no function of the trace's modules is called %s", options->function);
    }
  }
  selected->has_ranges = options->function != NULL;
  if (options->has_address) {
    bool inside = ct_steps_selected_has(selected, options->address);
    free(selected->ranges);
    selected->ranges = malloc(sizeof(*selected->ranges));
    if (selected->ranges == NULL) {
      return ct_fail(diag, CT_ENOMEM, "out of memory");
    }
    selected->ranges[0] = (struct ct_steps_range){options->address, options->address + 1};
    selected->count = inside ? 1 : 0;
    selected->has_ranges = true;
  }
  return ct_steps_selected_prepare(selected, view->lines.reader) == 0 ? 0 : ct_fail(diag, CT_ENOMEM, "out of memory");
}

/* ---- forward ---- */

static void
copy_state(struct ct_steps_state *to, const struct ct_steps_state *from)
{
  memcpy(to, from, sizeof(*to));
}

/* What a step has changed of the state before it: vector registers are most of it, and few steps write any. */
static void
follow_state(struct ct_steps_state *before, const struct ct_steps_step *step, const struct ct_steps_state *after)
{
  if (step->plan == NULL || (step->effects->vectors_written | step->effects->masks_written) != 0) {
    copy_state(before, after);
  } else {
    memcpy(before, after, offsetof(struct ct_steps_state, vector));
  }
}

static bool
show_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct ct_steps_view *view = context;
  if (step->number >= view->from && ct_steps_selected_has(&view->selected, step->pc)) {
    ct_steps_put_step(&view->lines, step, &view->before, cursor);
    view->shown++;
    view->left--;
  }
  follow_state(&view->before, step, ct_steps_cursor_state(cursor));
  return view->left != 0 && !ferror(view->lines.out);
}

void
ct_steps_view_event(void *argument, const struct ct_steps_event *event)
{
  struct ct_steps_view *view = argument;
  struct ct_stream_context context;
  if (view->shows_events && event->step >= view->from && (event->step > view->from || event->step == 0) &&
      view->left != 0) {
    ct_steps_put_event(&view->lines, event);
  }
  if (event->kind == CT_STREAM_CONTEXT) {
    memcpy(&context, event->data, sizeof(context));
    if (context.reason != CT_CONTEXT_STEP) {             /* what a step has made is reported before the step */
      ct_steps_take_context(&view->before, event->data); /* the cursor takes it after this */
    }
  }
}

/* From the step on, by the index if it is there; it is not made for this. */
static void
show_block(struct ct_steps_view *view, size_t block)
{
  uint64_t from = view->from > 0 ? view->from - 1 : 0; /* with the events before it */
  bool is_far = from > ct_steps_reader_place(view->lines.reader, block)->first_step + NEAR_STEPS;
  if (is_far && view->index == NULL && !ct_steps_index_load(view->lines.reader, &view->index)) {
    view->index = NULL;
  }
  ct_steps_cursor_use_index(view->cursor, view->index);
  if (is_far && ct_steps_cursor_seek(view->cursor, from)) {
    copy_state(&view->before, ct_steps_cursor_state(view->cursor));
    ct_steps_cursor_resume(view->cursor, UINT64_MAX, show_step, view);
  } else {
    ct_steps_cursor_scan(view->cursor, block, UINT64_MAX, show_step, view);
  }
}

void
ct_steps_view_block(struct ct_steps_view *view, size_t block)
{
  view->shows_events = !view->selected.has_ranges;
  ct_steps_cursor_events(view->cursor, ct_steps_view_event, view);
  ct_steps_cursor_scan(view->cursor, block, UINT64_MAX, show_step, view);
}

static void
show_forward(struct ct_steps_view *view, uint64_t from)
{
  struct ct_steps_reader *reader = view->lines.reader;
  view->from = from;
  view->shows_events = !view->selected.has_ranges;
  ct_steps_cursor_events(view->cursor, ct_steps_view_event, view);
  for (size_t block = ct_steps_reader_blocks(reader) != 0 ? ct_steps_reader_find(reader, from) : 0;
       block < ct_steps_reader_blocks(reader) && view->left != 0 && !ferror(view->lines.out); block++) {
    if (ct_steps_view_wants(view, block)) {
      show_block(view, block);
    }
  }
}

/* ---- back ---- */

static bool
collect_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct ct_steps_view *view = context;
  (void)cursor;
  if (!ct_steps_selected_has(&view->selected, step->pc)) {
    return true;
  }
  if (view->found_count == view->found_capacity) {
    size_t capacity = view->found_capacity == 0 ? 1024 : 2 * view->found_capacity;
    uint64_t *found = realloc(view->found, capacity * sizeof(*found));
    if (found == NULL) {
      view->code = CT_ENOMEM;
      return false;
    }
    view->found = found;
    view->found_capacity = capacity;
  }
  view->found[view->found_count++] = step->number;
  return true;
}

/* Those of found, from found_at on, into texts. */
static bool
keep_step(void *context, const struct ct_steps_step *step, const struct ct_steps_cursor *cursor)
{
  struct ct_steps_view *view = context;
  if (view->found_at < view->found_count && step->number == view->found[view->found_at]) {
    size_t bytes;
    FILE *out = view->lines.out;
    view->lines.out = open_memstream(&view->texts[view->found_at], &bytes);
    if (view->lines.out != NULL) {
      ct_steps_put_step(&view->lines, step, &view->before, cursor);
      fclose(view->lines.out);
    }
    view->lines.out = out;
    view->found_at++;
  }
  follow_state(&view->before, step, ct_steps_cursor_state(cursor));
  return view->found_at < view->found_count;
}

static void
show_block_back(struct ct_steps_view *view, size_t block, uint64_t end)
{
  view->found_count = 0;
  view->shows_events = false;
  ct_steps_cursor_events(view->cursor, NULL, NULL);
  ct_steps_cursor_scan(view->cursor, block, end, collect_step, view);
  size_t first = view->found_count > view->left ? view->found_count - view->left : 0;
  view->found_at = first;
  view->texts = calloc(view->found_count + 1, sizeof(*view->texts));
  if (view->texts == NULL) {
    view->code = CT_ENOMEM;
    return;
  }
  if (view->found_count != 0) {
    ct_steps_cursor_events(view->cursor, ct_steps_view_event, view);
    ct_steps_cursor_scan(view->cursor, block, end, keep_step, view);
  }
  for (size_t i = view->found_count; i > first; i--) {
    fputs(view->texts[i - 1] != NULL ? view->texts[i - 1] : "", view->lines.out);
    free(view->texts[i - 1]);
    view->shown++;
    view->left--;
  }
  free(view->texts);
}

static void
show_back(struct ct_steps_view *view, uint64_t end)
{
  size_t block =
      ct_steps_reader_blocks(view->lines.reader) != 0 ? ct_steps_reader_find(view->lines.reader, end) + 1 : 0;
  while (block > 0 && view->left != 0 && view->code == 0 && !ferror(view->lines.out)) {
    block--;
    if (ct_steps_view_wants(view, block)) {
      show_block_back(view, block, end);
    }
  }
}

/* The number of the step from which on there are as many as are left to show. */
static uint64_t
tail_begin(struct ct_steps_view *view)
{
  uint64_t wanted = view->left, first = 0;
  for (size_t block = ct_steps_reader_blocks(view->lines.reader); block > 0 && wanted != 0 && view->code == 0;) {
    block--;
    view->found_count = 0;
    if (ct_steps_view_wants(view, block)) {
      ct_steps_cursor_events(view->cursor, NULL, NULL);
      ct_steps_cursor_scan(view->cursor, block, UINT64_MAX, collect_step, view);
    }
    size_t taken = view->found_count < wanted ? view->found_count : (size_t)wanted;
    wanted -= taken;
    first = taken != 0 ? view->found[view->found_count - taken] : first;
  }
  return first;
}

/* ---- the last writer ---- */

/* A line about a step. */
static void
put_note(const struct ct_steps_view *view, uint64_t step, const char *text)
{
  if (view->lines.options->json) {
    fprintf(view->lines.out, "{\"step\":%" PRIu64 ",\"tid\":%" PRId32 ",\"event\":\"%s\"}\n", step,
            ct_steps_reader_head(view->lines.reader)->tid, text);
  } else {
    fprintf(view->lines.out, "%10" PRIu64 "  -- %s\n", step, text);
  }
}

static int
show_last_write(struct ct_steps_view *view, struct ct_diag *diag)
{
  const struct ct_steps_options *options = view->lines.options;
  struct ct_steps_target target;
  struct ct_steps_write write;
  uint64_t before = options->has_step ? options->step : UINT64_MAX;
  if (!ct_steps_parse_target(options->last_write, &target)) {
    return ct_fail(diag, CT_EINVAL,
                   "'%s' is neither a register nor an address with a size (0x1234:8); contrail debug -x 'print &NAME' "
                   "tells the address of a variable",
                   options->last_write);
  }
  int code = ct_steps_last_write(view->lines.reader, &view->index, &target, before, &write);
  if (code != 0) {
    return ct_fail(diag, code, "out of memory");
  }
  if (write.kind == CT_STEPS_WRITE_KERNEL || write.kind == CT_STEPS_WRITE_CONTEXT) {
    put_note(view, write.step,
             write.kind == CT_STEPS_WRITE_KERNEL ? "written by the kernel, in the system call"
             : write.step == 0                   ? "as it was when the recording began"
                                                 : "written by a signal's delivery, or in a gap, just before");
  }
  if (write.kind != CT_STEPS_WRITE_NONE) {
    view->left = 1;
    show_forward(view, write.step);
  }
  if (write.has_gap) {
    put_note(view, write.gap, "before this step something is not recorded: a later writer may be missing");
  }
  return 0;
}

/* ---- memory ---- */

static void
put_bytes(const struct ct_steps_view *view, uint64_t address, size_t size, const uint8_t *bytes, const uint8_t *known)
{
  bool json = view->lines.options->json;
  FILE *out = view->lines.out;
  if (json) {
    fprintf(out, "{\"tid\":%" PRId32 ",\"address\":\"0x%" PRIx64 "\",\"bytes\":[",
            ct_steps_reader_head(view->lines.reader)->tid, address);
  }
  for (size_t i = 0; i < size; i++) {
    if (!json && i % 16 == 0) {
      fprintf(out, "%s0x%" PRIx64 " ", i != 0 ? "\n" : "", address + i);
    }
    if (json) {
      fputs(i != 0 ? "," : "", out);
    }
    if (known[i] != 0) {
      fprintf(out, json ? "%u" : " %02x", bytes[i]);
    } else {
      fputs(json ? "null" : " ??", out);
    }
  }
  fputs(json ? "]}\n" : "\n", out);
}

static int
show_memory(struct ct_steps_view *view, struct ct_diag *diag)
{
  const struct ct_steps_options *options = view->lines.options;
  struct ct_steps_target target;
  uint8_t bytes[CT_STEPS_MEMORY_MAX], known[CT_STEPS_MEMORY_MAX];
  if (!ct_steps_parse_target(options->memory, &target) || target.kind != CT_STEPS_MEMORY_BYTES) {
    return ct_fail(diag, CT_EINVAL, "'%s' is no address with a size of 1 to 4096 (0x1234:8)", options->memory);
  }
  int code = ct_steps_memory(view->lines.reader, &view->index, target.address, target.size,
                             options->has_step ? options->step : UINT64_MAX, bytes, known);
  if (code != 0) {
    return ct_fail(diag, code, "out of memory");
  }
  put_bytes(view, target.address, target.size, bytes, known);
  for (size_t i = 0; i < target.size; i++) {
    view->shown += known[i];
  }
  return 0;
}

/* ---- a thread ---- */

static int
show(struct ct_steps_view *view, struct ct_diag *diag)
{
  const struct ct_steps_options *options = view->lines.options;
  uint64_t steps = ct_steps_reader_steps(view->lines.reader);
  view->left = options->limit != 0 ? options->limit : options->tail ? TAIL_DEFAULT : UINT64_MAX;
  if (options->has_step && options->step >= steps && options->last_write == NULL && options->memory == NULL) {
    return ct_fail(diag, CT_ERANGE, "thread %" PRId32 " has no step %" PRIu64 ": it has %" PRIu64,
                   ct_steps_reader_head(view->lines.reader)->tid, options->step, steps);
  }
  if (options->index) {
    struct ct_steps_index *writes = NULL;
    int code = ct_steps_index_open_writes(view->lines.reader, &writes);
    ct_steps_index_close(writes);
    return code == 0 ? 0 : ct_fail(diag, code, "cannot make the index");
  }
  if (options->last_write != NULL) {
    return show_last_write(view, diag);
  }
  if (options->memory != NULL) {
    return show_memory(view, diag);
  }
  int code = ct_steps_view_choose(view, diag);
  if (code != 0) {
    return code;
  }
  if (options->back) {
    show_back(view, options->has_step ? options->step + 1 : UINT64_MAX);
  } else {
    uint64_t from = options->tail ? tail_begin(view) : options->has_step ? options->step : 0;
    show_forward(view, from);
  }
  return view->code == 0 ? 0 : ct_fail(diag, view->code, "out of memory");
}

int
ct_steps_view_open(const char *path, const struct ct_steps_options *options, bool many, uint64_t start_tsc, FILE *out,
                   struct ct_steps_view **opened, struct ct_diag *diag)
{
  struct ct_steps_reader *reader;
  struct ct_steps_view *view = calloc(1, sizeof(*view));
  int code = view == NULL    ? ct_fail(diag, CT_ENOMEM, "out of memory")
             : options->live ? ct_steps_reader_open_growing(path, &reader, diag)
                             : ct_steps_reader_open(path, &reader, diag);
  if (code != 0) {
    free(view);
    return code;
  }
  view->lines = (struct ct_steps_lines){.options = options,
                                        .reader = reader,
                                        .names = ct_steps_names_create(reader),
                                        .out = out,
                                        .start_tsc = start_tsc != 0 ? start_tsc : ct_steps_reader_head(reader)->tsc,
                                        .has_many_threads = many};
  view->cursor = ct_steps_cursor_open(reader);
  view->lines.cache = ct_line_cache_create(view->lines.names, options);
  if (view->lines.names == NULL || view->cursor == NULL || view->lines.cache == NULL) {
    struct ct_steps_notes none = {.struct_size = sizeof(none)};
    ct_steps_view_close(view, &none);
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  if (options->progress != NULL) {
    view->watch.progress = options->progress;
    view->watch.context = options->progress_context;
    view->watch.owner = pthread_self();
    view->watch.total = ct_steps_reader_blocks(reader);
    ct_steps_reader_set_watch(reader, &view->watch);
  }
  *opened = view;
  return 0;
}

/* Was the thread recorded, but executed nothing? Not one that never came to what was to be recorded. */
static bool
has_waited(const struct ct_steps_view *view)
{
  return view->cursor != NULL && ct_steps_reader_steps(view->lines.reader) == 0 &&
         ct_steps_cursor_next(view->cursor) == NULL && ct_steps_cursor_state(view->cursor)->cpu.rip != 0;
}

void
ct_steps_view_close(struct ct_steps_view *view, struct ct_steps_notes *notes)
{
  if (view == NULL) {
    return;
  }
  notes->shown += view->shown;
  notes->waited += has_waited(view);
  notes->inconsistent += view->cursor != NULL ? ct_steps_cursor_inconsistent(view->cursor) : 0;
  if (notes->damage[0] == 0) {
    snprintf(notes->damage, sizeof(notes->damage), "%s", ct_steps_reader_damage(view->lines.reader));
  }
  ct_steps_cursor_close(view->cursor);
  ct_line_cache_free(view->lines.cache);
  ct_steps_names_free(view->lines.names);
  ct_steps_index_close(view->index);
  ct_steps_reader_close(view->lines.reader);
  ct_steps_selected_free(&view->selected);
  free(view->found);
  free(view);
}

static int
show_file(const char *path, const struct ct_steps_options *options, bool many, uint64_t start_tsc, FILE *out,
          struct ct_steps_notes *notes, struct ct_diag *diag)
{
  struct ct_steps_view *view;
  int code = ct_steps_view_open(path, options, many, start_tsc, out, &view, diag);
  if (code == 0) {
    code = show(view, diag);
    if (ct_steps_reader_is_over(view->lines.reader)) {
      code = ct_fail(diag, CT_ECANCELED, "cancelled");
    }
    ct_steps_view_close(view, notes);
  }
  return code;
}

/* ---- the folder ---- */

static bool
is_of(const char *path, uint32_t tid)
{
  return strtoull(strrchr(path, '.') + 1, NULL, 10) == tid;
}

/* When the first of the threads was begun: times are from then on. 0: it has no file that can be read. */
static uint64_t
start_of(char **files, size_t count)
{
  uint64_t start = 0;
  for (size_t i = 0; i < count; i++) {
    struct ct_steps_file head;
    if (ct_steps_reader_peek(files[i], &head) && (start == 0 || head.tsc < start)) {
      start = head.tsc;
    }
  }
  return start;
}

/* Those of several threads one after the other, where each is looked at from a step or from the end of its own. */
static bool
is_by_thread(const struct ct_steps_options *options)
{
  return options->has_step || options->back || options->tail || options->last_write != NULL ||
         options->memory != NULL || options->index;
}

/* Those that are asked for; is_found: there was one. */
static int
show_files(char **files, size_t count, bool is_file, const struct ct_steps_options *options, FILE *out,
           struct ct_steps_notes *notes, bool *is_found, struct ct_diag *diag)
{
  uint64_t start = is_file ? 0 : start_of(files, count);
  bool skips = count > 1 && options->tid == 0 && options->has_step; /* threads that have no such step */
  int missing = 0;
  *is_found = false;
  if (count > 1 && options->tid == 0 && !is_by_thread(options)) {
    *is_found = true;
    return ct_steps_merge(files, count, options, start, out, notes, diag);
  }
  for (size_t i = 0; i < count; i++) {
    if (!is_file && options->tid != 0 && !is_of(files[i], options->tid)) {
      continue;
    }
    int code = show_file(files[i], options, count > 1, start, out, notes, diag);
    *is_found |= code == 0;
    if (code == CT_ERANGE && skips) {
      missing = code;
    } else if (code != 0) {
      return code;
    }
  }
  return *is_found ? 0 : missing;
}

static int
show_all(const char *path, const struct ct_steps_options *options, FILE *out, struct ct_steps_notes *notes,
         struct ct_diag *diag)
{
  char **files;
  size_t count;
  bool is_found;
  int code = ct_steps_folder_list(path, &files, &count, diag);
  if (code != 0) {
    return code;
  }
  code = show_files(files, count, count == 1 && strcmp(files[0], path) == 0, options, out, notes, &is_found, diag);
  free(files);
  return code == 0 && !is_found ? ct_fail(diag, CT_ERANGE, "%s: no thread %" PRIu32, path, options->tid) : code;
}

int
ct_steps_write(const char *path, const struct ct_steps_options *given, FILE *out, struct ct_steps_notes *notes,
               struct ct_diag *diag)
{
  struct ct_steps_options options;
  struct ct_steps_notes own = {.struct_size = sizeof(own)};
  int code = ct_sized_take(&options, sizeof(options), given, diag);
  if (code != 0) {
    return code;
  }
  if (options.live && (options.index || options.back || options.last_write != NULL || options.memory != NULL)) {
    return ct_fail(diag, CT_EINVAL, "what is asked of the end needs a recording that has ended: not with live");
  }
  code = options.live || options.stream ? ct_steps_follow(path, &options, out, &own, diag)
                                        : show_all(path, &options, out, &own, diag);
  if (code == 0 && (fflush(out) != 0 || ferror(out))) {
    code = ct_fail(diag, CT_EIO, "cannot write: %s", strerror(errno));
  }
  if (code == 0 && notes != NULL) {
    code = ct_sized_give(notes, &own, sizeof(own), diag);
  }
  return code;
}
