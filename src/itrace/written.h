/* SPDX-License-Identifier: MIT */
/*
 * What system calls write into the memory of the program that makes them: which, and where it is after the call, by its
 * number, arguments and result (man pages, section 2, and the kernel's headers). The recorder adds the bytes to a
 * thread's records, so that it is known who wrote last there.
 *
 * Not reported: what a system call writes that is not in the table, or writes later (io_uring, asynchronous input and
 * output, a word that is set when a thread ends); what other processes write into shared memory.
 */
#ifndef CT_ITRACE_WRITTEN_H
#define CT_ITRACE_WRITTEN_H

#include "process/process.h"

#include <stdbool.h>
#include <stdint.h>

struct ct_system_call {
  uint64_t number;
  uint64_t args[6];
  int64_t result;
};

struct ct_written {
  uint64_t address, size;
  bool is_fresh; /* mapped, moved or given back: what is there now is not read */
};

/* Is there something to be looked at after such a call? */
bool ct_writes_memory(uint64_t number);
/* The same of all at once: marks those below count. */
void ct_mark_writing_calls(uint8_t *bytes, uint64_t count, uint8_t mark);
/* Those stretches, at most CT_WRITTEN_MAX. How many. Pointers that the call was given are followed by reading process.
 */
enum { CT_WRITTEN_MAX = 64 };
uint32_t ct_written_by(struct ct_process *process, const struct ct_system_call *call,
                       struct ct_written written[CT_WRITTEN_MAX]);

#endif
