package scenario

import (
	"runtime"
	"sync"
)

// inOrder calls do for all items of list, on all processors. The calling goroutine hands each
// result to done, in the order of list. If ended returns true after that, inOrder returns and drops
// the other results.
func inOrder[T, R any](list []T, ended func() bool, do func(T) R, done func(T, R)) {
	workers := min(runtime.GOMAXPROCS(0), len(list))
	results := make([]chan R, workers)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range workers {
		results[w] = make(chan R, 16)
		wg.Go(func() {
			for i := w; i < len(list); i += workers {
				select {
				case <-stop:
					return
				case results[w] <- do(list[i]):
				}
			}
		})
	}
	for i := range list {
		done(list[i], <-results[i%workers])
		if ended() {
			break
		}
	}
	close(stop)
	wg.Wait()
}
