// A Go loop that does not converge. The helpers are hung.h in Go.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

var freed int32
var ends [2]int

func untilFreed() {
	word := make([]byte, 1)
	syscall.Read(ends[0], word) // others
}

type solver struct{ rounds int }

func (s *solver) solve() int {
	for atomic.LoadInt32(&freed) == 0 { s.rounds = 7 } // odd
	return s.rounds
}

func main() {
	// This goroutine stays on the first thread, as in programs that call C.
	runtime.LockOSThread()
	news := make(chan os.Signal, 1)
	signal.Notify(news, syscall.SIGUSR1)
	syscall.Pipe(ends[:])
	go func() {
		<-news
		atomic.StoreInt32(&freed, 1)
		syscall.Write(ends[1], []byte("x"))
	}()
	time.AfterFunc(300*time.Second, func() { os.Exit(9) })
	fmt.Println("there")
	result := 7
	if os.Getenv("GANTRY_RANK") == "1" {
		result = (&solver{}).solve()
	} else {
		untilFreed()
	}
	fmt.Printf("result %d\n", result)
}
