/* SPDX-License-Identifier: MIT */
/*
 * What tests may ask of contrail by its environment, so that no test depends on luck or on how busy a machine is.
 *
 * Named places in contrail's own course at which a test can stop it: with CONTRAIL_TEST_POINT=NAME in its environment
 * it stops itself (SIGSTOP) when it comes there. The test sees that, does what it likes, and continues or kills it. A
 * place that a test needs gets a line `ct_test_point("what-was-just-done")`; the names are in tests/killed.py.
 *
 * Named durations, which a test makes so long that it is never late, or so short that it need not wait: in ms, from the
 * variable of that name; otherwise as it is when there is no such variable, or no number in it.
 *
 * Named numbers, likewise: limits that a test must not need a large trace for.
 */
#ifndef CT_BASE_TEST_POINT_H
#define CT_BASE_TEST_POINT_H

#include <stdint.h>

void ct_test_point(const char *name);
uint64_t ct_test_duration_ns(const char *name, uint64_t otherwise);
uint64_t ct_test_number(const char *name, uint64_t otherwise);

#endif
