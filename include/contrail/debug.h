/* SPDX-License-Identifier: MIT */
/*
 * gdb's remote protocol over a recording of instructions (contrail itrace): registers, memory as the recording shows
 * it, breakpoints and watchpoints, forwards and backwards. The debugger sees a program that has stopped; it cannot
 * change anything.
 */
#ifndef CONTRAIL_DEBUG_H
#define CONTRAIL_DEBUG_H

#include <contrail/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_debug;

struct ct_debug_options {
  size_t struct_size;
  uint32_t tid;  /* of the thread; 0: the only one */
  bool has_step; /* step is given */
  uint64_t step; /* where it stands at first; otherwise at the end */
  /* Gets a line when an answer is about memory that is known in part only (find); NULL: nobody is. */
  void (*note)(void *context, const char *line);
  void *note_context;
  int out; /* a debugger waits there already: it hears meanwhile that it is to wait on (ct_debug_serve then); 0: none */
};

/* path: a folder with files steps.TID, or one such file. 0; errors as of ct_steps_write. */
int ct_debug_open(const char *path, const struct ct_debug_options *options, struct ct_debug **out,
                  struct ct_diag *diag);
/* Answers a debugger until it goes. The descriptors are the caller's. */
void ct_debug_serve(struct ct_debug *debug, int in, int out);
/* A line about what of the file could not be read so far; "": nothing. Until it is closed. */
const char *ct_debug_damage(const struct ct_debug *debug);
void ct_debug_close(struct ct_debug *debug); /* accepts NULL */

#ifdef __cplusplus
}
#endif

#endif
