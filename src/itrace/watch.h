/* SPDX-License-Identifier: MIT */
/*
 * Which stretches of a thread are recorded, if not all of it: calls of a function from entry to return, or from one
 * address to another. The thread runs translated all the time, in a space without records until a stretch begins, and
 * in one with records up to its end. Where they begin and end is watched (CT_EXIT_WATCHED).
 */
#ifndef CT_ITRACE_WATCH_H
#define CT_ITRACE_WATCH_H

#include "base/error.h"
#include "x86/translate.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/user.h>

struct ct_code_cache;
struct ct_process;

/* 0, or CT_EINVAL and why. text NULL: always. */
int ct_condition_parse(const char *text, struct ct_condition *out, struct ct_diag *diag);

struct ct_watch;

/*
 * function, or from and to; addresses as "0x401000" or "FUNCTION+0x12". most: stretches, 0 for all; *all counts those
 * of all threads that are traced. 0 or an error.
 */
int ct_watch_create(const char *function, const char *from, const char *to, const char *condition, uint64_t most,
                    _Atomic uint64_t *all, struct ct_watch **out, struct ct_diag *diag);
/* One call, of a function whose begin is at that address of the space without records. */
int ct_watch_create_call(uint64_t place, _Atomic uint64_t *all, struct ct_watch **out, struct ct_diag *diag);
void ct_watch_free(struct ct_watch *watch); /* accepts NULL */
/* Looks for the functions in what the process has mapped since the last time, and watches them. */
int ct_watch_look(struct ct_watch *watch, struct ct_process *process, struct ct_code_cache *without,
                  struct ct_code_cache *with, struct ct_diag *diag);
/* Other code is mapped: what was found is forgotten (exec). */
void ct_watch_forget(struct ct_watch *watch);

enum ct_watch_does { CT_WATCH_PASS, CT_WATCH_BEGIN, CT_WATCH_END };
/* The thread is at a watched address, in the space with records or the one without. */
enum ct_watch_does ct_watch_arrived(struct ct_watch *watch, struct ct_process *process,
                                    const struct user_regs_struct *regs, struct ct_code_cache *with, bool records);
/* Has the thread left the stretch, by a way that is not watched (longjmp, an exception)? */
bool ct_watch_has_left(struct ct_watch *watch, const struct ct_process *process, const struct user_regs_struct *regs);
/* As many stretches have been recorded as were asked for. */
bool ct_watch_is_done(const struct ct_watch *watch);
/* Of this thread. */
uint64_t ct_watch_stretches(const struct ct_watch *watch);
/* Addresses that are watched for a begin; 0: nothing of the name has been mapped. */
uint64_t ct_watch_places(const struct ct_watch *watch);

#endif
