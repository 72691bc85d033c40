/* SPDX-License-Identifier: MIT */
/*
 * The agent as the controller sees it: a flat, position-independent image without
 * relocations, to be copied to any page boundary. Offsets are from its start.
 */
#ifndef CT_AGENT_IMAGE_H
#define CT_AGENT_IMAGE_H

#include "ring/callouts.h"

#include <stdint.h>

#define CT_AGENT_MAGIC 0x544e4741u

struct ct_agent_image {
  uint32_t magic;
  uint32_t data_start;   /* writable from here, page aligned */
  uint32_t memory_bytes; /* whole image in memory; the file may end earlier, the rest is zero */
  uint32_t config;       /* struct ct_agent_config */
  uint32_t page_off;     /* a control page with CT_MODE_OFF */
  uint32_t page_lookup;  /* a control page with CT_MODE_LOOKUP */
  uint32_t slow_enter;
  uint32_t slow_return;
  uint32_t not_module;
  uint32_t restore_ra_slot;
  uint32_t trap;     /* handler of SIGTRAP, for hooks by int3 */
  uint32_t restorer; /* of that handler */
  uint32_t restore_passthrough;
  uint32_t sample_due;
  uint32_t crash;       /* handler of fatal signals, with the same restorer */
  uint32_t watch_back;  /* where a function returns to that the agent has called in the program's place */
  uint32_t page_silent; /* page_off, of threads on which the agent makes no system call */
  uint32_t detail_full;
  uint32_t detail_tail;
  uint32_t detail_texts;
#define X(name) uint32_t callout_##name;
  CT_CALLOUT_ENTRIES(X)
#undef X
};

#endif
