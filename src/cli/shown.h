/* SPDX-License-Identifier: MIT */
/*
 * How text of the reading commands is shown: in colours, and by a pager when it is long, if standard output is a
 * terminal. Elsewhere the bytes are those that the views write, unless --color always was given.
 */
#ifndef CT_CLI_SHOWN_H
#define CT_CLI_SHOWN_H

#include "cli/option.h"

#include <stdio.h>

enum ct_when { CT_WHEN_AUTO = 0, CT_WHEN_ALWAYS, CT_WHEN_NEVER };

/* What is painted. */
enum ct_shown_kind {
  CT_SHOWN_VIEW,  /* by the words that views write */
  CT_SHOWN_TABLE, /* headings alone, which ct_shown_heading describes: rows may have any text */
  CT_SHOWN_STEPS, /* the numbers, and notes */
  CT_SHOWN_PLAN,  /* what is not hooked */
};

/* What the options choose. */
struct ct_look {
  enum ct_when color;
  enum ct_when short_names;
  bool no_pager;
};

/* Members: struct ct_look. */
extern const struct ct_option ct_look_options[];  /* --color, --no-pager */
extern const struct ct_option ct_names_options[]; /* --names */

/* Standard output, or what stands before it; it goes to ct_shown_close. NULL: there is no memory. */
FILE *ct_shown_open(const struct ct_look *look, bool may_page);
FILE *ct_shown_open_as(enum ct_shown_kind kind, const struct ct_look *look, bool may_page);
/* The next line is a heading. out: what ct_shown_open_as gave for CT_SHOWN_TABLE, of which there is one at a time. */
void ct_shown_heading(FILE *out);
/* What was written is shown, and the pager has ended; errors of writing are out's own. */
void ct_shown_close(FILE *out);
/* Whether names of functions are to be shortened. */
bool ct_shown_short_names(const struct ct_look *look);

#endif
