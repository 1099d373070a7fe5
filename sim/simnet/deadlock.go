package simnet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
)

// Pause frames can stop ports in a ring: each waits for frames that wait for the next one ("Deadlocks in
// Datacenter Networks", HotNets 2016). Net looks for such rings in the graph of waiting: its vertices are
// paused priorities of ports with a frame that waits, and an edge leads from one to each of those at the
// other end of its link that hold frames which came in over this link. A ring is a deadlock if no frame
// has left it for twice the longest pause: the pauses of a ring that resolves itself end before.

// waiting is a vertex of the graph.
type waiting struct {
	node NodeID
	port int
}

// way is a list of vertices, each with an edge to the next one.
type way []waiting

// ring is a ring of ports of one priority. left is how many frames had left its ports when it was found
// at the time since.
type ring struct {
	ports way
	left  uint64
	since clock.Time
}

// queued is what a Net needs for nodes with queues.
type queued struct {
	leaving packetio.Batch // the frames that leave the queues of a node
	halts   halts
}

// halts finds deadlocks.
type halts struct {
	// rings has a ring of each priority, the oldest that lasts; path is the way to the vertex that the search visits,
	// seen what it has visited before.
	rings [portqueue.Priorities]ring
	path  way
	seen  []waiting
	next  []int
	found string
}

// maxHalts bounds the vertices that one search visits.
const maxHalts = 4096

// Deadlock describes the first ring of paused ports that waits for itself for ever; "" means that there
// was none. With several such rings of one priority, the first one that a pause frame reaches is found.
func (n *Net) Deadlock() string { return n.queued.halts.found }

// watch is called when a pause frame has reached a port: only then can a ring begin. As long as
// a ring lasts, its pauses are sent again after half of their time, so that it is looked at again.
func (h *halts) watch(n *Net, id NodeID, port int) {
	if h.found != "" {
		return
	}
	for prio := range h.rings {
		h.path, h.seen = h.path[:0], h.seen[:0]
		if !h.closes(n, waiting{id, port}, waiting{id, port}, prio) {
			continue
		}
		r := &h.rings[prio]
		if !h.lasts(n, r, prio) {
			h.turn()
			*r = ring{append(r.ports[:0], h.path...), h.path.left(n, prio), n.now}
			continue
		}
		if n.now.Sub(r.since) >= 2*r.ports.longestPause(n) {
			h.found = r.describe(n, prio)
		}
	}
}

// lasts reports whether a ring is still closed and no frame has left it since it was found. As long as
// it lasts, no other ring takes its place: two rings that close in turn would hide each other.
func (h *halts) lasts(n *Net, r *ring, prio int) bool {
	if len(r.ports) == 0 || r.left != r.ports.left(n, prio) {
		return false
	}
	for i, at := range r.ports {
		to := r.ports[(i+1)%len(r.ports)]
		if _, halted := n.nodes[at.node].queues.Halted(n.now, at.port, prio); !halted {
			return false
		}
		peer := n.nodes[at.node].links[at.port].dst
		if peer.Node != to.node {
			return false
		}
		h.next = n.nodes[to.node].queues.Waits(n.now, peer.Port, prio, h.next[:0])
		if !slices.Contains(h.next, to.port) {
			return false
		}
	}
	return true
}

// turn lets the path of a ring begin at its first node: it was found from any of its ports.
func (h *halts) turn() {
	first := 0
	for i, w := range h.path {
		if f := h.path[first]; w.node < f.node || w.node == f.node && w.port < f.port {
			first = i
		}
	}
	slices.Reverse(h.path[:first])
	slices.Reverse(h.path[first:])
	slices.Reverse(h.path)
}

// closes reports whether a way leads from at, a vertex, to goal; the path has its vertices then.
func (h *halts) closes(n *Net, at, goal waiting, prio int) bool {
	q := n.nodes[at.node].queues
	if q == nil {
		return false
	}
	if _, halted := q.Halted(n.now, at.port, prio); !halted || len(h.seen) >= maxHalts {
		return false
	}
	h.path, h.seen = append(h.path, at), append(h.seen, at)
	peer := n.nodes[at.node].links[at.port].dst
	bank := n.nodes[peer.Node].queues
	if bank != nil {
		first := len(h.next)
		h.next = bank.Waits(n.now, peer.Port, prio, h.next)
		for i := first; i < len(h.next); i++ {
			to := waiting{peer.Node, h.next[i]}
			if to == goal || !slices.Contains(h.seen, to) && h.closes(n, to, goal, prio) {
				h.next = h.next[:first]
				return true
			}
		}
		h.next = h.next[:first]
	}
	h.path = h.path[:len(h.path)-1]
	return false
}

// left returns how many frames have left the ports of a ring.
func (l way) left(n *Net, prio int) (sum uint64) {
	for _, w := range l {
		left, _ := n.nodes[w.node].queues.Halted(n.now, w.port, prio)
		sum += left
	}
	return sum
}

// longestPause returns how long a pause frame stops a port of the ring at most.
func (l way) longestPause(n *Net) (d time.Duration) {
	for _, w := range l {
		c := n.nodes[w.node].queues.Config()
		d = max(d, c.Quantum(c.Quanta))
	}
	return d
}

func (r *ring) describe(n *Net, prio int) string {
	var names []string
	for _, w := range r.ports {
		names = append(names, fmt.Sprintf("%s port %d", n.nodes[w.node].name, w.port))
	}
	return fmt.Sprintf("deadlock of priority %d since %v: %s wait for each other", prio, r.since, strings.Join(names, ", "))
}
