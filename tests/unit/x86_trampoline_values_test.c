/* SPDX-License-Identifier: MIT */
/* The trampolines that record arguments and results, as events and as records of the detail lane. */
#include "trampoline.h"

/* Two arguments after the enter, the result before the return; or, without room for all of either, the agent is asked
 * before anything is taken. */
static void
a_full_hook_records_values(void **state)
{
  NEED_XSAVE;
  for (size_t room = 0; room < 8; room++) {
    emit_values(0x4321, CT_HOOK_VALUES_FEW);
    prepare();
    leave_room(room);
    uint64_t begin = clock_now();
    call_through((uint8_t)(180 + room));
    uint64_t end = clock_now();
    assert_stubs(room < 3, room >= 3 && room < 5, 0, 0, 0);
    assert_reserved(room < 3 ? 0 : room < 5 ? 3 : 5);
    if (room >= 3) {
      assert_event(0, CT_KIND_ENTER, 0x4321, begin, end);
      assert_value(1, CT_OTHER_ARG_1, tramp_before.reg[7]);
      assert_value(2, CT_OTHER_ARG_2, tramp_before.reg[6]);
    }
    if (room >= 5) {
      assert_value(3, CT_OTHER_RESULT, tramp_answer.reg[0]);
      assert_event(4, CT_KIND_RETURN, 0x4321, segment[first].tsc, end);
    }
    size_t written = room < 3 ? 0 : room < 5 ? 3 : 5;
    for (size_t i = first + written; i < CT_SEGMENT_EVENTS; i++) {
      assert_int_equal(segment[i].word | segment[i].tsc, 0);
    }
  }
}

static void
assert_further(size_t index, uint32_t which, const void *value)
{
  uint64_t number;
  memcpy(&number, value, sizeof(number));
  assert_value(index, (enum ct_other)(CT_OTHER_VALUE | which << 4), number);
}

/* Those of values_form in their order; gives how many. */
static size_t
assert_arguments(size_t at, bool has_stack)
{
  static const unsigned order[6] = {7, 6, 2, 1, 8, 9}; /* in struct state */
  size_t begin = at;
  for (uint32_t i = 0; i < 6; i++) {
    if ((values_form.integers >> i & 1) != 0 && i < 2) {
      assert_value(at++, i == 0 ? CT_OTHER_ARG_1 : CT_OTHER_ARG_2, tramp_before.reg[order[i]]);
    } else if ((values_form.integers >> i & 1) != 0) {
      assert_further(at++, CT_RING_VALUE_INTEGER + i, &tramp_before.reg[order[i]]);
    }
  }
  for (uint32_t i = 0; i < 8; i++) {
    if ((values_form.vectors >> i & 1) != 0) {
      assert_further(at++, CT_RING_VALUE_VECTOR + i, tramp_before.vectors + 160 + i * 16);
    }
  }
  for (uint32_t i = 0; has_stack && i < CT_VALUES_STACK_WORDS; i++) {
    if ((values_form.stack >> i & 1) == 0) {
      continue;
    }
    assert_further(at++, CT_RING_VALUE_STACK + i, (const uint8_t *)ra_slot_address() + 8 + i * 8);
  }
  return at - begin;
}

static size_t
assert_results(size_t at)
{
  size_t begin = at;
  if ((values_form.results & CT_VALUES_RAX) != 0) {
    assert_value(at++, CT_OTHER_RESULT, tramp_answer.reg[0]);
  }
  if ((values_form.results & CT_VALUES_RDX) != 0) {
    assert_further(at++, CT_RING_VALUE_RESULT_2, &tramp_answer.reg[2]);
  }
  if ((values_form.results & CT_VALUES_XMM0) != 0) {
    assert_further(at++, CT_RING_VALUE_XMM0, tramp_answer.vectors + 160);
  }
  if ((values_form.results & CT_VALUES_XMM1) != 0) {
    assert_further(at++, CT_RING_VALUE_XMM1, tramp_answer.vectors + 176);
  }
  return at - begin;
}

/* What a function takes and gives, and nothing else; of the stack what is before its end. */
static void
a_full_hook_records_what_the_function_takes(void **state)
{
  NEED_XSAVE;
  for (uint32_t turn = 0; turn < 200; turn++) {
    uint32_t random = (turn + 1) * 2654435761u;
    values_form = (struct ct_values_form){.integers = turn == 0 ? 0x3f : random & 0x3f,
                                          .vectors = turn == 0 ? 0xff : random >> 8 & random >> 16 & 0xff,
                                          .stack = turn == 0 ? 0xaaaaaaaa : random & random >> 5 & random >> 11,
                                          .results = turn == 0 ? 15 : random >> 20 & 15};
    bool has_stack = turn % 3 != 1;
    emit_values(0x4321, CT_HOOK_VALUES_FEW);
    prepare();
    memset((uint8_t *)ra_slot_address() + 8, (int)(turn + 3), CT_VALUES_STACK_WORDS * 8);
    unsigned words = values_form.stack != 0 ? 32 - (unsigned)__builtin_clz(values_form.stack) : 0;
    uint64_t below_end = 8 + words * 8u - (has_stack ? 0 : 1);
    arena->control.stack_len = ra_slot_address() + below_end - (uint64_t)stack;
    uint64_t begin = clock_now();
    call_through((uint8_t)turn);
    uint64_t end = clock_now();
    assert_stubs(0, 0, 0, 0, 0);
    assert_event(0, CT_KIND_ENTER, 0x4321, begin, end);
    size_t count = 1 + assert_arguments(1, has_stack);
    count += assert_results(count);
    assert_event(count, CT_KIND_RETURN, 0x4321, segment[first].tsc, end);
    assert_reserved(count + 1);
  }
  values_form = (struct ct_values_form){.integers = 3, .results = CT_VALUES_RAX};
}

/* What the record of an enter at so many bytes into the segment says, and of a return. */
static void
assert_detail_enter(size_t at, uint32_t fn, uint64_t stack_bytes)
{
  static const unsigned order[8] = {7, 6, 2, 1, 8, 9, 0, 10}; /* in struct state */
  struct ct_detail_enter enter;
  memcpy(&enter, details + at, sizeof(enter));
  assert_int_equal(enter.record.word, ra_slot_address() << 32 | fn << CT_WORD_FN_SHIFT | CT_WORD_ENTER);
  assert_int_equal(enter.record.sp, ra_slot_address());
  assert_int_equal(enter.record.bp, tramp_before.reg[5]);
  assert_int_equal(enter.return_address, (uint64_t)tramp_call_returns);
  for (unsigned i = 0; i < 8; i++) {
    assert_int_equal(enter.registers[i], tramp_before.reg[order[i]]);
  }
  const uint8_t *next = details + at + sizeof(enter);
  for (unsigned i = 0; form.vectors != 0 && i < CT_DETAIL_VECTORS; i++, next += 8) {
    assert_memory_equal(next, tramp_before.vectors + 160 + i * 16, 8);
  }
  if (form.stack != 0) {
    uint64_t got, returns = (uint64_t)tramp_call_returns;
    memcpy(&got, next, 8);
    assert_int_equal(got, stack_bytes);
    next += 8;
    assert_memory_equal(next, &returns, 8);
    for (size_t i = 8; i < stack_bytes; i++) {
      assert_int_equal(next[i], 0x44);
    }
    next += stack_bytes;
  }
  for (; next < details + at + ct_detail_enter_bytes(form); next++) {
    assert_int_equal(*next, 0x55);
  }
}

static void
assert_detail_return(size_t at, uint32_t fn)
{
  struct ct_detail_return leave;
  memcpy(&leave, details + at, sizeof(leave));
  assert_int_equal(leave.record.word, ra_slot_address() << 32 | fn << CT_WORD_FN_SHIFT | CT_WORD_RETURN);
  assert_int_equal(leave.record.sp, ra_slot_address());
  assert_int_equal(leave.rax, tramp_answer.reg[0]);
  assert_int_equal(leave.rdx, tramp_answer.reg[2]);
  assert_memory_equal(&leave.xmm0, tramp_answer.vectors + 160, 8);
  assert_memory_equal(&leave.xmm1, tramp_answer.vectors + 176, 8);
}

/* A record for each way, and events that say where they are; of the stack as much as there is. */
static void
a_full_hook_records_detail(void **state)
{
  static const struct ct_detail_form forms[] = {{0, 0}, {0, 1}, {8, 0}, {128, 0}, {128, 1}, {512, 0}, {512, 1}};
  static const uint64_t until_end[] = {8, 16, 60, 120, 128, 4096};
  NEED_XSAVE;
  for (size_t i = 0; i < 42; i++) {
    form = forms[i / 6];
    uint64_t end_of_stack = until_end[i % 6];
    emit_values(CT_FN_MAX - 3, CT_HOOK_VALUES_DETAIL);
    prepare();
    arena->control.stack_len = ra_slot_address() + end_of_stack - (uint64_t)stack;
    uint64_t begin = clock_now();
    call_through((uint8_t)(60 + i));
    uint64_t end = clock_now();
    assert_stubs(0, 0, 0, 0, 0);
    assert_int_equal(tramp_detail_full_count, 0);
    assert_reserved(4);
    size_t bytes = ct_detail_enter_bytes(form);
    assert_value(0, CT_OTHER_DETAIL, (uint64_t)details);
    assert_event(1, CT_KIND_ENTER, CT_FN_MAX - 3, begin, end);
    assert_value(2, CT_OTHER_DETAIL, (uint64_t)details + bytes);
    assert_event(3, CT_KIND_RETURN, CT_FN_MAX - 3, segment[first + 1].tsc, end);
    uint64_t stack_bytes = form.stack < end_of_stack ? form.stack : end_of_stack & ~7ull;
    assert_detail_enter(0, CT_FN_MAX - 3, stack_bytes);
    assert_detail_return(bytes, CT_FN_MAX - 3);
    assert_int_equal(arena->control.detail_cursor, (uint64_t)details + bytes + sizeof(struct ct_detail_return));
    for (size_t at = bytes + sizeof(struct ct_detail_return); at < CT_SEGMENT_STRIDE; at++) {
      assert_int_equal(details[at], 0x55);
    }
  }
  form = (struct ct_detail_form){.stack = 128};
}

/* In the ring, in the detail segment: without room for what belongs together the agent is asked, and nothing is lost
 * but the record. */
static void
a_full_hook_without_room_for_detail(void **state)
{
  size_t bytes = ct_detail_enter_bytes(form);
  NEED_XSAVE;
  for (size_t i = 0; i < 15; i++) {
    size_t room = i % 5, free_bytes = i / 5 == 0 ? 0 : i / 5 == 1 ? 16 : bytes + 16;
    emit_values(77, CT_HOOK_VALUES_DETAIL);
    prepare();
    leave_room(room);
    arena->control.detail_cursor = (uint64_t)details + CT_SEGMENT_BYTES - free_bytes;
    uint64_t begin = clock_now();
    call_through((uint8_t)(100 + i));
    uint64_t end = clock_now();
    /* Without a record there is the enter or return alone. */
    size_t entered = room < 2 ? 0 : free_bytes == 0 ? 1 : 2;
    size_t returned = room - entered < 2 || room < 2 ? 0 : free_bytes <= bytes ? 1 : 2;
    assert_stubs(entered == 0, entered != 0 && returned == 0, 0, 0, 0);
    assert_int_equal(tramp_detail_full_count, (entered == 1) + (returned == 1));
    assert_reserved(entered + returned);
    if (entered != 0) {
      assert_event(entered - 1, CT_KIND_ENTER, 77, begin, end);
    }
    if (entered == 2) { /* it may end after the segment */
      assert_value(0, CT_OTHER_DETAIL, (uint64_t)details + CT_SEGMENT_BYTES - free_bytes);
      assert_detail_enter(CT_SEGMENT_BYTES - free_bytes, 77, 128);
    }
    if (returned != 0) {
      assert_event(entered + returned - 1, CT_KIND_RETURN, 77, begin, end);
    }
    if (returned == 2) {
      assert_detail_return(CT_SEGMENT_BYTES - 16, 77);
    }
  }
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_full_hook_records_values),
      cmocka_unit_test(a_full_hook_records_what_the_function_takes),
      cmocka_unit_test(a_full_hook_records_detail),
      cmocka_unit_test(a_full_hook_without_room_for_detail),
  };
  return cmocka_run_group_tests_name("trampoline_values", tests, set_up, tear_down);
}
