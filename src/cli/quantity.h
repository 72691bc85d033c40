/* SPDX-License-Identifier: MIT */
/* Times and sizes as users write them. */
#ifndef CT_CLI_QUANTITY_H
#define CT_CLI_QUANTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "10s", "500ms", "2m", "1h", "7d", and "10" for seconds where bare is set; more than 0. False for anything else. */
bool ct_parse_duration(const char *text, bool bare, double *seconds);
/* "64M", "512K", "2G", "1T": powers of 1024; more than 0. */
bool ct_parse_size(const char *text, uint64_t *bytes);

/* Begins with a digit and is not hexadecimal, which strtod would take, too. */
bool ct_is_decimal(const char *text);

#endif
