/* SPDX-License-Identifier: MIT */
/*
 * Inside the drain: which of the flows of control that share a stack runs there. Greenlets, and continuations by
 * setjmp and memcpy, take turns at the same addresses: one is copied away, another comes back. Each that can be
 * recognised is a context of the trace. What comes back is known by the copy that it comes back from.
 *
 * What goes on when a flow has been copied away and nothing came back is a new one: a greenlet that begins, or whoever
 * has taken a continuation of himself. For the moment between the two, the code that switches, there is a context
 * too, `spare`: it becomes that of the next new flow.
 */
#ifndef CT_DRAIN_FLOWS_H
#define CT_DRAIN_FLOWS_H

#include <stdbool.h>
#include <stdint.h>

#define FLOW_COPIES 4096 /* copies that are known at a time; powers of two */
#define FLOW_ENDS   1024

/* Contexts of flows are numbered from here on: no stack has such a number. */
#define FLOW_FIRST 0x1000000u

struct flow_copy {
  uint32_t key;
  uint32_t hi;      /* where the part ended that was copied last */
  uint32_t context; /* whose copy it is */
  bool is_used;
  bool is_back; /* it has come back: what is copied with this key is another one */
};

/* Of one stack of a thread, made when that is copied for the first time. */
struct drain_flows {
  uint32_t stack;   /* the context of the stack itself, which is that of its first flow */
  uint32_t current; /* which flow runs, as the trace has it */
  uint32_t spare;
  uint32_t count; /* of contexts that have been given out */
  uint32_t next;  /* the context to go to once the frames of the copying functions are gone */
  bool has_next;
  uint16_t by_end[FLOW_ENDS]; /* the last copy of a part that ended at an address with this hash */
  struct flow_copy copies[FLOW_COPIES];
};

struct drain_flows *drain_flows_create(uint32_t stack); /* NULL: out of memory */
/* A part of the stack has been copied away, from lo to hi. */
void drain_flows_out(struct drain_flows *flows, uint32_t key, uint32_t lo, uint32_t hi);
/* A copy has come back. */
void drain_flows_in(struct drain_flows *flows, uint32_t key, uint32_t hi);
/* The frames of the functions that copied are gone: the context to go to, as long as no frame is open. */
uint32_t drain_flows_reconcile(struct drain_flows *flows, bool is_empty);

#endif
