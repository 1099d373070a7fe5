package scenario

import (
	"runtime"
	"sync"
)

// inOrder calls do for all items of a list, on all processors. One goroutine calls done with the
// results in the order of the list. When ended returns true after a result, no further results are
// handled.
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
