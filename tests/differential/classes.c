/* SPDX-License-Identifier: MIT */
/* See classes.h. */
#include "classes.h"

#include "x86/effects.h"

#include <stdbool.h>
#include <stddef.h>

const char *const class_names[CLASSES] = {
    "VEX of two bytes", "VEX of three", "EVEX", "x87", "repeated", "undefined flags",  "locked", "16 bits",
    "high bytes",       "address32",    "rip",  "fs",  "gs",       "cmpxchg8b and 16b"};

struct parts {
  bool has_66, has_67, has_rex;
  uint8_t segment, opcode, modrm;
  bool is_two_bytes; /* 0f opcode */
};

static struct parts
parts_of(const uint8_t *code, size_t length)
{
  struct parts p = {.segment = 0};
  size_t at = 0;
  for (; at + 1 < length; at++) {
    uint8_t byte = code[at];
    if (byte == 0x64 || byte == 0x65) {
      p.segment = byte;
    } else if (byte == 0x66 || byte == 0x67) {
      p.has_66 |= byte == 0x66;
      p.has_67 |= byte == 0x67;
    } else if (byte != 0xf0 && byte != 0xf2 && byte != 0xf3 && byte != 0x2e && byte != 0x36 && byte != 0x3e &&
               byte != 0x26) {
      break;
    }
  }
  if ((code[at] & 0xf0) == 0x40 && at + 1 < length) {
    p.has_rex = true;
    at++;
  }
  if (code[at] == 0x0f && at + 1 < length) {
    p.is_two_bytes = true;
    at++;
  }
  p.opcode = code[at];
  p.modrm = at + 1 < length ? code[at + 1] : 0;
  return p;
}

/* ah, ch, dh or bh, by ModRM. */
static bool
has_high_byte(const struct parts *p)
{
  bool is_arithmetic = p->opcode < 0x40 && (p->opcode & 5) == 0;
  bool is_move = p->opcode == 0x84 || p->opcode == 0x86 || p->opcode == 0x88 || p->opcode == 0x8a;
  bool is_group = p->opcode == 0x80 || p->opcode == 0xc0 || p->opcode == 0xd0 || p->opcode == 0xd2 ||
                  p->opcode == 0xf6 || p->opcode == 0xfe || p->opcode == 0xc6;
  if (p->has_rex || p->is_two_bytes || !(is_arithmetic || is_move || is_group)) {
    return false;
  }
  bool by_rm = p->modrm >> 6 == 3 && (p->modrm & 4) != 0;
  return by_rm || (!is_group && (p->modrm >> 3 & 4) != 0);
}

static uint32_t
bit(enum class class, bool is_one)
{
  return (uint32_t)is_one << class;
}

uint32_t
classes_of(const uint8_t *code, const struct ct_effects *e)
{
  struct parts p = parts_of(code, e->length);
  const struct ct_access *access = e->access_count != 0 ? &e->access[0] : NULL;
  bool is_vex = !p.has_rex && !p.is_two_bytes && (p.opcode == 0xc4 || p.opcode == 0xc5 || p.opcode == 0x62);
  return bit(CLASS_VEX2, is_vex && p.opcode == 0xc5) | bit(CLASS_VEX3, is_vex && p.opcode == 0xc4) |
         bit(CLASS_EVEX, is_vex && p.opcode == 0x62) | bit(CLASS_X87, !p.is_two_bytes && (p.opcode & 0xf8) == 0xd8) |
         bit(CLASS_REPEATED, (e->traits & (CT_EFFECT_REP | CT_EFFECT_REPNE)) != 0) |
         bit(CLASS_UNDEFINED_FLAGS, e->flags_undefined != 0) | bit(CLASS_LOCKED, (e->traits & CT_EFFECT_LOCKED) != 0) |
         bit(CLASS_WORDS, p.has_66 && e->size == 2) | bit(CLASS_HIGH_BYTES, has_high_byte(&p)) |
         bit(CLASS_ADDRESS32, p.has_67 && access != NULL) |
         bit(CLASS_RIP, access != NULL && (access->how & CT_ACCESS_RIP) != 0) |
         bit(CLASS_FS, access != NULL && access->segment == CT_SEGMENT_FS) |
         bit(CLASS_GS, access != NULL && access->segment == CT_SEGMENT_GS) |
         bit(CLASS_COMPARE_PAIRS, p.is_two_bytes && p.opcode == 0xc7 && (p.modrm >> 3 & 7) == 1);
}

void
classes_note(const uint8_t *code, const struct ct_effects *effects, uint64_t counts[CLASSES])
{
  uint32_t classes = classes_of(code, effects);
  for (unsigned i = 0; i < CLASSES; i++) {
    counts[i] += classes >> i & 1;
  }
}
