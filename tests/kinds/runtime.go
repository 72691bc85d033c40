// SPDX-License-Identifier: MIT
// What Go's runtime does with stacks and signals: panics made of faults, collections in deep stacks, a profile, signals,
// goroutines that must be preempted, threads that end, children; then the end that the argument names.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type node struct {
	next *node
	data [16]*int
}

//go:noinline
func nilAccess(p *node) (result int) {
	defer func() {
		if recover() != nil {
			result = 1
		}
	}()
	return *p.data[3]
}

//go:noinline
func leafAccess(p *int) int { return *p }

//go:noinline
func catchesLeaf() (result int) {
	defer func() {
		if recover() != nil && len(debug.Stack()) > 0 {
			result = 1
		}
	}()
	return leafAccess(nil)
}

//go:noinline
func divide(a, b int) (result int) {
	defer func() { recover(); result++ }()
	return a / b
}

//go:noinline
func index(a []int, i int) (result int) {
	defer func() { recover(); result++ }()
	return a[i]
}

//go:noinline
func deep(n int, kept *node) int {
	var local node
	local.next = kept
	if n == 0 {
		runtime.GC()
		return 0
	}
	return deep(n-1, &local) + 1
}

// Never yields by itself.
func spins(stop chan int) {
	for x := 1; ; x++ {
		if x%1000000 == 0 {
			select {
			case <-stop:
				return
			default:
			}
		}
	}
}

func allocates(i int) {
	var list *node
	for k := 0; k < 2000; k++ {
		value := k
		list = &node{next: list}
		list.data[k%16] = &value
		if k%500 == 0 {
			list = nil
		}
	}
	deep(50, list)
	runtime.LockOSThread()
	time.Sleep(time.Millisecond)
	if i%2 == 0 {
		runtime.UnlockOSThread() // else the thread ends with the goroutine
	}
}

func main() {
	profile := &bytes.Buffer{}
	pprof.StartCPUProfile(profile)
	arrived := make(chan os.Signal, 1000)
	signal.Notify(arrived, syscall.SIGUSR1)
	var signals int64
	go func() {
		for range arrived {
			atomic.AddInt64(&signals, 1)
		}
	}()
	stop := make(chan int)
	for i := 0; i < 3; i++ {
		go spins(stop)
	}
	faults := [4]int{}
	for i := 0; i < 200; i++ {
		faults[0] += nilAccess(nil)
		faults[1] += catchesLeaf()
		faults[2] += divide(i, 0)
		faults[3] += index([]int{1, 2}, i+5)
		syscall.Kill(syscall.Getpid(), syscall.SIGUSR1)
	}
	var group sync.WaitGroup
	for i := 0; i < 50; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			allocates(i)
		}(i)
	}
	group.Wait()
	children := 0
	for i := 0; i < 20; i++ {
		out, err := exec.Command("/bin/sh", "-c", fmt.Sprintf("echo child %d", i)).Output()
		if err == nil && string(out) == fmt.Sprintf("child %d\n", i) {
			children++
		}
	}
	close(stop)
	time.Sleep(20 * time.Millisecond)
	pprof.StopCPUProfile()
	stacks := make([]byte, 1<<20)
	fmt.Println(faults, children, profile.Len() > 100, atomic.LoadInt64(&signals) > 0,
		runtime.Stack(stacks, true) > 100, deep(3000, nil))
	end := ""
	if len(os.Args) > 1 {
		end = os.Args[1]
	}
	switch end {
	case "exec":
		syscall.Exec("/proc/self/exe", []string{"again"}, os.Environ())
	case "fault":
		var p *node
		p.next = nil
	case "overflow":
		debug.SetMaxStack(1 << 20)
		deep(1<<30, nil)
	}
	os.Exit(5)
}
