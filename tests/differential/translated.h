/* SPDX-License-Identifier: MIT */
/*
 * Part seven: the translator (src/x86/translate.h) and its code cache against the processor. A random program runs
 * natively, by single steps, then from the same state as the code cache translates it, by single steps of the
 * translated code. At each of these the tracer's own ct_tracer_recover makes the program's state; all that it makes,
 * one after the other, must be the native states: all general registers, flags, rip and the memory in reach. At the end
 * vector registers and how it ended (a fault, its address) are compared, too. The reader's emulator (src/x86/emulate.h)
 * goes along with the native run.
 *
 * Part eight: the same with records. They go through the recorder (src/itrace/recorder.h) into a file; the reader's
 * states after each step of it (src/steps/cursor.h) must be the native ones: registers, flags, rip, vector and mask
 * registers. Now and then the thread is stopped, at any place, and goes on from the program's state, as for a signal.
 */
#ifndef CT_TESTS_TRANSLATED_H
#define CT_TESTS_TRANSLATED_H

#include "classes.h"
#include "random.h"
#include "records.h"

struct translated_count {
  uint64_t instructions, emulated, steps; /* native ones; of them, by the emulator, too; of translated code */
  uint64_t faults, requests, stepped, apart, system_calls, stale, flushes, deserted, far;
  uint64_t stops, rooms;      /* of recorded runs: at any place; for another segment */
  uint64_t by_class[CLASSES]; /* native ones */
  struct records_count records;
};

/* 0, or -1 when this machine does not let code be made. */
int translated_set_up(void);
void translated_tear_down(void);
/* True when something differs; text says what. */
bool translated_case(uint64_t seed, uint64_t number, bool is_recorded, struct translated_count *count, char *text,
                     size_t size);

#endif
