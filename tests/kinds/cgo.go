// SPDX-License-Identifier: MIT
// Go calls C, which calls back into Go, from 200 goroutines.
package main

/*
#include <stdlib.h>
extern int back_to_go(int);
__attribute__((noinline)) static int c_calls(int x) { return back_to_go(x) + 1; }
__attribute__((noinline)) static int c_compare(const void *a, const void *b)
{
  return back_to_go(*(const int *)a) - back_to_go(*(const int *)b);
}
static void c_sort(int *p, int n) { qsort(p, n, sizeof(int), c_compare); }
*/
import "C"
import (
	"fmt"
	"sync"
)

//export back_to_go
func back_to_go(x C.int) C.int { return x * 2 }

//go:noinline
func callsC(i int) int {
	values := [20]C.int{}
	for k := range values {
		values[k] = C.int((k*7 + i) % 20)
	}
	C.c_sort(&values[0], 20)
	sum := int(values[0])
	for k := 0; k < 50; k++ {
		sum += int(C.c_calls(C.int(k)))
	}
	return sum
}

func main() {
	var group sync.WaitGroup
	var lock sync.Mutex
	total := 0
	for i := 0; i < 200; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			sum := callsC(i)
			lock.Lock()
			total += sum
			lock.Unlock()
		}(i)
	}
	group.Wait()
	fmt.Println(total)
}
