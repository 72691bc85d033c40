/* SPDX-License-Identifier: MIT */
/*
 * A stand-in for the agent, in this process: a control page at gs, byte table, segment, return store, and stubs that go
 * on as the agent does when it records nothing. With it the installer puts real plans into this process.
 */
#ifndef CT_TESTS_AGENCY_H
#define CT_TESTS_AGENCY_H

#include "hook/install.h"

enum { AGENCY_EVENTS = 4096, AGENCY_TAG = 2 };

struct agency {
  struct ct_agent_layout layout;
  struct ct_remote remote;
  struct ct_process process;
  struct ct_agent_config *config;
  struct ct_control_page *control;
  struct ct_ring_event *segment; /* AGENCY_EVENTS */
  uint8_t *table;
  struct ct_ring_header *ring; /* what is told there is not looked at */
};

/* The stack [stack, stack + bytes) gets a store at stack + delta. 0 or -1. Sets gs of this thread. */
int agency_set_up(struct agency *agency, uint64_t stack, uint64_t bytes, int64_t delta);
void agency_tear_down(struct agency *agency);
/* Makes the control page that of a thread on the stack with an empty segment. room: false, the segment is full. */
void agency_ready(struct agency *agency, uint64_t stack, uint64_t bytes, bool room);
/* The stubs' code. */
bool agency_is_stub(uint64_t rip);

/* A module in this process. */
struct agency_module {
  const struct ct_plan *plan;
  struct ct_installed installed;
  const struct ct_hook_desc *descs;
  size_t desc_count;
};

/* Puts the plan into this process, where the module lies at base. */
int agency_install(struct agency *agency, struct agency_module *module, const struct ct_plan *plan, uint64_t base,
                   char *text, size_t size);
/* The descriptor of the function with this id, or of instructions that moved out of `function`; NULL. */
const struct ct_hook_desc *agency_desc(const struct agency_module *module, uint32_t fn, uint64_t function);

#endif
