/* SPDX-License-Identifier: MIT */
/*
 * The records of one thread (ring/itrace_stream.h), from its memory to its file. What translated code does not write,
 * the tracer writes here, while the thread has stopped: contexts, events, and the part of a unit that was executed when
 * it stopped within one. A segment that is full goes to a thread of ours, which packs and writes it.
 *
 * All functions but create and finish are for the tracer's thread. Nothing that lies in the target's memory is
 * believed: where records end comes from a register, and is checked.
 */
#ifndef CT_ITRACE_RECORDER_H
#define CT_ITRACE_RECORDER_H

#include "itrace/space.h"
#include "itrace/written.h"
#include "ring/itrace_stream.h"

struct ct_recorder;

struct ct_recorder_options {
  const char *path; /* of the file, which must not exist */
  bool has_vectors; /* vector and mask registers, too */
  bool is_lossless; /* the thread waits when the file does not keep up; else records are lost, and counted */
};

struct ct_recorder_counts {
  uint64_t bytes;    /* of records */
  uint64_t segments; /* that were written */
  uint64_t lost;     /* bytes of records */
  uint64_t stored;   /* bytes of the file */
  uint64_t steps;    /* instructions in it */
};

/* 0 or an error: of the file. */
int ct_recorder_create(const struct ct_recorder_options *options, pid_t pid, pid_t tid, struct ct_recorder **recorder,
                       struct ct_diag *diag);
/* Writes what is left, and ends. 0 or why the file is not whole. */
int ct_recorder_finish(struct ct_recorder *recorder, struct ct_recorder_counts *counts, struct ct_diag *diag);
/* Instructions in the file so far; between ct_recorder_leave and ct_recorder_enter. */
uint64_t ct_recorder_steps(const struct ct_recorder *recorder);
/* How often it has paid to make the thread's units with care, by the segments that it has filled: 0 of a short run. */
uint32_t ct_recorder_round(const struct ct_recorder *recorder);
/* Which way its branches went so far; NULL: not known. */
const struct ct_branches *ct_recorder_branches(const struct ct_recorder *recorder);
/* Of the translations of this thread. */
struct ct_unit_log *ct_recorder_units(struct ct_recorder *recorder);
bool ct_recorder_has_vectors(const struct ct_recorder *recorder);

/* The thread has a new space; before the old one goes: ct_recorder_leave. */
void ct_recorder_enter(struct ct_recorder *recorder, struct ct_itrace_space *space, pid_t tid);
void ct_recorder_leave(struct ct_recorder *recorder);

/* The program has other mappings than when this was called last. */
void ct_recorder_note_modules(struct ct_recorder *recorder);

/* The thread has stopped: recovery is of its place, regs are those of the program, place is where its record begins. */
void ct_recorder_close(struct ct_recorder *recorder, const struct ct_recovery *recovery, uint64_t place,
                       const struct user_regs_struct *regs);
/* Goes on with another segment, if this one has less than so many bytes left, or UINT64_MAX: in any case. */
void ct_recorder_room(struct ct_recorder *recorder, uint64_t bytes);
/* The thread, which runs, comes at its next look for room, as if the segment were full. */
void ct_recorder_call_in(struct ct_recorder *recorder);
/*
 * The thread's vector registers are those of now, until they are not held any more: where a signal's handler begins the
 * kernel has cleared the thread's own.
 */
void ct_recorder_hold_vectors(struct ct_recorder *recorder, bool are_held);
/* The program's state is this. */
void ct_recorder_context(struct ct_recorder *recorder, const struct user_regs_struct *regs,
                         enum ct_context_reason reason);
/* It executes the instruction there where it is; or makes a system call, which does not return like others. */
void ct_recorder_step(struct ct_recorder *recorder, uint64_t pc);
/* It has not executed it, if that is the last thing that is recorded: a signal came, or the instruction has faulted. */
void ct_recorder_step_not_made(struct ct_recorder *recorder, uint64_t pc);
/* What follows, up to the next context, is not there, and it is not known how much. */
/* Its last instruction has led there; it goes on unrecorded. is_last: for good, so that vector registers matter. */
void ct_recorder_leaves(struct ct_recorder *recorder, const struct user_regs_struct *regs, bool is_last);
void ct_recorder_gap(struct ct_recorder *recorder);
void ct_recorder_signal(struct ct_recorder *recorder, uint64_t pc, const siginfo_t *info);
void ct_recorder_end(struct ct_recorder *recorder, enum ct_stream_end_reason reason, int status);
/*
 * After a system call of the program, from the records at place on (ct_recorder_place if that is known): what it has
 * written, as far as the bytes are few. Where the next record belongs.
 */
uint64_t ct_recorder_written(struct ct_recorder *recorder, const struct ct_system_call *call, uint64_t place);
/* The kernel has written there, or given other memory. */
void ct_recorder_memory(struct ct_recorder *recorder, const struct ct_written *written);
/* Where the next record belongs, in the target. */
uint64_t ct_recorder_place(const struct ct_recorder *recorder);

#endif
