package clover

import (
	"fmt"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// walk notes whether the nodes that a client follows one after the other are a circle, by Brent's
// algorithm: it compares each node with one that it has marked, and marks later and later ones. A
// shortcut, or an answer of the metadata server, may lead back to a node that was passed, so one
// return to it proves nothing. The zero value is ready.
type walk struct {
	mark            layout.Location
	hops, until     int // since the mark; the number at which the next node is marked
	length, returns int // nodes of the circle, 0 if none was seen; how often the mark was met again
}

// step notes the node that the client follows next.
func (w *walk) step(at layout.Location) {
	switch w.hops++; {
	case at == w.mark && !at.IsZero():
		w.length, w.hops = w.hops, 0
		w.returns++
	case w.hops >= w.until:
		w.mark, w.hops, w.until = at, 0, 2*w.until+1
		w.length, w.returns = 0, 0
	}
}

// asked notes that the metadata server names the next node: what was followed before proves nothing.
func (w *walk) asked() { *w = walk{} }

// circleReturns is how often a client must come back to a node until its error calls the chain a
// circle.
const circleReturns = 3

// explain returns err, with the circle if the walk is on one.
func (w *walk) explain(err error) error {
	if err == nil || w.returns < circleReturns {
		return err
	}
	return fmt.Errorf("%w; the chain is a circle of %d nodes, %v is one of them", err, w.length, w.mark)
}
