/* SPDX-License-Identifier: MIT */
/* The restartable sequences of a thread (rseq), found by the addresses of their descriptors in the code before them. */
#ifndef CT_ITRACE_SEQUENCES_H
#define CT_ITRACE_SEQUENCES_H

#include "x86/translate.h"

/* All of size bytes of the program's memory; false: they are not there. */
typedef bool (*ct_sequences_data_fn)(void *context, uint64_t address, void *bytes, size_t size);

enum { CT_SEQUENCES_SEEN = 256 };

/* Zeroed: there are none, and none are looked for. */
struct ct_sequences {
  struct ct_sequence *list; /* owned */
  uint32_t count;
  uint32_t signature;
  ct_sequences_data_fn read_data;
  uint64_t seen[CT_SEQUENCES_SEEN]; /* addresses that have been looked at, a hash; 0: none */
};

/* read_data NULL: none are looked for. */
void ct_sequences_reset(struct ct_sequences *sequences, ct_sequences_data_fn read_data, uint32_t signature);
/* Adds those of which the code at pc has the address; whether there were any. */
bool ct_sequences_look(struct ct_sequences *sequences, uint64_t pc, const uint8_t *code, size_t size, void *context);

/* The one that pc lies in; NULL: none that is known. */
const struct ct_sequence *ct_sequences_around(const struct ct_sequences *sequences, uint64_t pc);

#endif
