/* SPDX-License-Identifier: MIT */
/*
 * Threads of ours that pack full segments of records and write them to a file, in the order in which they come, while
 * the traced thread fills others.
 */
#ifndef CT_ITRACE_SEGMENTS_H
#define CT_ITRACE_SEGMENTS_H

#include "itrace/recorder.h"

struct ct_segments;

int ct_segments_create(const struct ct_recorder_options *options, pid_t pid, pid_t tid, struct ct_segments **segments,
                       struct ct_diag *diag);
/*
 * The number of a segment that may be filled. There is none: waits for one; or, unless the records are to be lossless,
 * takes the oldest that waits, whose records are lost: the file has a gap there.
 */
uint32_t ct_segments_take(struct ct_segments *segments, bool waits);
/* It is full: `used` bytes, which stay as they are until it is taken again. */
void ct_segments_put(struct ct_segments *segments, const struct ct_unit_log *units, uint32_t number,
                     const uint8_t *bytes, uint64_t used, const struct ct_stream_stamp *stamps, uint32_t stamp_count);
/* Instructions in the file, after ct_segments_wait. */
uint64_t ct_segments_steps(struct ct_segments *segments);
/* Waits until all of them are written. */
void ct_segments_wait(struct ct_segments *segments);
/* The lines of /proc/PID/maps, as they are from the next segment on. */
void ct_segments_note_modules(struct ct_segments *segments, pid_t pid);
/* The same, and ends. 0, or the first error of the file. */
int ct_segments_finish(struct ct_segments *segments, struct ct_recorder_counts *counts, struct ct_diag *diag);

#endif
