/* SPDX-License-Identifier: MIT */
/*
 * Units that one thread has translated, for the others of its process: each has a code cache of its own, but what it
 * emits differs only where an address of its memory or a number is. A copy is taken where those are known (struct
 * ct_code_marks), and stands for a translation as long as the program's bytes there are the same.
 */
#ifndef CT_ITRACE_SHARED_UNITS_H
#define CT_ITRACE_SHARED_UNITS_H

#include "x86/translate.h"

struct ct_shared_units;

/* What a unit is made with, and where. Its program's code: size bytes at pc can be read. */
struct ct_unit_request {
  const struct ct_translation_place *place;
  uint64_t pc;
  const uint8_t *code;
  size_t size;
  uint32_t first_exit, id;
  struct ct_code *out, *cold;
};

/* NULL: out of memory. For all threads at once. */
struct ct_shared_units *ct_shared_units_create(void);
void ct_shared_units_free(struct ct_shared_units *units);
/*
 * As ct_translate_unit, of code that does not change, in one stretch: emits the unit and fills it in. *notes: its
 * recovery notes, which stay as long as units; then unit->recovery has none. False: there is none; nothing is emitted.
 */
bool ct_shared_units_get(struct ct_shared_units *units, const struct ct_unit_request *request, struct ct_unit *unit,
                         const struct ct_recovery **notes);
/*
 * The unit has been translated, and is known to nobody yet. *notes: likewise; NULL: it is not kept. hot, cold: marks of
 * what was emitted.
 */
void ct_shared_units_add(struct ct_shared_units *units, const struct ct_unit_request *request,
                         const struct ct_unit *unit, const struct ct_code_marks *hot, const struct ct_code_marks *cold,
                         const struct ct_recovery **notes);

#endif
