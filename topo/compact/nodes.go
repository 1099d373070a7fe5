package compact

import (
	"context"
	"sync"
)

// nodes are the nodes that run in the shared process.
type nodes struct {
	mu      sync.Mutex // guards running and its values
	running map[string]*node
}

// node is a running node.
type node struct {
	ended chan struct{} // closed when the node has ended
	// stop stops what runs for the node until its argument closes, and returns when it has stopped; nil
	// as long as the node starts.
	stop func(until <-chan struct{})
	// goOn is closed when a node that is stopped may go on; nil if it is not stopped.
	goOn chan struct{}
}

// begin waits until the node called name does not run, and notes that it runs now.
func (l *nodes) begin(ctx context.Context, name string) (*node, error) {
	for {
		l.mu.Lock()
		former := l.running[name]
		n := &node{ended: make(chan struct{})}
		if former == nil {
			l.running[name] = n
		}
		l.mu.Unlock()
		if former == nil {
			return n, nil
		}
		select {
		case <-former.ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// end notes that n, the node called name, does not run any more.
func (l *nodes) end(name string, n *node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.stop = nil
	n.release()
	delete(l.running, name)
	close(n.ended)
}

// awaitEnd returns when the node called name does not run.
func (l *nodes) awaitEnd(ctx context.Context, name string) error {
	l.mu.Lock()
	n := l.running[name]
	l.mu.Unlock()
	if n == nil {
		return nil
	}
	select {
	case <-n.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stoppable notes how a node is stopped.
func (l *nodes) stoppable(n *node, stop func(until <-chan struct{})) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.stop = stop
}

// hold stops a node, or lets it go on. It reports whether the node runs and can be stopped.
func (l *nodes) hold(name string, on bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.running[name]
	switch {
	case n == nil || n.stop == nil:
		return false
	case on && n.goOn == nil:
		n.goOn = make(chan struct{})
		n.stop(n.goOn)
	case !on:
		n.release()
	}
	return true
}

// release lets a node go on that may be stopped. The caller holds mu.
func (n *node) release() {
	if n.goOn != nil {
		close(n.goOn)
		n.goOn = nil
	}
}

// releaseFor lets n go on, because it is to end.
func (l *nodes) releaseFor(n *node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.stop = nil
	n.release()
}
