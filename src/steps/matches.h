/* SPDX-License-Identifier: MIT */
/*
 * Records of a segment by what came before them: what a program does once it does again, with some values changed.
 *
 * What is made is, little endian, to be packed further:
 *
 *   u32 bytes, numbers, tokens    how many of each; so many follow, in this order
 *   u8 bytes[], u32 numbers[], u8 tokens[]
 *
 * The reader has a distance, from where it is back to what came before. A token is a gap, of which 255 says that the
 * next byte adds to it, and a byte `what`. So many bytes of the gap are as those at the distance. Then comes
 *
 *   odd      a byte for each of its bits up to the highest, from the lowest on: as at the distance; where the bit is
 *            set, plus the next of bytes[]
 *   0        the distance is the next of numbers[]
 *   2        so many of bytes[], as they are, as the next of numbers[] says
 *
 * After the last token all is as at the distance. The block's first bytes are the first of bytes[].
 *
 * How it is made: records (a list of where they begin) are compared with those at the distance. Where a value differs
 * that is written down, since the next values are often those at the same distance again. Where a unit differs the
 * distance becomes that to where the same unit last came after the same two; a table has where that was.
 */
#ifndef CT_STEPS_MATCHES_H
#define CT_STEPS_MATCHES_H

#include "steps/stream.h"

struct ct_matcher;
struct ct_matcher *ct_matcher_create(void);       /* NULL: out of memory */
void ct_matcher_free(struct ct_matcher *matcher); /* accepts NULL */

enum ct_matching {
  CT_MATCHED,
  CT_NOT_SIMILAR, /* it would be too much, or there is no memory; the count is made */
  CT_NOT_COUNTED  /* neither is made: as ct_stream_count_sized */
};
/* The bytes may change meanwhile. out: until the next call. */
enum ct_matching ct_matcher_make(struct ct_matcher *matcher, const struct ct_unit_sizes *sizes, const uint8_t *bytes,
                                 size_t size, const struct ct_stream_stamp *stamps, uint32_t stamp_count,
                                 struct ct_stream_count *count, const uint8_t **out, size_t *out_size);

/* What may have been made of so many bytes, at most. */
static inline size_t
ct_matched_most(size_t size)
{
  return size / 2 + 4096;
}
/* Of untrusted bytes; false: they do not make so many. */
bool ct_matched_undo(const uint8_t *made, size_t made_size, uint8_t *bytes, size_t size);
/* Where the block's first bytes are in what was made. */
enum { CT_MATCHED_HEAD_BYTES = 12 };

#endif
