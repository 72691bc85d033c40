// SPDX-License-Identifier: MIT
// Of the library that latelib.c opens or maps: needs nothing but its text.
int late(int n);
int
late(int n)
{
  int sum = 0;
  for (int i = 0; i < n % 8; i++) {
    __asm__ volatile("" : "+r"(sum));
    sum += i;
  }
  return sum;
}
