// A loop of Go that does not converge. What hung.h has stands here in Go.
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
	// As programs that call C do it: this goroutine stays on the first thread.
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
