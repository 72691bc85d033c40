/* SPDX-License-Identifier: MIT */
/*
 * Times in microseconds for readers that add begin and duration as floating point numbers. Where that sum is not the
 * end as such a number, calls that end together cross by a rounding error, and DevTools leaves one of them out.
 */
#ifndef CT_EXPORT_MICROSECONDS_H
#define CT_EXPORT_MICROSECONDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CT_MICROSECONDS_BYTES = 48 };

struct ct_microseconds {
  char begin[CT_MICROSECONDS_BYTES]; /* "": nanoseconds, as they are, will do */
  char duration[CT_MICROSECONDS_BYTES];
};

/*
 * True when nanoseconds as they are add up. Else numbers with more digits, which do; they are the same nanoseconds to
 * whoever rounds.
 */
bool ct_microseconds_add_up(uint64_t begin_ns, uint64_t end_ns, struct ct_microseconds *exact);

#endif
