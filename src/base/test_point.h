/* SPDX-License-Identifier: MIT */
/*
 * Named places in contrail's own course at which a test can stop it: with CONTRAIL_TEST_POINT=NAME in its environment
 * it stops itself (SIGSTOP) when it comes there. The test sees that, does what it likes, and continues or kills it. A
 * place that a test needs gets a line `ct_test_point("what-was-just-done")`; the names are in tests/killed.py.
 */
#ifndef CT_BASE_TEST_POINT_H
#define CT_BASE_TEST_POINT_H

void ct_test_point(const char *name);

#endif
