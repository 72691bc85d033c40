/* SPDX-License-Identifier: MIT */
/*
 * The rows of the unwind template are held against the truth at every single instruction: the trap flag is on
 * during a call, and at each stop inside the trampoline the rows must give the caller's rsp and return address.
 */
#include "trampoline.h"

/* One row, as far as the template uses the language: CFA = rsp + cfa, the rules of rsp and of the return address. */
struct row {
  size_t at;
  int64_t cfa;
  bool rsp_by_expression; /* rsp = rsp + rsp_offset, else the CFA */
  int64_t rsp_offset;
  bool ra_by_expression; /* at rsp + ra_offset, else at CFA + ra_offset */
  int64_t ra_offset;
};

static int64_t
read_leb(const uint8_t **at, bool is_signed)
{
  uint64_t value = 0;
  unsigned shift = 0;
  uint8_t byte;
  do {
    byte = *(*at)++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    shift += 7;
  } while ((byte & 0x80) != 0);
  if (is_signed && shift < 64 && (byte & 0x40) != 0) {
    value |= ~0ull << shift;
  }
  return (int64_t)value;
}

/* DW_OP_breg7 OFFSET and nothing else. */
static int64_t
read_breg7(const uint8_t **at)
{
  size_t length = (size_t)read_leb(at, false);
  const uint8_t *begin = *at;
  assert_int_equal(*(*at)++, 0x77);
  int64_t offset = read_leb(at, true);
  assert_int_equal(*at - begin, length);
  return offset;
}

static size_t
run_cfa(const uint8_t *at, const uint8_t *end, struct row *rows, size_t count, const struct row *initial)
{
  struct row *row = &rows[count - 1];
  while (at < end) {
    uint8_t op = *at++;
    switch (op) {
    case 0x00:
      break;
    case 0x03: /* advance_loc2 */
      rows[count] = *row;
      row = &rows[count++];
      row->at += (size_t)(at[0] | at[1] << 8);
      at += 2;
      break;
    case 0x0c: /* def_cfa */
      assert_int_equal(*at++, 7);
      row->cfa = read_leb(&at, false);
      break;
    case 0x10: /* expression */
      assert_int_equal(*at++, 16);
      row->ra_by_expression = true;
      row->ra_offset = read_breg7(&at);
      break;
    case 0x16: /* val_expression */
      assert_int_equal(*at++, 7);
      row->rsp_by_expression = true;
      row->rsp_offset = read_breg7(&at);
      break;
    case 0x80 | 16: /* offset */
      row->ra_by_expression = false;
      row->ra_offset = -8 * read_leb(&at, false);
      break;
    case 0xc0 | 7: /* restore */
      row->rsp_by_expression = initial->rsp_by_expression;
      break;
    default:
      fail_msg("call frame instruction %#x", op);
    }
  }
  assert_ptr_equal(at, end);
  return count;
}

static size_t
read_fde(const uint8_t *base, uint64_t address, uint64_t fde_address, struct row *rows)
{
  const uint8_t *fde = base + (fde_address - address), *cie;
  uint32_t length, distance, cie_length;
  uint64_t start, range;
  memcpy(&length, fde, 4);
  memcpy(&distance, fde + 4, 4);
  memcpy(&start, fde + 8, 8);
  memcpy(&range, fde + 16, 8);
  cie = fde + 4 - distance;
  memcpy(&cie_length, cie, 4);
  assert_int_equal((fde_address + 4 + length) % 4, address % 4);
  assert_int_equal(start, 0);
  assert_true(range >= CT_TRAMPOLINE_BYTES_MAX);
  assert_int_equal(*(const uint32_t *)(cie + 4), 0);
  assert_memory_equal(cie + 8, "\x01zR\0\x01\x78\x10\x01\x00", 9);
  memset(rows, 0, sizeof(*rows));
  struct row initial = {0};
  run_cfa(cie + 17, cie + 4 + cie_length, rows, 1, &initial);
  initial = rows[0];
  assert_int_equal(fde[24], 0);
  return run_cfa(fde + 25, fde + 4 + length, rows, 1, &initial);
}

static struct row step_rows[8];
static size_t step_row_count;
static size_t steps, step_failures, first_failure;
static uint32_t step_rows_seen;

static void
on_step(int number, siginfo_t *info, void *context)
{
  const greg_t *regs = ((const ucontext_t *)context)->uc_mcontext.gregs;
  uint64_t pc = (uint64_t)regs[REG_RIP], rsp = (uint64_t)regs[REG_RSP];
  bool inside = pc >= arena->desc.enter && pc < (uint64_t)arena->code + sizeof(arena->code);
  if (!inside || (pc >= arena->desc.relocated && pc < arena->desc.relocated_end)) {
    return; /* the displaced instructions have rows of their own */
  }
  size_t offset = pc - arena->desc.enter, r = 0;
  while (r + 1 < step_row_count && step_rows[r + 1].at <= offset) {
    r++;
  }
  const struct row *row = &step_rows[r];
  uint64_t cfa = rsp + (uint64_t)row->cfa;
  uint64_t caller = row->rsp_by_expression ? rsp + (uint64_t)row->rsp_offset : cfa;
  uint64_t at = (row->ra_by_expression ? rsp : cfa) + (uint64_t)row->ra_offset;
  uint64_t address;
  memcpy(&address, (const void *)at, 8);
  steps++;
  step_rows_seen |= 1u << r;
  if (address != (uint64_t)tramp_call_returns || caller != ra_slot_address() + 8) {
    if (step_failures++ == 0) {
      first_failure = offset;
    }
  }
}

static void
step_through(uint8_t seed)
{
  steps = step_failures = 0;
  step_rows_seen = 0;
  prepare();
  fill_pattern(&tramp_before, seed);
  fill_pattern(&tramp_answer, (uint8_t)(seed + 1));
  tramp_before.reg[4] = (uint64_t)(stack + STACK_BYTES / 2);
  tramp_flags = 0x302; /* the trap flag */
  tramp_call();
  assert_same_state("stepped", &tramp_after, &tramp_answer, ra_slot_address() + 8);
  if (step_failures != 0) {
    fail_msg("%zu of %zu instructions have a wrong row, the first at +%zu", step_failures, steps, first_failure);
  }
}

static void
rows_hold_at_every_instruction(void **state)
{
  NEED_XSAVE;
  struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO}, before;
  uint8_t buffer[512];
  struct ct_trampoline_rows rows;
  size_t size = ct_trampoline_unwind((int64_t)(store - stack), form, buffer, sizeof(buffer), 0x10000, &rows);
  assert_true(size > 4 && size <= sizeof(buffer));
  assert_memory_equal(buffer + size - 4, "\0\0\0\0", 4);
  assert_int_equal(sigaction(SIGTRAP, &action, &before), 0);

  emit(2, CT_HOOK_FULL, CT_CALLOUT_NONE);
  for (uint8_t values = CT_HOOK_VALUES_NONE; values <= CT_HOOK_VALUES_DETAIL; values++) {
    const uint64_t fdes[] = {rows.full, rows.values, rows.detail};
    if (values != CT_HOOK_VALUES_NONE) {
      emit_values(2, values);
    }
    step_row_count = read_fde(buffer, 0x10000, fdes[values], step_rows);
    assert_int_equal(step_row_count, 4); /* slot; popped; adjusted; restored */
    assert_int_equal(step_rows[1].cfa % 2, 1);
    assert_true(step_rows[1].rsp_by_expression && step_rows[1].rsp_offset == 0);
    assert_int_equal(step_rows[2].at, arena->desc.ret - arena->desc.enter);
    step_through((uint8_t)(150 + values * 8));
    assert_true(steps > (values != 0 ? 80u : 50u));
    assert_int_equal(step_rows_seen, 0xf);
  }

  emit(2, CT_HOOK_ENTER, CT_CALLOUT_NONE);
  step_row_count = read_fde(buffer, 0x10000, rows.enter, step_rows);
  assert_int_equal(step_row_count, 1);
  step_through(152);
  assert_true(steps > 15);
  emit(2, CT_HOOK_SAMPLED, CT_CALLOUT_NONE);
  step_through(154);
  assert_true(steps > 10);
  emit(0, CT_HOOK_PASSTHROUGH, CT_CALLOUT_NONE);
  step_through(156);
  assert_true(steps > 5);
  assert_int_equal(sigaction(SIGTRAP, &before, NULL), 0);
}

/* The template for the distances that are selected for real, and others. */
static void
the_template_for_other_distances(void **state)
{
  static const int64_t deltas[] = {-(1ll << 46), 1ll << 46, -(1ll << 40), 0x123456789000, -4096, 0};
  for (size_t i = 0; i < 2 * sizeof(deltas) / sizeof(deltas[0]); i++) {
    int64_t delta = deltas[i / 2];
    uint8_t buffer[512];
    struct ct_trampoline_rows at;
    struct row rows[8];
    size_t size =
        ct_trampoline_unwind(delta, (struct ct_detail_form){.stack = 128}, buffer, sizeof(buffer), 0x7f0000001000, &at);
    assert_true(size != 0);
    assert_int_equal(read_fde(buffer, 0x7f0000001000, i % 2 == 0 ? at.full : at.values, rows), 4);
    assert_int_equal(read_fde(buffer, 0x7f0000001000, at.detail, rows), 4);
    assert_false(rows[0].ra_by_expression);
    assert_int_equal(rows[0].ra_offset, -8);
    assert_true(rows[1].ra_by_expression);
    assert_int_equal(rows[1].ra_offset, delta - 8);
    assert_int_equal(rows[1].cfa, 1);
    assert_true(rows[2].ra_by_expression);
    assert_int_equal(rows[2].ra_offset, delta);
    assert_int_equal(rows[2].cfa, 8);
    assert_false(rows[2].rsp_by_expression);
    assert_false(rows[3].ra_by_expression);
    assert_int_equal(rows[3].ra_offset, -8);
    assert_int_equal(read_fde(buffer, 0x7f0000001000, at.enter, rows), 1);
    assert_int_equal(rows[0].cfa, 8);
  }
}

static sigjmp_buf too_long;

static void
on_alarm(int number)
{
  siglongjmp(too_long, 1);
}

/* The answer is 0, in time, and nothing is written past the end. */
static void
the_template_in_a_small_buffer(void **state)
{
  uint8_t whole[512];
  struct ct_trampoline_rows rows;
  size_t size =
      ct_trampoline_unwind(-(1ll << 46), (struct ct_detail_form){.stack = 128}, whole, sizeof(whole), 0x1000, &rows);
  volatile size_t capacity = 0;
  struct sigaction action = {.sa_handler = on_alarm}, before;
  assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
  if (sigsetjmp(too_long, 1) != 0) {
    fail_msg("does not come to an end with %zu bytes", capacity);
  }
  for (; capacity < size; capacity++) {
    uint8_t *exact = malloc(capacity + 1);
    assert_non_null(exact);
    exact[capacity] = 0x77;
    rows = (struct ct_trampoline_rows){1, 1, 1, 1};
    alarm(5);
    assert_int_equal(
        ct_trampoline_unwind(-(1ll << 46), (struct ct_detail_form){.stack = 128}, exact, capacity, 0x1000, &rows), 0);
    alarm(0);
    assert_int_equal(exact[capacity], 0x77);
    assert_int_equal(rows.full + rows.values + rows.detail + rows.enter, 4);
    free(exact);
  }
  assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rows_hold_at_every_instruction),
      cmocka_unit_test(the_template_for_other_distances),
      cmocka_unit_test(the_template_in_a_small_buffer),
  };
  return cmocka_run_group_tests_name("trampoline_unwind", tests, set_up, tear_down);
}
