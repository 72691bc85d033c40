/* SPDX-License-Identifier: MIT */
/*
 * Steps while they are recorded: the files of the folder, each up to the last whole block that it has by now, and again
 * some times a second. A recording has ended when nobody holds the folder any more (folder.h); what is asked first, so
 * that the last look sees all of it.
 *
 * Of several threads the next block is the one that begins first.
 */
#include "steps/view_internal.h"

#include "steps/block_stream.h"
#include "steps/folder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOOK_NS 40000000

struct lane {
  char *path;
  struct ct_steps_view *view;     /* of lines */
  struct ct_steps_reader *reader; /* the view's, or the stream's */
  struct ct_steps_stream *stream;
  size_t next;    /* block that is not shown */
  size_t modules; /* maps of modules that are known */
};

struct follow {
  const char *path;
  const struct ct_steps_options *options;
  FILE *out;
  struct ct_steps_notes *notes;
  struct lane *lanes;
  size_t count;
  uint64_t shown, start_tsc;
  bool goes_on;  /* the recording does */
  bool is_asked; /* it is to be followed, or what there is of it shown */
  bool is_first;
};

/* ---- threads ---- */

static int
open_lane(struct follow *f, struct lane *lane, struct ct_diag *diag)
{
  const struct ct_steps_options *options = f->options;
  if (options->stream) {
    int code = options->live ? ct_steps_reader_open_growing(lane->path, &lane->reader, diag)
                             : ct_steps_reader_open(lane->path, &lane->reader, diag);
    code = code == 0 ? ct_steps_stream_create(lane->reader, f->out, &lane->stream) : code;
    return code == CT_ENOMEM ? ct_fail(diag, code, "out of memory for the stream") : code;
  }
  int code = ct_steps_view_open(lane->path, options, options->tid == 0, f->start_tsc, f->out, &lane->view, diag);
  if (code == 0) {
    lane->reader = lane->view->lines.reader;
    lane->next = f->is_first && options->tail ? ct_steps_reader_blocks(lane->reader) : 0;
    lane->view->from = options->has_step ? options->step : 0;
    lane->view->selected.has_ranges = options->function != NULL || options->has_address;
  }
  return code;
}

static void
close_lane(struct follow *f, struct lane *lane)
{
  ct_steps_stream_free(lane->stream);
  if (lane->view != NULL) {
    ct_steps_view_close(lane->view, f->notes);
  } else {
    ct_steps_reader_close(lane->reader);
  }
  free(lane->path);
}

static bool
is_known(const struct follow *f, const char *path)
{
  for (size_t i = 0; i < f->count; i++) {
    if (strcmp(f->lanes[i].path, path) == 0) {
      return true;
    }
  }
  return false;
}

static int
add_lane(struct follow *f, const char *path, struct ct_diag *diag)
{
  struct ct_steps_file head;
  const char *dot = strrchr(path, '.');
  bool is_wanted = strcmp(path, f->path) == 0 || f->options->tid == 0 || dot == NULL ||
                   strtoull(dot + 1, NULL, 10) == f->options->tid;
  bool is_whole = ct_steps_reader_peek(path, &head);
  if (!is_wanted || is_known(f, path) || (!is_whole && f->goes_on)) { /* it has been made just now */
    return 0;
  }
  if (f->options->stream && f->count != 0) {
    return ct_fail(diag, CT_EINVAL, "the stream is of one thread, and %s has several: choose one (--thread)", f->path);
  }
  f->start_tsc = f->start_tsc != 0 || !is_whole ? f->start_tsc : head.tsc;
  struct lane *lanes = realloc(f->lanes, (f->count + 1) * sizeof(*lanes));
  struct lane lane = {.path = strdup(path)};
  f->lanes = lanes != NULL ? lanes : f->lanes;
  if (lanes == NULL || lane.path == NULL) {
    free(lane.path);
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  int code = open_lane(f, &lane, diag);
  if (code != 0) {
    close_lane(f, &lane);
    return code;
  }
  lanes[f->count++] = lane;
  return 0;
}

static int
look_for_threads(struct follow *f, struct ct_diag *diag)
{
  char **files;
  size_t count;
  int code = ct_steps_folder_list(f->path, &files, &count, diag);
  if (code != 0) {
    return code == CT_ENOENT && f->goes_on ? 0 : code;
  }
  for (size_t i = 0; i < count && code == 0; i++) {
    code = add_lane(f, files[i], diag);
  }
  free(files);
  return code;
}

/* ---- what is new ---- */

static int
take_modules(const struct follow *f, struct lane *lane)
{
  const struct ct_steps_modules *modules;
  size_t count = ct_steps_reader_modules(lane->reader, &modules);
  struct ct_steps_view *view = lane->view;
  const struct ct_steps_options *options = f->options;
  if (view == NULL || lane->modules == count) {
    return 0;
  }
  for (size_t i = lane->modules == 0 ? count : lane->modules; i < count; i++) { /* the first ones it has of itself */
    if (ct_steps_names_add(view->lines.names, &modules[i]) != 0) {
      return CT_ENOMEM;
    }
  }
  lane->modules = count;
  if (options->function == NULL && !options->has_address) {
    return 0;
  }
  ct_steps_selected_free(&view->selected);
  view->selected = (struct ct_steps_selected){.has_ranges = true};
  int code = ct_steps_view_choose(view, NULL);
  view->selected.has_ranges = true;
  return code == CT_ERANGE && f->goes_on ? 0 : code; /* it may be mapped later */
}

/* The lane whose next block begins first; NULL: there is none. */
static struct lane *
next_lane(const struct follow *f)
{
  struct lane *found = NULL;
  uint64_t first = 0;
  for (size_t i = 0; i < f->count; i++) {
    struct lane *lane = &f->lanes[i];
    if (lane->next < ct_steps_reader_blocks(lane->reader)) {
      uint64_t tsc = ct_steps_reader_place(lane->reader, lane->next)->first_tsc;
      if (found == NULL || tsc < first) {
        found = lane;
        first = tsc;
      }
    }
  }
  return found;
}

static bool
is_enough(struct follow *f)
{
  const struct ct_steps_options *options = f->options;
  f->is_asked = f->is_asked && (options->goes_on == NULL || options->goes_on(options->context));
  return !f->is_asked || (f->options->limit != 0 && f->shown >= f->options->limit) || ferror(f->out);
}

static void
show_new(struct follow *f)
{
  struct lane *lane;
  while (!is_enough(f) && (lane = next_lane(f)) != NULL) {
    struct ct_steps_view *view = lane->view;
    uint64_t before = view->shown;
    view->left = f->options->limit != 0 ? f->options->limit - f->shown : UINT64_MAX;
    ct_steps_view_block(view, lane->next++);
    f->shown += view->shown - before;
  }
}

static int
look_at_lane(struct follow *f, struct lane *lane)
{
  int code = ct_steps_reader_more(lane->reader, !f->goes_on);
  if (code != 0) {
    return code;
  }
  code = take_modules(f, lane);
  if (code == 0 && lane->stream != NULL) {
    ct_steps_stream_more(lane->stream);
  }
  return code;
}

static int
look(struct follow *f, struct ct_diag *diag)
{
  int code = look_for_threads(f, diag);
  for (size_t i = 0; i < f->count && code == 0; i++) {
    code = look_at_lane(f, &f->lanes[i]);
  }
  if (code == 0 && !f->options->stream) {
    show_new(f);
  }
  f->is_first = false;
  return code;
}

/* ---- all of it ---- */

static int
look_until_enough(struct follow *f, struct ct_diag *diag)
{
  const struct timespec wait = {0, LOOK_NS};
  for (;;) {
    f->goes_on = f->options->live && ct_steps_folder_is_held(f->path);
    int code = look(f, diag);
    if (code != 0 || !f->goes_on || is_enough(f)) {
      return code;
    }
    fflush(f->out);
    nanosleep(&wait, NULL);
  }
}

static int
follow(struct follow *f, struct ct_diag *diag)
{
  const struct ct_steps_options *options = f->options;
  int code = look_until_enough(f, diag);
  if (code == 0 && f->count == 0) {
    return ct_fail(diag, CT_ERANGE, "%s: no thread %" PRIu32, f->path, options->tid);
  }
  struct ct_steps_streamed streamed = {.blocks = 0};
  bool is_whole = !f->goes_on && f->is_asked;
  if (code == 0 && options->stream && is_whole) {
    ct_steps_stream_end(f->lanes[0].stream, &streamed);
    f->notes->shown = streamed.blocks;
  }
  f->notes->stopped = !is_whole;
  return code;
}

int
ct_steps_follow(const char *path, const struct ct_steps_options *options, FILE *out, struct ct_steps_notes *notes,
                struct ct_diag *diag)
{
  struct follow f = {.path = path,
                     .options = options,
                     .out = out,
                     .notes = notes,
                     .goes_on = true,
                     .is_asked = true,
                     .is_first = true};
  int code = follow(&f, diag);
  for (size_t i = 0; i < f.count; i++) {
    close_lane(&f, &f.lanes[i]);
  }
  free(f.lanes);
  return code == CT_ENOMEM ? ct_fail(diag, code, "out of memory") : code;
}
