/* SPDX-License-Identifier: MIT */
/*
 * The records of a translated run (translated.h): the recorder itself (src/itrace/recorder.h) with a file of its own,
 * which the reader (src/steps) then reads. What the run's thread would do under ptrace is done by translated.c.
 */
#ifndef CT_TESTS_RECORDS_H
#define CT_TESTS_RECORDS_H

#include "itrace/tracer.h"
#include "machine.h"

struct records_count {
  uint64_t steps, vectors, contexts; /* compared; of them, with all vector registers known; that the file has */
};

/* 0, or -1: there is no room. */
int records_set_up(void);
void records_tear_down(void);
/* A recorder and segments for a case, in the tracer and its space; how units are made for them, in *place. */
bool records_begin(struct ct_tracer *tracer, bool has_vectors, bool has_bmi2, struct ct_translation_place *place);
void records_enter(struct ct_tracer *tracer);
/* The blocks from that number on are full. */
void records_fill(struct ct_tracer *tracer, unsigned block);
/* The file is whole now. NULL, or why not. */
const char *records_end(struct ct_tracer *tracer);

/* A native state, and whether the reader may find it: it is not in the middle of a string instruction. */
struct records_state {
  const uint64_t *reg;
  uint64_t rip, flags;
  struct machine *vectors; /* extended state only */
};
typedef void records_state_of(unsigned index, struct records_state *out);
/*
 * The reader's steps, one after the other, against native states 0 to count - 1; all of them but `hidden` at the end,
 * which may be missing. False: text says how they differ.
 */
bool records_compare(unsigned count, unsigned hidden, records_state_of *state_of, struct records_count *counts,
                     char *text, size_t size);

#endif
