/* SPDX-License-Identifier: MIT */
/* contrail tui: what the screen and its panes share. */
#ifndef CT_CLI_TUI_PANES_H
#define CT_CLI_TUI_PANES_H

#include "cli/tui.h"

struct pane {
  int y, x, height, width; /* with its heading; height 0: it is not on the screen */
};

struct screen {
  struct tui *tui;
  enum tui_pane focus, last_left, last_right;
  struct pane panes[TUI_PANES];
  bool is_zoomed;
  bool follows; /* the end of a recording that goes on */
  size_t source_first;
  int64_t source_of; /* the function that the source pane stands at */
  char searched[128];
  char said[512]; /* the line at the bottom, until the next key */
  json_t *text;   /* lines over the panes; NULL: none */
  size_t text_first;
  uint64_t refresh_ms;
};

void tui_say(struct screen *screen, const struct ct_diag *diag);
/* tui_panes.c */
void tui_draw_pane(struct screen *screen, enum tui_pane which);
/* tui_keys.c: a key for the pane that has the bar. */
void tui_press_pane(struct screen *screen, int key);
/* For what was searched last, in the pane that has the bar. */
void tui_search(struct screen *screen, bool forward);
/* Lines about the call or the function with the bar; NULL: there is nothing to tell. */
json_t *tui_about(struct screen *screen);
/* The function that the bar of a pane is on; NULL: none. */
const struct tui_function *tui_selected_function(const struct screen *screen);

#endif
