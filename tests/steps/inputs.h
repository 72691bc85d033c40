/* SPDX-License-Identifier: MIT */
/*
 * What two runs of a program at the same addresses get differently: the closed list of what the run that follows a
 * recording (follow.h) takes from it, each just where it comes in. All that is computed of it is then the same in both.
 */
#ifndef CT_TESTS_STEPS_INPUTS_H
#define CT_TESTS_STEPS_INPUTS_H

#include "steps/cursor.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { INPUT_PAGES = 8, INPUT_IDS = 64 };

struct inputs {
  /* Pages of the kernel's in which clocks are. */
  struct input_pages {
    uint64_t start, end;
  } pages[INPUT_PAGES];
  size_t page_count;
  /* Ids of processes and threads, as the recording has them and as they are. */
  struct input_id {
    uint64_t recorded, real;
  } ids[INPUT_IDS];
  size_t id_count;
};

/* Of a process that has begun. */
void inputs_begin(struct inputs *inputs, pid_t pid);
void inputs_add_id(struct inputs *inputs, uint64_t recorded, uint64_t real);
/* The other's: of what is no id, that itself. */
uint64_t inputs_real_id(const struct inputs *inputs, uint64_t recorded);

/* The time stamp counter, random numbers of the processor's. */
bool inputs_is_counter(const struct ct_effects *effects, const uint8_t *code);
/* It loads from one of the pages. */
bool inputs_is_clock(const struct inputs *inputs, const struct ct_effects *effects, const struct ct_cpu *before);

/* Of system calls by their number. */
bool inputs_returns_id(uint64_t number);
bool inputs_is_other(uint64_t number);         /* its result is different each time: an id, a time */
unsigned inputs_id_arguments(uint64_t number); /* how many of the first ones are ids */
/* It reads random bytes, or what the kernel says of the process: where a recorder is, that has other mappings. */
bool inputs_is_other_file(pid_t pid, uint64_t number, uint64_t file);
/* It has to do with timers, or waits: it is not made at all, but all that it did is taken from the recording. */
bool inputs_is_not_made(uint64_t number);
/* Whether byte `at` of what the call has written is different each time. */
bool inputs_is_written(uint64_t number, uint64_t at);
/*
 * The same of a signal handler's frame that has the siginfo and the context at these offsets; there the two runs have
 * bytes that differ in these bits.
 */
bool inputs_is_of_frame(int signal, int code, uint64_t at, uint64_t info_at, uint64_t context_at, uint8_t bits);
/* The thread itself has done that, just there. */
bool inputs_is_fault(int signal, int code);

#endif
