/* SPDX-License-Identifier: MIT */
/* Moving the first instructions of a function to another address, and looking at them. Pure: bytes in, bytes out. */
#ifndef CT_X86_RELOCATE_H
#define CT_X86_RELOCATE_H

#include "x86/emit.h"

#include <stddef.h>
#include <stdint.h>

#define CT_JUMP_BYTES    5 /* jmp rel32 */
#define CT_RELOCATED_MAX 8 /* instructions of a window */

enum ct_window_refusal {
  CT_WINDOW_OK = 0,
  CT_WINDOW_UNDECODABLE,   /* bytes that are no instruction before the window's end */
  CT_WINDOW_INDIRECT_CALL, /* an indirect call that returns into the window */
  CT_WINDOW_TOO_SHORT,     /* the code ends before five bytes */
  CT_WINDOW_UNREACHABLE,   /* a displacement that does not reach from the new place */
};

struct ct_window {
  uint32_t length; /* bytes covered by whole instructions, >= need, or < need when the code ends (terminated) */
  uint32_t count;  /* instructions */
  uint8_t offset[CT_RELOCATED_MAX + 1];
  uint8_t terminated; /* the last instruction never goes on to the next one (ret, jmp; a trap with nothing after it) */
  uint8_t plain;      /* all of it does the same at any place, byte for byte; 0: not known */
};

/* Finds the whole instructions that cover need bytes at code (size bytes readable, to run at address). */
enum ct_window_refusal ct_window_find(const uint8_t *code, size_t size, uint64_t address, size_t need,
                                      struct ct_window *window);

struct ct_relocation_map {
  uint8_t count;
  uint8_t from[CT_RELOCATED_MAX]; /* offset of each instruction in the window */
  uint8_t to[CT_RELOCATED_MAX];   /* and from the start of the emitted code */
};

/*
 * Emits the window's instructions at out's position so that they do there what they did at address, followed, unless
 * the window is terminated, by a jump to the instruction after it. map may be NULL.
 * A direct call pushes its original return address.
 */
enum ct_window_refusal ct_window_relocate(const uint8_t *code, uint64_t address, const struct ct_window *window,
                                          struct ct_code *out, struct ct_relocation_map *map);

/* True when the bytes are padding: int3 or whole nop instructions (the last may reach beyond size). */
int ct_is_padding(const uint8_t *code, size_t size, size_t readable);

#endif
