// SPDX-License-Identifier: MIT
// 10,000 goroutines whose stacks grow, channels, locks, panics and recoveries; ends with status 3.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
)

//go:noinline
func grows(n int) int {
	var room [64]int
	room[n%64] = n
	if n == 0 {
		return room[0]
	}
	return grows(n-1) + room[n%64] - n + 1
}

//go:noinline
func throws(n int) {
	if n == 0 {
		panic("thrown")
	}
	throws(n - 1)
}

//go:noinline
func catches() (result int) {
	defer func() {
		if recover() != nil {
			result = 1
		}
	}()
	throws(10)
	return 0
}

//go:noinline
func leaf(a, b int) int {
	return a*3 + b
}

//go:noinline
func each(i int, lock *sync.Mutex, total *int, done chan int) {
	x := grows(i % 200)
	lock.Lock()
	*total += leaf(x, 0)
	lock.Unlock()
	if i%10 == 0 {
		done <- 1
	}
}

func main() {
	var group sync.WaitGroup
	var lock sync.Mutex
	done := make(chan int, 10)
	total, got, caught := 0, 0, 0
	for i := 0; i < 10000; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			each(i, &lock, &total, done)
		}(i)
	}
	for i := 0; i < 1000; i++ {
		got += <-done
	}
	group.Wait()
	runtime.GC()
	for i := 0; i < 100; i++ {
		caught += catches()
	}
	fmt.Println(total, got, caught, grows(10000))
	os.Exit(3)
}
