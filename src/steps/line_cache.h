/* SPDX-License-Identifier: MIT */
/*
 * What is the same in all lines of an instruction at its place: its text and the name of where it is, as a line of text
 * or of JSON has them. A program executes the same instructions again and again.
 */
#ifndef CT_STEPS_LINE_CACHE_H
#define CT_STEPS_LINE_CACHE_H

#include "steps/cursor.h"
#include "steps/names.h"

#include <contrail/steps.h>

struct ct_line_cache;

enum { CT_LINE_PART_BYTES = 8192 };

/* NULL: out of memory. names must outlive it; of the options json and intel count. */
struct ct_line_cache *ct_line_cache_create(struct ct_steps_names *names, const struct ct_steps_options *options);
void ct_line_cache_free(struct ct_line_cache *cache); /* accepts NULL */

/* The part of that step's line, up to CT_LINE_PART_BYTES; it is there until the next call. NULL: out of memory. */
const char *ct_line_cache_part(struct ct_line_cache *cache, const struct ct_steps_step *step, size_t *bytes);

#endif
