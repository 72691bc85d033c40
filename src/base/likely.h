/* SPDX-License-Identifier: MIT */
/* Names that are like one that is not there: a mistyped one, a part, one of other case. */
#ifndef CT_BASE_LIKELY_H
#define CT_BASE_LIKELY_H

#include <stddef.h>
#include <stdint.h>

#define CT_LIKELY_NAMES 3
#define CT_LIKELY_CHARS 64 /* of what is asked for; one that is longer is like no name */

struct ct_likely {
  char asked[CT_LIKELY_CHARS + 1]; /* without wildcards */
  char names[CT_LIKELY_NAMES][160];
  uint32_t ids[CT_LIKELY_NAMES];
  int ranks[CT_LIKELY_NAMES];
  size_t count; /* of the names, the nearest first */
};

void ct_likely_begin(struct ct_likely *likely, const char *glob);
/* The name as it is written, without what a mangled one hides; id is the caller's. */
void ct_likely_add(struct ct_likely *likely, const char *name, uint32_t id);
/* "a, b, c", or "". Returns buf. */
char *ct_likely_text(const struct ct_likely *likely, char *buf, size_t size);

#endif
