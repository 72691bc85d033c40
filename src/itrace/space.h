/* SPDX-License-Identifier: MIT */
/*
 * The memory of a thread that runs translated, in its process: one memfd, mapped here as a whole and there piece by
 * piece.
 *
 *   below 2 GiB                 struct ct_itrace_slots, the table, the byte for each system call; readable, writable
 *   near code of the program    regions of the code cache; readable, executable
 *   anywhere                    segments of records, if there are any (recorder.h); readable, writable
 *
 * A forked child has none of it (MADV_DONTFORK), and no core dump.
 */
#ifndef CT_ITRACE_SPACE_H
#define CT_ITRACE_SPACE_H

#include "itrace/code_cache.h"
#include "process/traced.h"

enum { CT_SEGMENTS = 4 };

/* Of what lies below 2 GiB, in whole pages. */
#define CT_SPACE_SHARED_BYTES ((CT_ITRACE_SHARED_BYTES + 4095ull) & ~4095ull)

/* Where a segment's records lie: from the second block of a window on. Behind the window there is some room more. */
struct ct_record_segment {
  uint64_t address; /* in the target */
  uint8_t *bytes;   /* the same, here */
};

struct ct_itrace_space {
  struct ct_process *process;
  struct ct_itrace_slots *slots; /* here */
  uint8_t *bytes;                /* all of the memfd */
  uint64_t size;
  uint32_t shared; /* in the target */
  struct ct_code_cache *cache;
  uint64_t regions[CT_CACHE_REGIONS], region_sizes[CT_CACHE_REGIONS];
  uint32_t region_count;
  uint32_t crowd; /* threads that want regions, too; 0: nobody knows */
  struct ct_record_segment segments[CT_SEGMENTS];
  uint64_t block_bytes; /* of records; 0: there are none */
  int fd;               /* in the target, while it is being made; -1: none */
  /* Of one that a thread has left behind: */
  uint32_t image;
  struct ct_itrace_space *next;
};

/* The bytes that records may take in a segment, counted from its address. */
uint64_t ct_space_segment_bytes(const struct ct_itrace_space *space);

/*
 * The thread has stopped, and lends itself (ct_traced_borrow). Makes regions near all code that is mapped. log: of its
 * records; NULL: it makes none. crowd: so many spaces there will be soon, 0: nobody knows; the room near its code is
 * for all of them.
 */
int ct_space_create(struct ct_process *process, struct ct_unit_log *log, bool has_vectors, uint32_t crowd,
                    struct ct_itrace_space *space, struct ct_diag *diag);
/* Takes all of it out of the process, likewise; nobody runs in there. */
void ct_space_remove(struct ct_itrace_space *space);
/* Gives back what is here. */
void ct_space_free(struct ct_itrace_space *space);

#endif
