/* SPDX-License-Identifier: MIT */
/*
 * The values that were recorded of a thread's calls: of each call or return that has any, in the order of events, what
 * its registers held.
 */
#ifndef CT_VIEWS_CALL_VALUES_H
#define CT_VIEWS_CALL_VALUES_H

#include "views/prototypes.h"

struct ct_call_values {
  uint64_t tsc;
  uint64_t ordinal; /* of the call; CT_NO_ORDINAL: not known */
  uint32_t fn, depth;
  bool is_return;
  struct ct_value_registers registers;
  const struct ct_detail *raw; /* NULL: only what the registers above have */
};

struct ct_call_values_reader; /* opaque */
/* thread: as of ct_cursor_open. *out goes to ct_call_values_close. CT_ERANGE, CT_ENOMEM. */
int ct_call_values_open(struct ct_trace *trace, uint32_t thread, struct ct_call_values_reader **out,
                        struct ct_diag *diag);
void ct_call_values_close(struct ct_call_values_reader *reader); /* accepts NULL */
/* The next one, valid until the next call, NULL at the end. 0 or CT_ENOMEM. */
int ct_call_values_next(struct ct_call_values_reader *reader, const struct ct_call_values **out);

#endif
