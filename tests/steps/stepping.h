/* SPDX-License-Identifier: MIT */
/* A process that is run step by step under ptrace, for stepped.c. */
#ifndef CT_TESTS_STEPS_STEPPING_H
#define CT_TESTS_STEPS_STEPPING_H

#include "steps/machine.h"

#include <sys/types.h>

/* Whether this processor and kernel tell of the vector registers, how many there are and of how many bytes. */
struct vectors_shape {
  uint16_t vectors;
  uint8_t bytes, masks;
};
struct vectors_shape machine_shape(void);

/*
 * A program, stopped at its first instruction; -1: it cannot be started. The random bytes that the kernel gives to it
 * are always the same: two runs of it at the same addresses have the same values. output: a file for what it prints,
 * NULL: to where ours goes. STEPPED_PRELOAD in the environment is its LD_PRELOAD.
 */
pid_t machine_start(const char *output, char *const argv[]);
/*
 * Starts it without tracing it, in a loop behind its loader's code that changes no register, and prints its process id,
 * an address, and that of its first instruction: it goes on there once that is written to the address before. Waits for
 * its end; its status, or 1: it cannot be started, or there is no room for the loop.
 */
int machine_hold(const char *output, char *const argv[]);
/* False: it is not there. */
bool machine_state(pid_t pid, bool with_vectors, struct ct_steps_state *state);
/* How many of the bytes are there. */
size_t machine_peek(pid_t pid, uint64_t at, void *out, size_t size);
bool machine_poke(pid_t pid, uint64_t at, const void *bytes, size_t size);
/* General registers, rip and flags; no system call is then to be restarted. */
bool machine_set(pid_t pid, const struct ct_cpu *cpu);
/* Takes the flag of single steps out of r11, where a system call has left it. */
void machine_clean_r11(pid_t pid);
/* Has the program a handler for it? */
bool machine_handles(pid_t pid, int signal);
/* Has it been sent, and is to be delivered next? */
bool machine_is_pending(pid_t pid, int signal);

enum { MACHINE_STEPPED, MACHINE_SIGNAL, MACHINE_EXEC, MACHINE_ENDED };
/* A step, with a signal to deliver (0: none); *value: the signal that came, or the status. */
int machine_step(pid_t pid, int deliver, int *value);
/* What siginfo tells of the signal at which it stopped. */
void machine_signal_info(pid_t pid, uint64_t *address, int32_t *code);
/* It has stopped for that signal, which is sent to it, with such a code: the next step is to deliver it. */
bool machine_send(pid_t pid, int signal, int32_t code);

#endif
