/* SPDX-License-Identifier: MIT */
/*
 * Which way conditional branches went, and where indirect ones and returns did, as records say: so that units go on
 * that way. A guess, nothing depends on it but speed. Branches are known by the address after them.
 */
#ifndef CT_ITRACE_BRANCHES_H
#define CT_ITRACE_BRANCHES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_branches;
struct ct_unit_log;

struct ct_branches *ct_branches_create(void);        /* NULL: out of memory */
void ct_branches_free(struct ct_branches *branches); /* accepts NULL */
/* Counts those of the records, whose units are in the log. */
void ct_branches_learn(struct ct_branches *branches, const struct ct_unit_log *log, const uint8_t *bytes, size_t size);
/* What ends there, a branch of any kind or none, went to target. */
void ct_branches_note(struct ct_branches *branches, uint64_t end, uint64_t target);
/* Has a record of a unit that begins there been seen often? */
bool ct_branches_are_hot(const struct ct_branches *branches, uint64_t pc);
/* For tests: of those that nothing is known about so many percent are taken as taken, by lot. */
void ct_branches_by_lot(struct ct_branches *branches, uint32_t percent);
/* Is it taken far more often than not? Of NULL nothing is known, here and below. */
bool ct_branches_are_taken(const struct ct_branches *branches, uint64_t end);
/* Where an indirect one, or a return, nearly always goes; 0: nowhere in particular. */
uint64_t ct_branches_target(const struct ct_branches *branches, uint64_t end);

#endif
