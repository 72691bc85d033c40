/* SPDX-License-Identifier: MIT */
/*
 * Windows, their relocation and whole trampolines from arbitrary code bytes. The relocated instructions are decoded
 * again, with all operands, and held against the original ones: the same operation on the same addresses.
 *
 *   input:  distance between the two places (u32), flags (u8), code
 */
#include "fuzz.h"

#include "x86/trampoline.h"

#include <Zydis/Zydis.h>

struct decoded {
  ZydisDecodedInstruction in;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

static ZydisDecoder decoder;

static void
decode(const uint8_t *bytes, size_t size, struct decoded *out)
{
  CHECK(ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, bytes, size, &out->in, out->operands)));
}

/* Where a relative branch goes; rip-relative operands likewise. */
static uint64_t
target_of(const struct decoded *d, uint64_t address)
{
  CHECK(d->in.raw.imm[0].is_relative);
  return address + d->in.length + (uint64_t)d->in.raw.imm[0].value.s;
}

static void
check_same_operand(const struct decoded *was, uint64_t from, const struct decoded *is, uint64_t to, unsigned i)
{
  const ZydisDecodedOperand *a = &was->operands[i], *b = &is->operands[i];
  CHECK(a->type == b->type && a->size == b->size && a->actions == b->actions);
  switch (a->type) {
  case ZYDIS_OPERAND_TYPE_REGISTER:
    CHECK(a->reg.value == b->reg.value);
    break;
  case ZYDIS_OPERAND_TYPE_IMMEDIATE:
    CHECK(a->imm.value.u == b->imm.value.u);
    break;
  case ZYDIS_OPERAND_TYPE_MEMORY:
    CHECK(a->mem.segment == b->mem.segment && a->mem.base == b->mem.base && a->mem.index == b->mem.index &&
          a->mem.scale == b->mem.scale);
    if (a->mem.base == ZYDIS_REGISTER_RIP) {
      CHECK(from + was->in.length + (uint64_t)a->mem.disp.value == to + is->in.length + (uint64_t)b->mem.disp.value);
    } else {
      CHECK(a->mem.base != ZYDIS_REGISTER_EIP && a->mem.disp.value == b->mem.disp.value);
    }
    break;
  default:
    CHECK(a->ptr.offset == b->ptr.offset && a->ptr.segment == b->ptr.segment);
  }
}

static void
check_same(const struct decoded *was, uint64_t from, const struct decoded *is, uint64_t to)
{
  CHECK(was->in.mnemonic == is->in.mnemonic && was->in.length == is->in.length &&
        was->in.operand_count == is->in.operand_count && was->in.attributes == is->in.attributes);
  for (unsigned i = 0; i < was->in.operand_count; i++) {
    check_same_operand(was, from, is, to, i);
  }
}

static void
check_jump(const uint8_t *bytes, size_t size, uint64_t address, uint64_t target)
{
  struct decoded d;
  decode(bytes, size, &d);
  CHECK(d.in.length == size && d.in.mnemonic == ZYDIS_MNEMONIC_JMP && target_of(&d, address) == target);
}

/* The value as a return address: a call over a jump there and the value, lea 8(%rsp), push of it. Returns their length.
 */
static size_t
check_push(const uint8_t *bytes, size_t size, uint64_t address, uint64_t value)
{
  CHECK(size >= 29 && memcmp(bytes, "\xe8\x0d\0\0\0", 5) == 0 && memcmp(bytes + 10, &value, 8) == 0);
  check_jump(bytes + 5, 5, address + 5, value);
  CHECK(memcmp(bytes + 18, "\x48\x8d\x64\x24\x08\xff\x35\xed\xff\xff\xff", 11) == 0);
  return 29;
}

/* One displaced instruction: what it was, and the bytes that stand for it at address to. */
static void
check_one(const uint8_t *code, size_t length, uint64_t from, const uint8_t *bytes, size_t size, uint64_t to)
{
  struct decoded was, is;
  decode(code, length, &was);
  CHECK(was.in.length == length);
  if (was.in.meta.category == ZYDIS_CATEGORY_CALL) {
    size_t push = check_push(bytes, size, to, from + length);
    if (was.in.raw.imm[0].is_relative) {
      check_jump(bytes + push, size - push, to + push, target_of(&was, from));
      return;
    }
    decode(bytes + push, size - push, &is);
    CHECK(is.in.length == size - push && is.in.mnemonic == ZYDIS_MNEMONIC_JMP && is.operands[0].size == 64);
    CHECK(was.in.mnemonic == ZYDIS_MNEMONIC_CALL && was.in.meta.branch_type == ZYDIS_BRANCH_TYPE_NEAR);
    check_same_operand(&was, from, &is, to + push, 0);
    const ZydisDecodedOperand *o = &was.operands[0]; /* the push has moved rsp */
    CHECK(o->type != ZYDIS_OPERAND_TYPE_REGISTER || o->reg.value != ZYDIS_REGISTER_RSP);
    CHECK(o->type != ZYDIS_OPERAND_TYPE_MEMORY ||
          (o->mem.base != ZYDIS_REGISTER_RSP && o->mem.base != ZYDIS_REGISTER_ESP));
    return;
  }
  decode(bytes, size, &is);
  if (!was.in.raw.imm[0].is_relative) {
    CHECK(is.in.length == size);
    check_same(&was, from, &is, to);
    return;
  }
  CHECK(is.in.mnemonic == was.in.mnemonic);
  switch (was.in.mnemonic) {
  case ZYDIS_MNEMONIC_LOOP:
  case ZYDIS_MNEMONIC_LOOPE:
  case ZYDIS_MNEMONIC_LOOPNE:
  case ZYDIS_MNEMONIC_JECXZ:
  case ZYDIS_MNEMONIC_JRCXZ: {
    CHECK(is.in.address_width == was.in.address_width); /* the register that counts */
    size_t at = is.in.length;
    CHECK(target_of(&is, to) == to + at + 2 && size == at + 7);
    check_jump(bytes + at, 2, to + at, to + size);
    check_jump(bytes + at + 2, size - at - 2, to + at + 2, target_of(&was, from));
    break;
  }
  default:
    CHECK(is.in.length == size && target_of(&is, to) == target_of(&was, from));
  }
}

static void
check_window(const uint8_t *code, size_t size, size_t need, const struct ct_window *window)
{
  CHECK(window->count <= CT_RELOCATED_MAX && window->length <= size && window->offset[0] == 0);
  CHECK(window->offset[window->count] == window->length);
  CHECK(window->length >= need || window->terminated);
  for (uint32_t i = 0; i < window->count; i++) {
    struct decoded d;
    decode(code + window->offset[i], size - window->offset[i], &d);
    CHECK(window->offset[i] + d.in.length == window->offset[i + 1]);
    CHECK(window->offset[i] < need);
  }
}

static void
check_trampoline(const uint8_t *code, const struct ct_window *window, uint64_t from, uint64_t to, uint8_t flags,
                 enum ct_window_refusal relocated)
{
  uint8_t *buffer = malloc(CT_TRAMPOLINE_BYTES_MAX);
  CHECK(buffer != NULL);
  struct ct_code out = {.bytes = buffer, .capacity = CT_TRAMPOLINE_BYTES_MAX, .address = to};
  struct ct_hook_desc desc;
  struct ct_trampoline_spec spec = {.fn = flags,
                                    .mode = flags % 3,
                                    .callout = flags / 3 % (CT_CALLOUT_FIND_OBJECT + 1),
                                    .store_delta = -(1ll << 45),
                                    .function = from,
                                    .head = to & ~0xffffull,
                                    .desc = to + 0x20000,
                                    .code = code,
                                    .window = window};
  enum ct_window_refusal refusal = ct_trampoline_emit(&spec, &out, &desc);
  if (relocated == CT_WINDOW_OK && refusal == CT_WINDOW_OK) {
    CHECK(desc.enter == to && desc.relocated > to && desc.after_callout >= desc.relocated);
    CHECK(desc.relocated_end >= desc.after_callout && desc.relocated_end <= to + out.length);
    CHECK(desc.map_count == window->count && desc.function == from);
    for (uint32_t i = 0; i < window->count; i++) {
      CHECK(desc.map_old[i] == window->offset[i]);
      CHECK(desc.after_callout + desc.map_new[i] < desc.relocated_end);
    }
  }
  if (relocated != CT_WINDOW_OK) {
    CHECK(refusal != CT_WINDOW_OK || relocated == CT_WINDOW_UNREACHABLE); /* it lies a little nearer, or further */
  }
  free(buffer);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static int ready;
  if (!ready) {
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    ready = 1;
  }
  struct input input = {data, data + size};
  const uint64_t from = 0x7f1234561000;
  uint64_t to = from + (uint64_t)(int64_t)(int32_t)input_number(&input, 4);
  uint8_t flags = (uint8_t)input_number(&input, 1);
  size_t code_bytes, need = flags & 0x80 ? 1 + (flags & 7) : CT_JUMP_BYTES;
  uint8_t *code = input_part(&input, 64, &code_bytes);
  (void)ct_is_padding(code, code_bytes / 2, code_bytes);
  struct ct_window window;
  if (ct_window_find(code, code_bytes, from, need, &window) == CT_WINDOW_OK) {
    check_window(code, code_bytes, need, &window);
    uint8_t *exact = malloc(window.length + 1); /* nothing after the window is looked at */
    CHECK(exact != NULL);
    memcpy(exact, code, window.length);
    uint8_t buffer[256];
    struct ct_relocation_map map;
    struct ct_code out = {.bytes = buffer, .capacity = sizeof(buffer), .address = to};
    enum ct_window_refusal refusal = ct_window_relocate(exact, from, &window, &out, &map);
    if (refusal == CT_WINDOW_OK) {
      CHECK(map.count == window.count && !out.overflow);
      size_t end = out.length - (window.terminated ? 0 : CT_JUMP_BYTES);
      for (uint32_t i = 0; i < window.count; i++) {
        size_t at = map.to[i], next = i + 1 < window.count ? map.to[i + 1] : end;
        CHECK(map.from[i] == window.offset[i] && at <= next && next <= end);
        check_one(exact + window.offset[i], window.offset[i + 1] - window.offset[i], from + window.offset[i],
                  buffer + at, next - at, to + at);
      }
      if (!window.terminated) {
        check_jump(buffer + end, CT_JUMP_BYTES, to + end, from + window.length);
      }
    }
    check_trampoline(exact, &window, from, to, flags, refusal);
    free(exact);
  }
  free(code);
  return 0;
}
