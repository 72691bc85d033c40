/* SPDX-License-Identifier: MIT */
/* Inside info: what it reports of a piece of a trace (its range) or of some of its threads, in place of the whole. */
#ifndef CT_VIEWS_INFO_PIECE_H
#define CT_VIEWS_INFO_PIECE_H

#include <contrail/filter.h>

#include <jansson.h>
#include <stdio.h>

struct ct_info_piece {
  bool is_piece;  /* else all below but is_cut and ns is 0 */
  bool has_range; /* from_ns to to_ns, since the recording began */
  uint64_t from_ns, to_ns;
  const struct ct_filter *filter;
  uint8_t *threads;           /* a byte for each thread, 0: not asked about; NULL: all are */
  uint64_t *events, *dropped; /* of each thread */
  bool has_duration;
  uint64_t duration_ns; /* of what is reported: the piece, what a cut trace has, or the recording */
};

/* Reads the events of a piece, and nothing of a whole trace. 0, CT_ERANGE: there is no such thread; CT_ENOMEM, CT_EIO.
 */
int ct_info_piece_read(struct ct_trace *trace, const struct ct_filter *filter, struct ct_info_piece *piece,
                       struct ct_diag *diag);
void ct_info_piece_free(struct ct_info_piece *piece);
bool ct_info_piece_has(const struct ct_info_piece *piece, uint32_t thread);
uint64_t ct_info_piece_events(const struct ct_info_piece *piece, const struct ct_trace_thread *thread, uint32_t n);
uint64_t ct_info_piece_dropped(const struct ct_info_piece *piece, const struct ct_trace_thread *thread, uint32_t n);
/* What the program wrote in it: bytes that the calls were given, and what of them is recorded. */
void ct_info_piece_output(const struct ct_info_piece *piece, const struct ct_trace *trace, uint64_t given[2],
                          uint64_t *recorded);
/* Null of a whole trace. */
json_t *ct_info_piece_json(const struct ct_info_piece *piece);
/* "0.45 s to 0.46 s of the recording, thread 30222; ..." */
void ct_info_piece_write(const struct ct_info_piece *piece, FILE *out);

#endif
