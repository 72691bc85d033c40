/* SPDX-License-Identifier: MIT */
/* contrail top: what its tables, its JSON and its screen share. */
#ifndef CT_CLI_TOP_H
#define CT_CLI_TOP_H

#include "cli/ask.h"
#include "cli/shown.h"

#include <contrail/control.h>
#include <contrail/live.h>

struct ct_top {
  const struct ct_command *command;
  char id[CT_CONTROL_ID_BYTES];
  struct ct_live *live;
  struct ct_live_state state; /* of the last look */
  json_t *status;             /* of the session; NULL: it has ended, or did not answer (is_gone) */
  bool is_gone;
  size_t row_count;
  /* What the options choose. */
  enum ct_live_sort sort;
  const char *pattern; /* NULL: all functions */
  uint32_t limit;      /* of rows in tables and JSON; 0: all */
  double interval_s;
  uint64_t count; /* of looks; 0: until the session ends */
  bool json, once;
  bool leaves; /* when the session has ended: of a view that record or attach has begun */
  struct ct_look look;
  /* Of the session, since the look before: what is known by its status. */
  uint64_t asked_ns;                       /* when it answered; 0: not yet */
  uint64_t events, dropped, hooks, cpu_ns; /* so far */
  uint64_t events_last, dropped_last;
  uint64_t last_ns;     /* the time that these are of; 0: not known */
  double overhead_last; /* of the processor time, what hooks took; below 0: not known */
};

/* One look at the session and its trace, for about budget_ns. CT_EXIT_OK, or the exit code after a message. */
int ct_top_look(struct ct_top *top, uint64_t budget_ns, struct ct_diag *diag);
/* The hooks' part of the program's processor time so far; below 0: not known. */
double ct_top_overhead(const struct ct_top *top);
/* That are known of: by the session, or of one that is gone by what was read. */
uint64_t ct_top_events(const struct ct_top *top);
/* All has been shown. */
bool ct_top_is_over(const struct ct_top *top);
uint64_t ct_top_now_ns(void);

/* ---- the columns before a function's name ---- */

enum { CT_TOP_COLUMNS_BYTES = 160 };
/* The set of those that fit into lines of this width (0: any) beside the name; that which is sorted by is the last to
 * go. */
unsigned ct_top_columns(enum ct_live_sort sort, unsigned width);
void ct_top_heading(unsigned selected, char line[CT_TOP_COLUMNS_BYTES]);
void ct_top_row(unsigned selected, const struct ct_live_row *row, bool last_is_known, char line[CT_TOP_COLUMNS_BYTES]);

/* Until the session ends or a key says so, on the terminal; -1: there is none that could be used. */
int ct_top_screen(struct ct_top *top);

#endif
