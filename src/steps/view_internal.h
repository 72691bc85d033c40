/* SPDX-License-Identifier: MIT */
/* What the files share that show steps: those of one thread (view.c), of several by time (merge.c). */
#ifndef CT_STEPS_VIEW_INTERNAL_H
#define CT_STEPS_VIEW_INTERNAL_H

#include "steps/selected.h"
#include "steps/view.h"

/* Which steps of a thread are wanted, and where they go. */
struct ct_steps_view {
  struct ct_steps_lines lines;
  struct ct_steps_cursor *cursor;
  struct ct_steps_index *index; /* NULL: not needed so far */
  struct ct_steps_selected selected;
  uint64_t left; /* to show */
  uint64_t shown;
  struct ct_steps_state before;
  uint64_t from, *found;
  size_t found_count, found_capacity, found_at;
  char **texts;
  bool shows_events;
  int code;
  struct ct_steps_watch watch; /* of the reader, if somebody asks */
};

/* A thread's file; start_tsc: of the recording, 0: of the file. Errors as of ct_steps_reader_open. */
int ct_steps_view_open(const char *path, const struct ct_steps_options *options, bool many, uint64_t start_tsc,
                       FILE *out, struct ct_steps_view **view, struct ct_diag *diag);
/* Adds to the notes what was shown of it; accepts NULL. */
void ct_steps_view_close(struct ct_steps_view *view, struct ct_steps_notes *notes);
/* Looks for what is asked for by function and address. */
int ct_steps_view_choose(struct ct_steps_view *view, struct ct_diag *diag);
/* False: no step of the block is wanted. */
bool ct_steps_view_wants(struct ct_steps_view *view, size_t block);
/* For ct_steps_cursor_events: shows the event, and follows the state. argument: the view. */
void ct_steps_view_event(void *argument, const struct ct_steps_event *event);

/* Shows the block, from view->from on, which is the next one after the one before, or the first. */
void ct_steps_view_block(struct ct_steps_view *view, size_t block);
/* Of the files of a folder, or one file: as they grow (options->live), or as a stream (follow.c). */
int ct_steps_follow(const char *path, const struct ct_steps_options *options, FILE *out, struct ct_steps_notes *notes,
                    struct ct_diag *diag);

/* The steps of several threads by their time stamps; left of the options: of all together. */
int ct_steps_merge(char **paths, size_t count, const struct ct_steps_options *options, uint64_t start_tsc, FILE *out,
                   struct ct_steps_notes *notes, struct ct_diag *diag);

#endif
