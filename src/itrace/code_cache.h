/* SPDX-License-Identifier: MIT */
/*
 * The code cache of a thread that runs translated: which unit is where, and how units lead to each other. It lies in
 * memory that the target shares with us (struct ct_itrace_space): what is written here is there. See code_cache.c.
 */
#ifndef CT_ITRACE_CODE_CACHE_H
#define CT_ITRACE_CODE_CACHE_H

#include "itrace/sequences.h"
#include "itrace/unit_log.h"
#include "x86/translate.h"

#include <stddef.h>

enum { CT_CACHE_REGIONS = 8 };

/* A stretch of executable memory near some code of the program. */
struct ct_code_cache_region {
  uint64_t address; /* in the target */
  uint8_t *bytes;   /* the same, here */
  size_t size;
  uint64_t leave, miss;
  struct ct_code_cache_area {
    size_t used, end; /* offsets in the region */
    uint32_t *pieces; /* of struct ct_code_cache.pieces, by address */
    size_t piece_count, piece_capacity;
  } hot, cold; /* in this order; the code that is hardly ever executed is kept from between the other */
};

struct ct_code_cache_stats {
  uint64_t units, insns, source_bytes, code_bytes, flushes, stale, shared;
};

struct ct_code_cache;

/*
 * slots: here, place->shared is the same in the target; what place says of records holds for all units, and log (NULL:
 * there are no records) gets those. NULL: out of memory.
 */
struct ct_code_cache *ct_code_cache_create(struct ct_itrace_slots *slots, const struct ct_translation_place *place,
                                           struct ct_unit_log *log);
void ct_code_cache_free(struct ct_code_cache *cache);
/* Adds a region, which is the target's from then on. */
int ct_code_cache_add_region(struct ct_code_cache *cache, uint64_t address, uint8_t *bytes, size_t size);
/* Is there a region that code at pc can be translated into and reach what it reaches? */
bool ct_code_cache_has_region_near(const struct ct_code_cache *cache, uint64_t pc);

/* Reads up to size bytes of the program's code; how many there are. *may_change: whoever writes there is not seen. */
typedef size_t (*ct_code_cache_read_fn)(void *context, uint64_t pc, uint8_t *bytes, size_t size, bool *may_change);

/*
 * The thread's struct rseq is there (0: it has none), and signature is before where restartable sequences are aborted.
 * From now on these are looked for. May forget all units.
 */
void ct_code_cache_set_rseq(struct ct_code_cache *cache, uint64_t rseq, uint32_t signature,
                            ct_sequences_data_fn read_data);
/* Those that are known; as long as the cache. */
const struct ct_sequences *ct_code_cache_sequences(const struct ct_code_cache *cache);

/* The address of the unit of the block at pc, which is translated if it is not there. 0: out of memory. */
uint64_t ct_code_cache_unit(struct ct_code_cache *cache, uint64_t pc, ct_code_cache_read_fn read, void *context);
/* Likewise of one that is never found again. */
uint64_t ct_code_cache_unit_once(struct ct_code_cache *cache, uint64_t pc, ct_code_cache_read_fn read, void *context);
/* Of one that begins at a watched address, and goes on all the same; what else leads there does not find it. */
uint64_t ct_code_cache_unit_that_passes(struct ct_code_cache *cache, uint64_t pc, ct_code_cache_read_fn read,
                                        void *context);
/* As ct_code_cache_unit, and indirect branches to pc find it from now on. */
uint64_t ct_code_cache_target(struct ct_code_cache *cache, uint64_t pc, ct_code_cache_read_fn read, void *context);
/*
 * From now on units go on where jumps and calls lead, and branches that are mostly taken (NULL: none is; else they stay
 * as long as units are made): longer to make, and faster. round, from 1 on: where it is another than before, all units
 * are forgotten, at the next one that is asked for, and made anew of what is known of branches now.
 */
struct ct_branches;
void ct_code_cache_follow(struct ct_code_cache *cache, uint32_t round, const struct ct_branches *branches);
/* Units are made of those that other threads have made, and are for these; they stay as long as the cache. */
struct ct_shared_units;
void ct_code_cache_share(struct ct_code_cache *cache, struct ct_shared_units *units);
/* The exit of that number; NULL: there is none. */
const struct ct_unit_exit *ct_code_cache_exit(const struct ct_code_cache *cache, uint32_t number);
/* Where the code after an exit of kind CT_EXIT_SYSCALL is that makes the call. */
uint64_t ct_code_cache_resume(const struct ct_code_cache *cache, uint32_t number);
/* Has the exit, of kind CT_EXIT_LINK, go straight to that unit's address from now on. */
void ct_code_cache_link(struct ct_code_cache *cache, uint32_t number, uint64_t unit);
/* The unit of that exit is no longer what the program has there: the next one that is asked for is made anew. */
void ct_code_cache_forget(struct ct_code_cache *cache, uint32_t number);
/*
 * From now on no unit has the instruction at pc, but for one that begins with an exit of kind CT_EXIT_WATCHED. May
 * forget all units. 0 or CT_ENOMEM.
 */
int ct_code_cache_watch(struct ct_code_cache *cache, uint64_t pc);
/* Of a cache without records: it is one only where the condition holds; for units that are made from now on. */
void ct_code_cache_watch_if(struct ct_code_cache *cache, const struct ct_condition *condition);
/* After a switch of stacks it waits for the tracer (CT_EXIT_SWITCHED); for units that are made from now on. */
void ct_code_cache_ask_at_switches(struct ct_code_cache *cache);
/* Forgets all units. The thread is in none of them. */
void ct_code_cache_flush(struct ct_code_cache *cache);
/* Where a thread waits for the answer to a request, once it has stored its registers (struct ct_itrace_slots). */
uint64_t ct_code_cache_wait(const struct ct_code_cache *cache);
/* Has any code in that range been translated? For any thread. */
bool ct_code_cache_covers(struct ct_code_cache *cache, uint64_t start, uint64_t end);
/* Is the address in a region? Then *recovery says what is the program's state there; false in *found: nobody knows. */
bool ct_code_cache_recovery(const struct ct_code_cache *cache, uint64_t address, struct ct_recovery *recovery,
                            bool *found);

void ct_code_cache_stats(const struct ct_code_cache *cache, struct ct_code_cache_stats *stats);

#endif
