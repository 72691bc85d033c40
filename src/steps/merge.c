/* SPDX-License-Identifier: MIT */
/*
 * The steps of several threads in one list. A step's time is the last time stamp of its thread before it: at a system
 * call, a signal, a gap, and some microseconds of records apart. The next line is that of the thread whose next step
 * has the lowest time, so what one thread did between two of its stamps stays together. The order between threads is
 * known only at stamps: of two steps of different threads with less than a stamp between them either may have been
 * first.
 *
 * Each thread's next line is made ahead, with the events before it.
 */
#include "steps/view_internal.h"

#include <stdlib.h>
#include <string.h>

struct lane {
  struct ct_steps_view *view;
  char *text; /* of its next line, and the events before it; NULL: it has no more */
  size_t bytes;
  uint64_t tsc;
  bool has_step;     /* it is a step, else events at the thread's end */
  size_t last_block; /* that is known to be wanted */
};

/* From a block that has no step that is wanted to the next one that may; false: there is none. */
static bool
skip_blocks(struct lane *lane)
{
  struct ct_steps_view *view = lane->view;
  size_t block = ct_steps_cursor_block(view->cursor), blocks = ct_steps_reader_blocks(view->lines.reader);
  if (!view->selected.has_ranges || block == lane->last_block) {
    return true;
  }
  size_t wanted = block;
  while (wanted < blocks && !ct_steps_view_wants(view, wanted)) {
    wanted++;
  }
  lane->last_block = wanted;
  if (wanted != block && wanted < blocks) {
    ct_steps_cursor_seek(view->cursor, ct_steps_reader_place(view->lines.reader, wanted)->first_step);
    memcpy(&view->before, ct_steps_cursor_state(view->cursor), sizeof(view->before));
  }
  return wanted < blocks;
}

/* Its next step that is wanted, written; false: it has none. */
static bool
write_next(struct lane *lane)
{
  struct ct_steps_view *view = lane->view;
  const struct ct_steps_step *step;
  while (skip_blocks(lane) && (step = ct_steps_cursor_next(view->cursor)) != NULL) {
    bool wanted = ct_steps_selected_has(&view->selected, step->pc);
    if (wanted) {
      lane->tsc = step->tsc;
      ct_steps_put_step(&view->lines, step, &view->before, view->cursor);
    }
    memcpy(&view->before, ct_steps_cursor_state(view->cursor), sizeof(view->before));
    if (wanted) {
      return true;
    }
  }
  return false;
}

static int
pull(struct lane *lane)
{
  struct ct_steps_view *view = lane->view;
  free(lane->text);
  lane->text = NULL;
  view->lines.out = open_memstream(&lane->text, &lane->bytes);
  if (view->lines.out == NULL) {
    return CT_ENOMEM;
  }
  lane->has_step = write_next(lane);
  if (!lane->has_step) {
    uint64_t last = ct_steps_cursor_tsc(view->cursor);
    lane->tsc = last > lane->tsc ? last : lane->tsc;
  }
  int code = ferror(view->lines.out) != 0 ? CT_ENOMEM : view->code;
  code = fclose(view->lines.out) != 0 ? CT_ENOMEM : code;
  if (code == 0 && !lane->has_step && lane->bytes == 0) {
    free(lane->text);
    lane->text = NULL;
  }
  return code;
}

static int
open_lane(struct lane *lane, const char *path, const struct ct_steps_options *options, uint64_t start_tsc, FILE *out,
          struct ct_diag *diag)
{
  int code = ct_steps_view_open(path, options, true, start_tsc, out, &lane->view, diag);
  if (code != 0) {
    return code;
  }
  lane->last_block = SIZE_MAX;
  lane->view->left = 1;
  code = ct_steps_view_choose(lane->view, diag);
  lane->view->shows_events = !lane->view->selected.has_ranges;
  ct_steps_cursor_events(lane->view->cursor, ct_steps_view_event, lane->view);
  return code;
}

/* The one whose line comes next; NULL: none has any. */
static struct lane *
first_of(struct lane *lanes, size_t count)
{
  struct lane *first = NULL;
  for (size_t i = 0; i < count; i++) {
    if (lanes[i].text != NULL && (first == NULL || lanes[i].tsc < first->tsc)) {
      first = &lanes[i];
    }
  }
  return first;
}

static int
show_lanes(struct lane *lanes, size_t count, uint64_t limit, FILE *out)
{
  struct lane *lane;
  uint64_t left = limit != 0 ? limit : UINT64_MAX;
  int code = 0;
  for (size_t i = 0; i < count && code == 0; i++) {
    code = pull(&lanes[i]);
  }
  while (code == 0 && left != 0 && !ferror(out) && (lane = first_of(lanes, count)) != NULL) {
    fwrite(lane->text, 1, lane->bytes, out);
    lane->view->shown += lane->has_step;
    left -= lane->has_step;
    if (lane->has_step) {
      code = pull(lane);
    } else {
      free(lane->text);
      lane->text = NULL;
    }
  }
  return code;
}

int
ct_steps_merge(char **paths, size_t count, const struct ct_steps_options *options, uint64_t start_tsc, FILE *out,
               struct ct_steps_notes *notes, struct ct_diag *diag)
{
  struct lane *lanes = calloc(count, sizeof(*lanes));
  size_t opened = 0;
  int code = 0;
  if (lanes == NULL) {
    notes->merged = 0;
    return ct_fail(diag, CT_ENOMEM, "out of memory");
  }
  for (size_t i = 0; i < count; i++) {
    code = open_lane(&lanes[opened], paths[i], options, start_tsc, out, diag);
    opened += lanes[opened].view != NULL;
    if (code != 0) {
      goto close_lanes;
    }
  }
  code = show_lanes(lanes, opened, options->limit, out);
  for (size_t i = 0; i < opened; i++) {
    code = ct_steps_reader_is_over(lanes[i].view->lines.reader) ? CT_ECANCELED : code;
  }
  ct_fail(diag, code, "%s", code == CT_ECANCELED ? "cancelled" : ct_err_text(code));
close_lanes:
  for (size_t i = 0; i < opened; i++) {
    free(lanes[i].text);
    ct_steps_view_close(lanes[i].view, notes);
  }
  free(lanes);
  notes->merged = code == 0 && opened > 1 ? opened : 0;
  return code;
}
