/* SPDX-License-Identifier: MIT */
/* The trampolines of all modes: what they record, when they ask the agent, and their callouts. */
#include "trampoline.h"

static void
a_full_hook_records_both(void **state)
{
  static const uint32_t ids[] = {0, 1, 0x123456, CT_FN_MAX};
  NEED_XSAVE;
  for (size_t i = 0; i < 12; i++) {
    uint32_t fn = ids[i % 4];
    emit(fn, CT_HOOK_FULL, CT_CALLOUT_NONE);
    prepare();
    uint64_t begin = clock_now();
    call_through((uint8_t)(i * 2));
    uint64_t end = clock_now();
    assert_stubs(0, 0, 0, 0, 0);
    assert_reserved(2);
    assert_event(0, CT_KIND_ENTER, fn, begin, end);
    assert_event(1, CT_KIND_RETURN, fn, segment[first + 0].tsc, end);
    assert_int_equal(segment[first + 2].word, 0);
    /* The body returned to the trampoline, the truth was in the store, and nothing else of it was written. */
    assert_int_equal(tramp_inside_return, arena->desc.ret_point);
    uint64_t kept;
    size_t offset = ra_slot_address() - (uint64_t)stack;
    memcpy(&kept, store + offset, 8);
    assert_int_equal(kept, (uint64_t)tramp_call_returns);
    for (size_t at = 0; at < STACK_BYTES; at++) {
      if (at < offset || at >= offset + 8) {
        assert_int_equal(store[at], 0x33);
      }
    }
  }
}

/* The function field of an enter-only event; a sampled hook's stands for one call. */
static uint32_t
point_of(uint32_t fn, uint8_t mode)
{
  return fn | CT_FN_POINT_BIT | (mode == CT_HOOK_SAMPLED ? 1u << CT_FN_WEIGHT_SHIFT : 0);
}

static void
enter_only_hooks_record_one(void **state)
{
  static const uint8_t modes[] = {CT_HOOK_ENTER, CT_HOOK_SAMPLED, CT_HOOK_STACKLESS};
  static const uint32_t ids[] = {0, 5, CT_FN_MAX};
  static const uint8_t texts[] = {CT_TEXT_OTHER, CT_TEXT_MODULE};
  NEED_XSAVE;
  for (size_t i = 0; i < 18; i++) {
    emit(ids[i % 3], modes[i / 3 % 3], CT_CALLOUT_NONE);
    prepare();
    mark_text((uint64_t)tramp_call_returns, texts[i / 9]);
    uint64_t begin = clock_now();
    call_through((uint8_t)(i * 3));
    assert_stubs(0, 0, 0, 0, 0);
    assert_reserved(1);
    assert_event(0, CT_KIND_OTHER, point_of(ids[i % 3], modes[i / 3 % 3]), begin, clock_now());
    assert_int_equal(tramp_inside_return, (uint64_t)tramp_call_returns);
    for (size_t at = 0; at < STACK_BYTES; at++) {
      assert_int_equal(store[at], 0x33);
    }
  }
}

static void
outside_the_stack_range_the_agent_is_asked(void **state)
{
  static const uint8_t modes[] = {CT_HOOK_FULL, CT_HOOK_ENTER, CT_HOOK_SAMPLED};
  NEED_XSAVE;
  for (size_t m = 0; m < 3; m++) {
    emit(7, modes[m], CT_CALLOUT_NONE);
    bool full = modes[m] == CT_HOOK_FULL;
    for (int k = 0; k < 6; k++) {
      static const struct {
        int64_t lo, length; /* relative to the return-address slot */
        bool inside;
      } ranges[] = {{0, 1, true},  {0, 0, false},       {-8, 8, false},
                    {-8, 9, true}, {8, 1 << 20, false}, {INT64_MIN, 64, false}};
      prepare();
      arena->control.stack_lo = ranges[k].lo == INT64_MIN ? 0 : ra_slot_address() + (uint64_t)ranges[k].lo;
      arena->control.stack_len = (uint64_t)ranges[k].length;
      call_through((uint8_t)k);
      assert_stubs(!ranges[k].inside, 0, 0, 0, 0);
      assert_reserved(ranges[k].inside ? (full ? 2 : 1) : 0);
      assert_int_equal(tramp_inside_return,
                       full && ranges[k].inside ? arena->desc.ret_point : (uint64_t)tramp_call_returns);
    }
  }
}

static const struct {
  int32_t countdown;
  uint32_t log2;
} passed[] = {{2, 0}, {2, 1}, {3, 0}, {257, 8}, {INT32_MAX, 8}}, due[] = {{1, 1}, {1, 8}, {0, 0}, {0, 3}, {-4, 0}};

/* Under sampling: not an event, and nothing written but the countdown; the red zone is the displaced push's alone. */
static void
a_sampled_hook_passes_calls_over(void **state)
{
  NEED_XSAVE;
  for (size_t i = 0; i < 10; i++) {
    emit(5, CT_HOOK_SAMPLED, CT_CALLOUT_NONE);
    prepare();
    arena->control.countdown = passed[i % 5].countdown;
    arena->control.sample_log2 = passed[i % 5].log2;
    if (i >= 5) {
      arena->control.stack_len = 0; /* as of a thread that is not registered: nothing of the page is looked at */
    }
    struct ct_control_page expected = arena->control;
    expected.countdown--;
    call_through((uint8_t)(160 + i));
    assert_stubs(0, 0, 0, 0, 0);
    assert_memory_equal(&arena->control, &expected, sizeof(expected));
    assert_int_equal(segment[first].word | segment[first].tsc, 0);
    for (size_t at = 0; at < STACK_BYTES / 2 - 16; at++) {
      assert_int_equal(stack[at], 0x44);
    }
  }
}

static void
a_sampled_hook_is_due(void **state)
{
  NEED_XSAVE;
  struct ct_region_head good = arena->head;
  memset(&arena->head, 0, sizeof(arena->head)); /* any other field is a jump to 0 */
  arena->head.sample_due = good.restore_ra_slot;
  for (size_t i = 0; i < 5; i++) {
    emit(5, CT_HOOK_SAMPLED, CT_CALLOUT_NONE);
    prepare();
    arena->control.countdown = due[i].countdown;
    arena->control.sample_log2 = due[i].log2;
    struct ct_control_page expected = arena->control;
    expected.countdown--;
    call_through((uint8_t)(170 + i));
    assert_stubs(0, 0, 0, 1, 0);
    assert_memory_equal(&arena->control, &expected, sizeof(expected));
    uint64_t saved[4];
    memcpy(saved, (const void *)(ra_slot_address() - 32), sizeof(saved));
    assert_int_equal(saved[0], tramp_before.reg[10]); /* where the agent looks for them */
    assert_int_equal(saved[1], tramp_before.reg[11]);
    assert_int_equal(saved[2], tramp_before.reg[2]);
  }
  arena->head = good;
}

/* On whatever stack; only for room the agent is asked. */
static void
a_stackless_hook_looks_at_no_stack(void **state)
{
  NEED_XSAVE;
  emit(7, CT_HOOK_STACKLESS, CT_CALLOUT_NONE);
  for (uint64_t room = 0; room < 2; room++) {
    prepare();
    arena->control.stack_len = 0;
    leave_room(room);
    mark_text((uint64_t)tramp_call_returns, CT_TEXT_TRAMPOLINE);
    uint64_t begin = clock_now();
    call_through((uint8_t)(60 + room));
    assert_stubs(room == 0, 0, 0, 0, 0);
    if (room != 0) {
      assert_event(0, CT_KIND_OTHER, 7 | CT_FN_POINT_BIT, begin, clock_now());
    }
  }
}

/* The displaced branch is taken: no call yet. It is not taken: one call, then on after it. */
static void
an_event_after_the_displaced_instructions(void **state)
{
  static const uint8_t modes[] = {CT_CALLOUT_NONE, CT_CALLOUT_PARK};
  NEED_XSAVE;
  struct ct_region_head good = arena->head;
  for (size_t k = 0; k < 4; k++) {
    /* cmp %rsp, %rsp; jb or jae to the second of two jumps to the body */
    uint8_t bytes[] = {0x48, 0x39, 0xe4, 0x72, 14, 0xff, 0x25, 0, 0, 0, 0};
    bool taken = k % 2 != 0;
    bytes[3] = taken ? 0x73 : 0x72;
    uint64_t body = (uint64_t)tramp_body, stub = (uint64_t)tramp_callout;
    struct ct_window window;
    struct ct_trampoline_spec spec = spec_of(21, CT_HOOK_STACKLESS, modes[k / 2], &window);
    memset(arena->function, 0xcc, sizeof(arena->function));
    memcpy(arena->function, bytes, sizeof(bytes));
    memcpy(arena->function + 11, &body, 8);
    memcpy(arena->function + 19, bytes + 5, 6);
    memcpy(arena->function + 25, &body, 8);
    memcpy((uint8_t *)&arena->head + offsetof(struct ct_region_head, callout_park), &stub, 8);
    assert_int_equal(ct_window_find(arena->function, 19, (uint64_t)arena->function, 5, &window), CT_WINDOW_OK);
    spec.event_last = 1;
    struct ct_code out = {.bytes = arena->code, .capacity = CT_TRAMPOLINE_BYTES_MAX, .address = (uint64_t)arena->code};
    assert_int_equal(ct_trampoline_emit(&spec, &out, &arena->desc), CT_WINDOW_OK);
    assert_true(arena->desc.relocated > arena->desc.enter);
    if (taken) {
      memset(arena->function + 5, 0xcc, 14); /* not that way */
    } else {
      memset(arena->function + 19, 0xcc, 14);
    }
    prepare();
    uint64_t begin = clock_now();
    call_through((uint8_t)(70 + k));
    assert_stubs(0, 0, 0, 0, !taken && modes[k / 2] == CT_CALLOUT_PARK);
    assert_reserved(taken ? 0 : 1);
    if (!taken) {
      assert_event(0, CT_KIND_OTHER, 21 | CT_FN_POINT_BIT, begin, clock_now());
    }
  }
  arena->head = good;
}

static void
a_full_segment_asks_the_agent(void **state)
{
  NEED_XSAVE;
  for (size_t room = 0; room < 3; room++) {
    emit(9, CT_HOOK_FULL, CT_CALLOUT_NONE);
    prepare();
    leave_room(room);
    uint64_t begin = clock_now();
    call_through((uint8_t)(40 + room));
    assert_stubs(room == 0, room == 1, 0, 0, 0);
    assert_reserved(room == 0 ? 1 : 2); /* the cursor runs past the limit */
    if (room > 0) {
      assert_event(0, CT_KIND_ENTER, 9, begin, clock_now());
    }
    for (size_t i = 0; i < first; i++) {
      assert_int_equal(segment[i].word | segment[i].tsc, 0);
    }
    assert_int_equal(tramp_inside_return, room == 0 ? (uint64_t)tramp_call_returns : arena->desc.ret_point);
  }
  for (size_t m = 0; m < 2; m++) {
    emit(9, m == 0 ? CT_HOOK_ENTER : CT_HOOK_SAMPLED, CT_CALLOUT_NONE);
    prepare();
    arena->control.cursor = 0; /* no segment at all */
    call_through((uint8_t)(50 + m));
    assert_stubs(1, 0, 0, 0, 0);
    assert_int_equal(segment[first + 0].word, 0);
  }
}

static void
who_calls_decides(void **state)
{
  NEED_XSAVE;
  uint64_t byte = (uint64_t)(table + ((uint64_t)tramp_call_returns >> CT_TABLE_SHIFT));
  static const uint8_t kinds[] = {CT_TEXT_OTHER, CT_TEXT_TRAMPOLINE, 3, 0xff};
  for (size_t k = 0; k < 4; k++) {
    emit(11, CT_HOOK_FULL, CT_CALLOUT_NONE);
    prepare();
    mark_text((uint64_t)tramp_call_returns, kinds[k]);
    call_through((uint8_t)(60 + k));
    assert_stubs(0, 0, 1, 0, 0);
    assert_reserved(0);
    assert_int_equal(tramp_stub_r10, byte);
    assert_int_equal(tramp_inside_return, (uint64_t)tramp_call_returns); /* not called through */
  }
  for (size_t k = 0; k < 4; k++) {
    emit(11, CT_HOOK_ENTER, CT_CALLOUT_NONE);
    prepare();
    mark_text((uint64_t)tramp_call_returns, kinds[k]);
    call_through((uint8_t)(70 + k));
    assert_stubs(0, 0, 0, kinds[k] == CT_TEXT_TRAMPOLINE, 0);
    assert_reserved(kinds[k] != CT_TEXT_TRAMPOLINE);
  }
  emit(11, CT_HOOK_SAMPLED, CT_CALLOUT_NONE);
  prepare();
  mark_text((uint64_t)tramp_call_returns, CT_TEXT_TRAMPOLINE);
  call_through(80);
  assert_stubs(0, 0, 0, 0, 0);
  assert_reserved(1);
}

/* An excluded function: no event, and the thread's control page is not looked at. */
static void
a_passthrough_trampoline(void **state)
{
  static const uint8_t kinds[] = {CT_TEXT_OTHER, CT_TEXT_MODULE, CT_TEXT_TRAMPOLINE, 3, 0xff};
  NEED_XSAVE;
  struct ct_region_head good = arena->head;
  memset(&arena->head, 0, sizeof(arena->head)); /* any other field is a jump to 0 */
  arena->head.restore_passthrough = good.restore_passthrough;
  arena->head.callout_seccomp = good.callout_seccomp;
  for (size_t k = 0; k < 10; k++) {
    uint8_t callout = k < 5 ? CT_CALLOUT_NONE : CT_CALLOUT_SECCOMP;
    emit(0, CT_HOOK_PASSTHROUGH, callout);
    prepare();
    memset(&arena->control, 0, sizeof(arena->control)); /* as of a thread that nobody knows yet */
    mark_text((uint64_t)tramp_call_returns, kinds[k % 5]);
    call_through((uint8_t)(110 + k));
    assert_stubs(0, 0, 0, kinds[k % 5] == CT_TEXT_TRAMPOLINE, k >= 5);
    assert_int_equal(arena->control.cursor, 0);
    assert_int_equal(segment[first + 0].word, 0);
    assert_int_equal(tramp_inside_return, (uint64_t)tramp_call_returns);
    for (size_t at = 0; at < STACK_BYTES; at++) {
      assert_int_equal(store[at], 0x33);
    }
  }
  arena->head = good;
}

/* Each callout goes through its own field of the head, before the displaced instructions, events as ever. */
static void
callouts(void **state)
{
  static const struct {
    uint8_t callout;
    size_t field;
  } kinds[] = {{CT_CALLOUT_PARK, offsetof(struct ct_region_head, callout_park)},
               {CT_CALLOUT_EXEC, offsetof(struct ct_region_head, callout_request)},
               {CT_CALLOUT_RENDEZVOUS, offsetof(struct ct_region_head, callout_request)},
               {CT_CALLOUT_FIND_FDE, offsetof(struct ct_region_head, callout_find_fde)},
               {CT_CALLOUT_SECCOMP, offsetof(struct ct_region_head, callout_seccomp)},
               {CT_CALLOUT_MLOCKALL, offsetof(struct ct_region_head, callout_mlockall)},
               {CT_CALLOUT_SYSCALL, offsetof(struct ct_region_head, callout_syscall)},
               {CT_CALLOUT_GO_SYSCALL, offsetof(struct ct_region_head, callout_go_syscall)},
               {CT_CALLOUT_SIGACTION, offsetof(struct ct_region_head, callout_sigaction)},
               {CT_CALLOUT_FIND_OBJECT, offsetof(struct ct_region_head, callout_find_object)},
               {CT_CALLOUT_GS, offsetof(struct ct_region_head, callout_gs)},
               {CT_CALLOUT_ARCH_PRCTL, offsetof(struct ct_region_head, callout_arch_prctl)},
               {CT_CALLOUT_FRAMES, offsetof(struct ct_region_head, callout_frames)},
               {CT_CALLOUT_COUNT, offsetof(struct ct_region_head, callout_count)},
               {CT_CALLOUT_WRITE, offsetof(struct ct_region_head, callout_write)},
               {CT_CALLOUT_WRITEV, offsetof(struct ct_region_head, callout_writev)}};
  static const uint8_t modes[] = {CT_HOOK_FULL, CT_HOOK_ENTER, CT_HOOK_SAMPLED};
  NEED_XSAVE;
  struct ct_region_head good = arena->head;
  for (size_t k = 0; k < 3 * sizeof(kinds) / sizeof(kinds[0]); k++) {
    uint64_t stub = (uint64_t)tramp_callout;
    memset(&arena->head, 0, sizeof(arena->head)); /* any other field is a jump to 0 */
    memcpy((uint8_t *)&arena->head + kinds[k / 3].field, &stub, 8);
    emit(13, modes[k % 3], kinds[k / 3].callout);
    prepare();
    uint64_t begin = clock_now();
    call_through((uint8_t)(90 + k));
    assert_stubs(0, 0, 0, 0, 1);
    assert_reserved(modes[k % 3] == CT_HOOK_FULL ? 2 : 1);
    if (modes[k % 3] == CT_HOOK_FULL) {
      assert_event(0, CT_KIND_ENTER, 13, begin, clock_now());
    } else {
      assert_event(0, CT_KIND_OTHER, point_of(13, modes[k % 3]), begin, clock_now());
    }
  }
  arena->head = good;
}

/* The low half of the return-address slot's address has any value, its sign bit among them. */
static void
stacks_in_either_half_of_four_gigabytes(void **state)
{
  static const uint64_t hints[] = {0x2a0000000000 + 0x7ffe0000, 0x2a0000000000 + 0x90000000, 0x2a00ffff0000,
                                   0x2a0200000000};
  NEED_XSAVE;
  uint8_t *usual = stack;
  for (size_t i = 0; i < 4; i++) {
    uint8_t *mapped = mmap((void *)hints[i], STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped != (uint8_t *)hints[i]) {
      continue;
    }
    stack = mapped;
    emit(CT_FN_MAX, CT_HOOK_FULL, CT_CALLOUT_NONE);
    prepare();
    uint64_t begin = clock_now();
    call_through((uint8_t)(120 + i));
    assert_reserved(2);
    assert_event(0, CT_KIND_ENTER, CT_FN_MAX, begin, clock_now());
    assert_event(1, CT_KIND_RETURN, CT_FN_MAX, begin, clock_now());
    emit(CT_FN_MAX, CT_HOOK_SAMPLED, CT_CALLOUT_NONE);
    prepare();
    call_through((uint8_t)(130 + i));
    assert_event(0, CT_KIND_OTHER, point_of(CT_FN_MAX, CT_HOOK_SAMPLED), begin, clock_now());
    munmap(mapped, STACK_BYTES);
  }
  stack = usual;
}

static void
a_refusal_leaves_everything(void **state)
{
  static const uint8_t modes[] = {CT_HOOK_FULL, CT_HOOK_ENTER, CT_HOOK_SAMPLED, CT_HOOK_PASSTHROUGH};
  for (size_t m = 0; m < 4; m++) {
    struct ct_window window;
    struct ct_trampoline_spec spec = spec_of(3, modes[m], CT_CALLOUT_PARK, &window);
    uint8_t whole[CT_TRAMPOLINE_BYTES_MAX];
    struct ct_code out = {.bytes = whole, .capacity = sizeof(whole), .address = (uint64_t)arena->code};
    struct ct_hook_desc desc, untouched;
    assert_int_equal(ct_trampoline_emit(&spec, &out, &desc), CT_WINDOW_OK);
    size_t length = out.length;
    memset(&untouched, 0x5a, sizeof(untouched));
    for (size_t capacity = 0; capacity < length; capacity++) {
      uint8_t *exact = malloc(capacity + 1);
      assert_non_null(exact);
      exact[capacity] = 0x77;
      memset(&desc, 0x5a, sizeof(desc));
      out = (struct ct_code){.bytes = exact, .capacity = capacity, .address = (uint64_t)arena->code};
      assert_int_equal(ct_trampoline_emit(&spec, &out, &desc), CT_WINDOW_UNREACHABLE);
      assert_int_equal(exact[capacity], 0x77);
      assert_int_equal(out.length, 0);
      assert_false(out.overflow);
      assert_memory_equal(&desc, &untouched, sizeof(desc));
      free(exact);
    }
    /* The head, the descriptor, the function: each out of reach. */
    for (int far = 0; far < 3; far++) {
      struct ct_trampoline_spec distant = spec;
      *(far == 0 ? &distant.head : far == 1 ? &distant.desc : &distant.function) += 1ull << 33;
      memset(&desc, 0x5a, sizeof(desc));
      out = (struct ct_code){.bytes = whole, .capacity = sizeof(whole), .address = (uint64_t)arena->code};
      assert_int_equal(ct_trampoline_emit(&distant, &out, &desc), CT_WINDOW_UNREACHABLE);
      assert_int_equal(out.length, 0);
      assert_memory_equal(&desc, &untouched, sizeof(desc));
    }
  }
}

/* The largest that the planner can ask for fits the size that regions are laid out by. */
static void
the_largest_fits(void **state)
{
  static const char *const windows[] = {"\x48\x89\xe5\x55\x2e\x2e\x2e\x2e\x48\xc7\x05\0\0\0\0\1\2\3\4",
                                        "\xe2\x7f\xe2\x7d\xe2\x7b", "\x90\x90\x90\x90\xe8\0\0\0\0", "\xe8\0\0\0\0"};
  static const uint8_t sizes[] = {19, 6, 9, 5};
  for (size_t i = 0; i < 4; i++) {
    struct ct_window window;
    assert_int_equal(ct_window_find((const uint8_t *)windows[i], sizes[i], 0x401000, 5, &window), CT_WINDOW_OK);
    uint8_t buffer[CT_TRAMPOLINE_BYTES_MAX];
    struct ct_trampoline_spec spec = {.fn = CT_FN_MAX,
                                      .mode = CT_HOOK_FULL,
                                      .values = CT_HOOK_VALUES_DETAIL,
                                      .detail = {CT_DETAIL_STACK_MAX, 1},
                                      .callout = CT_CALLOUT_PARK,
                                      .store_delta = -(1ll << 46),
                                      .function = 0x401000,
                                      .head = 0x500000,
                                      .desc = 0x500100,
                                      .code = (const uint8_t *)windows[i],
                                      .window = &window};
    struct ct_code out = {.bytes = buffer, .capacity = sizeof(buffer), .address = 0x501000};
    struct ct_hook_desc desc;
    assert_int_equal(ct_trampoline_emit(&spec, &out, &desc), CT_WINDOW_OK);
  }
}

static void
jump_bytes(void **state)
{
  uint8_t bytes[CT_JUMP_BYTES];
  assert_int_equal(ct_jump_bytes(0x1000, 0x1005, bytes), 0);
  assert_memory_equal(bytes, "\xe9\0\0\0\0", 5);
  assert_int_equal(ct_jump_bytes(0x1000, 0x1000, bytes), 0);
  assert_memory_equal(bytes, "\xe9\xfb\xff\xff\xff", 5);
  assert_int_equal(ct_jump_bytes(0x7f0000000000, 0x7f0000000005 + 0x7fffffff, bytes), 0);
  assert_memory_equal(bytes, "\xe9\xff\xff\xff\x7f", 5);
  assert_int_equal(ct_jump_bytes(0x7f0000000000, 0x7f0000000005 - 0x80000000, bytes), 0);
  assert_memory_equal(bytes, "\xe9\0\0\0\x80", 5);
  memset(bytes, 0x11, sizeof(bytes));
  assert_int_equal(ct_jump_bytes(0x7f0000000000, 0x7f0000000005 + 0x80000000, bytes), -1);
  assert_int_equal(ct_jump_bytes(0x7f0000000000, 0x7f0000000005 - 0x80000001, bytes), -1);
  assert_memory_equal(bytes, "\x11\x11\x11\x11\x11", 5);
}

/* ---- unwinding ---- */

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_full_hook_records_both),
      cmocka_unit_test(enter_only_hooks_record_one),
      cmocka_unit_test(outside_the_stack_range_the_agent_is_asked),
      cmocka_unit_test(a_sampled_hook_passes_calls_over),
      cmocka_unit_test(a_sampled_hook_is_due),
      cmocka_unit_test(a_stackless_hook_looks_at_no_stack),
      cmocka_unit_test(an_event_after_the_displaced_instructions),
      cmocka_unit_test(a_full_segment_asks_the_agent),
      cmocka_unit_test(who_calls_decides),
      cmocka_unit_test(a_passthrough_trampoline),
      cmocka_unit_test(callouts),
      cmocka_unit_test(stacks_in_either_half_of_four_gigabytes),
      cmocka_unit_test(a_refusal_leaves_everything),
      cmocka_unit_test(the_largest_fits),
      cmocka_unit_test(jump_bytes),
  };
  return cmocka_run_group_tests_name("trampoline", tests, set_up, tear_down);
}
