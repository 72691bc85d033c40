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

/* Begins that are earlier than they were by a rounding error, of one thread: those of calls around these go with them.
 */
enum { CT_MICROSECONDS_MOVED = 16 };
struct ct_microseconds_moved {
  uint64_t ns[CT_MICROSECONDS_MOVED];
  double begins[CT_MICROSECONDS_MOVED];
  uint32_t count; /* of all; the last ones are there. 0: none */
};

/*
 * True when nanoseconds as they are add up. Else numbers with more digits, which do; they are the same nanoseconds to
 * whoever rounds. Where the begin has to move it is earlier, or later when is_later. Calls come in the order of their
 * ends.
 */
bool ct_microseconds_add_up(uint64_t begin_ns, uint64_t end_ns, bool is_later, struct ct_microseconds_moved *moved,
                            struct ct_microseconds *exact);

#endif
