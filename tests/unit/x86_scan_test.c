/* SPDX-License-Identifier: MIT */
/* What the scanner says of functions of a few bytes, with frame rows and without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "x86/scan.h"

enum { TEXT = 0x1000, TEXT_BYTES = 0x1000, FUNCTION = 0x1100, OUTSIDE = 0x1800 };
enum { RSP = 7, RBP = 6 };

#define SCAN(scan, bytes, rows, row_count) scan_bytes(scan, bytes, sizeof(bytes) - 1, rows, row_count)

/* The facts of one function at FUNCTION; *scan is made anew and must be freed. */
static int
scan_bytes(struct ct_scan *scan, const char *bytes, size_t size, const struct ct_cfi_row *rows, size_t row_count)
{
  assert_int_equal(ct_scan_init(scan, TEXT, TEXT + TEXT_BYTES), 0);
  return ct_scan_function(scan, 3, (const uint8_t *)bytes, FUNCTION, size, size, rows, row_count);
}

/* Only the facts matter. */
static int
facts_of(const char *bytes, size_t size, const struct ct_cfi_row *rows, size_t row_count)
{
  struct ct_scan scan;
  int facts = scan_bytes(&scan, bytes, size, rows, row_count);
  ct_scan_free(&scan);
  return facts;
}

#define FACTS(bytes)                   facts_of(bytes, sizeof(bytes) - 1, NULL, 0)
#define FACTS_ROWS(bytes, rows, count) facts_of(bytes, sizeof(bytes) - 1, rows, count)

static void
test_ra_slot_without_cfi(void **state)
{
  (void)state;
  assert_int_equal(FACTS("\x48\x8b\x04\x24\xc3"), CT_FACT_TOUCHES_RA_SLOT);             /* mov (%rsp), %rax */
  assert_int_equal(FACTS("\x58\xff\xe0"), CT_FACT_TOUCHES_RA_SLOT);                     /* pop %rax; jmp *%rax */
  assert_int_equal(FACTS("\x53\x48\x8b\x04\x24\x5b\xc3"), 0);                           /* push %rbx; mov (%rsp) */
  assert_int_equal(FACTS("\x53\x48\x8b\x44\x24\x08\x5b\xc3"), CT_FACT_TOUCHES_RA_SLOT); /* push %rbx; mov 8(%rsp) */
  assert_int_equal(FACTS("\x48\x83\xec\x18\x48\x8b\x44\x24\x18\xc3"), CT_FACT_TOUCHES_RA_SLOT);
  assert_int_equal(FACTS("\x48\x83\xec\x18\x48\x83\xc4\x10\x48\x8b\x44\x24\x18\xc3"), 0);
  assert_int_equal(FACTS("\x48\x8d\x64\x24\xf0\x48\x8b\x44\x24\x10\xc3"), CT_FACT_TOUCHES_RA_SLOT); /* lea -16(%rsp) */
  assert_int_equal(FACTS("\x48\x89\xec\x48\x8b\x04\x24\xc3"), 0); /* mov %rbp, %rsp: nothing known */
  assert_int_equal(FACTS("\x48\x83\xe4\xf0\x48\x8b\x04\x24\xc3"), 0);
  assert_int_equal(FACTS("\x49\x83\xec\x18\x48\x8b\x04\x24\xc3"), CT_FACT_TOUCHES_RA_SLOT); /* sub of r12: no matter */
  assert_int_equal(FACTS("\xc9\x48\x8b\x04\x24\xc3"), CT_FACT_TOUCHES_RA_SLOT);             /* leave: rsp = S again */
  assert_int_equal(FACTS("\x0f\x1f\x04\x24\xc3"), 0);                                       /* nop (%rsp) */
}

/* To another place on the stack: by adding a register, and by nothing else. */
static void
test_moves_of_the_stack(void **state)
{
  (void)state;
  assert_int_equal(FACTS("\x48\x01\xc4\xc3"), CT_FACT_MOVES_STACK); /* add %rax, %rsp */
  assert_int_equal(FACTS("\x48\x03\xe0\xc3"), CT_FACT_MOVES_STACK); /* the same, encoded the other way */
  assert_int_equal(FACTS("\x4c\x01\xe4\xc3"), CT_FACT_MOVES_STACK); /* add %r12, %rsp */
  assert_int_equal(FACTS("\x48\x29\xc4\xc3"), 0);                   /* sub %rax, %rsp: room */
  assert_int_equal(FACTS("\x48\x89\xc4\xc3"), 0);                   /* mov %rax, %rsp */
  assert_int_equal(FACTS("\x48\x01\xc5\xc3"), 0);                   /* add %rax, %rbp */
  assert_int_equal(FACTS("\x49\x01\xc4\xc3"), 0);                   /* add %rax, %r12 */
  assert_int_equal(FACTS("\x48\x03\xc4\xc3"), 0);                   /* add %rsp, %rax */
}

/* The depth goes with branches, and is not known after a jump, also after one out of the function. */
static void
test_depth_after_jumps(void **state)
{
  (void)state;
  /* push; je 1f; jmp 2f; 1: mov 8(%rsp), %rax; 2: ret */
  assert_int_equal(FACTS("\x53\x74\x02\xeb\x05\x48\x8b\x44\x24\x08\xc3") & CT_FACT_TOUCHES_RA_SLOT,
                   CT_FACT_TOUCHES_RA_SLOT);
  /* the same without the branch to it */
  assert_int_equal(FACTS("\x53\x90\x90\xeb\x05\x48\x8b\x44\x24\x08\xc3"), 0);
  /* jmp OUTSIDE; mov (%rsp), %rax; ret */
  assert_int_equal(FACTS("\xe9\xfb\x06\x00\x00\x48\x8b\x04\x24\xc3"), 0);
  assert_int_equal(FACTS("\xc3\x48\x8b\x04\x24\xc3"), 0);
  assert_int_equal(FACTS("\xff\xe0\x48\x8b\x04\x24\xc3"), 0);
}

static void
test_ra_slot_with_rows(void **state)
{
  static const struct ct_cfi_row framed[] = {
      {FUNCTION, 8, RSP, 1}, {FUNCTION + 1, 16, RSP, 1}, {FUNCTION + 4, 16, RBP, 1}, {FUNCTION + 9, 8, RSP, 1}};
  static const struct ct_cfi_row close[] = {{FUNCTION, 8, RSP, 1}, {FUNCTION + 1, 0, RSP, 1}};
  static const struct ct_cfi_row expression[] = {{FUNCTION, 0, CT_CFA_EXPRESSION, 0}};
  static const struct ct_cfi_row late[] = {{FUNCTION + 5, 8, RSP, 1}};
  (void)state;
  /* push %rbp; mov %rsp, %rbp; mov disp(%rbp), %rax; leave; ret */
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x48\x8b\x45\x08\xc9\xc3", framed, 4), CT_FACT_TOUCHES_RA_SLOT);
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x48\x8b\x45\x10\xc9\xc3", framed, 4), 0);
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x48\x8b\x45\x00\xc9\xc3", framed, 4), 0);
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x48\x8b\x45\x00\x48\x8b\x40\x08\xc3", framed, 3), CT_FACT_READS_FRAMES);
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x48\x8b\x6d\x00\xc9\xc3", framed, 4), 0); /* to rbp itself */
  /* the frame's address, lea 0(%rbp), mov %rbp, %rax; mov %rbp, %rsp; mov %rax, %rbp */
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x48\x8d\x45\x00\xc9\xc3", framed, 4), 0);
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x48\x89\xe8\x90\xc9\xc3", framed, 4), 0);
  /* mov %rbp, %r12; add $8, %r12 or another register, add $16 */
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x49\x89\xec\x49\x83\xc4\x08\xc3", framed, 3), CT_FACT_TOUCHES_RA_SLOT);
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x49\x89\xec\x48\x83\xc0\x08\xc3", framed, 3), 0);
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x49\x89\xec\x49\x83\xc4\x10\xc3", framed, 3), 0);
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x48\x89\xec\x90\xc9\xc3", framed, 4), 0);
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x48\x89\xc5\x90\xc9\xc3", framed, 4), 0);
  /* the same before rbp is the frame pointer */
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe8\xc3", framed, 2), 0);
  /* with mov (%rax), %rax after it, and without it */
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x48\x89\xe8\x48\x8b\x00\xc3", framed, 3),
                   CT_FACT_TOUCHES_RA_SLOT | CT_FACT_READS_FRAMES);
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x48\x8b\x00\xc9\xc3", framed, 3), 0);
  /* 8(%rsp) while the CFA is rbp + 16 says nothing */
  assert_int_equal(FACTS_ROWS("\x55\x48\x89\xe5\x48\x8b\x44\x24\x08\xc3", framed, 4), 0);
  /* pop where the CFA is rsp + 16, and where it is rsp + 8 */
  assert_int_equal(FACTS_ROWS("\x55\x58\x90\x90\x90\x90\x90\x90\x90\xc3", framed, 4), 0);
  assert_int_equal(FACTS_ROWS("\x55\x90\x90\x90\x90\x90\x90\x90\x90\x58", framed, 4), CT_FACT_TOUCHES_RA_SLOT);
  /* pushf; popf where no row tells of them */
  assert_int_equal(FACTS_ROWS("\x9c\x9d\xc3", close, 1), CT_FACT_FLAGS_IN);
  assert_int_equal(FACTS_ROWS("\x90\x90\xc3", close, 2), CT_FACT_TOUCHES_RA_SLOT);
  assert_int_equal(FACTS_ROWS("\xc3", close, 2), 0); /* no instruction in that row */
  assert_int_equal(FACTS_ROWS("\x48\x8b\x04\x24\xc3", expression, 1), 0);
  assert_int_equal(FACTS_ROWS("\x48\x8b\x04\x24\x90\x48\x8b\x04\x24\xc3", late, 1), CT_FACT_TOUCHES_RA_SLOT);
  assert_int_equal(FACTS_ROWS("\x48\x8b\x04\x24\xc3", late, 1), 0);
}

static void
test_flags(void **state)
{
  struct ct_scan scan;
  (void)state;
  assert_int_equal(FACTS("\x0f\x92\xc0\xc3"), CT_FACT_FLAGS_IN);         /* setb %al */
  assert_int_equal(FACTS("\x89\xf8\x0f\x92\xc0\xc3"), CT_FACT_FLAGS_IN); /* after a mov */
  assert_int_equal(FACTS("\x85\xff\x0f\x92\xc0\xc3"), 0);                /* after test */
  assert_int_equal(FACTS("\xe8\x00\x00\x00\x00\x0f\x92\xc0\xc3"), 0);    /* after a call */
  /* call OUTSIDE; jc +0; ret: the callee gives a flag */
  assert_int_equal(SCAN(&scan, "\xe8\xfb\x06\x00\x00\x72\x00\xc3", NULL, 0), 0);
  assert_int_equal(ct_scan_reconcile(&scan), 0);
  assert_true(ct_targets_has(&scan.flag_results, OUTSIDE));
  ct_scan_free(&scan);
  /* with a test in between */
  assert_int_equal(SCAN(&scan, "\xe8\xfb\x06\x00\x00\x85\xc0\x72\x00\xc3", NULL, 0), 0);
  assert_int_equal(ct_scan_reconcile(&scan), 0);
  assert_false(ct_targets_has(&scan.flag_results, OUTSIDE));
  ct_scan_free(&scan);
  /* test %edi, %edi; je +5; call OUTSIDE; jc +0; ret: whose flags they are cannot be told; the call may not return */
  assert_int_equal(SCAN(&scan, "\x85\xff\x74\x05\xe8\xf7\x06\x00\x00\x72\x00\xc3", NULL, 0), 0);
  assert_int_equal(ct_scan_reconcile(&scan), 0);
  assert_int_equal(scan.flag_use_count, 1);
  assert_false(ct_targets_has(&scan.flag_results, OUTSIDE));
  ct_scan_free(&scan);
}

static void
test_targets(void **state)
{
  struct ct_scan scan;
  (void)state;
  /* je +1; nop; lea 0x10(%rip), %rax; call OUTSIDE; jmp OUTSIDE */
  SCAN(&scan, "\x74\x01\x90\x48\x8d\x05\x10\x00\x00\x00\xe8\xf1\x06\x00\x00\xe9\xec\x06\x00\x00", NULL, 0);
  assert_true(ct_targets_has(&scan.targets, FUNCTION + 3));
  assert_true(ct_targets_has(&scan.targets, FUNCTION + 10 + 0x10));
  assert_true(ct_targets_has(&scan.targets, OUTSIDE));
  assert_false(ct_targets_has(&scan.targets, FUNCTION + 2));
  assert_int_equal(scan.tail_jump_count, 1);
  assert_int_equal(scan.tail_jumps[0].function, 3);
  assert_int_equal(scan.tail_jumps[0].target, OUTSIDE);
  ct_scan_free(&scan);
  assert_int_equal(FACTS("\xeb\xfe"), CT_FACT_SELF_BRANCH);
  assert_int_equal(FACTS("\xf3\x0f\x1e\xfa\x90\xeb\xfd"), CT_FACT_SELF_BRANCH); /* after endbr64 */
}

static void
test_system_calls(void **state)
{
  (void)state;
  assert_int_equal(FACTS("\xb8\x38\x00\x00\x00\x0f\x05\xc3"), CT_FACT_CLONE);
  assert_int_equal(FACTS("\x48\xc7\xc0\xb3\x01\x00\x00\x0f\x05\xc3"), CT_FACT_CLONE); /* clone3 */
  assert_int_equal(FACTS("\xb8\x3a\x00\x00\x00\x0f\x05\xc3"), CT_FACT_VFORK);
  assert_int_equal(FACTS("\xb8\x3b\x00\x00\x00\x0f\x05\xc3"), CT_FACT_EXEC);
  assert_int_equal(FACTS("\xb8\x0f\x00\x00\x00\x0f\x05\xc3"), CT_FACT_SIGRETURN);
  assert_int_equal(FACTS("\x90\x90\x90\x90\x90\x90\xb8\x0f\x00\x00\x00\x0f\x05\xc3"), 0); /* not at its begin */
  assert_int_equal(FACTS("\x41\xb8\x3b\x00\x00\x00\x0f\x05\xc3"), 0);                     /* r8 */
  assert_int_equal(FACTS("\xb8\x27\x00\x00\x00\x0f\x05\x0f\x05\xc3"), 0);                 /* getpid */
}

static void
test_others(void **state)
{
  (void)state;
  assert_int_equal(FACTS("\xc2\x08\x00"), CT_FACT_RET_IMM);
  assert_int_equal(FACTS("\x65\x48\x8b\x04\x25\x10\x00\x00\x00\xc3"), CT_FACT_GS);
  assert_int_equal(FACTS("\x64\x48\x8b\x04\x25\x10\x00\x00\x00\xc3"), 0);
  assert_int_equal(FACTS("\x06\xc3"), CT_FACT_UNDECODED);
  assert_int_equal(FACTS("\xe8\x00"), CT_FACT_UNDECODED); /* cut by the function's end */
}

/* Code in places far apart, found by two threads' scans: nothing is lost, and nothing is there that was not added. */
static void
test_far_apart(void **state)
{
  (void)state;
  const uint64_t end = TEXT + (1ull << 36);
  const uint64_t places[] = {TEXT, TEXT + 0x5000, TEXT + (1ull << 35), end - 1};
  struct ct_scan scan, part;
  assert_int_equal(ct_scan_init(&scan, TEXT, end), 0);
  assert_int_equal(ct_scan_init(&part, TEXT, end), 0);
  for (size_t i = 0; i < 4; i++) {
    ct_targets_add(i % 2 == 0 ? &scan.targets : &part.targets, places[i]);
  }
  ct_targets_add(&scan.targets, end);
  ct_targets_add(&scan.targets, TEXT - 1);
  assert_int_equal(ct_scan_merge(&scan, &part), 0);
  assert_false(ct_targets_has(&scan.targets, TEXT - 1) || ct_targets_has(&scan.targets, end));
  for (size_t i = 0; i < 4; i++) {
    assert_true(ct_targets_has(&scan.targets, places[i]));
    assert_false(ct_targets_has(&scan.targets, places[i] + 64));
  }
  for (uint64_t before = 0; before < 130; before++) { /* in one word, over two and three, and from page to page */
    for (uint64_t after = 0; after < 130; after++) {
      uint64_t at = TEXT + 0x5000, start = at - before, stop = at + after;
      assert_int_equal(ct_targets_has_any(&scan.targets, start, stop), after != 0);
    }
  }
  assert_true(ct_targets_has_any(&scan.targets, 0, TEXT + 1));
  assert_true(ct_targets_has_any(&scan.targets, end - 9000, UINT64_MAX));
  assert_false(ct_targets_has_any(&scan.targets, 0, TEXT));
  assert_false(ct_targets_has_any(&scan.targets, end, UINT64_MAX));
  assert_false(ct_targets_has_any(&scan.targets, TEXT + 0x5001, TEXT + (1ull << 35)));
  assert_false(ct_targets_has_any(&scan.targets, TEXT + 0x5000, TEXT + 0x5000));
  assert_int_equal(scan.targets.first, 0);
  assert_int_equal(scan.targets.last, (1ull << 36) / CT_TARGETS_PAGE);
  assert_int_equal(part.targets.first, 5);
  assert_true(scan.called.first >= scan.called.last);
  ct_scan_free(&part);
  ct_scan_free(&scan);
  assert_int_equal(ct_scan_init(&scan, TEXT, end + 1), CT_EFORMAT);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ra_slot_without_cfi),
      cmocka_unit_test(test_moves_of_the_stack),
      cmocka_unit_test(test_depth_after_jumps),
      cmocka_unit_test(test_ra_slot_with_rows),
      cmocka_unit_test(test_flags),
      cmocka_unit_test(test_targets),
      cmocka_unit_test(test_far_apart),
      cmocka_unit_test(test_system_calls),
      cmocka_unit_test(test_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
