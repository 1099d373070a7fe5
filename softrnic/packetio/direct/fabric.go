package direct

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// maxTurns bounds how often one thread runs the switch and the NICs before it leaves the rest to the
// goroutine of the switch, so that the traffic of others cannot keep an application's thread.
const maxTurns = 256

// maxPorts bounds the ports of the switch.
const maxPorts = 256

// Fabric joins the NICs and the switch of one process. Its methods may be called by any goroutine.
type Fabric struct {
	// waiting is the number of frames that wait for the switch. came has a bit for each of its ports at
	// which some have come since the switch has looked.
	waiting atomic.Int64
	came    [maxPorts / 64]atomic.Uint64
	// mu is held by the thread that runs the switch. It guards round, wake, ready and spare.
	mu           sync.Mutex
	round        func()
	wake         func()
	ready, spare []*Link // links with frames for their hosts

	linksMu sync.Mutex // guards links
	links   map[string]*Link
}

// New returns a fabric without links and switch.
func New() *Fabric { return &Fabric{links: make(map[string]*Link)} }

// Link returns the link of a host. It is made by the first call.
func (f *Fabric) Link(host string) *Link {
	f.linksMu.Lock()
	defer f.linksMu.Unlock()
	l := f.links[host]
	if l == nil {
		l = f.newLink()
		f.links[host] = l
	}
	return l
}

// Switch sets the switch: round handles the frames that have arrived, and wake makes the goroutine of
// the switch call Do soon. Both are nil when the switch ends.
func (f *Fabric) Switch(round, wake func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.round, f.wake = round, wake
}

// Do runs do with exclusive use of the switch, and then carries the frames on that it has sent.
func (f *Fabric) Do(do func()) {
	f.mu.Lock()
	do()
	f.finish()
}

// Came appends to list the numbers of the switch's ports at which frames have come since the last call.
// The thread that runs the switch calls it.
func (f *Fabric) Came(list []int) []int {
	for w := range f.came {
		if f.came[w].Load() == 0 {
			continue
		}
		for set := f.came[w].Swap(0); set != 0; set &= set - 1 {
			list = append(list, w*64+bits.TrailingZeros64(set))
		}
	}
	return list
}

// arrived notes that frames have come at a port of the switch.
func (f *Fabric) arrived(port int) {
	w, bit := &f.came[port/64], uint64(1)<<(port%64)
	if w.Load()&bit == 0 {
		w.Or(bit)
	}
}

// carry carries frames on, unless another thread does so already.
func (f *Fabric) carry() {
	if f.waiting.Load() > 0 && f.mu.TryLock() {
		f.finish()
	}
}

// finish carries frames on until none waits for the switch, and gives mu back. It looks once more
// after that, because a thread that has sent frames meanwhile has left them to this one.
func (f *Fabric) finish() {
	for turns := 0; ; {
		for turns < maxTurns && f.turn() {
			turns++
		}
		wake, on := f.wake, f.round != nil
		f.mu.Unlock()
		switch {
		case !on:
			return // the frames wait for the next switch, or the end of the ports
		case turns == maxTurns:
			wake()
			return
		case f.waiting.Load() == 0 || !f.mu.TryLock():
			return
		}
	}
}

// turn runs the switch if frames wait for it, and then the NICs to which it has sent frames. It
// reports whether there was anything to do.
func (f *Fabric) turn() (busy bool) {
	if f.waiting.Load() > 0 && f.round != nil {
		f.round()
		busy = true
	}
	list := f.ready
	f.ready = f.spare[:0]
	for _, l := range list {
		l.listed = false
		if l.host.serveNIC() {
			busy = true
		}
	}
	f.spare = list
	return busy
}
