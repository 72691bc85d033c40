/* SPDX-License-Identifier: MIT */
/* Where emitted code depends on its place, on what it leads to and on numbers: so that a copy can be moved elsewhere.
 */
#ifndef CT_X86_MARKS_H
#define CT_X86_MARKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a field of four bytes. */
enum ct_mark_kind {
  CT_MARK_ABSOLUTE, /* an address below 2 GiB */
  CT_MARK_AWAY,     /* a distance to elsewhere */
  CT_MARK_COLD,     /* to the unit's cold code */
  CT_MARK_HOT,
  CT_MARK_LEAVE,
  CT_MARK_ID, /* a number, that of the unit's first part or one of those that follow */
  CT_MARK_EXIT,
  CT_MARK_KINDS
};
enum { CT_CODE_MARKS_MAX = 2048 };
struct ct_code_marks {
  struct ct_code_mark {
    uint16_t at;
    uint8_t kind; /* enum ct_mark_kind */
  } items[CT_CODE_MARKS_MAX];
  uint32_t count;
  bool is_lost; /* something is not marked */
};

/* marks: NULL: nobody wants to know. */
static inline void
ct_code_marks_add(struct ct_code_marks *marks, enum ct_mark_kind kind, size_t at)
{
  if (marks != NULL && marks->count < CT_CODE_MARKS_MAX && at <= UINT16_MAX) {
    marks->items[marks->count++] = (struct ct_code_mark){.at = (uint16_t)at, .kind = (uint8_t)kind};
  } else if (marks != NULL) {
    marks->is_lost = true;
  }
}

#endif
