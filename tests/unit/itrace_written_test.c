/* SPDX-License-Identifier: MIT */
/* What system calls have written, as their numbers say, which the traced program can write over. */
#include "itrace/written.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

enum { SOON_S = 20 };

static struct ct_process
own_process(void)
{
  struct ct_process process = {.pid = getpid(), .mem_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC)};
  assert_true(process.mem_fd >= 0);
  return process;
}

static struct ct_system_call
readv_of(const struct iovec *pieces, uint64_t count, int64_t result)
{
  return (struct ct_system_call){.number = SYS_readv, .args = {0, (uint64_t)pieces, count}, .result = result};
}

static void
says_the_pieces(void **state)
{
  (void)state;
  struct ct_process process = own_process();
  struct ct_written written[CT_WRITTEN_MAX];
  char bytes[16];
  struct iovec pieces[] = {{bytes, 4}, {NULL, 0}, {bytes + 8, 8}};
  struct ct_system_call call = readv_of(pieces, 3, 6);
  assert_int_equal(ct_written_by(&process, &call, written), 2);
  assert_int_equal(written[0].size, 4);
  assert_int_equal(written[1].size, 2);
  close(process.mem_fd);
}

/* As many empty pieces as the address space holds. */
static void
looks_at_no_more_than_a_call_takes(void **state)
{
  (void)state;
  const size_t size = (size_t)1 << 40;
  struct ct_process process = own_process();
  struct ct_written written[CT_WRITTEN_MAX];
  void *pieces = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_true(pieces != MAP_FAILED);
  struct ct_system_call call = readv_of(pieces, UINT64_MAX, 1);
  alarm(SOON_S);
  assert_int_equal(ct_written_by(&process, &call, written), 0);
  alarm(0);
  munmap(pieces, size);
  close(process.mem_fd);
}

static void
marks_those_that_write(void **state)
{
  enum { COUNT = 1000 };
  (void)state;
  uint8_t bytes[COUNT + 1] = {0};
  ct_mark_writing_calls(bytes, COUNT, 3);
  for (uint64_t number = 0; number < COUNT; number++) {
    assert_int_equal(bytes[number], ct_writes_memory(number) ? 3 : 0);
  }
  assert_int_equal(bytes[SYS_read], 3);
  assert_int_equal(bytes[SYS_ioctl], 3);
  assert_int_equal(bytes[SYS_write], 0);
  assert_int_equal(bytes[COUNT], 0);
  memset(bytes, 0, sizeof(bytes));
  ct_mark_writing_calls(bytes, SYS_ioctl, 3); /* those beyond are left alone */
  assert_int_equal(bytes[SYS_read], 3);
  assert_int_equal(bytes[SYS_ioctl], 0);
}

int
main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(says_the_pieces), cmocka_unit_test(marks_those_that_write),
                                     cmocka_unit_test(looks_at_no_more_than_a_call_takes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
